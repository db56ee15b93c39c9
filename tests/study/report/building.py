"""Studies with given scores, and what is inside a page."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_training.study.records import RUNS, Record, SessionRecord, run_key
from tests.study.simulated import (
    CONFIG,
    TIME,
    ended,
    group,
    header,
    started,
    write_index,
    write_metrics,
)

Scores = Mapping[str, Mapping[str, Sequence[Any]]]
"""Last returns by label and task; text is the status of a run that has not ended."""

COMMAND = ["rl-training", "study", "run", "study.yaml"]


def study_of(
    folder: Path,
    scores: Scores,
    *,
    metric: str = "eval_return_mean",
    name: str | None = None,
    configs: Mapping[str, Mapping[str, Any]] | None = None,
    steps: Mapping[str, int] | None = None,
    points: int = 4,
) -> Path:
    """Write a study whose runs rise linearly to the given values."""
    session = SessionRecord(command=COMMAND, pid=1, host="node", time=TIME, version="0.1.0")
    records: list[Record] = [header(name or folder.name), session]
    for number, (label, tasks) in enumerate(scores.items()):
        for place, (task, values) in enumerate(tasks.items()):
            config = CONFIG | {"env_id": task} | dict((configs or {}).get(label, {}))
            folder_ = f"label{number}/task{place}"
            kept = group(label, task, range(len(values)), config, folder_)
            records.append(kept)
            for seed, value in enumerate(values):
                key = run_key(kept.folder, seed)
                last = (steps or {}).get(task, 1000)
                records += _run(folder / RUNS / key, key, value, metric, last, points)
    return write_index(folder, records)


def _run(path: Path, key: str, value: Any, metric: str, last: int, points: int) -> list[Record]:
    if value == "planned":
        return []
    final = -1000.0 if isinstance(value, str) else float(value)
    if value != "empty":
        returns = [final - 100.0 * (points - 1 - n) for n in range(points)]
        write_metrics(path, returns, metric=metric, last=last)
    if value == "running":
        return [started(key)]
    if value == "failed":
        return [started(key), ended(key, status="failed", reason="ValueError: <b>bad</b>")]
    return [started(key), ended(key)]


def page_data(page: str) -> dict[str, Any]:
    """Return the data of the charts."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def chart(page: str, name: str) -> dict[str, Any]:
    """Return one chart of a page."""
    (found,) = [chart for chart in page_data(page)["charts"] if chart["id"] == name]
    assert isinstance(found, dict)
    return found

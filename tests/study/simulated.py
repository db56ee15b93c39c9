"""Studies that were never trained: an index and, if wanted, metrics, written in milliseconds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.boundary.journal import Journal
from rl_training.study.records import (
    FORMAT,
    INDEX_FILE,
    LOCKS,
    RUNS,
    EndedRecord,
    GroupRecord,
    HeaderRecord,
    HostRecord,
    Record,
    SessionRecord,
    StartedRecord,
    run_key,
)

TIME = "2026-01-01T00:00:00Z"
CONFIG: dict[str, Any] = {
    "algo": "sac",
    "env_id": "Pendulum-v1",
    "total_timesteps": 1000,
    "algo_kwargs": {"num_threads": 1, "learning_rate": 3e-4},
}
HOST = {"hostname": "node", "cpu": "a processor", "cores": 2, "versions": {"torch": "2.13"}}


def header(name: str = "simulated") -> HeaderRecord:
    return HeaderRecord(format=FORMAT, name=name, created=TIME)


def group(
    label: str = "sac",
    task: str = "Pendulum-v1",
    seeds: Sequence[int] = (0, 1),
    config: Mapping[str, Any] = CONFIG,
    folder: str | None = None,
) -> GroupRecord:
    return GroupRecord(
        label=label,
        task=task,
        folder=folder or f"{label}/{task}",
        config=dict(config),
        seeds=list(seeds),
        resources={"cpus": 1.0, "gpus": 0.0, "memory": 0},
    )


def started(run: str, attempt: int = 1) -> StartedRecord:
    return StartedRecord(run=run, attempt=attempt, host="node", pid=1, time=TIME)


def ended(run: str, attempt: int = 1, status: str = "finished", **facts: Any) -> EndedRecord:
    facts = {"step": 1000, "seconds": 12.5} | facts
    return EndedRecord.model_validate(
        {"run": run, "attempt": attempt, "status": status, "time": TIME} | facts
    )


def write_index(study: Path, records: Iterable[Record], file: str = INDEX_FILE) -> Path:
    """Append records to an index of a study; return the study's folder."""
    (study / LOCKS).mkdir(parents=True, exist_ok=True)
    journal = Journal(study / file)
    journal.append(record.line() for record in records)
    journal.close()
    return study


def simulate_study(
    study: Path,
    *,
    labels: Sequence[str] = ("sac", "td3"),
    tasks: Sequence[str] = ("Pendulum-v1",),
    seeds: int = 3,
    points: int = 5,
    seed: int = 0,
) -> Path:
    """Write a finished study; with ``points``, each run has a ``metrics.jsonl`` of that length."""
    rng = np.random.default_rng(seed)
    session = SessionRecord(
        command=["rl-training", "study", "run"], pid=1, host="node", time=TIME, version="0.1.0"
    )
    records: list[Record] = [header(study.name), HostRecord(id="node", facts=HOST), session]
    for number, label in enumerate(labels):
        for task in tasks:
            config = CONFIG | {"algo": label, "env_id": task}
            kept = group(label, task, range(seeds), config)
            records.append(kept)
            for seed_ in range(seeds):
                key = run_key(kept.folder, seed_)
                returns = -1000.0 + 150.0 * np.arange(max(points, 1)) + 20.0 * number
                returns = returns + 30.0 * rng.standard_normal(len(returns))
                best, last = float(returns.max()), float(returns[-1])
                results = {"best_return": best, "last_return": last}
                records += [started(key), ended(key, results=results)]
                if points:
                    write_metrics(study / RUNS / key, returns)
    return write_index(study, records)


def write_metrics(
    run_dir: Path, returns: Any, *, metric: str = "eval_return_mean", last: int = 1000
) -> None:
    """Write a ``metrics.jsonl`` with evaluations at equal distances up to step ``last``."""
    run_dir.mkdir(parents=True)
    count = len(returns)
    rows = (
        {
            "step": last * (number + 1) // count,
            metric: float(value),
            "eval_return_std": 10.0,
            "eval_length_mean": 200.0,
            "time/seconds": 12.5 * (number + 1) / count,
        }
        for number, value in enumerate(returns)
    )
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (run_dir / "metrics.jsonl").write_text(lines)

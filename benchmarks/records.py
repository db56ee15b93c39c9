"""Read the records in results/, and format their numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.scores import reference_returns
from rl_training.statistics import student_band

RESULTS = Path(__file__).parent / "results"
LINKS = "../benchmarks/results"
"""The records' folder as seen from docs/results.md."""

LEFT_OUT = re.compile(r" --(?:out|runs|limit|first-core|at-once|cores|peer-cores) \S+")
"""Options of a recorded command that do not change what is measured."""


def load(name: str) -> dict[str, Any]:
    """Return a record."""
    record: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return record


def is_recorded(name: str) -> bool:
    """Return whether a record exists."""
    return (RESULTS / f"{name}.json").exists()


def number(value: float, digits: int = 0) -> str:
    """Format a number with thousands separators and a real minus sign."""
    return f"{value:,.{digits}f}".replace("-", "−")


def spread(summary: Mapping[str, float], digits: int = 0, unit: str = "") -> str:
    """Format a median with its minimum and maximum."""
    low, high = number(summary["min"], digits), number(summary["max"], digits)
    return f"{number(summary['median'], digits)}{unit} ({low}–{high})"


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return a mean and its 95% confidence interval (Student's t)."""
    mean, low, high = map(float, student_band(np.asarray(values)))
    return mean, low, high


def estimate(values: Sequence[float], digits: int = 0) -> str:
    """Format a mean with its interval, or a single value."""
    if len(values) == 1:
        return f"{number(values[0], digits)} (one seed)"
    mean, low, high = (number(value, digits) for value in interval(values))
    return f"{mean} [{low}, {high}]"


def normalized(value: float, task: str) -> float:
    """Return a return as a D4RL score: 0 is random play, 100 the expert."""
    reference = reference_returns(f"{task}-medium-v2")
    assert reference is not None, task
    return 100 * reference.normalized(value)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def source(names: Mapping[str, str] | str, command: str | None = None) -> str:
    """Return the command, commits, machines and dates of one record or several.

    Args:
        names: The name of a record, or names with the words that link to them.
        command: What to show instead of the recorded command.
    """
    linked = {names: "record"} if isinstance(names, str) else dict(names)
    records = {name: load(name) for name in linked}
    recorded = [short_command(record.get("command", "")) for record in records.values()]
    shell = command or "\n".join(dict.fromkeys(recorded))
    commits = list(
        dict.fromkeys(name for record in records.values() for name in commits_of(record))
    )
    machines = dict.fromkeys(machine(name, record) for name, record in records.items())
    dates = sorted({date[:10] for record in records.values() for date in values_of(record, "date")})
    links = [f"[{words}]({LINKS}/{name}.json)" for name, words in linked.items()]
    facts = [
        f"Commit{'s' if len(commits) > 1 else ''} {', '.join(commits)}",
        *filter(None, machines),
        ", ".join(dates),
        ", ".join(links),
    ]
    return f"```bash\n{shell}\n```\n\n{'; '.join(facts)}."


def values_of(record: Any, key: str) -> list[str]:
    """Return all values of a key, also of nested entries."""
    if isinstance(record, list):
        return [value for entry in record for value in values_of(entry, key)]
    if not isinstance(record, dict):
        return []
    own = [record[key]] if isinstance(record.get(key), str) else []
    return own + [value for entry in record.values() for value in values_of(entry, key)]


def commits_of(record: Mapping[str, Any]) -> list[str]:
    """Return a record's commits; a run may have another one than the record."""
    return [commit(name) for name in values_of(record, "commit")]


def short_command(command: str) -> str:
    """Return a recorded command without the options that do not change what is measured."""
    return LEFT_OUT.sub("", command)


def commit(name: str) -> str:
    """Return a short commit; uncommitted changes are mentioned."""
    short, _, dirty = name.partition("-")
    return f"{short[:7]}{' with uncommitted changes' if dirty else ''}"


def machine(name: str, record: Mapping[str, Any]) -> str:
    """Return a description of the machine of a record; names that end in ``gpu`` mean the H200."""
    if "cpu" in record:
        return f"{record['cpu']}, {record['cores']} cores"
    found = dict.fromkeys(
        part for whole in values_of(record, "machine") for part in whole.split("; ")
    )
    text = " and ".join(found)
    for old, new in MACHINE_WORDS.items():
        text = text.replace(old, new)
    return f"NVIDIA H200 with {text}" if name.endswith("gpu") else text


MACHINE_WORDS = {
    "(R)": "",
    " Processor": "",
    " and NVIDIA H200": "",
    " (16 cores), CPU only and ours one core a seed": ", 16 cores (one per seed",
    ", Stable-Baselines3 three cores a seed": ", three for Stable-Baselines3)",
}
"""Words of the records, and how the page writes them."""

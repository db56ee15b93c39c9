"""Facts that every record contains: command, commit, machine, date and versions."""

import os
import shlex
import statistics
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rl_training.experiment.build import versions
from rl_training.experiment.machine import cpu_name

ROOT = Path(__file__).resolve().parents[1]


def spread(values: list[float]) -> dict[str, float]:
    """Return the median, minimum and maximum."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def commit() -> str:
    """Return the measured commit; ``-dirty`` marks uncommitted changes."""
    if "RL_TRAINING_COMMIT" in os.environ:
        return os.environ["RL_TRAINING_COMMIT"]
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    return done.stdout.strip() or "unknown"


def describe() -> dict[str, Any]:
    """Return the command, commit, machine, date and versions of a measurement."""
    return {
        "command": shlex.join(
            ["python", "-m", f"benchmarks.{Path(sys.argv[0]).stem}", *sys.argv[1:]]
        ),
        "commit": commit(),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "machine": f"{cpu_name()}, {os.cpu_count()} cores",
        "versions": versions(),
    }

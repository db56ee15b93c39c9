"""Facts that every record contains: command, commit, machine, date and versions."""

import os
import platform
import shlex
import statistics
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rl_training.experiment.build import versions

ROOT = Path(__file__).resolve().parents[1]


def spread(values: list[float]) -> dict[str, float]:
    """Return the median, minimum and maximum."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def cpu_name() -> str:
    """Return the processor's name and number of cores."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores"


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
        "machine": cpu_name(),
        "versions": versions(),
    }

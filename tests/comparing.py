"""Compare runs: every file of a checkpoint, and every metric except timings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rl_training.runtime.callbacks import Callback
from rl_training.runtime.logging import TIMING_PREFIX, read_metrics
from rl_training.runtime.session import Session


class CrashError(Exception):
    """Simulates a kill: nothing is saved afterwards."""


class CrashAt(Callback):
    """Raises CrashError after a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, session: Session) -> None:
        if session.state.step >= self.step:
            raise CrashError


def checkpoint_files(checkpoint: Path) -> dict[str, bytes]:
    """Return the files of a checkpoint, including its replay."""
    files = {file.name: file.read_bytes() for file in checkpoint.iterdir() if file.is_file()}
    replay = checkpoint.parent.parent / "replay"
    return files | {f"replay/{file.name}": b"" for file in replay.glob("*.npy")}


def untimed_metrics(run_dir: Path) -> list[dict[str, Any]]:
    """Return the metrics without timings."""
    return [
        {key: value for key, value in row.items() if not key.startswith(TIMING_PREFIX)}
        for row in read_metrics(run_dir)
    ]


def assert_same_run(first: Any, second: Any) -> None:
    """Check that the last checkpoint and all metrics are equal, bit for bit."""
    one, two = checkpoint_files(first.checkpoint_path), checkpoint_files(second.checkpoint_path)
    core = {name for name in one if not name.startswith("replay/")}
    assert core == {name for name in two if not name.startswith("replay/")}
    for name in sorted(core):
        assert one[name] == two[name], f"{name} differs"
    assert untimed_metrics(first.run_dir) == untimed_metrics(second.run_dir)

"""Power failures: everything that a checkpoint depends on is synced before it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from rl_training.api.finetuning import finetune
from rl_training.api.training import resume, train
from rl_training.runtime.checkpointing import list_steps
from tests.faults.runs import config_for


class Witness:
    """Records what `os.fsync` made durable when a checkpoint is renamed.

    Files are durable up to their length at the last sync, and names if their folder was synced.
    """

    def __init__(self) -> None:
        self.checked: list[tuple[str, int]] = []
        """Checkpoints with the number of metrics lines that were durable before them."""
        self._lengths: dict[int, int] = {}
        self._names: dict[int, dict[str, int]] = {}
        self._fsync, self._rename = os.fsync, os.rename

    def fsync(self, descriptor: int) -> None:
        self._fsync(descriptor)
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            with os.scandir(descriptor) as entries:
                self._names[found.st_ino] = {entry.name: entry.inode() for entry in entries}
        else:
            self._lengths[found.st_ino] = found.st_size

    def rename(self, source: Path, target: Path) -> None:
        name = Path(target).name
        if name.startswith("step_"):
            self._check(Path(target).parents[1], name)
        self._rename(source, target)

    def _check(self, run_dir: Path, name: str) -> None:
        metrics = run_dir / "metrics.jsonl"
        lines = metrics.read_bytes().splitlines() if metrics.exists() else []
        if lines:
            found = metrics.stat()
            assert self._lengths.get(found.st_ino) == found.st_size, f"lines before {name}"
            names = self._names.get(run_dir.stat().st_ino, {})
            assert names.get(metrics.name) == found.st_ino, f"the name of {metrics}"
        self.checked.append((name, len(lines)))


@pytest.fixture
def witness() -> Iterator[Witness]:
    found = Witness()
    with (
        mock.patch.object(os, "fsync", found.fsync),
        mock.patch.object(os, "rename", found.rename),
    ):
        yield found


def _checked_after(witness: Witness, lines: int) -> int:
    """Return the number of checkpoints with at least this many durable lines."""
    number = sum(found >= lines for _, found in witness.checked)
    witness.checked.clear()
    return number


def test_metrics_are_synced_before_checkpoints(witness: Witness, tmp_path: Path) -> None:
    source = train(config_for(tmp_path, total_timesteps=100))
    assert _checked_after(witness, 1) >= 4
    resume(source.run_dir, ["total_timesteps=150"])
    assert _checked_after(witness, 5) >= 2
    branch = resume(list_steps(source.run_dir)[-2], ["total_timesteps=175"])
    assert branch.run_dir != source.run_dir
    assert _checked_after(witness, 5) >= 2
    tuned = finetune(source.run_dir, None, ["total_timesteps=50", "learning_starts=10"])
    assert tuned.run_dir != source.run_dir
    assert _checked_after(witness, 7) >= 3

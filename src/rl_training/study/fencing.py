"""Fences: a run that was given to another worker is not written by the earlier one any more.

Every attempt of a cluster's executor has an epoch, a random text that is written to a file next to
the run's lock. A worker whose epoch is not in that file any more exits without writing anything.
Leases (`study/lease.py`) already kill a worker that cannot be reached. Fences are for clocks that
stand still, such as those of a virtual machine that was paused.
"""

from __future__ import annotations

import os
import time

from rl_training.boundary.locking import is_held
from rl_training.boundary.reading import read_text
from rl_training.boundary.writing import write_atomically
from rl_training.errors import ConfigError
from rl_training.experiment.run_directory import LOCK_FILE
from rl_training.study.jobs import Job

CHECK_SECONDS = 1.0
"""Time between two looks at the epoch."""
FENCED_EXIT = 75
"""Exit code of a worker whose run was given to another one."""


def set_epoch(job: Job) -> None:
    """Give a run to the worker of a job, and take it from any earlier one."""
    assert job.epoch is not None
    job.epoch_file.parent.mkdir(exist_ok=True)
    write_atomically(job.epoch_file, job.epoch.encode())


def fence(job: Job, *, holds_locks: bool) -> None:
    """Take a run from a worker that is lost, and remove the locks that it holds.

    The file system may hold the locks of a machine that is gone for a long time.
    """
    job.epoch_file.unlink(missing_ok=True)
    if not holds_locks:
        return
    for lock in (job.lock, job.run_dir / LOCK_FILE):
        if is_held(lock):
            lock.unlink(missing_ok=True)


class Fence:
    """The view of a worker: whether the run is still its own."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._next = 0.0

    def begin(self) -> None:
        """Take the run from an earlier worker, or exit if another one has it now.

        The caller holds the run's lock. A job without an epoch is on the machine of its
        coordinator, whose locks are enough.
        """
        if self._job.epoch is None:
            self._job.epoch_file.unlink(missing_ok=True)
        self.check()

    def check(self, *, every: float = 0.0) -> None:
        """Exit at once if the run was given to another worker.

        With ``every``, nothing is read if the last look is not that many seconds old.
        """
        now = time.monotonic()
        if self._job.epoch is None or now < self._next:
            return
        self._next = now + every
        if not self._is_own():
            os._exit(FENCED_EXIT)  # an exception would end in a last write to the run

    def _is_own(self) -> bool:
        try:
            return read_text(self._job.epoch_file, limit=200) == self._job.epoch
        except ConfigError:
            return False

    def end(self) -> None:
        """Remove the file of a run that has ended."""
        self._job.epoch_file.unlink(missing_ok=True)

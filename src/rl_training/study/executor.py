"""The interface of executors, which train the runs of a study somewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from rl_training.runtime.stop_reason import StopReason
from rl_training.study.jobs import Event, Job
from rl_training.study.resources import Resources


class Executor(Protocol):
    """Trains jobs in other processes, on this machine or elsewhere.

    An executor decides when and where a job fits. It calls `study/worker.py:train_job` there, and
    passes its events on. The last event of a job is always an `Ended` or a `Busy`, even if its
    worker dies. An executor does not retry, and writes nothing to the study's folder itself.
    """

    def prepare(self, study: Path) -> None:
        """Get ready to train runs in the folder of a study, which exists.

        Raises:
            ConfigError: Workers cannot use this folder.
        """

    def check(self, need: Resources, what: str) -> None:
        """Raise a ConfigError if a job with these needs would never fit."""

    def at_once(self, need: Resources) -> int:
        """Return how many jobs with these needs fit at the same time."""

    def submit(self, job: Job) -> bool:
        """Start a job if there is room for it now; return whether it was started."""

    def wait(self, seconds: float) -> Sequence[Event]:
        """Return the events since the last call; wait for the first one for up to ``seconds``."""

    def stop(self, reason: StopReason, key: str | None = None) -> None:
        """Request that one job or all jobs save a checkpoint and end."""

    def kill(self) -> None:
        """End all jobs immediately, without a checkpoint."""

    def release(self) -> None:
        """Give back what is held for further jobs; called at the end of a session."""

    def close(self) -> None:
        """End everything that the executor has started."""

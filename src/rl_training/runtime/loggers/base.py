"""The interface of loggers, and a guard that keeps their failures away from training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rl_training.text import error_text

Frames = npt.NDArray[np.uint8]
"""Frames of an episode: [frames, height, width, 3]."""


@dataclass(frozen=True)
class LoggedRun:
    """What a logger needs to know about a run when it starts."""

    run_dir: Path
    settings: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    """The config, with nested keys joined by dots."""
    tags: Sequence[str] = ()
    start_step: int = 0
    """Step of the checkpoint from which the run continues."""


class Logger:
    """A destination of metrics. Any method may raise: the run continues without the logger."""

    name: str
    """Name of the destination in warnings."""

    def start(self, run: LoggedRun) -> None:
        """Open files or connections; called before the first step."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one line of metrics."""

    def write_evaluation(self, step: int, returns: Sequence[float]) -> None:
        """Write the returns of the episodes of an evaluation."""

    def write_video(self, step: int, frames: Frames, frames_per_second: float) -> None:
        """Write an animation of evaluation episodes."""

    def close(self, outcome: str) -> None:
        """Close files and connections; ``outcome`` is the final state of the run."""


class GuardedLogger:
    """Calls a logger until it fails. It then warns once, and training continues without it."""

    def __init__(self, logger: Logger, warn: Callable[[str], None]) -> None:
        self._logger: Logger | None = logger
        self._name = logger.name
        self._warn = warn

    def __call__(self, method: str, *arguments: Any) -> None:
        """Call a method of the logger by its name."""
        if self._logger is None:
            return
        try:
            getattr(self._logger, method)(*arguments)
        except Exception as error:  # clients and file systems may raise anything
            self._logger = None
            self._warn(
                f"logging to {self._name} failed ({error_text(error)}). Training continues "
                "without it."
            )

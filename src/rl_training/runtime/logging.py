"""Metrics on disk, one JSON object per line, and other loggers."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from io import FileIO
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rl_training.boundary.reading import read_lines
from rl_training.boundary.writing import (
    open_log,
    replace_file,
    report_failed_writes,
    sync_folder,
    write_all,
)
from rl_training.runtime.loggers.base import Frames, GuardedLogger, LoggedRun, Logger

METRICS_FILE = "metrics.jsonl"
TIMING_PREFIX = "time/"


def read_metrics(run_dir: Path, metric: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the metrics of a run, oldest first; incomplete and damaged lines are skipped.

    Rows are read one at a time, since the file may be larger than memory. With ``metric``, lines
    that do not mention its name are not parsed.
    """
    file = run_dir / METRICS_FILE
    if not os.path.lexists(file):
        return
    name = b"" if metric is None else json.dumps(metric).encode()
    for line in read_lines(file):
        if name not in line:
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict) and isinstance(row.get("step"), int) and _all_numbers(row):
            yield row


def _all_numbers(row: dict[str, Any]) -> bool:
    """Return whether all values are numbers that fit into a float."""
    return all(
        isinstance(value, float) or (isinstance(value, int) and abs(value) < 1 << 63)
        for value in row.values()
    )


def cut_metrics(
    run_dir: Path, step: int, destination: Path | None = None, *, rows: int | None = None
) -> None:
    """Drop the lines after ``step``, so that a resumed run does not write them twice.

    For the step itself, the first ``rows`` lines are kept, or all if it is None.
    """
    at_step = 0
    with replace_file((destination or run_dir) / METRICS_FILE) as stream:
        for row in read_metrics(run_dir):
            at_step += row["step"] == step
            if row["step"] < step or (row["step"] == step and (rows is None or at_step <= rows)):
                stream.write((json.dumps(row) + "\n").encode())


class MetricsLogger:
    """Appends rows to ``metrics.jsonl``, and passes them to other loggers.

    A failed write to ``metrics.jsonl`` ends the run, since a checkpoint depends on the lines before
    it. Any other logger may fail.
    """

    def __init__(
        self,
        run_dir: Path,
        *,
        loggers: Sequence[Logger] = (),
        settings: Mapping[str, bool | int | float | str] = MappingProxyType({}),
        tags: Sequence[str] = (),
        start_step: int = 0,
        on_warning: Callable[[str], None] = warnings.warn,
    ) -> None:
        """Read the lines of earlier sessions; ``settings`` and ``tags`` describe the run."""
        self.run_dir = run_dir
        """Folder of the run; may change until the first write opens the files."""
        self.outcome = "failed"
        """State in which the run ended, for the loggers."""
        self._start_step = start_step
        self._earlier_seconds, self._step, self._rows = 0.0, start_step, 0
        for row in read_metrics(run_dir):
            self._earlier_seconds = float(row.get("time/seconds", self._earlier_seconds))
            self._rows = self.rows_at(row["step"]) + 1
            self._step = row["step"]
        self._began = time.perf_counter()
        self._loggers = [GuardedLogger(logger, on_warning) for logger in loggers]
        self._settings, self._tags = settings, tags
        self._stream: FileIO | None = None
        self._folder_is_synced = False

    def open_files(self) -> FileIO:
        """Open the files; called before the first step to detect problems early."""
        if self._stream is None:
            with self._report_errors():
                self._stream = open_log(self.run_dir / METRICS_FILE)
            self._pass_on(
                "start", LoggedRun(self.run_dir, self._settings, self._tags, self._start_step)
            )
        return self._stream

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one line for a step."""
        seconds = self._earlier_seconds + time.perf_counter() - self._began
        timed = {**metrics, "time/seconds": round(seconds, 3)}
        stream = self.open_files()
        with self._report_errors():
            write_all(stream, (json.dumps({"step": step, **timed}) + "\n").encode())
        self._rows = self.rows_at(step) + 1
        self._step = step
        self._pass_on("write", step, timed)

    def write_evaluation(self, step: int, returns: Sequence[float]) -> None:
        """Pass the returns of an evaluation's episodes to the loggers."""
        self._pass_on("write_evaluation", step, returns)

    def write_video(self, step: int, frames: Frames, frames_per_second: float) -> None:
        """Pass an animation of evaluation episodes to the loggers."""
        self._pass_on("write_video", step, frames, frames_per_second)

    def _pass_on(self, method: str, *arguments: Any) -> None:
        for logger in self._loggers:
            logger(method, *arguments)

    def sync(self) -> None:
        """Sync all lines to disk, before a checkpoint that depends on them.

        Raises:
            OSError: The disk failed.
        """
        if self._stream is not None:
            os.fsync(self._stream.fileno())
            if not self._folder_is_synced:  # the file itself may be new
                sync_folder(self.run_dir)
                self._folder_is_synced = True

    def rows_at(self, step: int) -> int:
        """Return the number of lines of the current step; 0 if ``step`` is another one."""
        return self._rows if step == self._step else 0

    def _report_errors(self) -> AbstractContextManager[None]:
        return report_failed_writes(self.run_dir / METRICS_FILE, self.run_dir)

    def close(self) -> None:
        """Close the files and the loggers."""
        if self._stream is not None:
            self._stream.close()
            self._pass_on("close", self.outcome)

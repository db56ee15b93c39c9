"""Metrics on disk: one JSON object per line, and TensorBoard event files."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.boundary.reading import read_lines
from rl_training.boundary.writing import (
    open_log,
    replace_file,
    report_failed_writes,
    sync_folder,
    write_all,
)

if TYPE_CHECKING:
    from rl_training.runtime.event_file import EventFile

METRICS_FILE = "metrics.jsonl"
TENSORBOARD = "tensorboard"
TIMING_PREFIX = "time/"


def read_metrics(run_dir: Path) -> Iterator[dict[str, Any]]:
    """Yield the metrics of a run, oldest first; incomplete and damaged lines are skipped.

    Rows are read one at a time, since the file may be larger than memory.
    """
    file = run_dir / METRICS_FILE
    if not os.path.lexists(file):
        return
    for line in read_lines(file):
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
    """Appends rows to ``metrics.jsonl`` and scalars to TensorBoard."""

    def __init__(self, run_dir: Path, *, tensorboard: bool, start_step: int = 0) -> None:
        self.run_dir = run_dir
        """Folder of the run; may change until the first write opens the files."""
        self._start_step = start_step
        self._earlier_seconds, self._step, self._rows = 0.0, start_step, 0
        for row in read_metrics(run_dir):
            self._earlier_seconds = float(row.get("time/seconds", self._earlier_seconds))
            self._rows = self.rows_at(row["step"]) + 1
            self._step = row["step"]
        self._began = time.perf_counter()
        self._tensorboard = tensorboard
        self._stream: FileIO | None = None
        self._events: EventFile | None = None
        self._folder_is_synced = False

    def open_files(self) -> FileIO:
        """Open the files; called before the first step to detect problems early.

        Raises:
            ConfigError: The TensorBoard folder is not a folder or cannot be written.
        """
        if self._stream is None:
            with self._report_errors(METRICS_FILE):
                self._stream = open_log(self.run_dir / METRICS_FILE)
            if self._tensorboard:
                from rl_training.runtime.event_file import EventFile

                first = self._start_step + 1 if self._start_step else None
                self._events = EventFile(self.run_dir / TENSORBOARD, purge_from=first)
        return self._stream

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one line for a step."""
        seconds = self._earlier_seconds + time.perf_counter() - self._began
        row = {"step": step, **metrics, "time/seconds": round(seconds, 3)}
        stream = self.open_files()
        with self._report_errors(METRICS_FILE):
            write_all(stream, (json.dumps(row) + "\n").encode())
        self._rows = self.rows_at(step) + 1
        self._step = step
        if self._events is not None:
            with self._report_errors(TENSORBOARD):
                self._events.write(step, metrics)

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

    def _report_errors(self, name: str) -> AbstractContextManager[None]:
        return report_failed_writes(self.run_dir / name, self.run_dir)

    def close(self) -> None:
        """Close the files."""
        for stream in (self._stream, self._events):
            if stream is not None:
                stream.close()

"""Metrics on disk: one JSON object a line, always; TensorBoard, by default."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rl_training.boundary.reading import read_lines
from rl_training.boundary.writing import replace_file
from rl_training.errors import TrainingError

METRICS_FILE = "metrics.jsonl"
TIMING_PREFIX = "time/"


def read_metrics(run_dir: Path) -> list[dict[str, Any]]:
    """The run's metrics, oldest first; a line that a kill tore or that is damaged is left out."""
    return list(iterate_metrics(run_dir))


def iterate_metrics(run_dir: Path) -> Iterator[dict[str, Any]]:
    """The same one row at a time: the file may be larger than memory."""
    file = run_dir / METRICS_FILE
    if not os.path.lexists(file):
        return
    for line in read_lines(file):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict) and isinstance(row.get("step"), int) and _is_sound(row):
            yield row


def _is_sound(row: dict[str, Any]) -> bool:
    """Whether all values are numbers that fit into a float."""
    return all(
        isinstance(value, float) or (isinstance(value, int) and abs(value) < 1 << 63)
        for value in row.values()
    )


def cut_metrics(
    run_dir: Path, step: int, destination: Path | None = None, *, rows: int | None = None
) -> None:
    """Drop the lines after ``step``, so that a continued run writes none twice.

    Of the step itself the first ``rows`` stay, or all: a checkpoint may owe an evaluation there.
    """
    at_step = 0
    with replace_file((destination or run_dir) / METRICS_FILE) as stream:
        for row in iterate_metrics(run_dir):
            at_step += row["step"] == step
            if row["step"] < step or (row["step"] == step and (rows is None or at_step <= rows)):
                stream.write((json.dumps(row) + "\n").encode())


class MetricsLogger:
    """Appends rows to ``metrics.jsonl`` and scalars to TensorBoard."""

    def __init__(self, run_dir: Path, *, tensorboard: bool, start_step: int = 0) -> None:
        self._offset, self._step, self._rows = 0.0, start_step, 0
        for row in iterate_metrics(run_dir):
            self._offset = float(row.get("time/seconds", self._offset))
            self._rows = self.rows_at(row["step"]) + 1
            self._step = row["step"]
        self._began = time.perf_counter()
        self._file = run_dir / METRICS_FILE
        try:
            # Unbuffered: what could not be written must not come up again when it is closed.
            self._stream = self._file.open("ab", buffering=0)
        except OSError as error:
            raise self._failure(error) from error
        self._writer: Any = None
        if tensorboard:
            from torch.utils.tensorboard.writer import SummaryWriter

            self._writer = SummaryWriter(
                str(run_dir / "tensorboard"), purge_step=start_step + 1 if start_step else None
            )

    def elapsed(self) -> float:
        """Seconds of training so far, earlier sessions of the run included."""
        return self._offset + time.perf_counter() - self._began

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """One line for one step."""
        row = {"step": step, **metrics, "time/seconds": round(self.elapsed(), 3)}
        data = memoryview((json.dumps(row) + "\n").encode())
        try:
            while data:
                data = data[self._stream.write(data) :]
        except OSError as error:
            raise self._failure(error) from error
        self._rows = self.rows_at(step) + 1
        self._step = step
        if self._writer is not None:
            self._write_scalars(step, metrics)

    def rows_at(self, step: int) -> int:
        """Lines of the present step, ``step``."""
        return self._rows if step == self._step else 0

    def _write_scalars(self, step: int, metrics: Mapping[str, float]) -> None:
        try:
            for name, value in metrics.items():
                self._writer.add_scalar(name, value, step)
        except OSError as error:
            self._writer = None  # its close would only fail again
            raise TrainingError(
                f"{self._file.parent / 'tensorboard'} could not be written ({error}): make room, "
                "then resume"
            ) from error

    def _failure(self, error: OSError) -> TrainingError:
        return TrainingError(f"{self._file} could not be written ({error}): make room, then resume")

    def close(self) -> None:
        """Flush and close."""
        self._stream.close()
        if self._writer is not None:
            try:
                self._writer.close()
            except OSError as error:  # no reason to hide how the training itself ended
                warnings.warn(f"TensorBoard's last lines are lost: {error}", stacklevel=2)

"""Metrics on disk: one JSON object a line, always; TensorBoard, by default."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl_training.boundary.writing import write_atomically
from rl_training.errors import TrainingError

METRICS_FILE = "metrics.jsonl"
TIMING_PREFIX = "time/"


def read_metrics(run_dir: Path) -> list[dict[str, Any]]:
    """The run's metrics, oldest first; a line that a kill tore or that is damaged is left out."""
    file = run_dir / METRICS_FILE
    rows: list[dict[str, Any]] = []
    for line in file.read_text(errors="replace").splitlines() if file.is_file() else []:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict) and isinstance(row.get("step"), int) and _is_sound(row):
            rows.append(row)
    return rows


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
    found = read_metrics(run_dir)
    kept = [row for row in found if row["step"] < step]
    kept += [row for row in found if row["step"] == step][:rows]
    text = "".join(json.dumps(row) + "\n" for row in kept)
    write_atomically((destination or run_dir) / METRICS_FILE, text.encode())


class MetricsLogger:
    """Appends rows to ``metrics.jsonl`` and scalars to TensorBoard."""

    def __init__(self, run_dir: Path, *, tensorboard: bool, start_step: int = 0) -> None:
        previous = read_metrics(run_dir)
        seconds = [row["time/seconds"] for row in previous if "time/seconds" in row]
        self._offset = float(seconds[-1]) if seconds else 0.0
        self._step = previous[-1]["step"] if previous else start_step
        self._rows = sum(row["step"] == self._step for row in previous)
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

"""Metrics on disk: one JSON object a line, always; TensorBoard, by default."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl_training.runtime.checkpointing import write_atomically

METRICS_FILE = "metrics.jsonl"
TIMING_PREFIX = "time/"


def read_metrics(run_dir: Path) -> list[dict[str, Any]]:
    """The run's metrics, oldest first; a line torn by a kill is left out."""
    file = run_dir / METRICS_FILE
    rows: list[dict[str, Any]] = []
    for line in file.read_text(errors="replace").splitlines() if file.exists() else []:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and isinstance(row.get("step"), int):
            rows.append(row)
    return rows


def cut_metrics(run_dir: Path, step: int, destination: Path | None = None) -> None:
    """Drop the lines after ``step``, so that a continued run writes none twice."""
    kept = [row for row in read_metrics(run_dir) if row["step"] <= step]
    text = "".join(json.dumps(row) + "\n" for row in kept)
    write_atomically((destination or run_dir) / METRICS_FILE, text.encode())


class MetricsLogger:
    """Appends rows to ``metrics.jsonl`` and scalars to TensorBoard."""

    def __init__(self, run_dir: Path, *, tensorboard: bool, start_step: int = 0) -> None:
        previous = read_metrics(run_dir)
        seconds = [row["time/seconds"] for row in previous if "time/seconds" in row]
        self._offset = float(seconds[-1]) if seconds else 0.0
        self._began = time.perf_counter()
        self._stream = (run_dir / METRICS_FILE).open("a", encoding="utf-8")
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
        self._stream.write(json.dumps(row) + "\n")
        self._stream.flush()
        if self._writer is not None:
            for name, value in metrics.items():
                self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush and close."""
        self._stream.close()
        if self._writer is not None:
            self._writer.close()

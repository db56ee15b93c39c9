"""Metrics as a table, derived from ``metrics.jsonl``."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from rl_training.boundary.writing import open_log, replace_file, write_all
from rl_training.runtime.loggers.base import LoggedRun, Logger

CSV_FILE = "metrics.csv"

Rows = Callable[[Path], Iterable[Mapping[str, Any]]]


class CSVLogger(Logger):
    """Appends to ``metrics.csv``; a metric that is new adds a column and rewrites the file."""

    name = CSV_FILE

    def __init__(self, read_rows: Rows) -> None:
        """``read_rows`` returns all lines of metrics of a run folder so far."""
        self._read_rows = read_rows
        self._columns: list[str] = []

    def start(self, run: LoggedRun) -> None:
        """Write the metrics of earlier sessions."""
        self._run_dir = run.run_dir
        self._rewrite()

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append one line, which is already part of the metrics file."""
        row = {"step": step, **metrics}
        if not row.keys() <= set(self._columns):
            self._rewrite()
            return
        with open_log(self._run_dir / CSV_FILE) as stream:
            write_all(stream, self._line([row.get(name, "") for name in self._columns]))

    def _rewrite(self) -> None:
        names = dict.fromkeys(name for row in self._read_rows(self._run_dir) for name in row)
        self._columns = list(names)
        with replace_file(self._run_dir / CSV_FILE) as stream:
            if self._columns:
                stream.write(self._line(self._columns))
            for row in self._read_rows(self._run_dir):
                stream.write(self._line([row.get(name, "") for name in self._columns]))

    @staticmethod
    def _line(values: list[Any]) -> bytes:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(values)
        return text.getvalue().encode()

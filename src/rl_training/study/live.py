"""What a running session shows, so that other commands can show it too (`study attach`).

Every session writes its messages and the progress of its runs to two hidden files in the study's
folder ``logs``. Nothing depends on them: they are never read by a session, and a failed write only
ends the view of others.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from rl_training.boundary.reading import open_file, read_json
from rl_training.boundary.writing import open_log, write_all, write_atomically
from rl_training.errors import ConfigError
from rl_training.study.coordinator import StudyState
from rl_training.study.folder import Shard
from rl_training.study.index import StudyRun
from rl_training.study.jobs import Progress
from rl_training.study.records import LOGS
from rl_training.text import one_line

WRITE_SECONDS = 2.0
"""Time between two writes of the progress."""


def messages_file(study: Path, shard: Shard | None) -> Path:
    """Return the file with the messages of a session."""
    return study / LOGS / f".messages{_suffix(shard)}.log"


def progress_file(study: Path, shard: Shard | None) -> Path:
    """Return the file with the progress of the runs of a session."""
    return study / LOGS / f".progress{_suffix(shard)}.json"


def _suffix(shard: Shard | None) -> str:
    return "" if shard is None else f"-{shard.number}-of-{shard.count}"


class LiveView:
    """A watcher that writes what happens for other commands."""

    def __init__(self, study: Path, shard: Shard | None) -> None:
        """Create a watcher; the folder of the study must exist before the first message."""
        self._messages = messages_file(study, shard)
        self._progress = progress_file(study, shard)
        self._next = 0.0
        self._has_failed = False

    def message(self, text: str) -> None:
        """Append a line."""
        self._write(lambda: self._append(text))

    def changed(self, state: StudyState) -> None:
        """Write the progress from time to time."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + WRITE_SECONDS
            self._write(lambda: write_atomically(self._progress, _encoded(state)))

    def evaluated(self, run: StudyRun, step: int, metrics: Mapping[str, float]) -> None:
        """Do nothing: the progress has the returns."""

    def close(self) -> None:
        """Remove the progress, which is not true any more."""
        if self._next:  # else the file belongs to another session
            self._write(lambda: self._progress.unlink(missing_ok=True))

    def _append(self, text: str) -> None:
        with open_log(self._messages) as stream:
            write_all(stream, f"{one_line(text)}\n".encode())

    def _write(self, write: Any) -> None:
        if self._has_failed:
            return
        try:
            self._messages.parent.mkdir(exist_ok=True)
            write()
        except OSError:  # such as a full disk, which the session itself reports
            self._has_failed = True


def _encoded(state: StudyState) -> bytes:
    active = {key: None if p is None else asdict(p) for key, p in state.active.items()}
    return json.dumps({"more": state.more, "active": active}).encode()


def read_progress(study: Path) -> tuple[dict[str, Progress | None], int]:
    """Return the progress of all running runs, and the number of runs that may still be added."""
    active, more = dict[str, Progress | None](), 0
    for file in sorted((study / LOGS).glob(".progress*.json")):
        try:
            data = read_json(file)
        except ConfigError:  # it was just removed
            continue
        if not isinstance(data, dict) or not isinstance(data.get("active"), dict):
            continue
        more += data["more"] if isinstance(data.get("more"), int) else 0
        active |= {str(key): _progress(str(key), found) for key, found in data["active"].items()}
    return active, more


def _progress(key: str, data: Any) -> Progress | None:
    """Return a report of progress; None for one that another version has written."""
    names = {item.name for item in fields(Progress)}
    if not isinstance(data, dict) or not {"done", "total", "unit"} <= data.keys() <= names:
        return None
    if not all(isinstance(data[name], int) for name in ("done", "total")):
        return None
    values = {**data, "key": key, "results": tuple(map(str, data.get("results", ())))}
    return Progress(**values)


class MessageReader:
    """Reads the messages that sessions append."""

    def __init__(self, study: Path) -> None:
        """Start at the end of the messages that exist now."""
        self._study = study
        self._positions = {file: file.stat().st_size for file in self._files()}

    def _files(self) -> list[Path]:
        return sorted((self._study / LOGS).glob(".messages*.log"))

    def new_lines(self) -> list[str]:
        """Return the complete lines since the last call."""
        lines: list[str] = []
        for file in self._files():
            with open_file(file) as stream:
                stream.seek(self._positions.get(file, 0))
                data = stream.read()
            complete = data[: data.rfind(b"\n") + 1]
            self._positions[file] = self._positions.get(file, 0) + len(complete)
            lines += complete.decode(errors="replace").splitlines()
        return lines

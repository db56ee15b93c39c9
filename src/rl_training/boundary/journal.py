"""Append-only journals: one JSON object per line, each with a checksum.

A process that is killed in the middle of a line leaves a torn line, which readers skip. The next
writer starts a new line after it, so that nothing that was written before or after is lost.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from io import FileIO
from pathlib import Path
from typing import Any

from rl_training.boundary.reading import open_file, parse_json, read_lines
from rl_training.boundary.writing import open_log, sync_folder, write_all
from rl_training.errors import ConfigError

_BLOCK = 1 << 16
_HEAD = b'{"sum":"'
_DIGITS = 16
_BODY = len(_HEAD) + _DIGITS + len(b'",')
"""Position of the first key after the checksum."""


def journal_line(record: Mapping[str, Any]) -> bytes:
    """Return a record, which must not be empty, as a line with the checksum of its text."""
    body = json.dumps(record, allow_nan=False, separators=(",", ":"))[1:].encode()
    return _HEAD + _digest(body) + b'",' + body + b"\n"


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest()[:_DIGITS].encode()


def parse_journal_line(line: bytes) -> dict[str, Any] | None:
    """Return the record of a line; None if the line is torn or damaged."""
    body = line[_BODY:].removesuffix(b"\n")  # which may be missing if nothing else is
    if line[:_BODY] != _HEAD + _digest(body) + b'",':
        return None
    try:
        record = parse_json(b"{" + body, "a line")
    except ConfigError:
        return None
    return record if isinstance(record, dict) else None


def read_journal(path: Path) -> Iterator[dict[str, Any] | None]:
    """Yield the record of each line, or None for a torn or damaged line."""
    for line in read_lines(path):
        if line.strip():
            yield parse_journal_line(line)


class Journal:
    """Appends records to a file; only one process may write to it at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stream: FileIO | None = None
        self._is_torn = False

    def append(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Append records and sync them to disk.

        Raises:
            OSError: A write failed. Complete lines remain, and a torn one is skipped by readers.
        """
        data = b"".join(map(journal_line, records))
        if not data:
            return
        stream = self._open()
        try:
            write_all(stream, (b"\n" if self._is_torn else b"") + data)
            os.fsync(stream.fileno())
        except OSError:
            self._is_torn = True
            raise
        self._is_torn = False

    def _open(self) -> FileIO:
        if self._stream is None:
            new = not os.path.lexists(self.path)
            self._stream = open_log(self.path)
            self._is_torn = not new and _ends_in_a_torn_line(self.path)
            if new:
                sync_folder(self.path.parent)
        return self._stream

    def close(self) -> None:
        """Close the file."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None


def _ends_in_a_torn_line(path: Path) -> bool:
    with open_file(path) as stream:
        if stream.seek(0, os.SEEK_END) == 0:
            return False
        stream.seek(-1, os.SEEK_END)
        return stream.read(1) != b"\n"


def cut_torn_line(path: Path) -> None:
    """Remove the end of a journal of Optuna that was written when the process was killed.

    Optuna would append the next line to it, and could then read neither.
    """
    if not path.is_file():
        return
    with path.open("r+b") as stream:
        size = end = stream.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - _BLOCK)
            stream.seek(start)
            position = stream.read(end - start).rfind(b"\n")
            end = start + position + 1 if position >= 0 else start
            if position >= 0:
                break
        if end < size:
            stream.truncate(end)

"""Read HDF5 files in a separate process (`boundary/hdf5_process.py`)."""

from __future__ import annotations

import atexit
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ValidationError

from rl_training.boundary.columns import Chunks, Column, check_expansion
from rl_training.boundary.hdf5_process import IDLE_SECONDS
from rl_training.boundary.reading import open_file
from rl_training.errors import ConfigError
from rl_training.text import printable, shorten

INSTALL = "pip install 'rl-training[offline]'"
HDF5 = "an HDF5 file"
_START = (
    "import sys; sys.path[:] = sys.argv[1:]; "
    "from rl_training.boundary.hdf5_process import serve; serve()"
)
_MAX_ANSWER_BYTES = 1 << 28


class Entry(BaseModel, strict=True):
    """An object in a file; groups and empty datasets have no shape and no type."""

    path: str
    shape: list[int] | None = None
    dtype: str = ""


class Answer(BaseModel, strict=True):
    """An answer from the process."""

    refused: str | None = None
    damaged: str | None = None
    bytes: int | None = None
    entries: list[Entry] = []


class Reader:
    """A process that reads one file after another."""

    def __init__(self) -> None:
        paths = [path for path in sys.path if path]  # leaves out the current folder
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _START, *paths],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._last_asked = time.monotonic()

    @property
    def is_alive(self) -> bool:
        """Whether the process can answer: it has not ended and is not close to its idle limit."""
        idle = time.monotonic() - self._last_asked
        return self._process.poll() is None and idle < IDLE_SECONDS / 2

    def ask(self, **request: Any) -> tuple[Answer, bytes]:
        """Send a request; return the answer and the bytes after it.

        Raises:
            EOFError: The process ended, or its answer is invalid.
        """
        self._last_asked = time.monotonic()
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        try:
            requests.write(json.dumps(request).encode() + b"\n")
            requests.flush()
            answer = Answer.model_validate_json(answers.readline(_MAX_ANSWER_BYTES))
            data = answers.read(request["bytes"]) if answer.bytes is not None else b""
        except (OSError, ValidationError) as error:
            self.stop()
            raise EOFError from error
        if answer.bytes not in (None, len(data)):
            self.stop()
            raise EOFError
        return answer, data

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(OSError):  # part of a request may not have been sent
                pipe.close()
        self._process.wait()


_idle: list[Reader] = []
"""At most one idle process, for the next file."""


@contextmanager
def open_hdf5(
    path: Path,
    *,
    depth: int = 1,
    groups: Sequence[str] = (),
    source: str = "",
    follow_links: bool = True,
) -> Iterator[dict[str, Column | None]]:
    """Yield the contents of a file: datasets as columns, groups and empty datasets as None.

    ``depth`` is 1 for the top level only, and 2 to include the contents of groups
    (``group/name``). Those of groups named in ``groups`` are always included.
    """
    source = source or str(path)
    try:
        import h5py  # noqa: F401
    except ImportError:
        raise ConfigError(f"Reading {path} requires h5py. Install it with: {INSTALL}") from None
    with open_file(path, follow_links=follow_links) as file:  # rejects special files
        size = os.fstat(file.fileno()).st_size
    reader = _idle.pop() if _idle else Reader()
    if not reader.is_alive:
        reader.stop()
        reader = Reader()
    try:
        request = {"open": str(path.absolute()), "depth": depth, "bytes": size}
        answer, _ = _ask(reader, str(path), groups=list(groups), **request)
        columns = {
            entry.path: None if entry.shape is None else _column(reader, entry, source)
            for entry in answer.entries
        }
        check_expansion(path, [column for column in columns.values() if column])
        yield columns
    finally:
        if reader.is_alive:
            _ask(reader, source)
        if reader.is_alive and not _idle:
            _idle.append(reader)
        else:
            reader.stop()


@contextmanager
def open_hdf5_columns(path: Path, groups: Sequence[str] = ()) -> Iterator[dict[str, Column]]:
    """Yield the datasets at the top level of a file, as in D4RL's layout, and in ``groups``."""
    with open_hdf5(path, groups=groups) as found:
        yield {name: column for name, column in found.items() if column is not None}


def _column(reader: Reader, entry: Entry, source: str) -> Column:
    shape, dtype = tuple(entry.shape or ()), np.dtype(entry.dtype)
    read = partial(_rows, reader, entry.path, shape, dtype, source)
    return Column(shape, dtype, read, source, HDF5)


def _rows(
    reader: Reader, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], source: str, rows: int
) -> Chunks:
    for start in range(0, shape[0], rows):
        stop = min(start + rows, shape[0])
        size = (stop - start) * math.prod(shape[1:]) * dtype.itemsize
        _, data = _ask(reader, source, read=name, start=start, stop=stop, bytes=size)
        yield np.frombuffer(data, dtype).reshape(stop - start, *shape[1:])


def _ask(reader: Reader, source: str, **request: Any) -> tuple[Answer, bytes]:
    try:
        answer, data = reader.ask(**request)
    except EOFError:
        raise ConfigError(
            f"{source} is damaged or not {HDF5}: the HDF5 library crashed or did not finish."
        ) from None
    if answer.refused is not None:
        raise ConfigError(f"{source}: {shorten(printable(answer.refused, keep=''), 400)}")
    if answer.damaged is not None:
        reason = shorten(printable(answer.damaged, keep=""), 400)
        raise ConfigError(f"{source} is damaged or not {HDF5}: {reason}")
    return answer, data


def _stop_idle() -> None:
    while _idle:
        _idle.pop().stop()


atexit.register(_stop_idle)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # the process belongs to the parent

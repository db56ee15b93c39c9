"""Columns of recorded data, as returned by all dataset readers."""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.errors import ConfigError
from rl_training.text import first_line

CHUNK_ROWS = 65_536
CHUNK_BYTES = 32 << 20
"""Largest size of a chunk, unless a single row is larger."""
NUMBERS = "biuf"
"""NumPy dtype kinds of plain numbers."""
_ALWAYS_ALLOWED = 64 << 20
_MAX_EXPANSION = 200
"""Maximum bytes of values per byte of a file; 64 MiB of values are always allowed."""

Chunks = Iterator[np.ndarray[Any, Any]]
Take = Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Column:
    """One column of a dataset; its rows are read in order, in chunks of bounded size."""

    shape: tuple[int, ...]
    """Shape of the whole column; the first axis is the rows."""
    dtype: np.dtype[Any]
    read: Callable[[int], Chunks]
    """Reads chunks with a number of rows."""
    source: str = "the data"
    kind: str = "an array"
    take: Take | None = None
    """Returns the rows at given places, if they can be read without the others."""
    on_disk: bool = False
    """Whether `take` reads a memory-mapped file."""

    @classmethod
    def of(cls, array: Any, source: str = "the data", kind: str = "an array") -> Column:
        """Return a column of anything that supports slices, such as an array or a memory map."""
        read, dtype = partial(slices, array), np.dtype(array.dtype)
        take = partial(take_rows, array)
        return cls(tuple(array.shape), dtype, read, source, kind, take, is_mapped(array))

    def read_whole(self) -> np.ndarray[Any, Any]:
        """Return all rows as one array."""
        parts = list(self.chunks())
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty(self.shape, self.dtype)

    def chunks(self, rows: int | None = None) -> Chunks:
        """Yield the rows in chunks of ``rows``; raise a ConfigError if they are damaged."""
        with reject_damage(self.source, self.kind):
            yield from self.read(rows or chunk_rows([self]))


def chunk_rows(columns: Iterable[Column]) -> int:
    """Return the number of rows of a chunk of several columns that are read together."""
    sizes = (math.prod(column.shape[1:]) * column.dtype.itemsize for column in columns)
    return max(1, min(CHUNK_ROWS, CHUNK_BYTES // max(1, sum(sizes))))


def slices(array: Any, rows: int) -> Chunks:
    """Yield slices of at most ``rows`` rows."""
    for start in range(0, array.shape[0], rows):
        yield np.asarray(array[start : start + rows])


def take_rows(array: Any, places: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return copies of the rows at ``places``."""
    # Not np.take, which copies an array that is not aligned as a whole.
    return np.asarray(array[places])


def is_mapped(array: Any) -> bool:
    """Return whether an array is a memory-mapped file or a view of one."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            return True
        array = array.base
    return isinstance(array, mmap.mmap)


@contextmanager
def reject_damage(source: str, kind: str) -> Iterator[None]:
    """Turn any exception from a malformed file into a ConfigError."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:  # archives, filters and header parsers share no exception class
        raise ConfigError(f"{source} is damaged or not {kind}: {first_line(error)}") from None


def check_expansion(path: Path, columns: Iterable[Column]) -> None:
    """Reject a small file that claims far more values than its bytes can contain."""
    file_bytes = path.stat().st_size
    claimed = sum(math.prod(column.shape) * column.dtype.itemsize for column in columns)
    if claimed > max(_ALWAYS_ALLOWED, _MAX_EXPANSION * file_bytes):
        raise ConfigError(
            f"{path} has {file_bytes:,} bytes but claims {claimed:,} bytes of values, more than "
            f"{_MAX_EXPANSION} times its size. It is probably damaged: write or download it again."
        )

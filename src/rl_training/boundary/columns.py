"""Columns of recorded data, as returned by all dataset readers."""

from __future__ import annotations

import math
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
NUMBERS = "biuf"
"""NumPy dtype kinds of plain numbers."""
_ALWAYS_ALLOWED = 64 << 20
_MAX_EXPANSION = 200
"""Maximum bytes of values per byte of a file; 64 MiB of values are always allowed."""

Chunks = Iterator[np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Column:
    """One column of a dataset; its rows are read in order, in chunks of bounded size."""

    shape: tuple[int, ...]
    """Shape of the whole column; the first axis is the rows."""
    dtype: np.dtype[Any]
    read: Callable[[], Chunks]
    source: str = "the data"
    kind: str = "an array"

    @classmethod
    def of(cls, array: Any, source: str = "the data", kind: str = "an array") -> Column:
        """Return a column of anything that supports slices, such as an array or a memory map."""
        return cls(tuple(array.shape), np.dtype(array.dtype), partial(slices, array), source, kind)

    def chunks(self) -> Chunks:
        """Yield the rows in chunks; raise a ConfigError if they are damaged."""
        with reject_damage(self.source, self.kind):
            yield from self.read()


def slices(array: Any) -> Chunks:
    """Yield slices of at most `CHUNK_ROWS` rows."""
    for start in range(0, array.shape[0], CHUNK_ROWS):
        yield np.asarray(array[start : start + CHUNK_ROWS])


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

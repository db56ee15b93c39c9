"""Columns of recorded data: what every reader of a dataset file hands on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from rl_training.boundary.text import printable, shorten
from rl_training.errors import ConfigError

CHUNK_ROWS = 65_536
NUMBERS = "biuf"
"""NumPy's kinds of plain numbers."""
_ALWAYS_ALLOWED = 64 << 20
_MAX_EXPANSION = 200
"""How many bytes of values a byte of a file may stand for, beyond 64 MiB."""


class Column(Protocol):
    """One column of a dataset, readable in order."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows first."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """The stored type."""
        ...

    def chunks(self) -> Iterator[np.ndarray[Any, Any]]:
        """The rows in order, in pieces that are small beside the whole."""
        ...


@dataclass(frozen=True)
class ArrayColumn:
    """A column in memory, memory-mapped, or an HDF5 dataset: anything that slices."""

    array: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows first."""
        return tuple(self.array.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The stored type."""
        dtype: np.dtype[Any] = np.dtype(self.array.dtype)
        return dtype

    def chunks(self) -> Iterator[np.ndarray[Any, Any]]:
        """Slices of the array."""
        for start in range(0, self.shape[0], CHUNK_ROWS):
            yield np.asarray(self.array[start : start + CHUNK_ROWS])


@contextmanager
def refusing_damage(source: str, kind: str) -> Iterator[None]:
    """Turn whatever a malformed file raises into one sentence."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:  # archives, filters and header parsers have no common class
        raise ConfigError(f"{source} is damaged or not {kind}: {first_line(error)}") from None


def first_line(error: BaseException) -> str:
    """What an exception says in its first line, or its name where it says nothing."""
    text = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return shorten(printable(text), 200)


def check_expansion(path: Path, columns: Mapping[str, Column], file_bytes: int) -> None:
    """Refuse a small file that stands for far more values than its bytes can hold."""
    claimed = sum(math.prod(c.shape) * c.dtype.itemsize for c in columns.values())
    if claimed > max(_ALWAYS_ALLOWED, _MAX_EXPANSION * file_bytes):
        raise ConfigError(
            f"{path} has {file_bytes:,} bytes but claims {claimed:,} bytes of values; at most "
            f"{_MAX_EXPANSION} times the file's size is read."
        )

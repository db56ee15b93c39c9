"""The npy format: one array, checked against the bytes that are there."""

from __future__ import annotations

import io
import math
from pathlib import Path
from tokenize import TokenError
from typing import Any, NamedTuple

import numpy as np

from rl_training.boundary.columns import first_line
from rl_training.boundary.reading import Error, open_file
from rl_training.boundary.text import shown
from rl_training.errors import ConfigError

_MAX_HEADER = 1 << 16
_LENGTH_BYTES = {(1, 0): 2, (2, 0): 4, (3, 0): 4}


class Header(NamedTuple):
    """What an npy header declares."""

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype[Any]

    @property
    def bytes(self) -> int:
        """Bytes of values that have to follow it."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(stream: Any) -> Header:
    """Read the header at the start of a stream; never more than 64 KiB of it.

    Raises:
        ValueError: It is not one, or declares Python objects or impossible sizes.
    """
    start = stream.read(8)
    if start[:6] != b"\x93NUMPY" or len(start) < 8:
        raise ValueError("it does not begin like an npy file")
    version = (start[6], start[7])
    if version not in _LENGTH_BYTES:
        raise ValueError(f"npy version {version[0]}.{version[1]} is unknown")
    size = stream.read(_LENGTH_BYTES[version])
    length = int.from_bytes(size, "little")
    if length > _MAX_HEADER:
        raise ValueError(f"its header claims {length:,} bytes")
    whole = io.BytesIO(size + stream.read(length))
    read = np.lib.format
    try:
        found = (
            read.read_array_header_1_0(whole)
            if version == (1, 0)
            else read.read_array_header_2_0(whole)
        )
    except (EOFError, MemoryError, RecursionError, SyntaxError, TokenError) as error:
        raise ValueError(f"its header is broken: {type(error).__name__}: {error}") from None
    except (TypeError, OverflowError, KeyError) as error:
        raise ValueError(f"its header is broken: {error}") from None
    header = Header(*found)
    if header.dtype.hasobject:
        raise ValueError("it holds Python objects, which are never loaded")
    if header.dtype.subdtype is not None or header.dtype.itemsize == 0:
        raise ValueError(f"it holds {shown(header.dtype)}, but plain values are needed")
    if len(header.shape) > 32 or not all(type(n) is int and n >= 0 for n in header.shape):
        raise ValueError(f"its header declares the shape {shown(header.shape)}")
    return header


def read_npy(path: Path, *, follow_links: bool = False, error: Error = ConfigError) -> Any:
    """The array of an npy file whose size is exactly what its header declares."""
    with open_file(path, follow_links=follow_links, error=error) as stream:
        try:
            header = read_header(stream)
            start = stream.tell()
            present = stream.seek(0, io.SEEK_END) - start
            if present != header.bytes:
                raise ValueError(
                    f"its header declares the shape {shown(header.shape)}, but {present:,} bytes "
                    "of values follow"
                )
            stream.seek(start)
            values = np.fromfile(stream, dtype=header.dtype, count=math.prod(header.shape))
        except (ValueError, OSError, MemoryError, OverflowError) as failure:
            raise error(f"{path} is not a plain .npy file: {first_line(failure)}") from None
    return values.reshape(header.shape, order="F" if header.fortran_order else "C")

"""Read npy files and npz archives, checked against the number of bytes present; write them."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple

import numpy as np

from rl_training.boundary.columns import (
    Chunks,
    Column,
    check_expansion,
    reject_damage,
    slices,
    take_rows,
)
from rl_training.boundary.reading import Error, list_folder, open_file
from rl_training.boundary.zip_archive import data_offset, open_archive
from rl_training.errors import ConfigError
from rl_training.text import error_text, first_line, shown

_MAX_HEADER = 1 << 16
_LENGTH_BYTES = {(1, 0): 2, (2, 0): 4, (3, 0): 4}


class Header(NamedTuple):
    """Contents of an npy header."""

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype[Any]

    @property
    def bytes(self) -> int:
        """Number of bytes of values that must follow the header."""
        return math.prod(self.shape) * self.dtype.itemsize

    def check_size(self, present: int) -> None:
        """Raise a ValueError if a different number of bytes follows."""
        if present != self.bytes:
            raise ValueError(
                f"its header declares the shape {shown(self.shape)}, but {present:,} bytes of "
                "values follow"
            )

    def array(self, values: Any) -> np.ndarray[Any, Any]:
        """Return the array for a flat array of values or their bytes."""
        flat = np.frombuffer(values, self.dtype) if isinstance(values, bytes) else values
        return flat.reshape(self.shape, order="F" if self.fortran_order else "C")


def read_header(stream: Any) -> Header:
    """Read the header at the start of a stream, at most 64 KiB.

    Raises:
        ValueError: The header is invalid, or declares Python objects or impossible sizes.
    """
    start = stream.read(8)
    if start[:6] != b"\x93NUMPY" or len(start) < 8:
        raise ValueError("it does not start with an npy header")
    version = (start[6], start[7])
    if version not in _LENGTH_BYTES:
        raise ValueError(f"npy version {version[0]}.{version[1]} is unknown")
    size = stream.read(_LENGTH_BYTES[version])
    length = int.from_bytes(size, "little")
    if length > _MAX_HEADER:
        raise ValueError(
            f"its header claims {length:,} bytes, but at most {_MAX_HEADER:,} are allowed"
        )
    numpy = np.lib.format
    parse = numpy.read_array_header_1_0 if version == (1, 0) else numpy.read_array_header_2_0
    try:
        header = Header(*parse(io.BytesIO(size + stream.read(length))))
    except Exception as error:  # from the tokenizer, the parser, the type or the file
        raise ValueError(f"its header is invalid: {error_text(error)}") from None
    if header.dtype.hasobject:
        raise ValueError("it contains Python objects, which are never loaded")
    if header.dtype.subdtype is not None or header.dtype.itemsize == 0:
        raise ValueError(f"it contains {shown(header.dtype)}, but only plain values are supported")
    plain = len(header.shape) <= 32 and all(type(n) is int and n >= 0 for n in header.shape)
    # NumPy rejects such sizes even if one axis is empty.
    if not plain or (0 in header.shape and math.prod(filter(None, header.shape)) >= 2**48):
        raise ValueError(f"its header declares the invalid shape {shown(header.shape)}")
    return header


def read_npy(path: Path, *, follow_links: bool = False, error: Error = ConfigError) -> Any:
    """Return the array of an npy file, whose size must match its header exactly."""
    with open_file(path, follow_links=follow_links, error=error) as stream:
        try:
            header = read_header(stream)
            start = stream.tell()
            header.check_size(stream.seek(0, io.SEEK_END) - start)
            stream.seek(start)
            values = np.fromfile(stream, dtype=header.dtype, count=math.prod(header.shape))
        except (ValueError, OSError, MemoryError, OverflowError) as failure:
            raise error(f"{path} is not a plain .npy file: {first_line(failure)}") from None
    return header.array(values)


@contextmanager
def open_npz(path: Path) -> Iterator[dict[str, Column]]:
    """Open the arrays of an npz file for the duration of the block."""
    with open_archive(path, "an npz file") as (archive, stream):
        members: dict[str, zipfile.ZipInfo] = {}
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if name in members:
                raise ConfigError(f"{path} contains {shown(name)} twice: remove one of them.")
            members[name] = info
        columns = {
            name: _column(archive, stream, info, f"{path}: {shown(name)}")
            for name, info in members.items()
        }
        check_expansion(path, columns.values())
        yield columns


@contextmanager
def open_npy_folder(folder: Path, *, groups: Sequence[str] = ()) -> Iterator[dict[str, Column]]:
    """Open the npy files of a folder as memory maps; other files are ignored.

    The files of a subfolder whose name is in ``groups`` have the names ``group/name``.
    """
    files = {path.stem: path for path in list_folder(folder) if path.suffix == ".npy"}
    for group in groups:
        if (folder / group).is_dir():
            inside = list_folder(folder / group)
            files |= {f"{group}/{path.stem}": path for path in inside if path.suffix == ".npy"}
    if not files:
        raise ConfigError(f"{folder} contains no .npy files, such as observations.npy.")
    yield {name: _mapped_column(path) for name, path in files.items()}


def is_npy_folder(folder: Path) -> bool:
    """Return whether a folder contains npy files."""
    return any(path.suffix == ".npy" for path in list_folder(folder))


def _mapped_column(path: Path) -> Column:
    """Return the array of an npy file, whose size must match its header exactly."""
    kind = "a .npy file"
    with reject_damage(str(path), kind), open_file(path, follow_links=True) as stream:
        header = read_header(stream)
        start = stream.tell()
        header.check_size(stream.seek(0, io.SEEK_END) - start)
        array = header.array(map_values(stream, start, header.dtype, math.prod(header.shape)))
    return Column.of(array, str(path), kind)


def map_values(stream: BinaryIO, start: int, dtype: np.dtype[Any], count: int) -> Any:
    """Map ``count`` values of an open file into memory; an empty array needs no map."""
    if count == 0:
        return np.empty(0, dtype)
    return np.memmap(stream, dtype, mode="r", offset=start, shape=(count,))


def _column(archive: zipfile.ZipFile, file: BinaryIO, info: zipfile.ZipInfo, source: str) -> Column:
    """Return one array after checking its header against the archive.

    An array that is not compressed can be mapped into memory. Reading it in order still checks its
    checksum.
    """
    kind = "an npz array"
    with reject_damage(source, kind), archive.open(info.filename) as stream:
        header = read_header(stream)
        length = stream.tell()
        header.check_size(info.file_size - length)
    read = partial(_read_member, archive, info, header)
    if info.compress_type != zipfile.ZIP_STORED:
        return Column(header.shape, header.dtype, read, source, kind)
    with reject_damage(source, kind):
        start = data_offset(file, info) + length
        array = header.array(map_values(file, start, header.dtype, math.prod(header.shape)))
    take = partial(take_rows, array)
    return Column(header.shape, header.dtype, read, source, kind, take, on_disk=True)


def _read_member(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, header: Header, count: int
) -> Chunks:
    """Yield ``count`` rows of an array in an archive at a time."""
    with archive.open(info.filename) as stream:
        read_header(stream)
        rows, *row_shape = header.shape
        by_column = header.fortran_order and len(header.shape) > 1
        step = rows if by_column else count  # stored by column: read all rows together
        for start in range(0, rows, step):
            piece = header._replace(shape=(min(step, rows - start), *row_shape))
            data = stream.read(piece.bytes)
            if len(data) != piece.bytes:
                raise ValueError("it is truncated")
            yield from slices(piece.array(data), count)


# --- Writing --------------------------------------------------------------------------


def write_npy(stream: IO[bytes], column: Column) -> None:
    """Write a column as an npy file, in chunks."""
    header = {
        "descr": np.lib.format.dtype_to_descr(column.dtype),
        "fortran_order": False,
        "shape": column.shape,
    }
    np.lib.format.write_array_header_1_0(stream, header)
    for chunk in column.chunks():
        stream.write(chunk.tobytes())


def write_npz(stream: IO[bytes], columns: Mapping[str, Column]) -> None:
    """Write columns as an uncompressed npz file, as `numpy.savez` does, in chunks."""
    with zipfile.ZipFile(stream, "w") as archive:
        for name, column in columns.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                write_npy(member, column)

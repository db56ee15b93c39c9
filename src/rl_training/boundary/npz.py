"""npz datasets: arrays streamed out of an archive, never whole in memory."""

from __future__ import annotations

import math
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.boundary.columns import (
    CHUNK_ROWS,
    ArrayColumn,
    Column,
    check_expansion,
    first_line,
    refusing_damage,
)
from rl_training.boundary.npy import read_header
from rl_training.boundary.text import shown
from rl_training.boundary.zip_archive import open_archive
from rl_training.errors import ConfigError

_KIND = "an npz file"


@contextmanager
def open_npz(path: Path) -> Iterator[dict[str, Column]]:
    """The arrays of an npz file, open for as long as the block lasts."""
    with open_archive(path, _KIND) as (archive, _):
        members = [(info.filename.removesuffix(".npy"), info) for info in archive.infolist()]
        for name, times in Counter(name for name, _ in members).items():
            if times > 1:
                raise ConfigError(f"{path} has {shown(name)} twice: keep one.")
        with refusing_damage(str(path), _KIND):
            columns = {name: _column(archive, info, path, name) for name, info in members}
        check_expansion(path, columns, path.stat().st_size)
        yield {name: column.loaded() for name, column in columns.items()}


@dataclass(frozen=True)
class _ZipColumn:
    """An array in an archive."""

    archive: zipfile.ZipFile
    member: str
    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran_order: bool

    def loaded(self) -> Column:
        """Itself, or an array in memory where rows are not stored one after the other."""
        if not self.fortran_order or len(self.shape) < 2:
            return self
        with refusing_damage(str(self.path), _KIND), self.archive.open(self.member) as stream:
            read_header(stream)
            count = math.prod(self.shape)
            values = np.frombuffer(self._read(stream, count * self.dtype.itemsize), self.dtype)
            return ArrayColumn(values.reshape(self.shape, order="F"))

    def chunks(self) -> Iterator[np.ndarray[Any, Any]]:
        with refusing_damage(str(self.path), _KIND), self.archive.open(self.member) as stream:
            read_header(stream)
            row_shape = self.shape[1:]
            row_bytes = self.dtype.itemsize * math.prod(row_shape)
            for start in range(0, self.shape[0], CHUNK_ROWS):
                rows = min(CHUNK_ROWS, self.shape[0] - start)
                data = self._read(stream, rows * row_bytes)
                yield np.frombuffer(data, dtype=self.dtype).reshape(rows, *row_shape)

    def _read(self, stream: Any, size: int) -> bytes:
        data: bytes = stream.read(size)
        if len(data) != size:
            raise ConfigError(f"{self.path}: {shown(self.member)} is cut short.")
        return data


def _column(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path, name: str) -> _ZipColumn:
    """One array, once its header is known to fit what the archive holds."""
    with archive.open(info.filename) as stream:
        try:
            header = read_header(stream)
        except ValueError as error:
            reason = f"{shown(name)}: {first_line(error)}"
            raise ConfigError(f"{path} is damaged or not {_KIND}: {reason}.") from None
        room = info.file_size - stream.tell()
    if header.bytes != room:
        raise ConfigError(
            f"{path}: {shown(name)} has shape {shown(header.shape)} by its header, but {room} "
            "bytes of values are there."
        )
    return _ZipColumn(
        archive, info.filename, path, header.shape, header.dtype, header.fortran_order
    )

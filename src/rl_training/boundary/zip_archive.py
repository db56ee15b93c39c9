"""Open zip archives, the container of npz and pt files, and check their central directory."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from rl_training.boundary.columns import reject_damage
from rl_training.boundary.reading import open_file
from rl_training.errors import ConfigError
from rl_training.text import shown

_MAX_MEMBERS = 10_000
_MAX_DEFLATION = 1_100
"""Deflate cannot compress by more than about 1,032 to 1."""
_LOCAL_HEADER = struct.Struct("<4s5H3L2H")


@contextmanager
def open_archive(path: Path, kind: str) -> Iterator[tuple[zipfile.ZipFile, BinaryIO]]:
    """Open an archive and check that its directory fits the size of the file."""
    with open_file(path, follow_links=True) as stream:
        with reject_damage(str(path), kind):
            archive = zipfile.ZipFile(stream)
        with archive:
            _check_directory(archive, path)
            yield archive, stream


def _check_directory(archive: zipfile.ZipFile, path: Path) -> None:
    members, size = archive.infolist(), path.stat().st_size
    if len(members) > _MAX_MEMBERS:
        raise ConfigError(
            f"{path} has {len(members):,} members, but at most {_MAX_MEMBERS:,} are allowed."
        )
    if sum(member.compress_size for member in members) > size:
        raise ConfigError(
            f"{path} has overlapping members: its {size:,} bytes cannot contain all of them."
        )
    for member in members:
        fits = member.header_offset + member.compress_size <= size
        if member.compress_type == zipfile.ZIP_STORED:
            fits &= member.file_size == member.compress_size
        else:
            fits &= member.file_size <= _MAX_DEFLATION * max(1, member.compress_size)
        if not fits:
            raise ConfigError(
                f"{path}: {shown(member.filename)} claims {member.file_size:,} bytes, which its "
                f"{member.compress_size:,} bytes in the archive cannot contain."
            )


def data_offset(stream: BinaryIO, member: zipfile.ZipInfo) -> int:
    """Return the position of an uncompressed member's bytes in the file.

    Raises:
        ValueError: The member is compressed, or its local header is not where it should be.
    """
    if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
        raise ValueError(f"{shown(member.filename)} is compressed or encrypted")
    stream.seek(member.header_offset)
    header = stream.read(_LOCAL_HEADER.size)
    if len(header) < _LOCAL_HEADER.size or header[:4] != b"PK\x03\x04":
        raise ValueError(f"{shown(member.filename)} has no header")
    *_, name_length, extra_length = _LOCAL_HEADER.unpack(header)
    if stream.read(name_length) != member.orig_filename.encode("utf-8", "replace"):
        raise ValueError(f"{shown(member.filename)} has the header of another member")
    return member.header_offset + _LOCAL_HEADER.size + int(name_length) + int(extra_length)

"""Files that are whole or not there: replaced, removed, made durable and told by their contents."""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from rl_training.errors import ConfigError

_HAS_FILE_DIGEST = hasattr(hashlib, "file_digest")  # Python 3.11


def write_atomically(file: Path, data: bytes) -> None:
    """Replace a small file so that a reader sees the old one or the new one, never a part.

    Raises:
        OSError: A write failed; the old file is as it was, and no part of the new one is left.
    """
    temporary = file.parent / f".tmp-{file.name}"
    temporary.unlink(missing_ok=True)
    try:
        with temporary.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, file)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def write_output(file: Path, data: bytes) -> None:
    """Write a file that a user asked for, whole or not at all; through a link, into a pipe."""
    try:
        if file.exists() and not file.is_file():
            file.write_bytes(data)
        else:
            write_atomically(Path(os.path.realpath(file)), data)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror or error}.") from None


def remove(path: Path) -> None:
    """Remove a file, a link or a whole folder; nothing is no error."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make a rename durable; a folder cannot be synced on every system."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sha256_of(file: Path) -> str:
    """The check sum of a file's contents."""
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256") if _HAS_FILE_DIGEST else _digest(stream)
    return digest.hexdigest()


def _digest(stream: Any) -> Any:
    digest = hashlib.sha256()
    while block := stream.read(1 << 20):
        digest.update(block)
    return digest

"""Create files exclusively, and replace them atomically and durably, without following links."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from rl_training.errors import ConfigError, TrainingError
from rl_training.text import reason

TEMPORARY = ".tmp-"
"""Prefix of files and folders that are not complete yet."""


def temporary_name(path: Path) -> Path:
    """Return the hidden name under which ``path`` is written before it is renamed."""
    return path.with_name(f"{TEMPORARY}{path.name}")


@contextmanager
def create_file(path: Path) -> Iterator[BinaryIO]:
    """Create a file and sync it when the block ends; an existing file or link is removed first.

    If a write fails, the file is removed.
    """
    remove(path)
    try:
        with path.open("x+b") as stream:  # O_EXCL: fails if a link was created in the meantime
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
    except BaseException:
        with suppress(OSError):  # the first error is more important
            path.unlink(missing_ok=True)
        raise


@contextmanager
def replace_file(path: Path) -> Iterator[BinaryIO]:
    """Open a stream whose contents replace ``path`` when the block ends without an error.

    Readers see either the old file or the complete new one.
    """
    temporary = temporary_name(path)
    with create_file(temporary) as stream:
        yield stream
    try:
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


@contextmanager
def replace_files(contents: Mapping[Path, bytes]) -> Iterator[Path]:
    """Write files of one folder, and give them their names if the block raises no error.

    Until then, they are in a new hidden folder next to their destination, which is the value of the
    ``with`` statement. The block can check the files there before they replace existing ones. If it
    fails, nothing remains. Another process that writes the same files does not interfere.

    Raises:
        ConfigError: A file cannot be written.
    """
    first, *_ = contents
    with _reporting(first):
        folder = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=first.parent))
    try:
        for path, data in contents.items():
            with _reporting(path), create_file(folder / path.name) as stream:
                stream.write(data)
        yield folder
        for path in contents:
            with _reporting(path):
                os.replace(folder / path.name, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _reporting(path: Path) -> Iterator[None]:
    """Turn a failed write to a file that the user chose into a ConfigError."""
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise ConfigError(f"{path} cannot be written: {reason(error)}.") from None


def write_atomically(file: Path, data: bytes) -> None:
    """Replace a small file; if a write fails, the old one remains."""
    with replace_file(file) as stream:
        stream.write(data)


def write_output(file: Path, data: bytes) -> None:
    """Write an output file that the user chose, which may be a link or a pipe."""
    with _reporting(file):
        if file.exists() and not file.is_file():
            file.write_bytes(data)
        else:
            write_atomically(Path(os.path.realpath(file)), data)


def open_log(path: Path, *, new: bool = False) -> FileIO:
    """Open a file for appending, without following links; with ``new``, it must not exist yet.

    The file is unbuffered, so that closing it does not repeat a failed write.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_EXCL if new else 0)
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    return FileIO(os.open(path, flags | getattr(os, "O_BINARY", 0), 0o666), "ab")


def write_all(stream: FileIO, data: bytes) -> None:
    """Write all data to an unbuffered stream, which may accept only parts of it."""
    left = memoryview(data)
    while left:
        left = left[stream.write(left) :]


def write_error(
    what: Path | str,
    run_dir: Path,
    error: OSError,
    *,
    advice: str = ": free disk space, then resume",
) -> TrainingError:
    """Return the error for a file of a run that could not be written."""
    if not run_dir.is_dir():
        return TrainingError(
            f"{run_dir} was removed or renamed during training: move it back and resume, or start "
            "again"
        )
    return TrainingError(f"{what} could not be written ({error}){advice}")


@contextmanager
def report_failed_writes(what: Path, run_dir: Path) -> Iterator[None]:
    """Turn a failed write to a file of a run into a TrainingError."""
    try:
        yield
    except OSError as error:
        raise write_error(what, run_dir, error) from error


def remove(path: Path) -> None:
    """Remove a file, a link or a whole folder; a missing path is ignored."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make renames inside a folder durable, on systems that can sync folders."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

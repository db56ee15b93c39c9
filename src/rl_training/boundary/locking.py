"""Locks on files, which end with the process that holds them, even if it is killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from rl_training.errors import ConfigError


class LockedError(ConfigError):
    """Another process holds a lock."""


@contextmanager
def hold_lock(file: Path, *, what: Path, busy: str, wait: float = 0.0) -> Iterator[None]:
    """Hold a lock; ``what`` is the folder that it protects.

    Args:
        file: The lock file, which is created if it does not exist.
        what: The path for the error if the lock file cannot be written.
        busy: The error if another process holds the lock.
        wait: How many seconds to wait for another process.

    Raises:
        LockedError: Another process holds the lock.
        ConfigError: The lock file is not a regular file, or cannot be written.
    """
    if file.is_symlink() or (file.exists() and not file.is_file()):
        raise ConfigError(f"{file} is not a regular file: remove it, then try again.")
    lock = FileLock(file)
    try:
        lock.acquire(timeout=wait, blocking=wait > 0)
    except Timeout:
        raise LockedError(busy) from None
    except OSError as error:
        raise ConfigError(f"{what} cannot be written ({error}).") from None
    try:
        yield
    finally:
        lock.release()


def is_held(file: Path) -> bool:
    """Return whether a process holds a lock, without creating the lock file.

    A lock that cannot be opened counts as held.
    """
    if file.is_symlink() or not file.is_file():
        return False
    try:
        with hold_lock(file, what=file, busy=""):
            return False
    except ConfigError:
        return True

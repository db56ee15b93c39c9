"""Read regular files up to a size limit, by default without following links."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from rl_training.errors import ConfigError, RLTrainingError
from rl_training.text import reason

MiB = 1 << 20
MAX_JSON = 64 * MiB
"""Maximum size of a JSON file in a checkpoint; real ones are much smaller."""
MAX_TEXT = 4 * MiB
"""Maximum size of a config or a run record."""
MAX_LINE = 1 * MiB
"""Maximum length of a line in a log; longer ones are skipped."""
MAX_LINES = 1024 * MiB
"""Maximum size of a log."""
MAX_ENTRIES = 10_000
"""Maximum number of entries of a folder that is read."""
_BLOCK = 1 * MiB
_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
Error = type[RLTrainingError]


def open_file(
    path: Path, *, limit: int | None = None, follow_links: bool = False, error: Error = ConfigError
) -> BinaryIO:
    """Open a regular file for reading.

    Args:
        path: The file.
        limit: Maximum size in bytes.
        follow_links: Whether the last part of the path may be a symbolic link. This is allowed for
            data that the user specifies, but not for files inside a run or a checkpoint.
        error: The exception class to raise.
    """
    try:
        if not follow_links and os.path.islink(path):
            raise error(f"{path} is a symbolic link; links are not followed")
        # Non-blocking, because opening a named pipe would wait for a writer.
        descriptor = os.open(path, _FLAGS | (0 if follow_links else _NO_LINKS))
    except FileNotFoundError:
        raise error(f"{path} is missing") from None
    except (OSError, ValueError) as failure:  # ValueError: a null byte in the path
        raise error(f"{path} cannot be read: {reason(failure)}") from None
    found = os.fstat(descriptor)
    problem = None
    if not stat.S_ISREG(found.st_mode):
        problem = f"{path} is not a regular file"
    elif limit is not None and found.st_size > limit:
        problem = f"{path} has {found.st_size:,} bytes, but at most {limit:,} are allowed"
    if problem is not None:
        os.close(descriptor)
        raise error(problem)
    return os.fdopen(descriptor, "rb")


def list_folder(folder: Path) -> list[Path]:
    """Return the visible entries of a folder, sorted; at most `MAX_ENTRIES` are allowed."""
    try:
        with os.scandir(folder) as entries:
            found = sorted(entry.name for entry in islice(entries, MAX_ENTRIES + 1))
    except OSError as failure:
        raise ConfigError(f"{folder} cannot be read: {reason(failure)}") from None
    if len(found) > MAX_ENTRIES:
        raise ConfigError(f"{folder} has more than {MAX_ENTRIES:,} entries.")
    return [folder / name for name in found if not name.startswith(".")]


def read_bytes(
    path: Path, *, limit: int, follow_links: bool = False, error: Error = ConfigError
) -> bytes:
    """Return the contents of a file of at most ``limit`` bytes."""
    with open_file(path, limit=limit, follow_links=follow_links, error=error) as stream:
        try:
            return stream.read(limit)
        except (OSError, MemoryError) as failure:
            raise error(f"{path} cannot be read: {reason(failure)}") from None


def read_text(
    path: Path, *, limit: int = MAX_TEXT, follow_links: bool = False, error: Error = ConfigError
) -> str:
    """Return the contents of a file as text; bytes that are not UTF-8 are replaced."""
    return read_bytes(path, limit=limit, follow_links=follow_links, error=error).decode(
        "utf-8", errors="replace"
    )


def read_json(path: Path, *, limit: int = MAX_JSON, error: Error = ConfigError) -> Any:
    """Return the data of a JSON file."""
    return parse_json(read_bytes(path, limit=limit, error=error), str(path), error=error)


def parse_json(data: bytes | str, source: str, *, error: Error = ConfigError) -> Any:
    """Parse JSON; reject NaN, infinities, duplicate keys and numbers of thousands of digits."""
    try:
        return json.loads(data, parse_constant=_reject_constant, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError, MemoryError) as failure:
        raise error(f"{source} is not valid JSON: {reason(failure)}") from None


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return pairs as a mapping, for `json.loads`; reject duplicate keys."""
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise ValueError("a key appears twice")
    return mapping


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def read_lines(
    path: Path, *, limit: int = MAX_LINES, error: Error = ConfigError
) -> Iterator[bytes]:
    """Yield the lines of a file; a line longer than `MAX_LINE` is skipped."""
    with open_file(path, limit=limit, error=error) as stream:
        skipping = False
        while line := stream.readline(MAX_LINE):
            whole = line.endswith(b"\n")
            if not skipping and (whole or len(line) < MAX_LINE):
                yield line
            skipping = not whole


def sha256_of(path: Path, *, error: Error = ConfigError) -> str:
    """Return the SHA-256 of a file's contents."""
    digest = hashlib.sha256()
    with open_file(path, error=error) as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()

"""Read files: regular ones only, up to a limit; links are not followed by default."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from rl_training.errors import ConfigError, RLTrainingError
from rl_training.text import reason

MiB = 1 << 20
MAX_JSON = 64 * MiB
"""The largest JSON file of a checkpoint; a run's own files are much smaller."""
MAX_TEXT = 4 * MiB
"""The largest config or run record."""
MAX_LINE = 1 * MiB
"""The longest line of a log; longer ones are skipped."""
MAX_LINES = 1024 * MiB
"""The largest log."""
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
        limit: The most bytes that it may have.
        follow_links: Whether the last part of the path may be a symbolic link. Data that a user
            names may be one; a file inside a run or checkpoint may not.
        error: The class to raise, with one sentence.
    """
    try:
        if not follow_links and os.path.islink(path):
            raise error(f"{path} is a symbolic link, and links are not followed")
        # Not blocking: opening a named pipe would wait for a writer.
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
        problem = f"{path} has {found.st_size:,} bytes, but at most {limit:,} are read"
    if problem is not None:
        os.close(descriptor)
        raise error(problem)
    return os.fdopen(descriptor, "rb")


def read_bytes(
    path: Path, *, limit: int, follow_links: bool = False, error: Error = ConfigError
) -> bytes:
    """The contents of a file of at most ``limit`` bytes."""
    with open_file(path, limit=limit, follow_links=follow_links, error=error) as stream:
        try:
            return stream.read(limit)
        except (OSError, MemoryError) as failure:
            raise error(f"{path} cannot be read: {reason(failure)}") from None


def read_text(
    path: Path, *, limit: int = MAX_TEXT, follow_links: bool = False, error: Error = ConfigError
) -> str:
    """The same as text; bytes that are not UTF-8 are replaced."""
    return read_bytes(path, limit=limit, follow_links=follow_links, error=error).decode(
        "utf-8", errors="replace"
    )


def read_json(path: Path, *, limit: int = MAX_JSON, error: Error = ConfigError) -> Any:
    """The data of a JSON file."""
    return parse_json(read_bytes(path, limit=limit, error=error), str(path), error=error)


def parse_json(data: bytes | str, source: str, *, error: Error = ConfigError) -> Any:
    """JSON without NaN, infinities, keys twice or numbers of thousands of digits."""
    try:
        return json.loads(data, parse_constant=_refuse_constant, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError, MemoryError) as failure:
        raise error(f"{source} is not valid JSON: {reason(failure)}") from None


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The mapping of JSON's pairs, for `json.loads`; a key that is given twice is an error."""
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise ValueError("a key is given twice")
    return mapping


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def read_lines(
    path: Path, *, limit: int = MAX_LINES, error: Error = ConfigError
) -> Iterator[bytes]:
    """The lines of a file, one at a time; a line longer than `MAX_LINE` is skipped."""
    with open_file(path, limit=limit, error=error) as stream:
        skipping = False
        while line := stream.readline(MAX_LINE):
            whole = line.endswith(b"\n")
            if not skipping and (whole or len(line) < MAX_LINE):
                yield line
            skipping = not whole


def sha256_of(path: Path, *, error: Error = ConfigError) -> str:
    """The SHA-256 of a file's contents."""
    digest = hashlib.sha256()
    with open_file(path, error=error) as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()

"""Text for terminals and messages: bounded, and without control characters."""

from __future__ import annotations

import re
import reprlib
import unicodedata
from typing import Any

MAX_VALUE = 80
"""Maximum number of characters of a value in an error message."""

MAX_MESSAGE = 1_000
"""Maximum number of characters of an error message or a warning."""

_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories that move the cursor, reorder the line, or cannot be encoded."""


def printable(text: str, *, keep: str = "\n\t") -> str:
    """Replace control, formatting and surrogate characters with escape sequences."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char
        if char in keep or unicodedata.category(char) not in _UNSAFE
        else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def shorten(text: str, most: int = MAX_VALUE) -> str:
    """Return the text on one line, with the middle cut if it exceeds ``most`` characters."""
    line = " ".join(text[: 4 * most].split()) + ("…" if len(text) > 4 * most else "")
    return _cut(line, most)


def one_line(text: str) -> str:
    """Return a message as one printable line of bounded length."""
    return re.sub(r"\s*[\n\t]\s*", " ", _cut(printable(text).strip(), MAX_MESSAGE))


class _BoundedRepr(reprlib.Repr):
    """`repr` for values from files and users: bounded in depth, length and time."""

    def repr_ndarray(self, array: Any, level: int) -> str:
        """Show the shape of an array with many values."""
        return repr(array) if array.size <= 8 else f"<array of shape {array.shape}>"


_bounded = _BoundedRepr()
_bounded.maxlevel = 4
_bounded.maxstring = _bounded.maxother = _bounded.maxlong = MAX_VALUE
_bounded.maxdict = _bounded.maxlist = _bounded.maxtuple = _bounded.maxset = 8


def shown(value: Any) -> str:
    """Return the `repr` of a value for a message: printable, at most `MAX_VALUE` characters."""
    try:
        text = _bounded.repr(value)
    except Exception:  # a user's __repr__ may raise anything, and must not hide the real error
        text = f"<{type(value).__name__}>"
    return shorten(printable(text, keep=""))


def _cut(text: str, most: int) -> str:
    half = (most - 1) // 2
    return text if len(text) <= most else f"{text[:half]}…{text[-half:]}"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its class name if the message is empty."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # a user's __str__ may raise anything, and must not hide the real error
        lines = []
    return shorten(printable(lines[0], keep=""), 200) if lines else type(error).__name__


def reason(error: BaseException) -> str:
    """Return the operating system's message for an error if it has one, else `first_line`."""
    return getattr(error, "strerror", None) or first_line(error)


def error_text(error: BaseException) -> str:
    """Return the class name of an error and the first line of its message."""
    line, name = first_line(error), type(error).__name__
    return name if line == name else f"{name}: {line}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural: ``1 row``, ``2 rows``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Format a duration, with days and hours only if needed: 0:07, 2:05:09, 3d 04:00:00."""
    minutes, second = divmod(max(0, round(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}d {hour:02d}:{minute:02d}:{second:02d}"
    return f"{hour}:{minute:02d}:{second:02d}" if hour else f"{minute}:{second:02d}"

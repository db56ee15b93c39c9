"""The errors a user can meet: each is one sentence that says what to do next."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class RLTrainingError(Exception):
    """Base of all errors that this package raises on purpose."""

    exit_code = 1


class ConfigError(RLTrainingError, ValueError):
    """Bad input: a key, a value, a space, a file that is not there."""

    exit_code = 2


class CheckpointError(RLTrainingError):
    """A checkpoint that is damaged, incomplete, hostile or from another format."""


class TrainingError(RLTrainingError):
    """Training cannot go on: a value that is not finite, a write that failed."""


def nearest(word: str, known: Iterable[str]) -> str:
    """A suggestion for a misspelt name, ready to stand behind it in a sentence."""
    options = sorted(known)
    close = get_close_matches(word, options, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    shown = ", ".join(options[:12]) + (", …" if len(options) > 12 else "")
    return f"; known are: {shown}" if options else ""

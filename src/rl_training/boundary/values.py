"""Check the type, shape and range of the values in a saved state."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.errors import CheckpointError, RLTrainingError
from rl_training.text import error_text, printable, shorten, shown


class StateError(CheckpointError, ValueError):
    """A saved state has a value that a run would never write."""


@contextmanager
def report_state_errors(file: Path) -> Iterator[None]:
    """Turn errors in a saved state into a CheckpointError that mentions the file."""
    try:
        yield
    except StateError as error:
        reason = shorten(printable(str(error), keep=""), 400)
        raise CheckpointError(f"{file} does not match this run: {reason}") from error
    except RLTrainingError:
        raise
    except Exception as error:
        raise CheckpointError(f"{file} does not match this run: {error_text(error)}") from error


def reject_unknown(state: Collection[str], known: Collection[str], what: str) -> None:
    """Reject unknown parts of a saved state."""
    unknown = sorted(set(state) - set(known))
    if unknown:
        raise StateError(f"{what} has the unknown part {shown(unknown[0])}")


def whole_number(value: Any, name: str, *, least: int = 0, most: int | None = None) -> int:
    """Return an integer from a saved state; reject booleans, floats and strings."""
    if type(value) is not int or value < least or (most is not None and value > most):
        allowed = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise StateError(f"{name} is {shown(value)}, but should be an integer {allowed}")
    return value


def real_number(value: Any, name: str) -> float:
    """Return a finite number from a saved state."""
    if type(value) not in (int, float) or not math.isfinite(value):
        raise StateError(f"{name} is {shown(value)}, but should be a finite number")
    return float(value)


def boolean(value: Any, name: str) -> bool:
    """Return a boolean from a saved state."""
    if type(value) is not bool:
        raise StateError(f"{name} is {shown(value)}, but should be true or false")
    return value


def matching_array(value: Any, like: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """Return a saved array of finite numbers with the type and shape of ``like``."""
    found, wanted = describe_array(value), describe_array(like)
    if not isinstance(value, np.ndarray) or found != wanted or not np.isfinite(value).all():
        raise StateError(f"{name} is {found}, but should be {wanted} of finite numbers")
    return value


def describe_array(value: Any) -> str:
    """Describe the type and shape of an array, or a value that is not an array."""
    is_array = isinstance(value, np.ndarray)
    return f"{value.dtype}{list(value.shape)}" if is_array else shown(value)

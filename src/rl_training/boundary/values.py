"""Check values of a saved state: type, shape and range must be those that a run writes."""

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
    """A value in a saved state that no run writes."""


@contextmanager
def explaining_misfits(file: Path) -> Iterator[None]:
    """Turn any error from a saved state that does not fit into one that mentions its file."""
    try:
        yield
    except StateError as error:
        reason = shorten(printable(str(error), keep=""), 400)
        raise CheckpointError(f"{file} does not fit this run: {reason}") from error
    except RLTrainingError:
        raise
    except Exception as error:
        raise CheckpointError(f"{file} does not fit this run: {error_text(error)}") from error


def refuse_unknown(state: Collection[str], known: Collection[str], what: str) -> None:
    """Reject parts of a saved state that no run writes."""
    unknown = sorted(set(state) - set(known))
    if unknown:
        raise StateError(f"{what} has the unknown part {shown(unknown[0])}")


def whole_number(value: Any, name: str, *, least: int = 0, most: int | None = None) -> int:
    """Return an integer of a saved state; reject a bool, a float or text."""
    if type(value) is not int or value < least or (most is not None and value > most):
        allowed = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise StateError(f"{name} is {shown(value)}, but should be an integer {allowed}")
    return value


def real_number(value: Any, name: str) -> float:
    """Return a finite number of a saved state."""
    if type(value) not in (int, float) or not math.isfinite(value):
        raise StateError(f"{name} is {shown(value)}, but should be a finite number")
    return float(value)


def true_or_false(value: Any, name: str) -> bool:
    """Return a flag of a saved state."""
    if type(value) is not bool:
        raise StateError(f"{name} is {shown(value)}, but should be true or false")
    return value


def fitting_array(value: Any, like: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """Return a saved array of finite numbers with the type and shape of ``like``."""
    found, wanted = describe_array(value), describe_array(like)
    if not isinstance(value, np.ndarray) or found != wanted or not np.isfinite(value).all():
        raise StateError(f"{name} is {found}, but should be {wanted} of finite numbers")
    return value


def describe_array(value: Any) -> str:
    """Describe the type and shape of an array, or a value that is not an array."""
    is_array = isinstance(value, np.ndarray)
    return f"{value.dtype}{list(value.shape)}" if is_array else shown(value)

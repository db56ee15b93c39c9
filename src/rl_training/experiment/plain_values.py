"""Convert config values from Python to values that a config file can contain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rl_training.config_model import LARGEST_INT
from rl_training.errors import ConfigError
from rl_training.text import printable, shorten, shown

MAX_DEPTH = 32
"""Largest depth of nested mappings and lists in a config."""


def plain(value: Any, where: str, *, storable: bool = False, inside: tuple[int, ...] = ()) -> Any:
    """Return a copy with NumPy scalars converted to Python numbers, at every level.

    Args:
        value: The value of a key, or a part of it.
        where: The key, for error messages.
        storable: Allow only values that survive a round trip through a file, so that training,
            evaluation and resuming pass the same arguments to `gymnasium.make`. Tuples become
            lists.
        inside: Ids of the enclosing mappings and lists, to detect cycles.
    """
    if isinstance(value, np.generic) and value.dtype.kind in "biufU":
        value = value.item()
    if not isinstance(value, Mapping | list | tuple):
        if storable:
            _check_storable(value, where)
        return value
    if id(value) in inside:
        raise ConfigError(f"{_label(where)} contains itself, which a config file cannot represent.")
    if len(inside) >= MAX_DEPTH:
        raise ConfigError(
            f"{_label(where)} is nested too deeply: at most {MAX_DEPTH} levels are allowed."
        )
    inside = (*inside, id(value))
    if not isinstance(value, Mapping):
        items = [plain(item, where, storable=storable, inside=inside) for item in value]
        return tuple(items) if isinstance(value, tuple) and not storable else items
    copied = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise ConfigError(
                f"{_label(where)} has the key {shown(key)}, but keys should be strings: put it in "
                "quotes."
            )
        name = str.__str__(key)
        if storable:
            _check_storable(name, f"A key of {where}")
        copied[name] = plain(item, f"{where}.{name}", storable=storable, inside=inside)
    return copied


def _check_storable(value: Any, where: str) -> None:
    """Reject a value that a config file cannot represent, and NaN, which is not equal to itself."""
    if value is not None and type(value) not in (bool, int, float, str):
        raise ConfigError(
            f"{_label(where)} is a {type(value).__name__}, but a config file can only contain "
            "numbers, strings, booleans, null, and lists and mappings of them. Convert it "
            "(str(path), array.tolist()), or create it in the environment."
        )
    if isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
        raise ConfigError(f"{_label(where)} = {shown(value)}: should be valid Unicode text.")
    if isinstance(value, str) and "\x85" in value:  # YAML reads it back as a space
        raise ConfigError(
            f"{_label(where)} = {shown(value)}: should not contain the control character U+0085."
        )
    if isinstance(value, int) and abs(value) >= LARGEST_INT:
        raise ConfigError(f"{_label(where)} = {shown(value)}: should have at most 38 digits.")
    if isinstance(value, float) and value != value:
        raise ConfigError(f"{_label(where)} = nan: NaN is not allowed.")


def _label(where: str) -> str:
    return shorten(printable(where, keep=""))


def tuples_to_lists(value: Any) -> Any:
    """Convert tuples to lists, for YAML and JSON."""
    if isinstance(value, dict):
        return {key: tuples_to_lists(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [tuples_to_lists(item) for item in value]
    return value

"""Values of a config that come from Python, as a config file holds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rl_training.boundary.text import printable, shorten, shown
from rl_training.config_model import LARGEST_INT
from rl_training.errors import ConfigError

MAX_DEPTH = 32
"""Mappings and lists inside each other, in a config."""


def plain(value: Any, where: str, inside: tuple[int, ...] = ()) -> Any:
    """A copy with NumPy's scalars as Python's numbers, wherever they stand.

    ``inside`` are the mappings and lists that hold the value: one that holds itself has no end.
    """
    if isinstance(value, np.generic) and value.dtype.kind in "biufU":
        return value.item()
    if not isinstance(value, Mapping | list | tuple):
        return value
    if id(value) in inside:
        raise ConfigError(f"{_at(where)} contains itself, which no config file can hold.")
    if len(inside) >= MAX_DEPTH:
        raise ConfigError(f"{_at(where)} is nested too deeply: {MAX_DEPTH} levels are allowed.")
    inside = (*inside, id(value))
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ConfigError(
                    f"{_at(where)} has the key {shown(key)}, but keys should be strings: write "
                    "it in quotes."
                )
        items = ((str.__str__(key), item) for key, item in value.items())
        return {key: plain(item, f"{where}.{key}", inside) for key, item in items}
    copied = [plain(item, where, inside) for item in value]
    return tuple(copied) if isinstance(value, tuple) else copied


def storable(value: Any, where: str) -> Any:
    """A value that training, evaluation and a resume hand to `gymnasium.make` alike.

    Later ones read it from a file: tuples become lists from the beginning.
    """
    if isinstance(value, dict):
        for key in value:
            _check_storable(key, f"A key of {where}")
        return {key: storable(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item, where) for item in value]
    if value is None or type(value) in (bool, int, float, str):
        _check_storable(value, where)
        return value
    raise ConfigError(
        f"{_at(where)} is a {type(value).__name__}, but should be a number, text, true, false, "
        "null, or a list or mapping of them, which a config file can hold: convert it (str(path), "
        "array.tolist()), or let the environment make it."
    )


def _check_storable(value: Any, where: str) -> None:
    """Refuse what a config file cannot hold, or what would not be equal to itself in a resume."""
    if isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
        raise ConfigError(f"{_at(where)} = {shown(value)}: should be Unicode text.")
    if isinstance(value, int) and abs(value) >= LARGEST_INT:
        raise ConfigError(f"{_at(where)} = {shown(value)}: should have at most 38 digits.")
    if isinstance(value, float) and value != value:
        raise ConfigError(f"{_at(where)} = nan: should be a number.")


def _at(where: str) -> str:
    return shorten(printable(where, keep=""))


def listed(value: Any) -> Any:
    """Tuples as lists, for YAML and JSON."""
    if isinstance(value, dict):
        return {key: listed(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [listed(item) for item in value]
    return value

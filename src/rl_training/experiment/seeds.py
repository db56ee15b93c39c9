"""Seeds of several runs, given as a count or as a list."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rl_training.config_model import LARGEST_INT
from rl_training.errors import ConfigError
from rl_training.text import shown

MAX_SEEDS = 100_000


def as_seeds(value: Any, name: str = "seeds") -> tuple[int, ...]:
    """Return the seeds of a count, such as 5 for the seeds 0 to 4, or of a list.

    Text is read as on the command line: ``5``, ``0,3,7`` or ``[0, 3, 7]``.
    """
    if isinstance(value, str):
        value = _parse(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_SEEDS:
        return tuple(range(value))
    listed = isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 0
    if not listed or not all(type(seed) is int and 0 <= seed < LARGEST_INT for seed in value):
        raise ConfigError(
            f"{name} = {shown(value)}: should be a count, such as 5, or a list of different seeds, "
            "such as [0, 3, 7]."
        )
    if len(set(value)) < len(value):
        twice = next(seed for seed in value if list(value).count(seed) > 1)
        raise ConfigError(f"{name} = {shown(list(value))}: the seed {twice} appears twice.")
    return tuple(value)


def _parse(text: str) -> Any:
    """Return the count or the list in a text; the text itself if it is neither."""
    if re.fullmatch(r"[0-9]{1,40}", text):
        return int(text)
    inside = re.fullmatch(r"\[?\s*([0-9]{1,40}(?:\s*,\s*[0-9]{1,40})*)\s*,?\s*\]?", text)
    return [int(part) for part in inside[1].split(",")] if inside else text

"""Differences between two configs that affect results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rl_training.config_model import Trait, keys_with
from rl_training.experiment.config import TrainConfig
from rl_training.text import shown

OWN_KEYS = ("seed", "output_dir")
"""Config keys that differ between the runs of a group."""

_IGNORED = frozenset({*keys_with(Trait.LABEL, TrainConfig), *OWN_KEYS})
_DERIVED = frozenset({"schedule_horizon"})
"""Keys that follow from others by default, so they are reported only if nothing else differs."""


@dataclass(frozen=True)
class Difference:
    """A key with two different values."""

    key: str
    before: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.key} is {shown(self.before)} and {shown(self.now)}"


def first_difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> Difference | None:
    """Return the first key that affects results and differs, or None.

    Keys in `algo_kwargs` count like the others.
    """
    flat = [
        {k: v for k, v in data.items() if k != "algo_kwargs"} | (data.get("algo_kwargs") or {})
        for data in (before, now)
    ]
    keys = (flat[0].keys() | flat[1].keys()) - _IGNORED
    for key in sorted(keys, key=lambda key: (key in _DERIVED, key)):
        old, new = (data.get(key) for data in flat)
        if old != new:
            return Difference(key, old, new)
    return None

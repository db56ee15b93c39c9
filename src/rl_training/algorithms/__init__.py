"""Learners: one file per algorithm, and the registry that names them.

The learners themselves are imported on first use, so that listing algorithms needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rl_training.algorithms.registry import REGISTRY, AlgorithmEntry, get_algorithm

if TYPE_CHECKING:
    from rl_training.algorithms.base import Algorithm, FlatAdam, draw_noise, polyak_update
    from rl_training.algorithms.sac import SACAlgorithm, SACConfig, sac_loss

    SAC = SACAlgorithm

_HOMES = {
    "Algorithm": "base",
    "FlatAdam": "base",
    "draw_noise": "base",
    "polyak_update": "base",
    "SACAlgorithm": "sac",
    "SACConfig": "sac",
    "sac_loss": "sac",
}
_SHORT_NAMES = {"SAC": "SACAlgorithm"}

__all__ = [
    "REGISTRY",
    "SAC",
    "Algorithm",
    "AlgorithmEntry",
    "FlatAdam",
    "SACAlgorithm",
    "SACConfig",
    "draw_noise",
    "get_algorithm",
    "polyak_update",
    "sac_loss",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    target = _SHORT_NAMES.get(name, name)
    if target not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[target]}"), target)

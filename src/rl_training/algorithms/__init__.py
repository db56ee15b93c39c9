"""Learners: one file per algorithm, and the registry that names them.

The learners themselves are imported on first use, so that listing algorithms needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.algorithms.registry import REGISTRY, AlgorithmEntry, get_algorithm
from rl_training.lazy import lazy_exports

if TYPE_CHECKING:
    from rl_training.algorithms.base import Algorithm, FlatAdam, draw_noise, polyak_update
    from rl_training.algorithms.sac import SACAlgorithm, SACConfig, sac_loss

    SAC = SACAlgorithm

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


__getattr__ = lazy_exports(
    __name__,
    {
        "Algorithm": "base",
        "FlatAdam": "base",
        "SAC": "sac:SACAlgorithm",
        "SACAlgorithm": "sac",
        "SACConfig": "sac",
        "draw_noise": "base",
        "polyak_update": "base",
        "sac_loss": "sac",
    },
)

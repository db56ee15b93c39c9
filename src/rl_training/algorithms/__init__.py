"""Learners: one file per algorithm, and the registry that names them.

The learners themselves are imported on first use, so that listing algorithms needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.algorithms.registry import REGISTRY, AlgorithmEntry, get_algorithm
from rl_training.lazy import lazy_exports

if TYPE_CHECKING:
    from rl_training.algorithms.base import Algorithm, FlatAdam, draw_noise, polyak_update
    from rl_training.algorithms.dqn import DQNAlgorithm, DQNConfig, dqn_loss
    from rl_training.algorithms.sac import SACAlgorithm, SACConfig, sac_loss

    DQN = DQNAlgorithm
    SAC = SACAlgorithm

__all__ = [
    "DQN",
    "REGISTRY",
    "SAC",
    "Algorithm",
    "AlgorithmEntry",
    "DQNAlgorithm",
    "DQNConfig",
    "FlatAdam",
    "SACAlgorithm",
    "SACConfig",
    "dqn_loss",
    "draw_noise",
    "get_algorithm",
    "polyak_update",
    "sac_loss",
]


__getattr__ = lazy_exports(
    __name__,
    {
        "Algorithm": "base",
        "DQN": "dqn:DQNAlgorithm",
        "DQNAlgorithm": "dqn",
        "DQNConfig": "dqn",
        "FlatAdam": "base",
        "SAC": "sac:SACAlgorithm",
        "SACAlgorithm": "sac",
        "SACConfig": "sac",
        "dqn_loss": "dqn",
        "draw_noise": "base",
        "polyak_update": "base",
        "sac_loss": "sac",
    },
)

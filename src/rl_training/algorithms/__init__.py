"""Learners: one file per algorithm, and the registry that names them.

The learners themselves are imported on first use, so that listing algorithms needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.algorithms.registry import REGISTRY, AlgorithmEntry, get_algorithm
from rl_training.lazy import lazy_exports

if TYPE_CHECKING:
    from rl_training.algorithms.base import Algorithm, FlatAdam, draw_noise, polyak_update
    from rl_training.algorithms.bc import BCAlgorithm, BCConfig, bc_loss
    from rl_training.algorithms.ddpg import DDPGAlgorithm, DDPGConfig, ddpg_loss
    from rl_training.algorithms.dqn import DQNAlgorithm, DQNConfig, dqn_loss
    from rl_training.algorithms.redq import REDQAlgorithm, REDQConfig, redq_loss
    from rl_training.algorithms.sac import SACAlgorithm, SACConfig, sac_loss
    from rl_training.algorithms.td3 import TD3Algorithm, TD3Config, td3_loss
    from rl_training.algorithms.tqc import TQCAlgorithm, TQCConfig, tqc_loss

    BC = BCAlgorithm
    DDPG = DDPGAlgorithm
    DQN = DQNAlgorithm
    REDQ = REDQAlgorithm
    SAC = SACAlgorithm
    TD3 = TD3Algorithm
    TQC = TQCAlgorithm

__all__ = [
    "BC",
    "DDPG",
    "DQN",
    "REDQ",
    "REGISTRY",
    "SAC",
    "TD3",
    "TQC",
    "Algorithm",
    "AlgorithmEntry",
    "BCAlgorithm",
    "BCConfig",
    "DDPGAlgorithm",
    "DDPGConfig",
    "DQNAlgorithm",
    "DQNConfig",
    "FlatAdam",
    "REDQAlgorithm",
    "REDQConfig",
    "SACAlgorithm",
    "SACConfig",
    "TD3Algorithm",
    "TD3Config",
    "TQCAlgorithm",
    "TQCConfig",
    "bc_loss",
    "ddpg_loss",
    "dqn_loss",
    "draw_noise",
    "get_algorithm",
    "polyak_update",
    "redq_loss",
    "sac_loss",
    "td3_loss",
    "tqc_loss",
]


__getattr__ = lazy_exports(
    __name__,
    {
        "Algorithm": "base",
        "BC": "bc:BCAlgorithm",
        "BCAlgorithm": "bc",
        "BCConfig": "bc",
        "DDPG": "ddpg:DDPGAlgorithm",
        "DDPGAlgorithm": "ddpg",
        "DDPGConfig": "ddpg",
        "DQN": "dqn:DQNAlgorithm",
        "DQNAlgorithm": "dqn",
        "DQNConfig": "dqn",
        "FlatAdam": "base",
        "REDQ": "redq:REDQAlgorithm",
        "REDQAlgorithm": "redq",
        "REDQConfig": "redq",
        "SAC": "sac:SACAlgorithm",
        "SACAlgorithm": "sac",
        "SACConfig": "sac",
        "TD3": "td3:TD3Algorithm",
        "TD3Algorithm": "td3",
        "TD3Config": "td3",
        "TQC": "tqc:TQCAlgorithm",
        "TQCAlgorithm": "tqc",
        "TQCConfig": "tqc",
        "bc_loss": "bc",
        "ddpg_loss": "ddpg",
        "dqn_loss": "dqn",
        "draw_noise": "base",
        "polyak_update": "base",
        "redq_loss": "redq",
        "sac_loss": "sac",
        "td3_loss": "td3",
        "tqc_loss": "tqc",
    },
)

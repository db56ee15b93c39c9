"""Learners: one file per algorithm, and the registry that names them.

The learners themselves are imported on first use, so that listing algorithms needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.algorithms.registry import (
    REGISTRY,
    AlgorithmEntry,
    get_algorithm,
    register_algorithm,
)
from rl_training.lazy import lazy_exports

if TYPE_CHECKING:
    from rl_training.algorithms.awac import AWACAlgorithm, AWACConfig, awac_loss
    from rl_training.algorithms.base import Algorithm, FlatAdam, draw_noise, polyak_update
    from rl_training.algorithms.bc import BCAlgorithm, BCConfig, bc_loss
    from rl_training.algorithms.cql import CQLAlgorithm, CQLConfig, cql_loss
    from rl_training.algorithms.ddpg import DDPGAlgorithm, DDPGConfig, ddpg_loss
    from rl_training.algorithms.dqn import DQNAlgorithm, DQNConfig, dqn_loss
    from rl_training.algorithms.edac import (
        EDACAlgorithm,
        EDACConfig,
        critic_diversity_loss,
        edac_loss,
    )
    from rl_training.algorithms.iql import IQLAlgorithm, IQLConfig, iql_loss
    from rl_training.algorithms.redq import REDQAlgorithm, REDQConfig, redq_loss
    from rl_training.algorithms.rlpd import RLPDAlgorithm, RLPDConfig, rlpd_loss
    from rl_training.algorithms.sac import SACAlgorithm, SACConfig, sac_loss
    from rl_training.algorithms.td3 import TD3Algorithm, TD3Config, td3_loss
    from rl_training.algorithms.td3_bc import TD3BCAlgorithm, TD3BCConfig, td3_bc_loss
    from rl_training.algorithms.tqc import TQCAlgorithm, TQCConfig, tqc_loss

    AWAC = AWACAlgorithm
    CQL = CQLAlgorithm
    BC = BCAlgorithm
    DDPG = DDPGAlgorithm
    DQN = DQNAlgorithm
    EDAC = EDACAlgorithm
    IQL = IQLAlgorithm
    REDQ = REDQAlgorithm
    RLPD = RLPDAlgorithm
    SAC = SACAlgorithm
    TD3 = TD3Algorithm
    TD3BC = TD3BCAlgorithm
    TQC = TQCAlgorithm

__all__ = [
    "AWAC",
    "BC",
    "CQL",
    "DDPG",
    "DQN",
    "EDAC",
    "IQL",
    "REDQ",
    "REGISTRY",
    "RLPD",
    "SAC",
    "TD3",
    "TD3BC",
    "TQC",
    "AWACAlgorithm",
    "AWACConfig",
    "Algorithm",
    "AlgorithmEntry",
    "BCAlgorithm",
    "BCConfig",
    "CQLAlgorithm",
    "CQLConfig",
    "DDPGAlgorithm",
    "DDPGConfig",
    "DQNAlgorithm",
    "DQNConfig",
    "EDACAlgorithm",
    "EDACConfig",
    "FlatAdam",
    "IQLAlgorithm",
    "IQLConfig",
    "REDQAlgorithm",
    "REDQConfig",
    "RLPDAlgorithm",
    "RLPDConfig",
    "SACAlgorithm",
    "SACConfig",
    "TD3Algorithm",
    "TD3BCAlgorithm",
    "TD3BCConfig",
    "TD3Config",
    "TQCAlgorithm",
    "TQCConfig",
    "awac_loss",
    "bc_loss",
    "cql_loss",
    "critic_diversity_loss",
    "ddpg_loss",
    "dqn_loss",
    "draw_noise",
    "edac_loss",
    "get_algorithm",
    "iql_loss",
    "polyak_update",
    "redq_loss",
    "register_algorithm",
    "rlpd_loss",
    "sac_loss",
    "td3_bc_loss",
    "td3_loss",
    "tqc_loss",
]


__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "AWAC": "awac:AWACAlgorithm",
        "AWACAlgorithm": "awac",
        "AWACConfig": "awac",
        "Algorithm": "base",
        "BC": "bc:BCAlgorithm",
        "BCAlgorithm": "bc",
        "BCConfig": "bc",
        "CQL": "cql:CQLAlgorithm",
        "CQLAlgorithm": "cql",
        "CQLConfig": "cql",
        "DDPG": "ddpg:DDPGAlgorithm",
        "DDPGAlgorithm": "ddpg",
        "DDPGConfig": "ddpg",
        "DQN": "dqn:DQNAlgorithm",
        "DQNAlgorithm": "dqn",
        "DQNConfig": "dqn",
        "EDAC": "edac:EDACAlgorithm",
        "EDACAlgorithm": "edac",
        "EDACConfig": "edac",
        "FlatAdam": "base",
        "IQL": "iql:IQLAlgorithm",
        "IQLAlgorithm": "iql",
        "IQLConfig": "iql",
        "REDQ": "redq:REDQAlgorithm",
        "REDQAlgorithm": "redq",
        "REDQConfig": "redq",
        "RLPD": "rlpd:RLPDAlgorithm",
        "RLPDAlgorithm": "rlpd",
        "RLPDConfig": "rlpd",
        "SAC": "sac:SACAlgorithm",
        "SACAlgorithm": "sac",
        "SACConfig": "sac",
        "TD3": "td3:TD3Algorithm",
        "TD3Algorithm": "td3",
        "TD3BC": "td3_bc:TD3BCAlgorithm",
        "TD3BCAlgorithm": "td3_bc",
        "TD3BCConfig": "td3_bc",
        "TD3Config": "td3",
        "TQC": "tqc:TQCAlgorithm",
        "TQCAlgorithm": "tqc",
        "TQCConfig": "tqc",
        "awac_loss": "awac",
        "bc_loss": "bc",
        "cql_loss": "cql",
        "critic_diversity_loss": "edac",
        "ddpg_loss": "ddpg",
        "dqn_loss": "dqn",
        "draw_noise": "base",
        "edac_loss": "edac",
        "iql_loss": "iql",
        "polyak_update": "base",
        "redq_loss": "redq",
        "rlpd_loss": "rlpd",
        "sac_loss": "sac",
        "td3_bc_loss": "td3_bc",
        "td3_loss": "td3",
        "tqc_loss": "tqc",
    },
)

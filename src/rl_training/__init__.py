"""Online, offline and offline-to-online reinforcement learning as one workflow.

Names are imported on first use: `import rl_training` itself loads neither torch nor gymnasium.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.errors import CheckpointError, ConfigError, RLTrainingError, TrainingError
from rl_training.lazy import lazy_exports
from rl_training.version import __version__

if TYPE_CHECKING:
    from rl_training.algorithms.awac import AWACAlgorithm, AWACConfig, awac_loss
    from rl_training.algorithms.base import Algorithm
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
    from rl_training.algorithms.registry import REGISTRY, register_algorithm
    from rl_training.algorithms.rlpd import RLPDAlgorithm, RLPDConfig, rlpd_loss
    from rl_training.algorithms.sac import SACAlgorithm, SACConfig, sac_loss
    from rl_training.algorithms.td3 import TD3Algorithm, TD3Config, td3_loss
    from rl_training.algorithms.td3_bc import TD3BCAlgorithm, TD3BCConfig, td3_bc_loss
    from rl_training.algorithms.tqc import TQCAlgorithm, TQCConfig, tqc_loss
    from rl_training.api.checkpoints import evaluate_checkpoint, predict_checkpoint
    from rl_training.api.finetuning import finetune
    from rl_training.api.managed import (
        BC,
        DDPG,
        DQN,
        HER,
        REDQ,
        SAC,
        TD3,
        TQC,
        train_bc,
        train_ddpg,
        train_dqn,
        train_her,
        train_redq,
        train_sac,
        train_td3,
        train_tqc,
    )
    from rl_training.api.managed_mixed import RLPD, train_rlpd
    from rl_training.api.managed_offline import (
        AWAC,
        CQL,
        EDAC,
        IQL,
        TD3BC,
        train_awac,
        train_cql,
        train_edac,
        train_iql,
        train_td3_bc,
    )
    from rl_training.api.training import resume, train
    from rl_training.data.mixing import MixedSampler
    from rl_training.data.replay_buffer import ReplayBuffer
    from rl_training.experiment.config import TrainConfig
    from rl_training.models.mlp_redq import MLPREDQModel
    from rl_training.models.mlp_sac import MLPSACModel
    from rl_training.runtime.callbacks import (
        Callback,
        EarlyStoppingCallback,
        EarlyStoppingConfig,
    )
    from rl_training.runtime.control_config import build_control_callbacks
    from rl_training.runtime.trainer_state import TrainerState
    from rl_training.runtime.training_loop import TrainResult
    from rl_training.types import Batch, EnvSpec

__all__ = [
    "AWAC",
    "BC",
    "CQL",
    "DDPG",
    "DQN",
    "EDAC",
    "HER",
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
    "BCAlgorithm",
    "BCConfig",
    "Batch",
    "CQLAlgorithm",
    "CQLConfig",
    "Callback",
    "CheckpointError",
    "ConfigError",
    "DDPGAlgorithm",
    "DDPGConfig",
    "DQNAlgorithm",
    "DQNConfig",
    "EDACAlgorithm",
    "EDACConfig",
    "EarlyStoppingCallback",
    "EarlyStoppingConfig",
    "EnvSpec",
    "IQLAlgorithm",
    "IQLConfig",
    "MLPREDQModel",
    "MLPSACModel",
    "MixedSampler",
    "REDQAlgorithm",
    "REDQConfig",
    "RLPDAlgorithm",
    "RLPDConfig",
    "RLTrainingError",
    "ReplayBuffer",
    "SACAlgorithm",
    "SACConfig",
    "TD3Algorithm",
    "TD3BCAlgorithm",
    "TD3BCConfig",
    "TD3Config",
    "TQCAlgorithm",
    "TQCConfig",
    "TrainConfig",
    "TrainResult",
    "TrainerState",
    "TrainingError",
    "__version__",
    "awac_loss",
    "bc_loss",
    "build_control_callbacks",
    "cql_loss",
    "critic_diversity_loss",
    "ddpg_loss",
    "dqn_loss",
    "edac_loss",
    "evaluate_checkpoint",
    "finetune",
    "iql_loss",
    "predict_checkpoint",
    "redq_loss",
    "register_algorithm",
    "resume",
    "rlpd_loss",
    "sac_loss",
    "td3_bc_loss",
    "td3_loss",
    "tqc_loss",
    "train",
    "train_awac",
    "train_bc",
    "train_cql",
    "train_ddpg",
    "train_dqn",
    "train_edac",
    "train_her",
    "train_iql",
    "train_redq",
    "train_rlpd",
    "train_sac",
    "train_td3",
    "train_td3_bc",
    "train_tqc",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "AWAC": "api.managed_offline",
        "AWACAlgorithm": "algorithms.awac",
        "AWACConfig": "algorithms.awac",
        "Algorithm": "algorithms.base",
        "BC": "api.managed",
        "BCAlgorithm": "algorithms.bc",
        "BCConfig": "algorithms.bc",
        "Batch": "types",
        "CQL": "api.managed_offline",
        "CQLAlgorithm": "algorithms.cql",
        "CQLConfig": "algorithms.cql",
        "Callback": "runtime.callbacks",
        "DDPG": "api.managed",
        "DDPGAlgorithm": "algorithms.ddpg",
        "DDPGConfig": "algorithms.ddpg",
        "DQN": "api.managed",
        "DQNAlgorithm": "algorithms.dqn",
        "DQNConfig": "algorithms.dqn",
        "EDAC": "api.managed_offline",
        "EDACAlgorithm": "algorithms.edac",
        "EDACConfig": "algorithms.edac",
        "EarlyStoppingCallback": "runtime.callbacks",
        "EarlyStoppingConfig": "runtime.callbacks",
        "EnvSpec": "types",
        "HER": "api.managed",
        "IQL": "api.managed_offline",
        "IQLAlgorithm": "algorithms.iql",
        "IQLConfig": "algorithms.iql",
        "MLPREDQModel": "models.mlp_redq",
        "MLPSACModel": "models.mlp_sac",
        "MixedSampler": "data.mixing",
        "REDQ": "api.managed",
        "REDQAlgorithm": "algorithms.redq",
        "REDQConfig": "algorithms.redq",
        "REGISTRY": "algorithms.registry",
        "RLPD": "api.managed_mixed",
        "RLPDAlgorithm": "algorithms.rlpd",
        "RLPDConfig": "algorithms.rlpd",
        "ReplayBuffer": "data.replay_buffer",
        "SAC": "api.managed",
        "SACAlgorithm": "algorithms.sac",
        "SACConfig": "algorithms.sac",
        "TD3": "api.managed",
        "TD3Algorithm": "algorithms.td3",
        "TD3BC": "api.managed_offline",
        "TD3BCAlgorithm": "algorithms.td3_bc",
        "TD3BCConfig": "algorithms.td3_bc",
        "TD3Config": "algorithms.td3",
        "TQC": "api.managed",
        "TQCAlgorithm": "algorithms.tqc",
        "TQCConfig": "algorithms.tqc",
        "TrainConfig": "experiment.config",
        "TrainResult": "runtime.training_loop",
        "TrainerState": "runtime.trainer_state",
        "awac_loss": "algorithms.awac",
        "bc_loss": "algorithms.bc",
        "build_control_callbacks": "runtime.control_config",
        "cql_loss": "algorithms.cql",
        "critic_diversity_loss": "algorithms.edac",
        "ddpg_loss": "algorithms.ddpg",
        "dqn_loss": "algorithms.dqn",
        "edac_loss": "algorithms.edac",
        "evaluate_checkpoint": "api.checkpoints",
        "finetune": "api.finetuning",
        "iql_loss": "algorithms.iql",
        "predict_checkpoint": "api.checkpoints",
        "redq_loss": "algorithms.redq",
        "register_algorithm": "algorithms.registry",
        "resume": "api.training",
        "rlpd_loss": "algorithms.rlpd",
        "sac_loss": "algorithms.sac",
        "td3_bc_loss": "algorithms.td3_bc",
        "td3_loss": "algorithms.td3",
        "tqc_loss": "algorithms.tqc",
        "train": "api.training",
        "train_awac": "api.managed_offline",
        "train_bc": "api.managed",
        "train_cql": "api.managed_offline",
        "train_ddpg": "api.managed",
        "train_dqn": "api.managed",
        "train_edac": "api.managed_offline",
        "train_her": "api.managed",
        "train_iql": "api.managed_offline",
        "train_redq": "api.managed",
        "train_rlpd": "api.managed_mixed",
        "train_sac": "api.managed",
        "train_td3": "api.managed",
        "train_td3_bc": "api.managed_offline",
        "train_tqc": "api.managed",
    },
)

"""Online, offline and offline-to-online reinforcement learning as one workflow.

Names are imported on first use: `import rl_training` itself loads neither torch nor gymnasium.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.errors import CheckpointError, ConfigError, RLTrainingError, TrainingError
from rl_training.lazy import lazy_exports
from rl_training.version import __version__

if TYPE_CHECKING:
    from rl_training.algorithms.base import Algorithm
    from rl_training.algorithms.bc import BCAlgorithm, BCConfig, bc_loss
    from rl_training.algorithms.ddpg import DDPGAlgorithm, DDPGConfig, ddpg_loss
    from rl_training.algorithms.dqn import DQNAlgorithm, DQNConfig, dqn_loss
    from rl_training.algorithms.redq import REDQAlgorithm, REDQConfig, redq_loss
    from rl_training.algorithms.registry import REGISTRY
    from rl_training.algorithms.sac import SACAlgorithm, SACConfig, sac_loss
    from rl_training.algorithms.td3 import TD3Algorithm, TD3Config, td3_loss
    from rl_training.algorithms.tqc import TQCAlgorithm, TQCConfig, tqc_loss
    from rl_training.api.checkpoints import evaluate_checkpoint, predict_checkpoint
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
    from rl_training.api.training import resume, train
    from rl_training.data.replay_buffer import ReplayBuffer
    from rl_training.experiment.config import TrainConfig
    from rl_training.models.mlp_redq import MLPREDQModel
    from rl_training.models.mlp_sac import MLPSACModel
    from rl_training.runtime.callbacks import (
        Callback,
        EarlyStoppingCallback,
        EarlyStoppingConfig,
    )
    from rl_training.runtime.controls import build_control_callbacks
    from rl_training.runtime.trainer import TrainerState
    from rl_training.runtime.workflows import TrainResult
    from rl_training.types import Batch, EnvSpec

__all__ = [
    "BC",
    "DDPG",
    "DQN",
    "HER",
    "REDQ",
    "REGISTRY",
    "SAC",
    "TD3",
    "TQC",
    "Algorithm",
    "BCAlgorithm",
    "BCConfig",
    "Batch",
    "Callback",
    "CheckpointError",
    "ConfigError",
    "DDPGAlgorithm",
    "DDPGConfig",
    "DQNAlgorithm",
    "DQNConfig",
    "EarlyStoppingCallback",
    "EarlyStoppingConfig",
    "EnvSpec",
    "MLPREDQModel",
    "MLPSACModel",
    "REDQAlgorithm",
    "REDQConfig",
    "RLTrainingError",
    "ReplayBuffer",
    "SACAlgorithm",
    "SACConfig",
    "TD3Algorithm",
    "TD3Config",
    "TQCAlgorithm",
    "TQCConfig",
    "TrainConfig",
    "TrainResult",
    "TrainerState",
    "TrainingError",
    "__version__",
    "bc_loss",
    "build_control_callbacks",
    "ddpg_loss",
    "dqn_loss",
    "evaluate_checkpoint",
    "predict_checkpoint",
    "redq_loss",
    "resume",
    "sac_loss",
    "td3_loss",
    "tqc_loss",
    "train",
    "train_bc",
    "train_ddpg",
    "train_dqn",
    "train_her",
    "train_redq",
    "train_sac",
    "train_td3",
    "train_tqc",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "Algorithm": "algorithms.base",
        "BC": "api.managed",
        "BCAlgorithm": "algorithms.bc",
        "BCConfig": "algorithms.bc",
        "Batch": "types",
        "Callback": "runtime.callbacks",
        "DDPG": "api.managed",
        "DDPGAlgorithm": "algorithms.ddpg",
        "DDPGConfig": "algorithms.ddpg",
        "DQN": "api.managed",
        "DQNAlgorithm": "algorithms.dqn",
        "DQNConfig": "algorithms.dqn",
        "EarlyStoppingCallback": "runtime.callbacks",
        "EarlyStoppingConfig": "runtime.callbacks",
        "EnvSpec": "types",
        "HER": "api.managed",
        "MLPREDQModel": "models.mlp_redq",
        "MLPSACModel": "models.mlp_sac",
        "REDQ": "api.managed",
        "REDQAlgorithm": "algorithms.redq",
        "REDQConfig": "algorithms.redq",
        "REGISTRY": "algorithms.registry",
        "ReplayBuffer": "data.replay_buffer",
        "SAC": "api.managed",
        "SACAlgorithm": "algorithms.sac",
        "SACConfig": "algorithms.sac",
        "TD3": "api.managed",
        "TD3Algorithm": "algorithms.td3",
        "TD3Config": "algorithms.td3",
        "TQC": "api.managed",
        "TQCAlgorithm": "algorithms.tqc",
        "TQCConfig": "algorithms.tqc",
        "TrainConfig": "experiment.config",
        "TrainResult": "runtime.workflows",
        "TrainerState": "runtime.trainer",
        "bc_loss": "algorithms.bc",
        "build_control_callbacks": "runtime.controls",
        "ddpg_loss": "algorithms.ddpg",
        "dqn_loss": "algorithms.dqn",
        "evaluate_checkpoint": "api.checkpoints",
        "predict_checkpoint": "api.checkpoints",
        "redq_loss": "algorithms.redq",
        "resume": "api.training",
        "sac_loss": "algorithms.sac",
        "td3_loss": "algorithms.td3",
        "tqc_loss": "algorithms.tqc",
        "train": "api.training",
        "train_bc": "api.managed",
        "train_ddpg": "api.managed",
        "train_dqn": "api.managed",
        "train_her": "api.managed",
        "train_redq": "api.managed",
        "train_sac": "api.managed",
        "train_td3": "api.managed",
        "train_tqc": "api.managed",
    },
)

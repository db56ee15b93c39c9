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
    from rl_training.algorithms.registry import REGISTRY
    from rl_training.algorithms.sac import SACAlgorithm, SACConfig, sac_loss
    from rl_training.api.managed import HER, SAC, train_her, train_sac
    from rl_training.api.training import evaluate_checkpoint, predict_checkpoint, resume, train
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
    "HER",
    "REGISTRY",
    "SAC",
    "Algorithm",
    "Batch",
    "Callback",
    "CheckpointError",
    "ConfigError",
    "EarlyStoppingCallback",
    "EarlyStoppingConfig",
    "EnvSpec",
    "MLPREDQModel",
    "MLPSACModel",
    "RLTrainingError",
    "ReplayBuffer",
    "SACAlgorithm",
    "SACConfig",
    "TrainConfig",
    "TrainResult",
    "TrainerState",
    "TrainingError",
    "__version__",
    "build_control_callbacks",
    "evaluate_checkpoint",
    "predict_checkpoint",
    "resume",
    "sac_loss",
    "train",
    "train_her",
    "train_sac",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "Algorithm": "algorithms.base",
        "Batch": "types",
        "Callback": "runtime.callbacks",
        "EarlyStoppingCallback": "runtime.callbacks",
        "EarlyStoppingConfig": "runtime.callbacks",
        "EnvSpec": "types",
        "HER": "api.managed",
        "MLPREDQModel": "models.mlp_redq",
        "MLPSACModel": "models.mlp_sac",
        "REGISTRY": "algorithms.registry",
        "ReplayBuffer": "data.replay_buffer",
        "SAC": "api.managed",
        "SACAlgorithm": "algorithms.sac",
        "SACConfig": "algorithms.sac",
        "TrainConfig": "experiment.config",
        "TrainResult": "runtime.workflows",
        "TrainerState": "runtime.trainer",
        "build_control_callbacks": "runtime.controls",
        "evaluate_checkpoint": "api.training",
        "predict_checkpoint": "api.training",
        "resume": "api.training",
        "sac_loss": "algorithms.sac",
        "train": "api.training",
        "train_her": "api.managed",
        "train_sac": "api.managed",
    },
)

"""The managed Python API: classes and functions that look after runs and checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.lazy import lazy_exports

if TYPE_CHECKING:
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
        ManagedAlgorithm,
        train_bc,
        train_ddpg,
        train_dqn,
        train_her,
        train_redq,
        train_sac,
        train_td3,
        train_tqc,
    )
    from rl_training.api.progress import ProgressCallback
    from rl_training.api.training import resume, train

__all__ = [
    "BC",
    "DDPG",
    "DQN",
    "HER",
    "REDQ",
    "SAC",
    "TD3",
    "TQC",
    "ManagedAlgorithm",
    "ProgressCallback",
    "evaluate_checkpoint",
    "predict_checkpoint",
    "resume",
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
        "BC": "managed",
        "DDPG": "managed",
        "DQN": "managed",
        "HER": "managed",
        "ManagedAlgorithm": "managed",
        "ProgressCallback": "progress",
        "REDQ": "managed",
        "SAC": "managed",
        "TD3": "managed",
        "TQC": "managed",
        "evaluate_checkpoint": "checkpoints",
        "predict_checkpoint": "checkpoints",
        "resume": "training",
        "train": "training",
        "train_bc": "managed",
        "train_ddpg": "managed",
        "train_dqn": "managed",
        "train_her": "managed",
        "train_redq": "managed",
        "train_sac": "managed",
        "train_td3": "managed",
        "train_tqc": "managed",
    },
)

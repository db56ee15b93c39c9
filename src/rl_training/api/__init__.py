"""The managed Python API: classes and functions that look after runs and checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.lazy import lazy_exports

if TYPE_CHECKING:
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
    from rl_training.api.progress import ProgressCallback
    from rl_training.api.training import resume, train

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
    "RLPD",
    "SAC",
    "TD3",
    "TD3BC",
    "TQC",
    "ManagedAlgorithm",
    "ProgressCallback",
    "evaluate_checkpoint",
    "finetune",
    "predict_checkpoint",
    "resume",
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
        "AWAC": "managed_offline",
        "BC": "managed",
        "CQL": "managed_offline",
        "DDPG": "managed",
        "DQN": "managed",
        "EDAC": "managed_offline",
        "HER": "managed",
        "IQL": "managed_offline",
        "ManagedAlgorithm": "managed",
        "ProgressCallback": "progress",
        "REDQ": "managed",
        "RLPD": "managed_mixed",
        "SAC": "managed",
        "TD3": "managed",
        "TD3BC": "managed_offline",
        "TQC": "managed",
        "evaluate_checkpoint": "checkpoints",
        "finetune": "finetuning",
        "predict_checkpoint": "checkpoints",
        "resume": "training",
        "train": "training",
        "train_awac": "managed_offline",
        "train_bc": "managed",
        "train_cql": "managed_offline",
        "train_ddpg": "managed",
        "train_dqn": "managed",
        "train_edac": "managed_offline",
        "train_her": "managed",
        "train_iql": "managed_offline",
        "train_redq": "managed",
        "train_rlpd": "managed_mixed",
        "train_sac": "managed",
        "train_td3": "managed",
        "train_td3_bc": "managed_offline",
        "train_tqc": "managed",
    },
)

"""The managed Python API: classes and functions that look after runs and checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.lazy import lazy_exports

if TYPE_CHECKING:
    from rl_training.api.managed import HER, SAC, ManagedAlgorithm, train_her, train_sac
    from rl_training.api.progress import ProgressCallback
    from rl_training.api.training import evaluate_checkpoint, predict_checkpoint, resume, train

__all__ = [
    "HER",
    "SAC",
    "ManagedAlgorithm",
    "ProgressCallback",
    "evaluate_checkpoint",
    "predict_checkpoint",
    "resume",
    "train",
    "train_her",
    "train_sac",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "HER": "managed",
        "ManagedAlgorithm": "managed",
        "ProgressCallback": "progress",
        "SAC": "managed",
        "evaluate_checkpoint": "training",
        "predict_checkpoint": "training",
        "resume": "training",
        "train": "training",
        "train_her": "managed",
        "train_sac": "managed",
    },
)

"""Managed Python API: classes and functions that handle runs and checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.generated import catalog
from rl_training.lazy import lazy_exports

if TYPE_CHECKING:
    from rl_training.generated.api import *
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "checkpoints": ["evaluate_checkpoint", "predict_checkpoint"],
            "exporting": ["export_checkpoint"],
            "finetuning": ["finetune"],
            "managed": ["ManagedAlgorithm"],
            "managed_classes": catalog.MANAGED,
            "cards": ["model_card"],
            "plots": ["plot_runs"],
            "progress": ["ProgressCallback"],
            "training": ["resume", "train"],
        },
    )

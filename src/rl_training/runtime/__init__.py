"""Running: collection, updates, evaluation, checkpoints, control."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.lazy import lazy_exports

if TYPE_CHECKING:
    from rl_training.runtime.callbacks import Callback, EarlyStoppingCallback, EarlyStoppingConfig
    from rl_training.runtime.checkpointing import Checkpoint, CheckpointWriter, open_checkpoint
    from rl_training.runtime.collector import Collector
    from rl_training.runtime.controls import ControlsConfig, build_control_callbacks
    from rl_training.runtime.engine import Engine
    from rl_training.runtime.evaluation import EvaluationResult, Evaluator, Policy
    from rl_training.runtime.schedules import Schedule
    from rl_training.runtime.trainer import LoopSettings, Session, TrainerState
    from rl_training.runtime.workflows import TrainResult, run_session

__all__ = [
    "Callback",
    "Checkpoint",
    "CheckpointWriter",
    "Collector",
    "ControlsConfig",
    "EarlyStoppingCallback",
    "EarlyStoppingConfig",
    "Engine",
    "EvaluationResult",
    "Evaluator",
    "LoopSettings",
    "Policy",
    "Schedule",
    "Session",
    "TrainResult",
    "TrainerState",
    "build_control_callbacks",
    "open_checkpoint",
    "run_session",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Callback": "callbacks",
        "Checkpoint": "checkpointing",
        "CheckpointWriter": "checkpointing",
        "Collector": "collector",
        "ControlsConfig": "controls",
        "EarlyStoppingCallback": "callbacks",
        "EarlyStoppingConfig": "callbacks",
        "Engine": "engine",
        "EvaluationResult": "evaluation",
        "Evaluator": "evaluation",
        "LoopSettings": "trainer",
        "Policy": "evaluation",
        "Schedule": "schedules",
        "Session": "trainer",
        "TrainResult": "workflows",
        "TrainerState": "trainer",
        "build_control_callbacks": "controls",
        "open_checkpoint": "checkpointing",
        "run_session": "workflows",
    },
)

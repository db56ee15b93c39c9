"""Running: collection, updates, evaluation, checkpoints, control."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.lazy import lazy_exports

if TYPE_CHECKING:
    from rl_training.runtime.callbacks import Callback, EarlyStoppingCallback, EarlyStoppingConfig
    from rl_training.runtime.checkpoint_writer import CheckpointWriter
    from rl_training.runtime.checkpointing import Checkpoint, open_checkpoint
    from rl_training.runtime.collector import Collector
    from rl_training.runtime.control_config import ControlsConfig, build_control_callbacks
    from rl_training.runtime.engine import Engine
    from rl_training.runtime.evaluation import EvaluationResult, Evaluator, Policy
    from rl_training.runtime.schedules import Schedule
    from rl_training.runtime.session import LoopSettings, Session
    from rl_training.runtime.trainer_state import TrainerState
    from rl_training.runtime.training_loop import TrainResult, run_session

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
        "CheckpointWriter": "checkpoint_writer",
        "Collector": "collector",
        "ControlsConfig": "control_config",
        "EarlyStoppingCallback": "callbacks",
        "EarlyStoppingConfig": "callbacks",
        "Engine": "engine",
        "EvaluationResult": "evaluation",
        "Evaluator": "evaluation",
        "LoopSettings": "session",
        "Policy": "evaluation",
        "Schedule": "schedules",
        "Session": "session",
        "TrainResult": "training_loop",
        "TrainerState": "trainer_state",
        "build_control_callbacks": "control_config",
        "open_checkpoint": "checkpointing",
        "run_session": "training_loop",
    },
)

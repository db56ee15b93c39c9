"""Training runtime: collection, updates, evaluation, checkpoints and callbacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.lazy import lazy_exports

if TYPE_CHECKING:
    from rl_training.generated.runtime import *
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "callbacks": ["Callback", "EarlyStoppingCallback", "EarlyStoppingConfig"],
            "checkpoint_writer": ["CheckpointWriter"],
            "checkpointing": ["Checkpoint", "open_checkpoint"],
            "collector": ["Collector"],
            "control_config": ["ControlsConfig", "build_control_callbacks"],
            "engine": ["Engine"],
            "evaluation": ["EvaluationResult", "Evaluator", "Policy"],
            "schedules": ["Schedule"],
            "session": ["LoopSettings", "Session"],
            "trainer_state": ["TrainerState"],
            "training_loop": ["TrainResult", "run_session"],
        },
    )

"""Online, offline and offline-to-online reinforcement learning as one workflow.

Names are imported on first use, so `import rl_training` loads neither torch nor gymnasium.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.generated import catalog
from rl_training.lazy import lazy_exports
from rl_training.version import __version__ as __version__

if TYPE_CHECKING:
    from rl_training.generated.rl_training import *
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            **{f"algorithms.{name}": exports for name, exports in catalog.EXPORTS.items()},
            "algorithms.base": ["Algorithm"],
            "algorithms.registry": ["REGISTRY", "register_algorithm"],
            "api.checkpoints": ["evaluate_checkpoint", "predict_checkpoint"],
            "api.exporting": ["export_checkpoint"],
            "api.finetuning": ["finetune"],
            "api.managed_classes": catalog.MANAGED,
            "api.cards": ["model_card"],
            "api.plots": ["plot_runs"],
            "api.training": ["resume", "train"],
            "data.offline_dataset": ["TransitionDataset"],
            "data.replay_buffer": ["ReplayBuffer"],
            "data.samplers": ["MixedSampler"],
            "errors": ["CheckpointError", "ConfigError", "RLTrainingError", "TrainingError"],
            "experiment.config": ["TrainConfig"],
            "models.network_config": ["register_network"],
            "models.actor_critic": ["MLPREDQModel", "MLPSACModel"],
            "runtime.callbacks": ["Callback", "EarlyStoppingCallback", "EarlyStoppingConfig"],
            "runtime.control_config": ["build_control_callbacks"],
            "runtime.trainer_state": ["TrainerState"],
            "runtime.training_loop": ["TrainResult"],
            "study.population_executor": ["PopulationExecutor"],
            "study.ray_cluster": ["RayExecutor"],
            "study.seeds": ["train_seeds"],
            "study.report.writing": ["StudyReport", "compare_studies"],
            "study.study": ["Study", "StudyResult"],
            "tuning.tuning": ["Tuning", "TuningResult", "tune"],
            "types": ["Batch", "EnvSpec"],
            "version": ["__version__"],
        },
    )

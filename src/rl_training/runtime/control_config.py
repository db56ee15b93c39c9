"""Controls of every run: evaluation, early stopping, schedules and checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

from pydantic import Field, model_validator

from rl_training.config_model import ConfigModel, Trait
from rl_training.runtime.callbacks import Callback, EarlyStoppingCallback, EarlyStoppingConfig
from rl_training.runtime.engine_choice import EngineChoice
from rl_training.runtime.schedules import Schedule, ScheduleKind

if TYPE_CHECKING:
    from typing_extensions import Self


class ControlsConfig(ConfigModel):
    """Keys of `algo_kwargs` that control a run and have the same meaning for every algorithm."""

    eval_interval: Annotated[int, Trait.MAY_CHANGE] = Field(default=5_000, ge=0)
    """Steps between evaluations; 0 to evaluate only at the end."""
    early_stopping: Annotated[EarlyStoppingConfig | None, Trait.MAY_CHANGE, Trait.FRESH] = None
    """When to stop before total_timesteps; null to disable."""
    learning_rate_schedule: ScheduleKind = "constant"
    """Learning-rate schedule: constant, linear or cosine."""
    learning_rate_warmup: Annotated[int, Trait.FRESH] = Field(default=0, ge=0)
    """Steps of linear warm-up from 0."""
    learning_rate_final: float = Field(default=0.0, ge=0, le=1)
    """Fraction of the learning rate at the end of the schedule."""
    schedule_horizon: Annotated[int | None, Trait.MAY_CHANGE, Trait.FRESH] = Field(
        default=None, gt=0
    )
    """Step at which the schedule ends; by default, total_timesteps of the first run."""
    keep_checkpoints: Annotated[int, Trait.MAY_CHANGE] = Field(default=3, ge=2)
    """Number of newest checkpoints to keep, in addition to the best."""
    num_threads: Annotated[int | None, Trait.MAY_CHANGE] = Field(default=None, gt=0, le=1024)
    """Number of CPU threads; null for OMP_NUM_THREADS or a default for this machine."""
    engine: Annotated[EngineChoice, Trait.MAY_CHANGE] = "auto"
    """Execution of updates: eager, compiled or cuda_graph; auto chooses by device and budget."""
    matmul_precision: Annotated[Literal["highest", "high"], Trait.MAY_CHANGE] = "high"
    """Precision of float32 matrix products on a GPU: highest, or high for TF32."""

    @model_validator(mode="after")
    def _check_early_stopping(self) -> Self:
        if self.early_stopping is not None and self.eval_interval == 0:
            raise ValueError("early_stopping requires evaluations: set eval_interval above 0")
        return self

    def schedule(self, total_timesteps: int) -> Schedule:
        """Return the learning-rate schedule of a run with this number of steps."""
        return Schedule(
            kind=self.learning_rate_schedule,
            warmup=self.learning_rate_warmup,
            final=self.learning_rate_final,
            horizon=self.schedule_horizon or total_timesteps,
        )


class RunConfig(Protocol):
    """The part of a run's config that determines its callbacks."""

    @property
    def parts(self) -> Any:
        """Typed parts, including `controls`."""


def build_control_callbacks(config: ControlsConfig | RunConfig) -> list[Callback]:
    """Return the callbacks that a run's config, or its controls, require."""
    controls = config if isinstance(config, ControlsConfig) else config.parts.controls
    stopping = controls.early_stopping
    return [] if stopping is None else [EarlyStoppingCallback(stopping)]

"""The controls that every run has: evaluation, stopping, schedules, keeping."""

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
    """The `algo_kwargs` that steer a run and mean the same for every algorithm."""

    eval_interval: Annotated[int, Trait.MAY_CHANGE] = Field(default=5_000, ge=0)
    """Steps between evaluations; 0 for the one at the end alone."""
    early_stopping: Annotated[EarlyStoppingConfig | None, Trait.MAY_CHANGE, Trait.FRESH] = None
    """When to stop before the budget is spent; null for never."""
    learning_rate_schedule: ScheduleKind = "constant"
    """How the learning rate goes: constant, linear or cosine."""
    learning_rate_warmup: Annotated[int, Trait.FRESH] = Field(default=0, ge=0)
    """Steps of linear warm-up from 0."""
    learning_rate_final: float = Field(default=0.0, ge=0, le=1)
    """Fraction of the learning rate at the schedule's end."""
    schedule_horizon: Annotated[int | None, Trait.MAY_CHANGE, Trait.FRESH] = Field(
        default=None, gt=0
    )
    """Step at which the schedule ends; the first budget by default."""
    keep_checkpoints: Annotated[int, Trait.MAY_CHANGE] = Field(default=3, ge=2)
    """Newest checkpoints to keep, beside the best."""
    tensorboard: Annotated[bool, Trait.MAY_CHANGE] = True
    """Write TensorBoard files beside metrics.jsonl."""
    num_threads: Annotated[int | None, Trait.MAY_CHANGE] = Field(default=None, gt=0, le=1024)
    """Threads for products on the CPU; null: OMP_NUM_THREADS, or by the machine."""
    engine: Annotated[EngineChoice, Trait.MAY_CHANGE] = "auto"
    """How updates run: eager, compiled, cuda_graph, or auto by the run."""
    matmul_precision: Annotated[Literal["highest", "high"], Trait.MAY_CHANGE] = "high"
    """Float32 products on a GPU: highest, or high for TF32."""

    @model_validator(mode="after")
    def _early_stopping_needs_evaluations(self) -> Self:
        if self.early_stopping is not None and self.eval_interval == 0:
            raise ValueError("early_stopping needs evaluations: set eval_interval above 0")
        return self

    def schedule(self, total_timesteps: int) -> Schedule:
        """The learning-rate schedule of a run of this length."""
        return Schedule(
            kind=self.learning_rate_schedule,
            warmup=self.learning_rate_warmup,
            final=self.learning_rate_final,
            horizon=self.schedule_horizon or total_timesteps,
        )


class RunConfig(Protocol):
    """A whole run's config, as far as its callbacks follow from it."""

    @property
    def parts(self) -> Any:
        """Its typed parts, with the `controls` among them."""


def build_control_callbacks(config: ControlsConfig | RunConfig) -> list[Callback]:
    """The callbacks that a run's config, or its part that steers the run, asks for."""
    controls = config if isinstance(config, ControlsConfig) else config.parts.controls
    stopping = controls.early_stopping
    return [] if stopping is None else [EarlyStoppingCallback(stopping)]

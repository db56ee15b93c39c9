"""Callbacks, which observe a run and can stop it, and early stopping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from rl_training.boundary.values import real_number, whole_number
from rl_training.config_model import ConfigModel
from rl_training.errors import ConfigError, TrainingError, nearest
from rl_training.runtime.stop_reason import StopKind, StopReason

if TYPE_CHECKING:
    from typing_extensions import Self

    from rl_training.runtime.session import Session


EvaluationMetric = Literal[
    "eval_return_mean", "eval_return_std", "eval_length_mean", "eval_success_rate", "eval_loss"
]


class Callback:
    """Base class of callbacks: override the hooks you need.

    To keep state across a resume, override `state_dict` and `load_state_dict`.
    """

    def on_start(self, session: Session) -> None:
        """Called before the first step."""

    def on_step(self, session: Session) -> None:
        """Called after each step of the training loop and its updates."""

    def on_log(self, session: Session, metrics: Mapping[str, float]) -> None:
        """Called after metrics are logged."""

    def on_evaluation(self, session: Session, metrics: Mapping[str, float]) -> None:
        """Called after each evaluation during training."""

    def on_message(self, session: Session, text: str) -> None:
        """Called with each message of the run, such as the start of a compilation."""

    def on_end(self, session: Session) -> None:
        """Called after the last checkpoint."""

    def state_dict(self) -> dict[str, Any]:
        """Return plain data to save in checkpoints."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""


HOOKS = frozenset(name for name in vars(Callback) if name.startswith("on_"))


def check_hooks(callback: Callback) -> None:
    """Reject a method whose name looks like a hook but is not one."""
    kind = type(callback)
    for name in dir(kind):
        if name.startswith("on_") and name not in HOOKS and callable(getattr(kind, name)):
            raise ConfigError(
                f"{kind.__name__}.{name} would never be called, because there is no hook with "
                f"this name{nearest(name, HOOKS)}"
            )


class EarlyStoppingConfig(ConfigModel):
    """When to stop a run before it reaches `total_timesteps`."""

    metric: EvaluationMetric = Field(
        default="eval_return_mean", description="Evaluation metric to monitor."
    )
    mode: Literal["max", "min"] = Field(
        default="max", description="Whether larger or smaller values are better."
    )
    patience: int | None = Field(
        default=None, gt=0, description="Number of evaluations without improvement before stopping."
    )
    min_delta: float = Field(
        default=0.0, ge=0, description="Smallest change that counts as an improvement."
    )
    min_steps: int = Field(
        default=0, ge=0, description="Number of steps of this run before it may stop."
    )
    target_value: float | None = Field(
        default=None, description="Stop when the metric reaches this value."
    )

    @model_validator(mode="after")
    def _check_condition(self) -> Self:
        if self.patience is None and self.target_value is None:
            raise ValueError("set patience or target_value; otherwise early stopping has no effect")
        if self.metric == "eval_loss" and self.mode == "max":
            raise ValueError("smaller losses are better: set mode to min")
        return self


class EarlyStoppingCallback(Callback):
    """Stops a run when the metric stops improving or reaches a target."""

    def __init__(self, config: EarlyStoppingConfig) -> None:
        self.config = config
        self._watched = f"{config.mode} {config.metric}"
        self.best: float | None = None
        self.evaluations_without_improvement = 0

    def on_evaluation(self, session: Session, metrics: Mapping[str, float]) -> None:
        """Update the best value, and request a stop if the run should end."""
        config = self.config
        if config.metric not in metrics:
            raise TrainingError(
                f"early_stopping.metric is {config.metric}, but the environment does not report "
                "success (info['is_success']): use eval_return_mean"
            )
        value = metrics[config.metric]
        sign = 1.0 if config.mode == "max" else -1.0
        if self.best is None or sign * (value - self.best) > config.min_delta:
            self.best = value
            self.evaluations_without_improvement = 0
        else:
            self.evaluations_without_improvement += 1
        if session.own_steps < config.min_steps:
            return
        target, waited = config.target_value, self.evaluations_without_improvement
        if target is not None and sign * (value - target) >= 0:
            detail = f"{config.metric} {value:.6g} reached {target:.6g}"
            session.state.request_stop(StopReason(StopKind.TARGET_REACHED, detail))
        elif config.patience and waited >= config.patience:
            detail = f"{config.metric} did not improve for {waited} evaluations"
            session.state.request_stop(StopReason(StopKind.NO_IMPROVEMENT, detail))

    def state_dict(self) -> dict[str, Any]:
        """Return the best value, the evaluations since then, and the metric."""
        waited = self.evaluations_without_improvement
        return {"best": self.best, "waited": waited, "watched": self._watched}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the counters, unless the metric has changed."""
        if state.get("watched", self._watched) != self._watched:
            return
        best = state["best"]
        self.best = None if best is None else real_number(best, "best")
        self.evaluations_without_improvement = whole_number(state["waited"], "waited")

"""Counters and flags of a run, saved in every checkpoint."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter

from rl_training.boundary.values import reject_unknown
from rl_training.runtime.stop_reason import COMPLETED, StopReason

OPTIONAL_FIELDS = frozenset(
    {"pretraining_updates", "env_steps", "online_updates", "offline_rows", "online_rows"}
    | {"return_before", "return_lowest", "evaluation_owed"}
)
"""Fields that are missing in checkpoints of older versions."""


@dataclass
class TrainerState:
    """Counters and flags; saved in every checkpoint and restored from it."""

    step: int = 0
    """Environment steps online, updates offline; offline to online, updates first, then steps."""
    updates: int = 0
    should_stop: bool = False
    stop: StopReason | None = None
    best_return: float | None = None
    best_loss: float | None = None
    """Lowest held-out loss of a run without an environment."""
    best_step: int | None = None
    evaluation: dict[str, float] = field(default_factory=dict)
    evaluation_step: int | None = None
    evaluation_owed: bool = False
    """Whether the evaluation at this step is due but not finished."""
    # Offline-to-online runs: the budget used by each phase.
    pretraining_updates: int = 0
    env_steps: int = 0
    online_updates: int = 0
    offline_rows: int = 0
    online_rows: int = 0
    # Fine-tuning: the return before the first step, and the lowest return after it.
    return_before: float | None = None
    return_lowest: float | None = None

    @property
    def stop_reason(self) -> str | None:
        """The stop reason as text, as in checkpoints and results."""
        return None if self.stop is None else str(self.stop)

    def request_stop(self, reason: str | StopReason) -> None:
        """Request a stop after the current step; the first reason is kept.

        Any other reason replaces a signal, since a resume continues a run that a signal stopped.
        """
        stop = StopReason.parse(reason) if isinstance(reason, str) else reason
        signaled = self.stop is not None and self.stop.is_signal and not stop.is_signal
        if not self.should_stop or signaled:
            self.should_stop, self.stop = True, stop

    def complete(self) -> None:
        """Stop because the budget is exhausted, regardless of other requests in the last step."""
        self.should_stop, self.stop = True, COMPLETED

    def clear_stop(self) -> None:
        """Clear an earlier stop, to continue the run."""
        self.should_stop, self.stop = False, None

    def record_evaluation(self, metrics: dict[str, float], *, compare_returns: bool) -> bool:
        """Record an evaluation; return whether its return or loss is the best so far.

        With ``compare_returns``, also record the first return and the lowest one after it.
        """
        self.evaluation, self.evaluation_step, self.evaluation_owed = metrics, self.step, False
        value = metrics.get("eval_return_mean")
        if value is not None:
            if compare_returns and self.return_before is None:
                self.return_before = value
            elif compare_returns:
                lowest = self.return_lowest
                self.return_lowest = value if lowest is None else min(value, lowest)
            improved = self.best_return is None or value > self.best_return
            self.best_return = value if improved else self.best_return
        else:
            value = metrics["eval_loss"]
            improved = self.best_loss is None or value < self.best_loss
            self.best_loss = value if improved else self.best_loss
        self.best_step = self.step if improved else self.best_step
        return improved

    def state_dict(self) -> dict[str, Any]:
        """Return plain data, with the stop reason as text."""
        state = asdict(self)
        del state["stop"]
        return state | {"stop_reason": self.stop_reason}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state in place."""
        kinds = get_type_hints(TrainerState)
        del kinds["stop"]
        kinds["stop_reason"] = str | None
        reject_unknown(state, kinds, "the trainer's state")
        loaded: dict[str, Any] = {}
        for name, kind in kinds.items():
            if name in state or name not in OPTIONAL_FIELDS:
                adapter = TypeAdapter(kind, config=ConfigDict(allow_inf_nan=False))
                loaded[name] = adapter.validate_python(state[name], strict=True)
        reason = loaded.pop("stop_reason")
        self.stop = None if reason is None else StopReason.parse(reason)
        vars(self).update(loaded)

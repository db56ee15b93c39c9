"""The counters and flags of a run, saved in every checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter

from rl_training.boundary.values import refuse_unknown

COMPLETED = "completed"
SIGNAL = "signal: "
EARLY_STOPPING = "early_stopping: "
LATER_FIELDS = frozenset(
    {"pretraining_updates", "env_steps", "online_updates", "offline_rows", "online_rows"}
    | {"return_before", "return_lowest", "evaluation_owed"}
)
"""Fields of the state that checkpoints of older versions do not have."""


@dataclass
class TrainerState:
    """Counters and flags; saved in every checkpoint and restored from it."""

    step: int = 0
    """Environment steps online, gradient updates offline; of both, first updates, then steps."""
    updates: int = 0
    should_stop: bool = False
    stop_reason: str | None = None
    best_return: float | None = None
    best_loss: float | None = None
    """The least held-out loss, where there is no environment to play in."""
    best_step: int | None = None
    evaluation: dict[str, float] = field(default_factory=dict)
    evaluation_step: int | None = None
    evaluation_owed: bool = False
    """Whether the evaluation at this step is due and has not ended."""
    # Of runs from offline to online, what each phase has used so far.
    pretraining_updates: int = 0
    env_steps: int = 0
    online_updates: int = 0
    offline_rows: int = 0
    online_rows: int = 0
    # Of fine-tuning: the evaluation before the first step, and the lowest one after it.
    return_before: float | None = None
    return_lowest: float | None = None

    def count_updates(self, updates: int, rows: tuple[int, int], *, pretraining: bool) -> None:
        """Count updates whose batches have ``rows`` of the dataset and of the replay."""
        if pretraining:
            self.pretraining_updates += updates
        else:
            self.online_updates += updates
        self.offline_rows += updates * rows[0]
        self.online_rows += updates * rows[1]

    def comparison(self) -> dict[str, float | None]:
        """What fine-tuning did to the return; empty where nothing was fine-tuned."""
        if self.return_before is None:
            return {}
        return {
            "return_before": self.return_before,
            "return_lowest": self.return_lowest,
            "return_after": self.evaluation["eval_return_mean"],
        }

    def request_stop(self, reason: str) -> None:
        """Ask the loop to end after the present step; the first reason stands.

        A signal gives way to a reason of the run's own: a resume would go on past it.
        """
        signalled = str(self.stop_reason).startswith(SIGNAL) and not reason.startswith(SIGNAL)
        if not self.should_stop or signalled:
            self.should_stop = True
            self.stop_reason = reason

    def complete(self) -> None:
        """The budget is spent; that outranks a signal that came in the last step."""
        self.should_stop = True
        self.stop_reason = COMPLETED

    def clear_stop(self) -> None:
        """Forget an earlier stop, to go on."""
        self.should_stop = False
        self.stop_reason = None

    def note_best(self, metrics: Mapping[str, float]) -> bool:
        """Keep the best return, or the least loss where no episode was played; tell a new one."""
        if "eval_return_mean" in metrics:
            value = metrics["eval_return_mean"]
            improved = self.best_return is None or value > self.best_return
            self.best_return = value if improved else self.best_return
        else:
            value = metrics["eval_loss"]
            improved = self.best_loss is None or value < self.best_loss
            self.best_loss = value if improved else self.best_loss
        self.best_step = self.step if improved else self.best_step
        return improved

    def forget_best(self) -> None:
        """Begin to look for the best anew."""
        self.best_return = self.best_loss = self.best_step = None

    def state_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore in place."""
        kinds = get_type_hints(TrainerState)
        refuse_unknown(state, kinds, "the trainer's state")
        for item in fields(self):
            if item.name not in state and item.name in LATER_FIELDS:
                continue
            adapter = TypeAdapter(kinds[item.name], config=ConfigDict(allow_inf_nan=False))
            setattr(self, item.name, adapter.validate_python(state[item.name], strict=True))

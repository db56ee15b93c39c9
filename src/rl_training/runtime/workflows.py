"""Running a session: signals, the loop that fits, and the result."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from rl_training.runtime.checkpointing import read_pointer
from rl_training.runtime.loops import run_loop
from rl_training.runtime.trainer import SIGNAL, Session, TrainerState


@dataclass(frozen=True)
class TrainResult:
    """What a finished, stopped or interrupted training hands back."""

    run_dir: Path
    checkpoint_path: Path
    best_checkpoint_path: Path | None
    stop_reason: str
    metrics: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Plain data; paths as text."""
        return {
            key: str(value) if isinstance(value, Path) else value
            for key, value in asdict(self).items()
        }

    @property
    def interrupted_by(self) -> str | None:
        """The signal's name, if one ended the training."""
        is_signal = self.stop_reason.startswith(SIGNAL)
        return self.stop_reason.removeprefix(SIGNAL) if is_signal else None


@contextmanager
def stop_on_signals(state: TrainerState) -> Iterator[None]:
    """Let SIGINT and SIGTERM end the run after the present step; a second one ends it at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    def handle(number: int, _frame: FrameType | None) -> None:
        state.request_stop(SIGNAL + signal.Signals(number).name)
        restore()

    for number in previous:
        signal.signal(number, handle)
    try:
        yield
    finally:
        restore()


def run_session(session: Session) -> TrainResult:
    """Train until the budget is spent or a stop is requested; always ends on a checkpoint."""
    with stop_on_signals(session.state):
        run_loop(session)
    state = session.state
    assert session.checkpoint_path is not None
    return TrainResult(
        run_dir=session.checkpoints.run_dir,
        checkpoint_path=session.checkpoint_path,
        best_checkpoint_path=read_pointer(session.checkpoints.run_dir, "best"),
        stop_reason=state.stop_reason or "",
        metrics={
            **session.last_log,
            "step": state.step,
            "updates": state.updates,
            **({"episodes": session.collector.episodes} if session.collector else {}),
            **session.budgets(),
            "best_return": state.best_return,
            "best_loss": state.best_loss,
            "best_step": state.best_step,
            **state.evaluation,
            **state.comparison(),
        },
    )

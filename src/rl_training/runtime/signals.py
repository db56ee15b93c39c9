"""Stop requests from SIGINT and SIGTERM."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rl_training.runtime.stop_reason import StopKind, StopReason
from rl_training.runtime.trainer_state import TrainerState


@contextmanager
def stop_on_signals(state: TrainerState) -> Iterator[None]:
    """Stop the run after the current step on SIGINT or SIGTERM; a second one stops immediately."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    def handle(number: int, _frame: FrameType | None) -> None:
        state.request_stop(StopReason(StopKind.SIGNAL, signal.Signals(number).name))
        restore()

    for number in previous:
        signal.signal(number, handle)
    try:
        yield
    finally:
        restore()

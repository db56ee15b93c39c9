"""Stop requests from SIGINT and SIGTERM."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from rl_training.runtime.stop_reason import StopKind, StopReason


@dataclass
class ReceivedSignal:
    """The signal that arrived during a run, if any."""

    name: str | None = None


@contextmanager
def stop_on_signals(request_stop: Callable[[StopReason], object]) -> Iterator[ReceivedSignal]:
    """Call ``request_stop`` on SIGINT or SIGTERM; a second signal stops immediately."""
    received = ReceivedSignal()
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    def handle(number: int, _frame: FrameType | None) -> None:
        received.name = signal.Signals(number).name
        request_stop(StopReason(StopKind.SIGNAL, received.name))
        restore()

    for number in previous:
        signal.signal(number, handle)
    try:
        yield received
    finally:
        restore()

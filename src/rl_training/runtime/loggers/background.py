"""Loggers that talk to a server, in a thread of their own, so that training never waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue

from rl_training.runtime.loggers.base import Frames, LoggedRun, Logger

CLOSE_SECONDS = 60.0
"""How long a client may take to send what is left when the run ends."""

_Call = Callable[[], None]


class BackgroundLogger(Logger):
    """Runs a logger in a thread. Its first error is raised by the next call."""

    def __init__(self, client: Logger, *, close_seconds: float = CLOSE_SECONDS) -> None:
        self.name = client.name
        self._client = client
        self._close_seconds = close_seconds
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._error: Exception | None = None
        # A daemon, since a client that hangs must not keep the process alive.
        self._thread = threading.Thread(target=self._work, name=f"log-{client.name}", daemon=True)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except Exception as error:  # raised in the training thread
                self._error = error
                return

    def _send(self, call: _Call) -> None:
        if self._error is not None:
            raise self._error
        self._calls.put(call)

    def start(self, run: LoggedRun) -> None:
        """Start the thread and connect."""
        self._thread.start()
        self._send(lambda: self._client.start(run))

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Queue one line of metrics."""
        values = dict(metrics)
        self._send(lambda: self._client.write(step, values))

    def write_evaluation(self, step: int, returns: Sequence[float]) -> None:
        """Queue the returns of an evaluation."""
        self._send(lambda: self._client.write_evaluation(step, returns))

    def write_video(self, step: int, frames: Frames, frames_per_second: float) -> None:
        """Queue an animation."""
        self._send(lambda: self._client.write_video(step, frames, frames_per_second))

    def close(self, outcome: str) -> None:
        """Wait until everything is sent, for a limited time."""
        if not self._thread.is_alive() and self._error is None:
            return  # it was never started
        self._send(lambda: self._client.close(outcome))
        self._calls.put(None)
        self._thread.join(self._close_seconds)
        if self._error is not None:
            raise self._error
        if self._thread.is_alive():
            raise TimeoutError(f"not everything was sent within {self._close_seconds:g} seconds")

"""The local executor: worker processes on this machine, which never need more than it has."""

from __future__ import annotations

import selectors
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from rl_training.runtime.stop_reason import StopReason
from rl_training.study.jobs import Busy, Ended, Event, Job, Started, parse_event, stop_line
from rl_training.study.launching import Launcher, choose_launcher
from rl_training.study.records import RunStatus
from rl_training.study.resources import Budget, Resources
from rl_training.study.worker import describe_attempt

EXIT_SECONDS = 1.0
"""How long to wait for the exit code of a worker that has reported its end."""
DEATH_SECONDS = 5.0
"""How long to wait for the exit code of a worker that has died, which explains its death."""


@dataclass
class _Worker:
    """A worker process, and what it has sent so far."""

    jobs: list[Job]
    connection: socket.socket
    pid: int | None = None
    received: bytes = b""
    ended: set[str] = field(default_factory=set)
    """Keys of the jobs that have ended."""
    events: list[Event] = field(default_factory=list)

    def receive(self) -> bool:
        """Read what the worker has sent; return False at the end of the connection."""
        try:
            data = self.connection.recv(1 << 16)
        except ConnectionError:
            data = b""
        *lines, self.received = (self.received + data).split(b"\n")
        for line in lines:
            event = parse_event(line)
            if isinstance(event, Started):
                self.pid = event.pid
            if isinstance(event, Ended | Busy):
                self.ended.add(event.key)
            self.events.append(event)
        return bool(data)

    def send(self, text: str) -> None:
        with suppress(OSError):  # it has just ended
            self.connection.sendall(text.encode() + b"\n")


class LocalExecutor:
    """Trains each job in a process of its own, as many at once as the budget allows."""

    def __init__(self, budget: Budget, launcher: Launcher | None = None) -> None:
        self.budget = budget
        self._launcher = launcher or choose_launcher()
        self._workers: dict[str, _Worker] = {}
        self._selector = selectors.DefaultSelector()

    def prepare(self, study: Path) -> None:
        """Do nothing: workers on this machine use the same folders."""

    def check(self, need: Resources, what: str) -> None:
        """Raise a ConfigError if a job with these needs would never fit."""
        self.budget.check(need, what)

    def at_once(self, need: Resources) -> int:
        """Return how many jobs with these needs fit at the same time."""
        return self.budget.at_once(need)

    def submit(self, job: Job) -> bool:
        """Start a job if there is room for it now; return whether it was started."""
        try:
            gpu = self.budget.take(job.key, job.resources)
        except LookupError:
            return False
        job = replace(job, gpu=gpu)
        self._start(job.key, [job], job.to_json())
        return True

    def _start(self, name: str, jobs: list[Job], work: str) -> None:
        """Start a worker for one or more jobs; ``name`` is that of its resources."""
        worker = self._workers[name] = _Worker(jobs, self._launcher.launch())
        worker.send(work)
        self._selector.register(worker.connection, selectors.EVENT_READ, (name, worker))

    def wait(self, seconds: float) -> Sequence[Event]:
        """Return the events since the last call; wait for the first one for up to ``seconds``."""
        if not self._workers:
            time.sleep(seconds)
            return []
        events: list[Event] = []
        for key, _ in self._selector.select(seconds):
            name, worker = key.data
            is_open = worker.receive()
            events += worker.events
            worker.events.clear()
            if not is_open:
                events += self._finish(name, worker)
        return events

    def _finish(self, name: str, worker: _Worker) -> list[Event]:
        """Remove a worker that has closed its connection; report it if it was killed."""
        self._selector.unregister(worker.connection)
        worker.connection.close()
        del self._workers[name]
        self.budget.give_back(name)
        lost = [job for job in worker.jobs if job.key not in worker.ended]
        patience = DEATH_SECONDS if lost else EXIT_SECONDS
        status = worker.pid and self._launcher.exit_status(worker.pid, patience)
        return [
            describe_attempt(job.key, job.run_dir, RunStatus.FAILED, reason=_death(status))
            for job in lost
        ]

    @property
    def is_idle(self) -> bool:
        """Whether no worker is running."""
        return not self._workers

    def send(self, line: str) -> None:
        """Send a line to all workers."""
        for worker in self._workers.values():
            worker.send(line)

    def stop(self, reason: StopReason, key: str | None = None) -> None:
        """Request that one job or all jobs save a checkpoint and end."""
        for worker in self._workers.values():
            if key is None or any(key == job.key for job in worker.jobs):
                worker.send(stop_line(reason, key))

    def kill(self) -> None:
        """End all jobs immediately, without a checkpoint."""
        for worker in self._workers.values():
            if worker.pid is not None:
                self._launcher.kill(worker.pid)

    def release(self) -> None:
        """Do nothing: only the fork server is held."""

    def close(self) -> None:
        """End everything that the executor has started."""
        for worker in self._workers.values():
            worker.connection.close()  # which ends the worker
        self._workers.clear()
        self._selector.close()
        self._launcher.close()


def _death(status: int | None) -> str:
    """Describe how a worker ended that did not report its end."""
    if status is None or status >= 0:
        code = "" if status is None else f" with exit code {status}"
        return f"the worker process ended unexpectedly{code}"
    name = signal.Signals(-status).name if -status in list(signal.Signals) else f"signal {-status}"
    advice = " (perhaps by the system, because memory was full)" if name == "SIGKILL" else ""
    return f"the worker process was killed by {name}{advice}"

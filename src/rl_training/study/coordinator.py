"""The coordinator: gives the runs of a study to an executor, and records what happens to them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rl_training.boundary.locking import is_held
from rl_training.errors import RLTrainingError, TrainingError
from rl_training.runtime.signals import stop_on_signals
from rl_training.runtime.stop_reason import StopReason
from rl_training.study.executor import Executor
from rl_training.study.folder import StudySession
from rl_training.study.index import StudyRun
from rl_training.study.jobs import Busy, Ended, Evaluated, Event, Job, Progress, Started, Warned
from rl_training.study.records import RunStatus
from rl_training.study.resources import Resources
from rl_training.text import counted

POLL_SECONDS = 0.25
BUSY_SECONDS = 1.0
"""Time between two looks at a run that another process is training."""
RETRY_SECONDS = 0.5
"""Time before the first retry; doubled for each further one."""
MAX_RETRY_SECONDS = 60.0


class Watcher(Protocol):
    """Follows a study, such as a display. It must not raise errors."""

    def message(self, text: str) -> None:
        """Show a line."""

    def changed(self, state: StudyState) -> None:
        """Called several times a second with the current state."""

    def evaluated(self, run: StudyRun, step: int, metrics: Mapping[str, float]) -> None:
        """Called after each evaluation of a run."""


class RunSource(Protocol):
    """Adds runs while a study runs, such as the trials of a tuning."""

    @property
    def is_exhausted(self) -> bool:
        """Whether there will be no more runs."""

    @property
    def most_runs_left(self) -> int:
        """Largest number of runs that it may still add."""

    def next_runs(self) -> Sequence[StudyRun]:
        """Return runs to start now; called several times a second."""

    def evaluated(self, run: StudyRun, step: int, metrics: Mapping[str, float]) -> None:
        """Called after each evaluation of a run."""

    def released(self, run: StudyRun) -> None:
        """Called when nothing more is done for a run: it has ended, or its attempts have."""


@dataclass
class StudyState:
    """What a display shows: all runs of a session, and the progress of those that are running."""

    runs: list[StudyRun]
    more: int = 0
    """Largest number of runs that may still be added."""
    active: dict[str, Progress | None] = field(default_factory=dict)
    """Runs that have a worker, by key; None before the first report."""
    waiting: dict[str, float] = field(default_factory=dict)
    """Runs that another process is training, with the time of the next look."""
    began: float = field(default_factory=time.monotonic)
    finished_here: int = 0
    """Number of runs that have ended in this session."""
    stopping: StopReason | None = None

    def count(self, *statuses: RunStatus) -> int:
        """Return the number of runs in these states."""
        return sum(run.status in statuses for run in self.runs)


class Coordinator:
    """Trains runs until all of them have ended or failed, or until it is asked to stop."""

    def __init__(
        self,
        session: StudySession,
        executor: Executor,
        runs: Sequence[StudyRun],
        make_job: Callable[[StudyRun], Job],
        *,
        retries: int,
        watchers: Sequence[Watcher] = (),
        retry_failed: bool = False,
        source: RunSource | None = None,
        order: Sequence[StudyRun] | None = None,
    ) -> None:
        """Create a coordinator.

        Args:
            session: The session in which events are recorded.
            executor: Trains the runs.
            runs: The runs of this session, which may be only a part of the study.
            make_job: Returns the job for a run.
            retries: How often a run that makes no progress is tried again after a failure.
            watchers: Displays and others that follow the study.
            retry_failed: Whether to try runs again that have failed too often.
            source: Adds more runs while these are trained.
            order: The runs in the order in which they start; by default, every label gets its first
                seed before any gets its second.
        """
        self._session = session
        self._executor = executor
        self._make_job = make_job
        self._retries = retries
        self._watchers = watchers
        self._source = source
        self.state = StudyState(list(runs))
        self._runs = {run.key: run for run in runs}
        self._order = {run.key: number for number, run in enumerate(order or in_rounds(runs))}
        self._queues: dict[Resources, deque[StudyRun]] = {}
        """Runs that are ready, by what they need."""
        self._delayed: list[tuple[float, StudyRun]] = []
        self._forgiven = {
            run.key: len(run.failures) if retry_failed else 0 for run in self._runs.values()
        }
        """Number of failures of each run that no longer count."""
        self._problem: RLTrainingError | None = None
        self._requested: StopReason | None = None
        self._warned: set[tuple[str, str]] = set()

    def run(self) -> str | None:
        """Train all runs; return the name of the signal that stopped the study, if any.

        Raises:
            TrainingError: The study cannot be written, such as on a full disk.
        """
        for run in sorted(self._runs.values(), key=lambda run: self._order[run.key]):
            if not run.status.has_ended and not self._has_given_up(run):
                self._enqueue(run)
        try:
            with stop_on_signals(self.request_stop):
                while self._has_work:
                    self._stop_if_requested()
                    self._add_runs()
                    self._submit()
                    for event in self._executor.wait(POLL_SECONDS):
                        self._handle(event)
                    self._look_at_waiting()
                    self._tell_change()
        except KeyboardInterrupt:  # the second Ctrl-C
            self._executor.kill()
            raise
        if self._problem is not None:
            raise self._problem
        return self.state.stopping.detail if self.state.stopping is not None else None

    @property
    def _has_work(self) -> bool:
        if self._queues or self._delayed or self.state.active or self.state.waiting:
            return True
        return self._source is not None and not self._is_ending and not self._source.is_exhausted

    @property
    def _is_ending(self) -> bool:
        """Whether no more runs start."""
        return self.state.stopping is not None or self._problem is not None

    def request_stop(self, reason: StopReason) -> None:
        """Request that all running runs save a checkpoint and end, and that no others start.

        This may be called at any time, also in a signal handler.
        """
        self._requested = self._requested or reason

    def _stop_if_requested(self) -> None:
        if self._requested is None or self.state.stopping is not None:
            return
        self.state.stopping = self._requested
        self._end(self._requested)
        if self.state.active:
            self._say(
                f"Stopping: {counted(len(self.state.active), 'run')} will save a checkpoint. "
                "Press Ctrl-C again to stop immediately."
            )

    def _end(self, reason: StopReason) -> None:
        self._queues.clear()
        self._delayed.clear()
        self.state.waiting.clear()
        self._executor.stop(reason)

    # --- Starting -----------------------------------------------------------------------

    def _add_runs(self) -> None:
        """Enqueue the runs that the source adds."""
        if self._source is None or self._is_ending:
            return
        source, found = self._source, list[StudyRun]()
        self._record(lambda: found.extend(source.next_runs()))
        for run in found:
            if run.key not in self._runs:
                self._runs[run.key] = run
                self._order[run.key] = len(self._order)
                self._forgiven[run.key] = 0
                self.state.runs.append(run)
            self._enqueue(run)

    def _enqueue(self, run: StudyRun) -> None:
        if is_held(run.lock):
            self._wait_for(run)
            return
        need = Resources.from_record(run.group.resources)
        self._queues.setdefault(need, deque()).append(run)

    def _submit(self) -> None:
        """Start as many runs as fit; small runs may overtake a large one that does not fit yet."""
        now = time.monotonic()
        if any(moment <= now for moment, _ in self._delayed):
            now += RETRY_SECONDS  # runs that failed together may be one population
        due = [run for moment, run in self._delayed if moment <= now]
        self._delayed = [(m, run) for m, run in self._delayed if run not in due]
        for run in due:
            self._enqueue(run)
        rooms = list(self._queues)
        while rooms:
            need = min(rooms, key=lambda need: self._order[self._queues[need][0].key])
            queue = self._queues[need]
            if not self._executor.submit(self._make_job(queue[0])):
                rooms.remove(need)
                continue
            self.state.active[queue.popleft().key] = None
            if not queue:
                rooms.remove(need)
                del self._queues[need]

    def _wait_for(self, run: StudyRun) -> None:
        """Wait for a process that trains a run: a worker whose coordinator died, or another shard.

        When it has ended, a worker looks at the run again, and continues it if necessary.
        """
        if run.key not in self.state.waiting:
            self._say(f"Waiting for {run.key}, which another process is training.")
        self.state.waiting[run.key] = time.monotonic() + BUSY_SECONDS

    def _look_at_waiting(self) -> None:
        for key, moment in list(self.state.waiting.items()):
            if moment > time.monotonic():
                continue
            if is_held(self._runs[key].lock):
                self.state.waiting[key] = time.monotonic() + BUSY_SECONDS
            else:
                del self.state.waiting[key]
                self._enqueue(self._runs[key])

    # --- Events -------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        run = self._runs[event.key]
        match event:
            case Started():
                self._record(lambda: self._session.started(run, event))
            case Progress():
                self.state.active[run.key] = event
            case Evaluated():
                for watcher in self._watchers:
                    watcher.evaluated(run, event.step, event.metrics)
                if self._source is not None:
                    self._source.evaluated(run, event.step, event.metrics)
            case Warned():
                self._warn(run, event.text)
            case Busy():
                del self.state.active[run.key]
                if not self._is_ending:
                    self._wait_for(run)
            case Ended():
                del self.state.active[run.key]
                self._record(lambda: self._session.ended(run, event))
                self._after(run, event)

    def _warn(self, run: StudyRun, text: str) -> None:
        """Show a warning, once for all seeds, or once for all runs of a source."""
        place = run.group.folder if self._source is None else ""
        if (place, text) not in self._warned:
            self._warned.add((place, text))
            self._say(f"Warning: {run.key}: {text}")

    def _record(self, write: Callable[[], None]) -> None:
        """Write to the index; if that fails, the study ends, and nothing that is saved is lost."""
        try:
            write()
        except TrainingError as error:
            self._give_up(error)

    def _give_up(self, problem: TrainingError) -> None:
        if self._problem is None:
            self._problem = problem
            self._end(StopReason.parse("signal: SIGTERM"))

    def _after(self, run: StudyRun, event: Ended) -> None:
        """Decide what to do after the end of an attempt."""
        if event.status.has_ended:
            self.state.finished_here += 1
            if self._source is None:  # which reports what its runs mean
                self._say(outcome_line(run, self.state))
        elif event.disk_is_full:
            self._give_up(
                TrainingError(
                    f"The disk of {self._session.index.path} is full. Nothing that was saved is "
                    "lost: free disk space, then run the same command again."
                )
            )
        elif event.status is RunStatus.FAILED:
            failures = self._failures(run)
            again = event.can_retry and not self._has_given_up(run) and not self._is_ending
            self._say(f"{run.key} failed: {event.reason}{' (it is tried again)' if again else ''}")
            if again:
                delay = min(MAX_RETRY_SECONDS, RETRY_SECONDS * 2 ** (failures - 1))
                self._delayed.append((time.monotonic() + delay, run))
                return
        if self._source is not None:
            source = self._source
            self._record(lambda: source.released(run))

    def _failures(self, run: StudyRun) -> int:
        """Return how often a run has failed in a row without a new checkpoint in between."""
        counting = run.failures[self._forgiven[run.key] :]
        return sum(failure.step == counting[-1].step for failure in counting)

    def _has_given_up(self, run: StudyRun) -> bool:
        return run.status is RunStatus.FAILED and self._failures(run) > self._retries

    def _say(self, text: str) -> None:
        for watcher in self._watchers:
            watcher.message(text)

    def _tell_change(self) -> None:
        if self._source is not None:
            self.state.more = self._source.most_runs_left
        for watcher in self._watchers:
            watcher.changed(self.state)


def in_rounds(runs: Iterable[StudyRun]) -> list[StudyRun]:
    """Sort runs so that every label and task gets its first seed before any gets its second."""
    position: dict[str, int] = {}
    ranked = []
    for run in runs:
        rank = position[run.group.folder] = position.get(run.group.folder, -1) + 1
        ranked.append((rank, run))
    return [run for _, run in sorted(ranked, key=lambda pair: pair[0])]


def outcome_line(run: StudyRun, state: StudyState) -> str:
    """Describe a run that has ended."""
    last = run.results.get("last_return")
    result = "" if last is None else f", return {last:,.1f}"
    how = "finished" if run.status is RunStatus.FINISHED else f"stopped early ({run.reason})"
    done = state.count(RunStatus.FINISHED, RunStatus.STOPPED)
    return f"[{done}/{len(state.runs)}] {run.key} {how} at step {run.step:,}{result}"

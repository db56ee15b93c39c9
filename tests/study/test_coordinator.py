"""The coordinator: order, retries, stops and faults, with an executor that trains nothing."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from rl_training.boundary.locking import hold_lock
from rl_training.errors import TrainingError
from rl_training.runtime.stop_reason import StopKind, StopReason
from rl_training.study import coordinator
from rl_training.study.coordinator import Coordinator, StudyState, in_rounds
from rl_training.study.executor import Executor
from rl_training.study.folder import StudySession, open_session
from rl_training.study.index import StudyIndex, StudyRun
from rl_training.study.jobs import Busy, Ended, Evaluated, Event, Job, Progress, Started, Warned
from rl_training.study.planning import StudyPlan
from rl_training.study.records import RunStatus
from rl_training.study.resources import Resources
from tests.study.simulated import HOST
from tests.study.small import job_for, small_plan

Outcome = Callable[[Job, int], Sequence[Event]]


class FakeExecutor:
    """Executes jobs by a script, a number of them at once."""

    def __init__(self, outcome: Outcome | None = None, slots: int = 2) -> None:
        self.submitted: list[str] = []
        self.most_active = 0
        self.stopped: list[tuple[str, str | None]] = []
        self.killed = False
        self.at_start: Callable[[], object] = lambda: None
        self._outcome = outcome or (lambda job, attempt: [finished(job.key)])
        self._slots = slots
        self._active: dict[str, list[Event]] = {}

    def prepare(self, study: Path) -> None:
        pass

    def check(self, need: Resources, what: str) -> None:
        pass

    def at_once(self, need: Resources) -> int:
        return self._slots

    def submit(self, job: Job) -> bool:
        if len(self._active) >= self._slots:
            return False
        assert job.key not in self._active, "a run is trained twice at the same time"
        self.submitted.append(job.key)
        self.at_start()
        attempt = self.submitted.count(job.key)
        self._active[job.key] = [
            Started(job.key, 1, HOST),
            Progress(job.key, 1, 2, "steps"),
            *self._outcome(job, attempt),
        ]
        self.most_active = max(self.most_active, len(self._active))
        return True

    def wait(self, seconds: float) -> Sequence[Event]:
        for key, events in list(self._active.items()):
            if events:
                event = events.pop(0)
                if isinstance(event, Ended | Busy):
                    del self._active[key]
                return [event]
        return []

    def stop(self, reason: StopReason, key: str | None = None) -> None:
        self.stopped.append((str(reason), key))
        for active, events in self._active.items():
            if not events or not isinstance(events[-1], Ended):
                events.append(Ended(active, RunStatus.INTERRUPTED, reason=str(reason)))

    def kill(self) -> None:
        self.killed = True

    def release(self) -> None:
        pass

    def close(self) -> None:
        pass


def finished(key: str) -> Ended:
    return Ended(key, RunStatus.FINISHED, step=200, seconds=1.0, results={"last_return": -3.0})


def failed(key: str, step: int = 0, **facts: Any) -> Ended:
    return Ended(key, RunStatus.FAILED, step=step, reason="no luck", **facts)


class Recorder:
    """A watcher that records its calls."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.evaluations: list[tuple[str, int, Mapping[str, float]]] = []
        self.states: list[int] = []

    def message(self, text: str) -> None:
        self.lines.append(text)

    def changed(self, state: StudyState) -> None:
        self.states.append(state.count(RunStatus.FINISHED))

    def evaluated(self, run: StudyRun, step: int, metrics: Mapping[str, float]) -> None:
        self.evaluations.append((run.key, step, metrics))


@pytest.fixture(scope="module")
def plan() -> StudyPlan:
    return small_plan(seeds=2)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(coordinator, "BUSY_SECONDS", 0.0)


@contextmanager
def prepared(
    folder: Path, plan: StudyPlan, executor: Executor, **options: Any
) -> Iterator[tuple[Coordinator, StudySession]]:
    with open_session(folder, plan) as session:
        options = {"retries": 2} | options
        yield Coordinator(session, executor, list(session.index), job_for, **options), session


def run(folder: Path, plan: StudyPlan, executor: Executor, **options: Any) -> str | None:
    with prepared(folder, plan, executor, **options) as (study, _):
        return study.run()


def statuses(folder: Path) -> dict[str, RunStatus]:
    return {key: run.status for key, run in StudyIndex.open(folder).runs.items()}


SAC0, SAC1, TD30, TD31 = (f"{a}/Pendulum-v1/seed{s}" for a in ("sac", "td3") for s in (0, 1))


def test_every_method_gets_its_first_seed_first(tmp_path: Path, plan: StudyPlan) -> None:
    executor, recorder = FakeExecutor(), Recorder()
    assert run(tmp_path, plan, executor, watchers=[recorder]) is None
    assert executor.submitted == [SAC0, TD30, SAC1, TD31]
    assert executor.most_active == 2
    assert set(statuses(tmp_path).values()) == {RunStatus.FINISHED}
    assert recorder.lines[-1] == f"[4/4] {TD31} finished at step 200, return -3.0"
    assert recorder.states[-1] == 4


def test_the_order_does_not_depend_on_what_runs_need(tmp_path: Path, plan: StudyPlan) -> None:
    """Runs with different needs wait in different queues."""
    executor = FakeExecutor(slots=1)
    with prepared(tmp_path, plan, executor) as (_, session):
        for folder, group in session.index.groups.items():
            group.resources = {"cpus": 1.0, "memory": len(folder)}
        session.index.groups["td3/Pendulum-v1"].resources = {"cpus": 2.0}
        Coordinator(session, executor, list(session.index), job_for, retries=0).run()
    assert executor.submitted == [SAC0, TD30, SAC1, TD31]


def test_finished_runs_are_kept(tmp_path: Path, plan: StudyPlan) -> None:
    run(tmp_path, plan, FakeExecutor())
    executor = FakeExecutor()
    run(tmp_path, plan, executor)
    assert executor.submitted == []


def test_a_failed_run_is_retried_up_to_a_limit(tmp_path: Path, plan: StudyPlan) -> None:
    executor = FakeExecutor(
        lambda job, _: [failed(job.key) if job.key == SAC0 else finished(job.key)]
    )
    recorder = Recorder()
    run(tmp_path, plan, executor, watchers=[recorder])
    assert executor.submitted.count(SAC0) == 3
    index = StudyIndex.open(tmp_path)
    assert index.runs[SAC0].status is RunStatus.FAILED
    assert [failure.reason for failure in index.runs[SAC0].failures] == ["no luck"] * 3
    assert recorder.lines.count(f"{SAC0} failed: no luck (it is tried again)") == 2
    assert f"{SAC0} failed: no luck" in recorder.lines
    assert statuses(tmp_path)[TD31] is RunStatus.FINISHED  # the others are not affected


def test_a_run_that_has_failed_too_often_is_tried_again_only_on_request(
    tmp_path: Path, plan: StudyPlan
) -> None:
    bad = FakeExecutor(lambda job, _: [failed(job.key)])
    run(tmp_path, plan, bad, retries=0)
    again = FakeExecutor(
        lambda job, attempt: [failed(job.key) if attempt < 3 else finished(job.key)]
    )
    run(tmp_path, plan, again)  # with two retries, the limit is not reached
    assert again.submitted.count(SAC0) == 2
    assert statuses(tmp_path)[SAC0] is RunStatus.FAILED
    run(tmp_path, plan, again)
    assert again.submitted.count(SAC0) == 2
    run(tmp_path, plan, again, retry_failed=True)
    assert statuses(tmp_path)[SAC0] is RunStatus.FINISHED
    assert len(StudyIndex.open(tmp_path).runs[SAC0].failures) == 3


def test_progress_resets_the_limit(tmp_path: Path, plan: StudyPlan) -> None:
    """Ten failures with a new checkpoint between any two of them are not too many."""

    def outcome(job: Job, attempt: int) -> list[Event]:
        return [failed(job.key, step=attempt) if attempt <= 10 else finished(job.key)]

    executor = FakeExecutor(outcome)
    run(tmp_path, plan, executor, retries=1)
    assert executor.submitted.count(SAC0) == 11
    assert set(statuses(tmp_path).values()) == {RunStatus.FINISHED}


def test_invalid_input_is_not_retried(tmp_path: Path, plan: StudyPlan) -> None:
    executor = FakeExecutor(lambda job, _: [failed(job.key, can_retry=False)])
    run(tmp_path, plan, executor, retries=5)
    assert len(executor.submitted) == 4


def test_retries_wait_longer_each_time(
    tmp_path: Path, plan: StudyPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(coordinator, "RETRY_SECONDS", 1.0)
    monkeypatch.setattr("rl_training.study.coordinator.time.monotonic", lambda: now[0])
    moments: list[float] = []

    class Slow(FakeExecutor):
        def submit(self, job: Job) -> bool:
            taken = super().submit(job)
            if taken and job.key == SAC0:
                moments.append(now[0])
            return taken

        def wait(self, seconds: float) -> Sequence[Event]:
            now[0] += 0.25
            return super().wait(seconds)

    run(tmp_path, plan, Slow(lambda job, _: [failed(job.key)], slots=9), retries=3)
    gaps = [b - a for a, b in pairwise(moments)]
    assert len(gaps) == 3
    assert 1 <= gaps[0] < 4 <= gaps[2]


def test_a_run_of_another_process_is_waited_for(tmp_path: Path, plan: StudyPlan) -> None:
    """Such as a worker whose coordinator was killed, and which saves a checkpoint."""
    executor, recorder = FakeExecutor(), Recorder()
    with prepared(tmp_path, plan, executor, watchers=[recorder]) as (_, session):
        first = session.index.runs[SAC0]
        held = hold_lock(first.lock, what=tmp_path, busy="")
        held.__enter__()
        study = Coordinator(
            session, executor, list(session.index), job_for, retries=0, watchers=[recorder]
        )

        def released(state: StudyState) -> None:
            if state.count(RunStatus.FINISHED) == 3 and SAC0 in state.waiting:
                assert SAC0 not in executor.submitted
                held.__exit__(None, None, None)

        recorder.changed = released  # type: ignore[method-assign]
        study.run()
    assert executor.submitted == [TD30, SAC1, TD31, SAC0]
    assert f"Waiting for {SAC0}, which another process is training." in recorder.lines
    assert set(statuses(tmp_path).values()) == {RunStatus.FINISHED}


def test_a_busy_run_is_tried_again(tmp_path: Path, plan: StudyPlan) -> None:
    executor = FakeExecutor(
        lambda job, attempt: [Busy(job.key) if attempt < 3 else finished(job.key)]
    )
    run(tmp_path, plan, executor)
    assert executor.submitted.count(SAC0) == 3
    assert set(statuses(tmp_path).values()) == {RunStatus.FINISHED}


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_stops_all_runs(tmp_path: Path, plan: StudyPlan, name: str) -> None:
    recorder = Recorder()

    def outcome(job: Job, attempt: int) -> list[Event]:
        if job.key == TD30:
            os.kill(os.getpid(), signal.Signals[name])
        return []

    executor = FakeExecutor(outcome)
    assert run(tmp_path, plan, executor, watchers=[recorder]) == name
    assert executor.stopped == [(f"signal: {name}", None)]
    assert executor.submitted == [SAC0, TD30]  # no others start
    assert list(statuses(tmp_path).values()) == [
        *(RunStatus.INTERRUPTED, RunStatus.PLANNED, RunStatus.INTERRUPTED, RunStatus.PLANNED)
    ]
    assert any(line.startswith("Stopping: 2 runs will save") for line in recorder.lines)
    run(tmp_path, plan, FakeExecutor())
    assert set(statuses(tmp_path).values()) == {RunStatus.FINISHED}


def test_a_second_interrupt_kills_the_workers(tmp_path: Path, plan: StudyPlan) -> None:
    class Stubborn(FakeExecutor):
        def wait(self, seconds: float) -> Sequence[Event]:
            os.kill(os.getpid(), signal.SIGINT)
            return []

    executor = Stubborn()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, plan, executor)
    assert executor.killed


def test_a_failure_while_stopping_is_not_retried(tmp_path: Path, plan: StudyPlan) -> None:
    class Failing(FakeExecutor):
        def stop(self, reason: StopReason, key: str | None = None) -> None:
            for active, events in self._active.items():
                events.append(failed(active))

    executor = Failing(lambda job, _: [])
    with prepared(tmp_path, plan, executor) as (study, _):
        executor.at_start = lambda: study.request_stop(StopReason(StopKind.SIGNAL, "SIGINT"))
        assert study.run() == "SIGINT"
    assert executor.submitted == [SAC0, TD30]
    assert statuses(tmp_path)[SAC0] is RunStatus.FAILED
    run(tmp_path, plan, FakeExecutor())
    assert set(statuses(tmp_path).values()) == {RunStatus.FINISHED}


def test_a_stop_before_the_first_run_starts_nothing(tmp_path: Path, plan: StudyPlan) -> None:
    executor = FakeExecutor()
    with prepared(tmp_path, plan, executor) as (study, _):
        study.request_stop(StopReason(StopKind.SIGNAL, "SIGTERM"))
        assert study.run() == "SIGTERM"
    assert executor.submitted == []


def test_a_full_disk_of_a_worker_ends_the_study(tmp_path: Path, plan: StudyPlan) -> None:
    full = {"status": RunStatus.INTERRUPTED, "disk_is_full": True}
    executor = FakeExecutor(
        lambda job, _: [Ended(job.key, **full)] if job.key == SAC0 else []  # type: ignore[arg-type]
    )
    with pytest.raises(TrainingError, match=r"The disk of .* is full\. Nothing that was saved"):
        run(tmp_path, plan, executor)
    assert statuses(tmp_path)[TD30] is RunStatus.INTERRUPTED
    run(tmp_path, plan, FakeExecutor())
    assert set(statuses(tmp_path).values()) == {RunStatus.FINISHED}
    assert StudyIndex.open(tmp_path).runs[SAC0].failures == []


def test_an_index_that_cannot_be_written_ends_the_study(tmp_path: Path, plan: StudyPlan) -> None:
    executor = FakeExecutor()
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with prepared(tmp_path, plan, executor) as (study, _):
        failing = mock.patch("rl_training.boundary.journal.write_all", side_effect=full)
        with failing, pytest.raises(TrainingError, match="No space left on device"):
            study.run()
    assert executor.submitted == [SAC0, TD30]
    assert executor.stopped
    run(tmp_path, plan, FakeExecutor())
    assert set(statuses(tmp_path).values()) == {RunStatus.FINISHED}


def test_watchers_see_evaluations_and_each_warning_once(tmp_path: Path, plan: StudyPlan) -> None:
    recorder = Recorder()

    def outcome(job: Job, attempt: int) -> list[Event]:
        metrics = {"eval_return_mean": -5.0}
        return [Evaluated(job.key, 7, metrics), Warned(job.key, "careful"), finished(job.key)]

    run(tmp_path, plan, FakeExecutor(outcome), watchers=[recorder])
    assert (SAC0, 7, {"eval_return_mean": -5.0}) in recorder.evaluations
    assert len(recorder.evaluations) == 4
    assert [line for line in recorder.lines if "careful" in line] == [
        f"Warning: {SAC0}: careful",
        f"Warning: {TD30}: careful",
    ]


class Adding:
    """A source that adds one run after the other, each when the one before has ended."""

    def __init__(self, session: StudySession) -> None:
        self._left = list(session.index)
        self._waits = False
        self.ends: list[tuple[str, RunStatus]] = []

    @property
    def is_exhausted(self) -> bool:
        return not self._left

    @property
    def most_runs_left(self) -> int:
        return len(self._left)

    def evaluated(self, run: StudyRun, step: int, metrics: Mapping[str, float]) -> None:
        pass

    def next_runs(self) -> Sequence[StudyRun]:
        if self._waits or not self._left:
            return []
        self._waits = True
        return [self._left.pop(0)]

    def released(self, run: StudyRun) -> None:
        self._waits = False
        self.ends.append((run.key, run.status))


def test_a_source_adds_runs_while_the_study_runs(tmp_path: Path, plan: StudyPlan) -> None:
    executor = FakeExecutor(
        lambda job, attempt: [failed(job.key) if job.key == TD30 else finished(job.key)]
    )
    with open_session(tmp_path, plan) as session:
        source = Adding(session)
        study = Coordinator(session, executor, [], job_for, retries=1, source=source)
        study.run()
    assert executor.submitted == [SAC0, SAC1, TD30, TD30, TD31]
    assert executor.most_active == 1
    assert source.ends == [
        (SAC0, RunStatus.FINISHED),
        (SAC1, RunStatus.FINISHED),
        (TD30, RunStatus.FAILED),  # reported once, after the last attempt
        (TD31, RunStatus.FINISHED),
    ]
    assert study.state.count(RunStatus.FINISHED) == 3


def test_a_stop_ends_a_source(tmp_path: Path, plan: StudyPlan) -> None:
    executor = FakeExecutor()
    with open_session(tmp_path, plan) as session:
        source = Adding(session)
        study = Coordinator(session, executor, [], job_for, retries=1, source=source)
        executor.at_start = lambda: study.request_stop(StopReason(StopKind.SIGNAL, "SIGTERM"))
        assert study.run() == "SIGTERM"
    assert executor.submitted == [SAC0]


def test_runs_are_sorted_in_rounds(tmp_path: Path, plan: StudyPlan) -> None:
    with open_session(tmp_path, plan) as session:
        assert [run.key for run in in_rounds(session.index)] == [SAC0, TD30, SAC1, TD31]


def test_an_early_stop_is_complete(tmp_path: Path, plan: StudyPlan) -> None:
    stop = {"status": RunStatus.STOPPED, "reason": "early_stopping: enough", "step": 50}
    executor, recorder = FakeExecutor(lambda job, _: [Ended(job.key, **stop)]), Recorder()  # type: ignore[arg-type]
    run(tmp_path, plan, executor, watchers=[recorder])
    assert set(statuses(tmp_path).values()) == {RunStatus.STOPPED}
    assert recorder.lines[0].endswith("stopped early (early_stopping: enough) at step 50")

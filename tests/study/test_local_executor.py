"""The local executor: real worker processes, their budget, and their deaths."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rl_training.boundary.locking import is_held
from rl_training.runtime.stop_reason import StopReason
from rl_training.study.folder import open_session
from rl_training.study.index import StudyRun
from rl_training.study.jobs import Ended, Evaluated, Event, Progress, Started, Warned
from rl_training.study.launching import ProcessLauncher
from rl_training.study.local_executor import LocalExecutor
from rl_training.study.records import RunStatus
from rl_training.study.resources import Budget, Resources
from tests.faults.processes import wait_until_gone
from tests.faults.runs import assert_equal_runs
from tests.study.conftest import SharedServer
from tests.study.small import job_for, small_plan

Make = Callable[..., LocalExecutor]
LONG = {"total_timesteps": 1_000_000, "engine": "eager"}
SIGTERM = StopReason.parse("signal: SIGTERM")


@pytest.fixture
def runs(tmp_path: Path) -> Callable[..., list[StudyRun]]:
    """Return a function that plans two runs."""

    def plan(**settings: Any) -> list[StudyRun]:
        plan = small_plan(algos=("sac",), settings=settings)
        with open_session(tmp_path / "study", plan) as session:
            return list(session.index)

    return plan


def wait_for(
    executor: LocalExecutor, wanted: Callable[[Event], bool], seconds: float = 60
) -> list[Event]:
    """Collect events until one is wanted."""
    events: list[Event] = []
    deadline = time.monotonic() + seconds
    while not any(map(wanted, events)):
        assert time.monotonic() < deadline, events
        events += executor.wait(0.2)
    return events


def is_end(run: StudyRun) -> Callable[[Event], bool]:
    return lambda event: isinstance(event, Ended) and event.key == run.key


def end(executor: LocalExecutor, run: StudyRun) -> Ended:
    """Wait until a run ends."""
    found = [e for e in wait_for(executor, is_end(run)) if is_end(run)(e)]
    assert isinstance(found[0], Ended)
    return found[0]


def start(executor: LocalExecutor, run: StudyRun) -> int:
    """Start a long run, wait until it trains, and return the process of its worker."""
    assert executor.submit(job_for(run))
    events = wait_for(executor, lambda e: isinstance(e, Evaluated) and e.key == run.key)
    return next(e.pid for e in events if isinstance(e, Started) and e.key == run.key)


def test_runs_equal_those_of_any_other_process(
    make_executor: Make, runs: Callable[..., list[StudyRun]], reference_study: Path
) -> None:
    executor = make_executor()
    for run in runs():
        assert executor.submit(job_for(run))
        assert end(executor, run).status is RunStatus.FINISHED
        assert_equal_runs(run.path, reference_study / "runs" / run.key)


def test_the_budget_is_respected(make_executor: Make, runs: Callable[..., list[StudyRun]]) -> None:
    executor = make_executor(cores=1)
    first, second = runs()
    assert executor.at_once(Resources()) == 1
    assert executor.submit(job_for(first))
    assert not executor.submit(job_for(second))
    end(executor, first)
    deadline = time.monotonic() + 10
    while not executor.submit(job_for(second)):  # the process may take a moment to exit
        assert time.monotonic() < deadline
        executor.wait(0.1)
    end(executor, second)


def test_a_killed_worker_is_a_failure_that_can_be_retried(
    make_executor: Make, runs: Callable[..., list[StudyRun]]
) -> None:
    executor, (run, _) = make_executor(), runs(**LONG)
    os.kill(start(executor, run), signal.SIGKILL)
    ended = end(executor, run)
    assert ended.status is RunStatus.FAILED
    assert ended.can_retry
    assert str(ended.reason).startswith("the worker process was killed by SIGKILL (perhaps")
    assert not is_held(run.lock)
    start(executor, run)  # its resources were given back


def test_stopping_one_run_leaves_the_others(
    make_executor: Make, runs: Callable[..., list[StudyRun]]
) -> None:
    executor, (first, second) = make_executor(), runs(**LONG)
    for run in (first, second):
        start(executor, run)
    executor.stop(SIGTERM, first.key)
    ended = end(executor, first)
    assert (ended.status, ended.reason) == (RunStatus.INTERRUPTED, "signal: SIGTERM")
    assert ended.step > 50
    events = wait_for(executor, lambda e: isinstance(e, Progress))
    assert {event.key for event in events} == {second.key}


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_to_a_worker(
    make_executor: Make, runs: Callable[..., list[StudyRun]], name: str
) -> None:
    """A scheduler may send SIGTERM to every process. Either signal saves a checkpoint."""
    executor, (run, _) = make_executor(), runs(**LONG)
    os.kill(start(executor, run), signal.Signals[name])
    assert end(executor, run).status is RunStatus.INTERRUPTED


def test_workers_save_and_exit_when_the_coordinator_dies(
    make_executor: Make, runs: Callable[..., list[StudyRun]], tmp_path: Path
) -> None:
    """The connections close, just as when the process is killed."""
    executor, (run, _) = make_executor(), runs(**LONG)
    pid = start(executor, run)
    before = sorted((run.path / "checkpoints").glob("step_*"))[-1].name
    executor.close()
    assert wait_until_gone({pid}, 20) == set()
    assert not is_held(run.lock)
    assert sorted((run.path / "checkpoints").glob("step_*"))[-1].name > before
    assert '"interrupted"' in (run.path / "run.json").read_text()


def test_kill_ends_all_workers_at_once(
    make_executor: Make, runs: Callable[..., list[StudyRun]]
) -> None:
    executor, (run, _) = make_executor(), runs(**LONG)
    pid = start(executor, run)
    executor.kill()
    assert wait_until_gone({pid}, 10) == set()
    assert end(executor, run).status is RunStatus.FAILED


def test_a_killed_server_is_started_again(
    make_executor: Make, runs: Callable[..., list[StudyRun]], fork_server: SharedServer
) -> None:
    executor, (first, second) = make_executor(), runs(**LONG)
    start(executor, first)
    os.kill(fork_server.pid, signal.SIGKILL)
    assert wait_until_gone({fork_server.pid}, 10) == set()
    start(executor, second)
    executor.stop(SIGTERM, first.key)
    assert end(executor, first).status is RunStatus.INTERRUPTED  # its worker was not affected
    executor.stop(SIGTERM, second.key)
    assert end(executor, second).status is RunStatus.INTERRUPTED


def test_workers_print_to_a_log(
    make_executor: Make,
    runs: Callable[..., list[StudyRun]],
    capfd: pytest.CaptureFixture[str],
) -> None:
    executor, (run, _) = make_executor(), runs(learning_starts=1000)
    assert executor.submit(job_for(run))
    events = wait_for(executor, is_end(run))
    (warning,) = (event.text for event in events if isinstance(event, Warned))
    assert warning.startswith("learning_starts = 1000: the run ends after 200 steps")
    assert (run.study / "logs" / f"{run.key}.log").read_text() == f"Warning: {warning}\n"
    assert capfd.readouterr().err == ""


def test_a_process_for_each_worker(
    runs: Callable[..., list[StudyRun]], reference_study: Path
) -> None:
    """Systems on which forking is not safe start an interpreter for each run."""
    executor = LocalExecutor(Budget(1, 0), ProcessLauncher())
    run, _ = runs()
    assert executor.submit(job_for(run))
    assert end(executor, run).status is RunStatus.FINISHED
    executor.wait(5)
    executor.close()
    assert_equal_runs(run.path, reference_study / "runs" / run.key)

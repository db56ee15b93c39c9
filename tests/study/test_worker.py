"""Workers: a run of a study equals an ordinary run, and every attempt has an outcome."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from rl_training import train
from rl_training.api.training import resume
from rl_training.boundary.locking import hold_lock, is_held
from rl_training.errors import ConfigError, TrainingError
from rl_training.experiment.run_directory import lock_run, read_run_info
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.stop_reason import StopKind, StopReason
from rl_training.study import serving, worker
from rl_training.study.folder import open_session
from rl_training.study.index import StudyRun
from rl_training.study.jobs import (
    Busy,
    Ended,
    Evaluated,
    Event,
    Job,
    Progress,
    Started,
    Warned,
    parse_event,
)
from rl_training.study.records import RunStatus
from rl_training.study.worker import StopRequest, is_disk_full, train_job
from tests.faults.runs import CONFIG, assert_equal_runs
from tests.study.small import job_for, small_plan


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ordinary run with the config of the study's run."""
    folder = tmp_path_factory.mktemp("reference")
    return train(CONFIG | {"seed": 0, "output_dir": str(folder)}).run_dir


@pytest.fixture
def run(tmp_path: Path) -> Iterator[StudyRun]:
    """A planned run."""
    with open_session(tmp_path / "study", small_plan(algos=("sac",), seeds=1)) as session:
        yield next(iter(session.index))


class StopAt(StopRequest):
    """A request to stop that arrives at a step."""

    def __init__(self, events: list[Event], step: int) -> None:
        super().__init__()
        self.events, self.step = events, step

    def report(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, Progress) and event.done >= self.step:
            self.interrupt()


def attempt(run: StudyRun, **changes: Any) -> tuple[Ended, list[Event]]:
    events: list[Event] = []
    outcome = train_job(job_for(run, **changes), events.append, StopRequest())
    assert isinstance(outcome, Ended)
    return outcome, events


def is_busy(run: StudyRun) -> bool:
    return train_job(job_for(run), lambda event: None, StopRequest()) == Busy(run.key)


def interrupt(run: StudyRun, step: int) -> Ended:
    stop = StopAt([], step)
    with mock.patch.object(worker, "REPORT_SECONDS", 0.0):
        outcome = train_job(job_for(run), stop.report, stop)
    assert isinstance(outcome, Ended)
    return outcome


def test_a_run_of_a_study_equals_an_ordinary_run(run: StudyRun, reference: Path) -> None:
    outcome, events = attempt(run, origin={"study": {"label": "sac"}})
    assert_equal_runs(run.path, reference)
    assert isinstance(outcome, Ended)
    assert (outcome.status, outcome.step, outcome.reason) == (RunStatus.FINISHED, 200, None)
    assert outcome.results["best_return"] == read_run_info(reference)["best_return"]
    assert outcome.seconds > 0
    assert isinstance(events[0], Started)
    assert [e.step for e in events if isinstance(e, Evaluated)] == [50, 100, 150, 200]
    last = [event for event in events if isinstance(event, Progress)][-1]
    assert (last.done, last.total, last.unit, last.is_learning) == (200, 200, "steps", True)
    assert read_run_info(run.path)["study"] == {"label": "sac"}
    assert not run.lock.exists()  # a finished run needs no lock


def test_an_interrupted_run_is_resumed_exactly(run: StudyRun, reference: Path) -> None:
    for step in (60, 130):
        outcome = interrupt(run, step)
        assert outcome.status is RunStatus.INTERRUPTED
        assert step <= outcome.step < 200
    assert attempt(run)[0].status is RunStatus.FINISHED
    assert_equal_runs(run.path, reference)


def test_a_request_before_the_first_step_is_honored(run: StudyRun, reference: Path) -> None:
    stop = StopRequest()
    stop.interrupt()
    outcome = train_job(job_for(run), lambda event: None, stop)
    assert isinstance(outcome, Ended)
    assert (outcome.status, outcome.step) == (RunStatus.INTERRUPTED, 0)
    attempt(run)
    assert_equal_runs(run.path, reference)


def test_a_run_can_be_stopped_for_good(run: StudyRun) -> None:
    """Such as by a pruner: the run ends early, and is complete."""
    events: list[Event] = []
    stop = StopAt(events, 60)
    stop.interrupt = lambda: stop.set(StopReason(StopKind.REQUESTED, "pruned"))  # type: ignore[method-assign]
    with mock.patch.object(worker, "REPORT_SECONDS", 0.0):
        outcome = train_job(job_for(run), stop.report, stop)
    assert isinstance(outcome, Ended)
    assert (outcome.status, outcome.reason) == (RunStatus.STOPPED, "pruned")
    assert attempt(run)[0] == outcome  # it is not continued


def test_a_finished_run_is_not_trained_again(run: StudyRun) -> None:
    first, _ = attempt(run)
    before = (run.path / "run.json").read_bytes()
    again, events = attempt(run)
    assert again == first
    assert [type(event) for event in events] == [Started]
    assert (run.path / "run.json").read_bytes() == before


def test_a_run_that_is_being_trained_is_busy(run: StudyRun) -> None:
    with hold_lock(run.lock, what=run.study, busy=""):
        assert is_busy(run)
    interrupt(run, 60)
    with lock_run(run.path):  # such as `rl-training resume`
        assert is_busy(run)
    assert not is_held(run.lock)


def test_a_run_can_be_resumed_alone(run: StudyRun, reference: Path) -> None:
    interrupt(run, 60)
    resume(run.path)
    assert_equal_runs(run.path, reference)
    assert attempt(run)[0].status is RunStatus.FINISHED


def test_leftovers_of_a_killed_start_are_removed(run: StudyRun) -> None:
    for name, files in ((".tmp-seed0-0123abcd", ["run.json"]), (".tmp-seed1-0123abcd", [])):
        (run.path.parent / name).mkdir(parents=True)
        for file in files:
            (run.path.parent / name / file).touch()
    attempt(run)
    assert {path.name for path in run.path.parent.iterdir()} == {"seed0", ".tmp-seed1-0123abcd"}


def test_an_edited_run_is_refused(run: StudyRun) -> None:
    interrupt(run, 60)
    file = run.path / "config.yaml"
    text = file.read_text()
    file.write_text(text.replace("total_timesteps: 200", "total_timesteps: 300"))
    outcome, _ = attempt(run)
    assert (outcome.status, outcome.can_retry) == (RunStatus.FAILED, False)
    assert outcome.reason == (
        f"{run.path} was changed outside the study (total_timesteps is 300, but was planned as "
        "200): restore it, or move it away to train this run again."
    )
    file.write_text(text.replace("\nseed: 0", "\nseed: 5"))
    assert "seed is 5, but was planned as 0" in str(attempt(run)[0].reason)
    file.write_text(text.replace("gamma: 0.99", "gamma: 99"))
    assert f"{run.path} was changed outside the study (gamma = 99" in str(attempt(run)[0].reason)
    file.write_text(text)
    assert attempt(run)[0].status is RunStatus.FINISHED


def test_a_failed_run_has_a_reason_and_can_be_retried(run: StudyRun, reference: Path) -> None:
    class Failing(Callback):
        def on_step(self, session: Any) -> None:
            if session.state.step == 110:
                raise OSError("the cluster is down")

    real = worker._Reporter
    with mock.patch.object(worker, "_Reporter", side_effect=lambda *args: Failing()):
        outcome, events = attempt(run)
    assert (outcome.status, outcome.reason) == (RunStatus.FAILED, "OSError: the cluster is down")
    assert (outcome.step, outcome.can_retry, outcome.disk_is_full) == (100, True, False)
    assert any(isinstance(event, Warned) for event in events)
    assert worker._Reporter is real
    attempt(run)
    assert_equal_runs(run.path, reference)


def test_invalid_input_is_not_retried(run: StudyRun) -> None:
    run.group.config["env_id"] = "Nowhere-v0"
    outcome, _ = attempt(run)
    assert (outcome.status, outcome.can_retry) == (RunStatus.FAILED, False)
    assert "Nowhere-v0" in str(outcome.reason)


def test_a_full_disk_interrupts_a_run(run: StudyRun, reference: Path) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    place = "rl_training.runtime.checkpoint_writer.create_file"
    with mock.patch(place, side_effect=full):
        outcome, _ = attempt(run)
    assert (outcome.status, outcome.disk_is_full) == (RunStatus.INTERRUPTED, True)
    attempt(run)
    assert_equal_runs(run.path, reference)


def test_a_full_disk_is_found_in_the_cause_of_an_error() -> None:
    full = OSError(errno.ENOSPC, "full")

    def raised(*, hide: bool) -> Exception:
        try:
            try:
                raise full
            except OSError as cause:
                raise ConfigError("x") from (None if hide else cause)
        except ConfigError as error:
            return error

    assert is_disk_full(full)
    assert is_disk_full(raised(hide=False))
    assert is_disk_full(raised(hide=True))
    assert not is_disk_full(TrainingError("x"))


def test_a_file_does_not_name_environments(run: StudyRun, tmp_path: Path) -> None:
    """A job whose config comes from the study's own files accepts plain arguments only."""
    run.group.config["env_kwargs"] = {"xml_file": "mine.xml"}
    assert "may refer to a file" in str(attempt(run, is_named=False)[0].reason)
    shutil.rmtree(run.path, ignore_errors=True)
    assert "may refer to a file" not in str(attempt(run)[0].reason)


def test_modules_are_imported(
    run: StudyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_study_env.py").write_text(
        "import gymnasium as gym\nfrom gymnasium.envs.classic_control import PendulumEnv\n"
        "gym.register('Mine-v0', entry_point=PendulumEnv, max_episode_steps=50)\n"
    )
    run.group.config["env_id"] = "Mine-v0"
    assert attempt(run, imports=("my_study_env",))[0].status is RunStatus.FINISHED


def test_events_and_jobs_are_plain_data(run: StudyRun) -> None:
    job = job_for(run, imports=("a",), gpu="1")
    assert Job.from_json(job.to_json()) == job
    events: list[Event] = [
        Started("k", 3, {"cpu": "x"}),
        Progress("k", 1, 2, "steps", results=("eval 3",)),
        Evaluated("k", 5, {"eval_return_mean": -1.0}),
        Warned("k", "text"),
        Busy("k"),
        Ended("k", RunStatus.FAILED, reason="why", can_retry=False),
    ]
    for event in events:
        found = parse_event(json.dumps(json.loads(event.to_json())))
        assert type(found) is type(event)
        assert found.key == "k"
    assert parse_event(events[-1].to_json()) == events[-1]


def test_a_worker_without_a_job_ends() -> None:
    ours, theirs = socket.socketpair()
    ours.close()
    with mock.patch("signal.signal"):
        assert serving.serve(theirs) == 1
    theirs.close()

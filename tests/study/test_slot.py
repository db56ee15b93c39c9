"""Slots and fences, with real workers."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rl_training.boundary.locking import is_held
from rl_training.runtime.stop_reason import StopReason
from rl_training.study.fencing import FENCED_EXIT, fence, set_epoch
from rl_training.study.folder import open_session
from rl_training.study.index import StudyRun
from rl_training.study.jobs import ACKNOWLEDGED, Beat, Ended, Evaluated, Event, Job, Started
from rl_training.study.launching import worker_environment
from rl_training.study.records import RunStatus
from rl_training.study.shared_storage import Token
from rl_training.study.slot import Order, Slot
from tests.faults.runs import assert_equal_runs
from tests.study.conftest import SharedServer
from tests.study.small import job_for, small_plan

LONG = {"total_timesteps": 1_000_000, "engine": "eager"}


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., StudyRun]:
    """Return a function that plans a run."""

    def plan(**settings: Any) -> StudyRun:
        plan = small_plan(algos=("sac",), seeds=1, settings=settings)
        with open_session(tmp_path / "study", plan) as session:
            return next(iter(session.index))

    return plan


@pytest.fixture
def slot(tmp_path: Path, fork_server: SharedServer) -> Iterator[Slot]:
    token = Token.create(tmp_path / "study") if (tmp_path / "study").is_dir() else None
    if token is None:
        (tmp_path / "study").mkdir()
        token = Token.create(tmp_path / "study")
    slot = Slot(token, node="here", folder=str(tmp_path), launcher=fork_server)
    assert slot.welcome().problem is None
    assert token.was_answered(slot.welcome().answer)
    token.remove()
    yield slot
    slot.exchange(Order(kill=True))
    slot.close()


def leased(run: StudyRun, lease: float = 30.0, epoch: str = "first") -> Job:
    job = replace(job_for(run), lease=lease, epoch=epoch)
    set_epoch(job)
    return job


def run_until(
    slot: Slot, job: Job, wanted: Callable[[Event], bool], *, order: Order | None = None
) -> list[Event]:
    """Acknowledge heartbeats until an event is wanted."""
    order = order or Order(job.to_json())
    events: list[Event] = []
    deadline = time.monotonic() + 60
    while not any(map(wanted, events)):
        assert time.monotonic() < deadline, events
        reply = slot.exchange(replace(order, seconds=0.2))
        beats = [event.number for event in reply.events if isinstance(event, Beat)]
        order = Order(lines=tuple(f"{ACKNOWLEDGED}{number}" for number in beats))
        events += reply.events
    return events


def is_end(event: Event) -> bool:
    return isinstance(event, Ended)


def end_of(events: list[Event]) -> Ended:
    (ended,) = (event for event in events if isinstance(event, Ended))
    return ended


def files(folder: Path) -> dict[str, int]:
    """Return all files with the time of their last change."""
    return {str(p): p.stat().st_mtime_ns for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_run_in_a_slot_equals_a_local_one(
    slot: Slot, make_run: Callable[..., StudyRun], reference_study: Path
) -> None:
    run = make_run()
    events = run_until(slot, leased(run), is_end)
    assert isinstance(events[0], Beat)  # before anything else, so that a late job never starts
    assert end_of(events).status is RunStatus.FINISHED
    reference = reference_study / "runs" / run.key
    assert_equal_runs(run.path, reference)
    info, expected = (json.loads((p / "run.json").read_text()) for p in (run.path, reference))
    assert info.keys() | {"study", "git"} == expected.keys()  # which this job did not have
    deadline = time.monotonic() + 10
    while slot.exchange(Order(seconds=0.1)).is_busy:
        assert time.monotonic() < deadline


def test_a_worker_that_nobody_acknowledges_writes_nothing(
    slot: Slot, make_run: Callable[..., StudyRun]
) -> None:
    run = make_run()
    job = leased(run, lease=2.0)
    reply = slot.exchange(Order(job.to_json()))
    events = [*reply.events]
    while reply.is_busy:
        reply = slot.exchange(Order(seconds=0.2))
        events += reply.events
    ended = end_of(events)
    assert ended.status is RunStatus.FAILED
    assert not any(isinstance(event, Started) for event in events)
    assert not run.path.exists()
    assert not job.log.exists()


def test_requests_to_stop_reach_the_worker(slot: Slot, make_run: Callable[..., StudyRun]) -> None:
    run = make_run(**LONG)
    job = leased(run)
    run_until(slot, job, lambda event: isinstance(event, Evaluated))
    order = Order(lines=(str(StopReason.parse("signal: SIGTERM")),))
    ended = end_of(run_until(slot, job, is_end, order=order))
    assert (ended.status, ended.reason) == (RunStatus.INTERRUPTED, "signal: SIGTERM")


@pytest.mark.parametrize("how", ["another worker", "lost"])
def test_a_fenced_worker_exits_without_writing(
    slot: Slot, make_run: Callable[..., StudyRun], how: str
) -> None:
    """Its clock may have stood still, so that its lease has not expired."""
    run = make_run(**LONG, checkpoint_interval=50)
    job = leased(run)
    events = run_until(slot, job, lambda event: isinstance(event, Evaluated))
    pid = next(event.pid for event in events if isinstance(event, Started))
    os.kill(pid, 19)  # SIGSTOP: what follows happens at one moment for the worker
    before = files(run.path)
    if how == "lost":
        fence(job, holds_locks=True)
        assert not is_held(run.lock)
    else:
        set_epoch(replace(job, epoch="second"))
    time.sleep(1.1)  # it looks once per second
    os.kill(pid, 18)  # SIGCONT
    reply = slot.exchange(Order(seconds=5.0))
    while reply.is_busy:
        reply = slot.exchange(Order(seconds=0.2))
    ended = end_of(list(reply.events))
    assert ended.reason == f"the worker process ended unexpectedly with exit code {FENCED_EXIT}"
    after = files(run.path)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    # Files that are not visible as a part of the run may be left.
    hidden = ("/.tmp-", "/replay/", "/.lock")
    assert not {name for name in changed if not any(part in name for part in hidden)}


def test_a_late_worker_does_not_start(slot: Slot, make_run: Callable[..., StudyRun]) -> None:
    run = make_run()
    job = leased(run)
    set_epoch(replace(job, epoch="second"))
    ended = end_of(run_until(slot, job, is_end))
    assert ended.reason == "the worker process ended unexpectedly"
    assert not run.path.exists()
    assert job.epoch_file.read_text() == "second"


def test_a_local_worker_takes_the_run(
    slot: Slot, make_run: Callable[..., StudyRun], reference_study: Path
) -> None:
    run = make_run()
    job = leased(run)
    local = replace(job, lease=None, epoch=None)
    assert end_of(run_until(slot, local, is_end)).status is RunStatus.FINISHED
    assert not job.epoch_file.exists()


def test_workers_do_not_inherit_the_variables_of_a_cluster(monkeypatch: Any) -> None:
    monkeypatch.setenv("RAY_RAYLET_PID", "1")
    monkeypatch.setenv("MUJOCO_GL", "egl")
    environment = worker_environment()
    assert "RAY_RAYLET_PID" not in environment
    assert environment["MUJOCO_GL"] == "egl"
    assert environment["OMP_NUM_THREADS"] == "1"


def test_the_working_directory_of_workers(tmp_path: Path, fork_server: SharedServer) -> None:
    """A folder that only the coordinator has is replaced by the study's."""
    study = tmp_path / "study"
    study.mkdir()
    token = Token.create(study)
    for folder, expected in ((tmp_path, tmp_path), (tmp_path / "no", study)):
        slot = Slot(token, node="here", folder=str(folder))
        assert slot.folder == str(expected)
        slot.close()


def test_several_slots_of_a_node_answer_the_token_at_once(tmp_path: Path) -> None:
    token = Token.create(tmp_path)
    slots = [Slot(token, node="here", folder=str(tmp_path)) for _ in range(2)]
    assert [token.was_answered(slot.welcome().answer) for slot in slots] == [True, True]
    for slot in slots:
        slot.close()


# --- Shared storage -----------------------------------------------------------------------


@pytest.fixture
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Token:
    monkeypatch.setattr("rl_training.study.shared_storage.PATIENCE_SECONDS", 0.0)
    return Token.create(tmp_path)


def test_a_token_is_answered(token: Token) -> None:
    assert not token.was_answered("a")
    assert token.answer("a") is None
    assert not token.was_answered("b")
    assert token.was_answered("a")
    assert not token.was_answered("a")
    token.remove()
    assert not list(Path(token.study).rglob("shared-*"))


def test_a_folder_that_is_not_shared(token: Token) -> None:
    token.remove()
    assert str(token.answer("a")).startswith(f"does not see {token.study}: choose a folder with")
    token.file.write_text("another token")
    assert str(token.answer("a")).startswith(f"does not see {token.study}")


def test_a_folder_that_cannot_be_written(token: Token) -> None:
    token.reply("a").mkdir()
    (token.reply("a") / "file").touch()
    assert str(token.answer("a")).startswith(f"cannot write to {token.study} (")


def test_another_version(token: Token) -> None:
    problem = replace(token, version="0.0.1").answer("a")
    assert problem is not None
    assert problem.startswith("has rl-training ")
    assert problem.endswith(
        "but this command is version 0.0.1: install the same version on every node."
    )

"""Following, stopping and detaching the sessions of a study."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from rl_training.errors import ConfigError, TrainingError
from rl_training.runtime.stop_reason import StopReason
from rl_training.study import attaching
from rl_training.study.attaching import attach, detach, running_sessions, stop
from rl_training.study.coordinator import StudyState
from rl_training.study.folder import Shard, open_session
from rl_training.study.index import StudyIndex, StudyRun
from rl_training.study.jobs import Progress
from rl_training.study.live import LiveView, MessageReader, progress_file, read_progress
from rl_training.study.records import RunStatus
from tests.faults.processes import wait_until_gone
from tests.study.simulated import simulate_study
from tests.study.small import small_plan, write_study

KEY = "sac/Pendulum-v1/seed0"
PROGRESS = Progress(KEY, 50, 200, "steps", speed=10.0, left=15.0, results=("eval -3.0",))


class Recorder:
    """A watcher that records what it is shown."""

    def __init__(self, until: Callable[[], object] = lambda: None) -> None:
        self.lines: list[str] = []
        self.progress: list[Progress] = []
        self._until = until

    def message(self, text: str) -> None:
        self.lines.append(text)

    def changed(self, state: StudyState) -> None:
        self.progress += [found for found in state.active.values() if found is not None]
        self._until()

    def evaluated(self, run: StudyRun, step: int, metrics: Mapping[str, float]) -> None:
        raise AssertionError("nothing is evaluated here")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attaching, "POLL_SECONDS", 0.05)


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Path]:
    """A study that this process runs."""
    folder = tmp_path / "study"
    with open_session(folder, small_plan(seeds=1), host={"hostname": platform.node()}):
        yield folder


def state_with(progress: Progress | None) -> StudyState:
    return StudyState([], active={KEY: progress})


def test_progress_and_messages_reach_other_commands(study: Path) -> None:
    view = LiveView(study, None)
    reader = MessageReader(study)
    view.message("sac failed:\nno luck")
    view.changed(state_with(PROGRESS))
    assert reader.new_lines() == ["sac failed: no luck"]
    assert reader.new_lines() == []
    assert read_progress(study) == ({KEY: PROGRESS}, 0)
    view.close()
    assert read_progress(study) == ({}, 0)


def test_progress_of_several_shards(study: Path) -> None:
    for number in (1, 2):
        state = StudyState([], more=3, active={f"sac/Pendulum-v1/seed{number}": None})
        LiveView(study, Shard(number, 2)).changed(state)
    active, more = read_progress(study)
    assert (list(active), more) == ([f"sac/Pendulum-v1/seed{n}" for n in (1, 2)], 6)


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", '{"active": 3}', '{"active": {"a": 3}}', '{"active": {"a": {"done": "x"}}}'),
        '{"active": {"a": {"done": "x", "total": 1, "unit": "steps"}}}',
    ],
)
def test_damaged_progress_is_ignored(study: Path, text: str) -> None:
    file = progress_file(study, None)
    file.parent.mkdir()
    file.write_text(text)
    active, _ = read_progress(study)
    assert set(active.values()) <= {None}


def test_a_session_that_never_wrote_leaves_the_view_of_others(study: Path) -> None:
    LiveView(study, None).changed(state_with(PROGRESS))
    LiveView(study, None).close()  # such as a command that finds the study locked
    assert read_progress(study)[0] == {KEY: PROGRESS}


def test_a_full_disk_does_not_disturb_a_session(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rl_training.study.live.write_atomically", _fail)
    LiveView(study, None).changed(state_with(PROGRESS))


def _fail(*_arguments: object) -> None:
    raise OSError(28, "No space left on device")


def test_attaching(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    session = open_session(folder, small_plan(seeds=1))
    session.__enter__()
    view = LiveView(folder, None)
    view.message("before")
    moments = iter(range(4))

    def go_on() -> None:
        moment = next(moments)
        if moment == 0:
            view.message("hello")
            view.changed(state_with(PROGRESS))
        if moment == 2:
            view.close()
            session.__exit__(None, None, None)

    recorder = Recorder(go_on)
    index = attach(folder, [recorder])
    assert recorder.lines == ["hello"]
    assert recorder.progress[0] == PROGRESS
    assert attaching.ended_line(index) == "0 of 2 runs finished."


def test_attaching_to_a_study_that_nobody_runs(tmp_path: Path) -> None:
    study = simulate_study(tmp_path / "study", points=0)
    with pytest.raises(ConfigError, match=r"^Nothing runs .*study now\. Show its state with:"):
        attach(study)
    assert stop(study) == 0


def test_running_sessions(study: Path) -> None:
    (session,) = running_sessions(study)
    assert session.record.pid == os.getpid()


def test_a_session_on_another_machine_is_not_stopped(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = platform.node()
    monkeypatch.setattr("platform.node", lambda: "elsewhere")
    with pytest.raises(ConfigError, match=f"study is being run on {name}: run this command there"):
        stop(study)


def test_detaching_and_stopping(tmp_path: Path, reference_study: Path) -> None:
    """The study runs in the background until it is stopped, and continues later."""
    settings = {"total_timesteps": 1_000_000, "engine": "eager"}
    file = write_study(tmp_path / "small.yaml", algos=("sac",), seeds=1, settings=settings)
    out = tmp_path / "out"
    process = detach(out, ["study", "run", str(file), "--out", str(out), "--cores", "1"])
    (session,) = running_sessions(out)
    assert session.record.pid == process
    deadline = time.monotonic() + 60
    while not any(progress for progress in read_progress(out)[0].values()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert stop(out) == 1
    assert wait_until_gone({process}, 20) == set()
    (run,) = StudyIndex.open(out)
    assert run.status is RunStatus.INTERRUPTED
    assert run.reason == str(StopReason.parse("signal: SIGTERM"))


def test_a_detached_command_that_fails(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"^The file 'no\.yaml' does not exist\.$"):
        detach(tmp_path / "out", ["study", "run", "no.yaml", "--out", str(tmp_path / "out")])

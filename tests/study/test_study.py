"""`Study`: run, continue, extend, and what happens if somebody changed the folder."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from rl_training import TrainConfig, evaluate_checkpoint
from rl_training.api.finetuning import finetune
from rl_training.api.training import resume
from rl_training.errors import ConfigError
from rl_training.runtime.stop_reason import StopReason
from rl_training.study import estimating
from rl_training.study.estimating import folder_size, run_bytes
from rl_training.study.index import StudyIndex
from rl_training.study.jobs import Ended, Event, Job, Progress
from rl_training.study.local_executor import LocalExecutor
from rl_training.study.planning import group_kind
from rl_training.study.records import RunStatus
from rl_training.study.resources import Budget, Resources
from rl_training.study.study import Study
from tests.faults.envs import register
from tests.faults.runs import CONFIG
from tests.study.small import assert_equal_studies, small_description, write_study

Make = Callable[..., LocalExecutor]


@pytest.fixture
def study(reference_study: Path, tmp_path: Path) -> Path:
    """A copy of a finished study, which is also a study that was moved."""
    return Path(shutil.copytree(reference_study, tmp_path / "moved"))


def run(folder: Path, executor: LocalExecutor, **changes: Any) -> dict[str, Any]:
    study = Study.load(small_description(**changes))
    return study.run(folder, executor=executor, progress=False).to_json()


# --- Running ------------------------------------------------------------------


def test_a_study_is_a_folder_of_ordinary_runs(study: Path) -> None:
    index = StudyIndex.open(study)
    assert {run.status for run in index} == {RunStatus.FINISHED}
    path = index.runs["sac/Pendulum-v1/seed1"].path
    assert path == study / "runs/sac/Pendulum-v1/seed1"
    assert evaluate_checkpoint(path, episodes=1)["step"] == 200
    assert resume(path, ["total_timesteps=210"]).metrics["step"] == 210
    assert finetune(path, overrides=["total_timesteps=10", f"output_dir={study.parent}"])


def test_running_again_trains_nothing(study: Path, make_executor: Make) -> None:
    before = {file: file.read_bytes() for file in (study / "runs").rglob("*") if file.is_file()}
    result = run(study, make_executor())
    assert (result["finished"], result["runs"]) == (4, 4)
    after = {file: file.read_bytes() for file in (study / "runs").rglob("*") if file.is_file()}
    assert after == before


def test_more_seeds_are_added(study: Path, make_executor: Make, reference_study: Path) -> None:
    result = run(study, make_executor(), algos=("td3",), seeds=[0, 5])
    assert (result["finished"], result["runs"]) == (2, 2)
    index = StudyIndex.open(study)
    assert len(index) == 5
    assert index.runs["td3/Pendulum-v1/seed5"].status is RunStatus.FINISHED
    assert index.runs["td3/Pendulum-v1/seed0"].attempts == 1


def test_an_interrupted_study_is_continued_from_its_folder(
    reference_study: Path, make_executor: Make, tmp_path: Path
) -> None:
    class StopAfter:
        """Stops after the first evaluation of a run, like Ctrl-C."""

        def __init__(self) -> None:
            self.lines: list[str] = []
            self.has_stopped = False

        def message(self, text: str) -> None:
            self.lines.append(text)

        def changed(self, state: Any) -> None:
            pass

        def evaluated(self, run: Any, step: int, metrics: Any) -> None:
            if step == 100 and not self.has_stopped:
                self.has_stopped = True
                os.kill(os.getpid(), signal.SIGINT)

    folder = tmp_path / "study"
    watcher = StopAfter()
    with pytest.raises(KeyboardInterrupt, match=r"The study in .* was interrupted\."):
        Study.load(small_description()).run(
            folder, executor=make_executor(), watchers=[watcher], progress=False
        )
    assert watcher.lines[0] == f"Study study: 4 runs (2 labels, 1 task), in {folder}"
    assert Study.load(folder).status()["interrupted"] >= 1
    assert Study.load(folder).run(executor=make_executor(), progress=False).is_complete
    assert_equal_studies(folder, reference_study)


def test_configs_can_be_given_in_python(make_executor: Make, tmp_path: Path) -> None:
    config = CONFIG | {"total_timesteps": 40}
    study = Study(
        [TrainConfig.load(config), {"config": config, "label": "again"}, config | {"algo": "td3"}],
        seeds=1,
        name="mine",
    )
    assert len(study.plan()) == 3
    result = study.run(tmp_path / "x", executor=make_executor(), progress=False)
    assert result.is_complete
    assert result.name == "mine"
    assert study.status()["finished"] == 3
    assert study.index.labels == ["sac", "again", "td3"]
    saved = yaml.safe_load((tmp_path / "x" / "study.yaml").read_text())
    assert saved["name"] == "mine"
    assert saved["runs"][1]["label"] == "again"


def test_a_run_that_fails_does_not_stop_the_others(make_executor: Make, tmp_path: Path) -> None:
    poisoned = {"env_id": "Faults/Poison-v0", "env_kwargs.at": 60}
    description = small_description(algos=("sac",), seeds=1, retries=1)
    description["runs"].append({"config": CONFIG, "label": "bad", "set": poisoned})
    register()
    result = Study.load(description).run(
        tmp_path, executor=make_executor(), imports=["tests.study.poison"], progress=False
    )
    assert [run.status for run in result.runs] == [RunStatus.FINISHED, RunStatus.FAILED]
    (bad,) = result.failed
    assert bad.attempts == 2
    assert "returned nan" in str(bad.reason)
    assert result.to_json()["failures"][0]["run"] == "bad/Faults_Poison-v0/seed0"


def test_shards_together_are_the_study(
    make_executor: Make, tmp_path: Path, reference_study: Path
) -> None:
    for shard in ("2/2", "1/2"):
        result = Study.load(small_description()).run(
            tmp_path / "s", shard=shard, executor=make_executor(), progress=False
        )
        assert (len(result.runs), result.is_complete) == (2, True)
    assert_equal_studies(tmp_path / "s", reference_study)
    assert run(tmp_path / "s", make_executor())["finished"] == 4


# --- Changed folders ----------------------------------------------------------


def test_an_edited_run_is_refused(study: Path, make_executor: Make) -> None:
    path = study / "runs/td3/Pendulum-v1/seed0"
    resume(path, ["total_timesteps=210"])
    before = (study / "index.jsonl").read_bytes()
    with pytest.raises(ConfigError) as caught:
        run(study, make_executor())
    assert str(caught.value) == (
        f"{path} was changed outside the study (total_timesteps is 210, but was planned as 200): "
        "restore it, or move it away to train this run again."
    )
    assert (study / "index.jsonl").read_bytes().startswith(before)
    assert StudyIndex.open(study).runs["td3/Pendulum-v1/seed0"].status is RunStatus.FINISHED


def test_a_deleted_run_is_trained_again(
    study: Path, make_executor: Make, reference_study: Path
) -> None:
    shutil.rmtree(study / "runs/td3/Pendulum-v1/seed0")
    assert run(study, make_executor())["finished"] == 4
    assert StudyIndex.open(study).runs["td3/Pendulum-v1/seed0"].attempts == 2
    assert_equal_studies(study, reference_study)


def test_a_lost_index_is_rebuilt_from_the_runs(
    study: Path, make_executor: Make, reference_study: Path
) -> None:
    """Finished runs are recognized, not trained again."""
    (study / "index.jsonl").unlink()
    before = (study / "runs/sac/Pendulum-v1/seed0/run.json").read_bytes()
    assert run(study, make_executor())["finished"] == 4
    assert (study / "runs/sac/Pendulum-v1/seed0/run.json").read_bytes() == before
    assert_equal_studies(study, reference_study)


# --- Errors -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Study("sac/pendulum"), "runs = 'sac/pendulum': should be a list"),
        (lambda: Study(["sac/pendulum"], seeds=0), "Study: seeds = 0: should be a count"),
        (lambda: Study(["sac/pendulum"]).run(), "Pass the folder of the study"),
        (lambda: Study(["sac/pendulum"]).status(), "This study has no folder yet"),
        (lambda: Study(["sac/pendulum"]).run("x", cores=0), "cores = 0: should be more than 0"),
        (lambda: Study(["sac/pendulum"]).run("x", memory="x"), "memory = 'x': should be a size"),
        (lambda: Study(["sac/pendulum"]).run("x", shard="0/3"), "shard = '0/3'"),
        (lambda: Study.load("none.yaml"), "The study file 'none.yaml' does not exist"),
        (lambda: Study.load("."), "is a folder, but not a study"),
        (lambda: Study.load(cast("str", 3)), "source = 3: should be the path of a study file"),
    ],
)
def test_wrong_arguments_are_one_sentence(
    call: Callable[[], Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        call()
    assert message in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_study_that_does_not_fit_is_refused(tmp_path: Path, make_executor: Make) -> None:
    with pytest.raises(ConfigError, match="A run of sac needs 4 cores, but this machine has 2"):
        run(tmp_path, make_executor(), settings={"num_threads": 4})


def test_a_loaded_folder_has_no_plan(study: Path, make_executor: Make) -> None:
    loaded = Study.load(study)
    with pytest.raises(ConfigError, match="already planned"):
        loaded.plan()
    with pytest.raises(ConfigError, match="leave out the folder"):
        loaded.run(study.parent, executor=make_executor())


def test_a_study_file_is_named_by_itself(tmp_path: Path) -> None:
    file = write_study(tmp_path / "pendulum.yaml")
    description = Study.load(file).description
    assert description is not None
    assert description.name == "pendulum"


def test_the_index_records_how_the_study_was_run(study: Path) -> None:
    index = StudyIndex.open(study)
    (session,) = index.sessions
    assert session.git is None or len(session.git["commit"]) == 40
    (facts,) = index.hosts.values()
    assert {"hostname", "cpu", "cores", "memory", "versions"} <= facts.keys()
    info = json.loads((study / "runs/sac/Pendulum-v1/seed0/run.json").read_text())
    assert info["study"] == {"name": "study", "label": "sac", "task": "Pendulum-v1"}


def test_an_estimate_uses_finished_runs(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class NoWorkers:
        def close(self) -> None:
            pass

    monkeypatch.setattr("rl_training.study.local_executor.choose_launcher", NoWorkers)
    described = Study.load(small_description(seeds=10))
    estimate = described.estimate(study, cores=4)
    assert (estimate.left, estimate.at_once) == (16, 4)
    assert {group.basis for group in estimate.groups} == {"finished runs"}
    runs = StudyIndex.open(study).runs.values()
    each = {g.label: g.seconds for g in estimate.groups}
    for label in ("sac", "td3"):
        known = [run.seconds for run in runs if run.label == label]
        assert each[label] == pytest.approx(sum(known) / 2)
    assert estimate.seconds == pytest.approx(8 * sum(filter(None, each.values())) / 4)
    size = sum(f.stat().st_size for f in (study / "runs/sac").rglob("*") if f.is_file())
    assert next(g.disk for g in estimate.groups if g.label == "sac") == size // 2
    assert Study.load(study).estimate().left == 0


def test_an_estimate_measures_the_speed(
    make_executor: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimating, "CALIBRATION_SECONDS", 0.5)
    monkeypatch.setattr("rl_training.study.worker.REPORT_SECONDS", 0.1)
    plan = Study.load(
        small_description(seeds=3, settings={"total_timesteps": 100_000, "engine": "eager"})
    ).plan()
    estimate = estimating.estimate(plan.groups, None, make_executor())
    for group in estimate.groups:
        assert group.basis == "a calibration"
        assert group.seconds is not None
        assert 1 < group.seconds < 3600
    assert estimate.seconds is not None
    assert estimate.to_json()["left"] == 6
    assert list(tmp_path.iterdir()) == []


class _Scripted:
    """An executor whose jobs report given events, and end when they are asked to."""

    def __init__(self, *events: dict[str, Any]) -> None:
        self._events = list(events)
        self._keys: list[str] = []

    def check(self, need: Resources, what: str) -> None:
        pass

    def at_once(self, need: Resources) -> int:
        return 1

    def submit(self, job: Job) -> bool:
        self._keys.append(job.key)
        return True

    def wait(self, seconds: float) -> list[Event]:
        if not self._events:
            return [Ended(key, RunStatus.FAILED) for key in self._keys]
        event = self._events.pop(0)
        return [Progress(key, done=1, total=200, unit="steps", **event) for key in self._keys]

    def stop(self, reason: StopReason, key: str | None = None) -> None:
        self._events.clear()


def test_an_estimate_waits_for_the_speed_of_learning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimating, "CALIBRATION_SECONDS", 0.0)
    groups = Study.load(small_description(algos=("sac",))).plan().groups
    collecting = {"speed": 4000.0}
    executor: Any = _Scripted(
        collecting,
        {"is_learning": True},  # the first evaluation has just ended
        {"is_learning": True, "speed": 20.0, "evaluation_seconds": 0.0},
        {"is_learning": True, "speed": 1.0},
    )
    estimate = estimating.estimate(groups, None, executor)
    assert estimate.groups[0].seconds == pytest.approx(200 / 20, abs=0.5)
    assert estimate.problems == ()
    executor = _Scripted(collecting)
    estimate = estimating.estimate(groups, None, executor)
    assert estimate.seconds is None
    assert "The time of sac on Pendulum-v1 is unknown" in estimate.problems[0]


def test_an_estimate_without_the_gpu_that_the_runs_need() -> None:
    plan = Study.load(
        small_description(settings={"device": "cuda"}, resources={"gpus": 0.1})
    ).plan()
    executor = LocalExecutor(Budget(2, 0), launcher=_Unused())
    estimate = estimating.estimate(plan.groups, None, executor)
    assert (estimate.left, estimate.at_once, estimate.seconds) == (4, 0, None)
    assert estimate.disk > 0
    assert {group.basis for group in estimate.groups} == {"unknown"}
    problem = estimate.problems[0]
    assert problem.startswith("A run of sac needs 0.1 of a GPU, but this machine has no GPU")


def test_the_estimated_size_is_close(reference_study: Path) -> None:
    plan = Study.load(small_description()).plan()
    group = plan.groups[0]
    estimated = run_bytes(group.config, plan.kinds[group_kind(group)])
    actual = folder_size(reference_study / "runs/sac/Pendulum-v1/seed0")
    assert 0.3 < estimated / actual < 3


def test_budgets_are_checked_before_anything_is_written(tmp_path: Path) -> None:
    executor = LocalExecutor(Budget(1, 1000), launcher=_Unused())
    with pytest.raises(ConfigError, match="of memory, but this machine has 1000 bytes"):
        Study.load(small_description()).run(tmp_path / "s", executor=executor, progress=False)
    assert not (tmp_path / "s").exists()


class _Unused:
    """A launcher that starts nothing."""

    def launch(self) -> Any:
        raise AssertionError

    def exit_status(self, pid: int, seconds: float) -> int | None:
        raise AssertionError

    def kill(self, pid: int) -> None:
        raise AssertionError

    def close(self) -> None:
        pass

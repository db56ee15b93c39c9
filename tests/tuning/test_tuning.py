"""`Tuning`: trials, their order, kills, and the best one."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rl_training import TrainConfig
from rl_training.boundary.writing import write_all
from rl_training.errors import ConfigError
from rl_training.study.index import StudyIndex
from rl_training.study.jobs import Ended, Job
from rl_training.study.records import RunStatus
from rl_training.tuning.trials import TrialIndex, TrialStatus
from rl_training.tuning.tuning import Tuning, TuningResult, default_parallel_trials, tune
from rl_training.tuning.winner import Validation, validation_lines
from tests.tuning.simulated import SimulatedExecutor, outcomes, trained_runs, tuning
from tests.tuning.synthetic import CONFIG, OPTIMUM, SPACE


class Killed(BaseException):
    """Stands for SIGKILL: nothing may catch it."""


def run(folder: Path, executor: SimulatedExecutor, **changes: Any) -> TuningResult:
    return tuning(**changes).run(folder, executor=executor, progress=False)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tuning with one run at a time."""
    folder = tmp_path_factory.mktemp("reference") / "tuning"
    run(folder, SimulatedExecutor())
    return folder


# --- Trials -------------------------------------------------------------------------------


def test_trials_are_ordinary_runs_of_a_study(reference: Path) -> None:
    index, trials = StudyIndex.open(reference), TrialIndex.open(reference)
    assert [trial.number for trial in trials] == list(range(12))
    assert {trial.status for trial in trials} == {TrialStatus.COMPLETE, TrialStatus.PRUNED}
    for trial in trials:
        group = index.groups[trial.folder]
        assert group.label == f"trial-{trial.number:04d}"
        assert {key: group.config["algo_kwargs"][key] for key in SPACE} == trial.params
        assert group.threads == 1
    assert {run.status for run in index if run.attempts} <= {RunStatus.FINISHED, RunStatus.STOPPED}


def test_the_first_trial_has_the_settings_of_the_config(reference: Path) -> None:
    trials = TrialIndex.open(reference).trials
    assert (trials[0].origin, trials[0].params) == ("config", {"x": 0.0, "y": 0.0})
    assert {trial.origin for trial in trials[1:]} == {"sampler"}


def test_the_best_trial_is_close_to_the_optimum(tmp_path: Path) -> None:
    result = run(tmp_path / "tuning", SimulatedExecutor(slots=4), trials=40)
    assert result.best is not None
    assert result.best.value is not None
    distance = sum((result.best.params[k] - o) ** 2 for k, o in zip("xy", OPTIMUM, strict=True))
    assert distance < 0.1
    assert result.validation is not None
    assert result.validation.is_better


def test_a_pruned_trial_stops_its_run_and_starts_no_other(reference: Path) -> None:
    pruned = TrialIndex.open(reference).with_status(TrialStatus.PRUNED)
    index = StudyIndex.open(reference)
    assert pruned
    stopped = [trial for trial in pruned if max(trial.points) < 5]
    for trial in stopped:
        first, second = (index.runs[key] for key in trial.run_keys([0, 1]))
        assert (first.status, first.reason) == (RunStatus.STOPPED, "pruned")
        assert second.status is RunStatus.PLANNED


def test_running_again_trains_nothing(reference: Path) -> None:
    before = outcomes(reference)
    executor = SimulatedExecutor()
    result = run(reference, executor)
    assert executor.submitted == []
    assert outcomes(reference) == before
    assert result.validation is not None


def test_more_trials_continue_the_search(tmp_path: Path, reference: Path) -> None:
    run(tmp_path / "tuning", SimulatedExecutor(), trials=5)
    run(tmp_path / "tuning", SimulatedExecutor(), trials=12)
    assert outcomes(tmp_path / "tuning") == outcomes(reference)


def test_a_folder_is_enough_to_continue(tmp_path: Path, reference: Path) -> None:
    run(tmp_path / "tuning", SimulatedExecutor(), trials=5)
    loaded = Tuning.load(tmp_path / "tuning")
    loaded.description = loaded.description.model_copy(update={"trials": 12})
    loaded.run(executor=SimulatedExecutor(), progress=False)
    assert outcomes(tmp_path / "tuning") == outcomes(reference)


# --- Reproducibility ------------------------------------------------------------------------


@pytest.mark.parametrize(("slots", "order"), [(2, 1), (3, 2), (5, 3)])
def test_trials_do_not_depend_on_workers_and_timing(tmp_path: Path, slots: int, order: int) -> None:
    """The number of open trials is part of the description; everything else is timing."""
    changes = {"parallel_trials": 4, "trials": 20}
    run(tmp_path / "one", SimulatedExecutor(), **changes)
    executor = SimulatedExecutor(slots, order)
    run(tmp_path / "many", executor, **changes)
    assert executor.most_active == slots
    assert outcomes(tmp_path / "many") == outcomes(tmp_path / "one")


@pytest.mark.parametrize("seed", range(3))
def test_a_tuning_that_is_killed_is_reproduced_exactly(
    tmp_path: Path, reference: Path, seed: int
) -> None:
    rng = random.Random(seed)
    folder = tmp_path / "tuning"

    def maybe_kill() -> None:
        if rng.random() < 0.02:
            raise Killed

    kills = 0
    while True:
        try:
            result = run(folder, SimulatedExecutor(order=kills, at_event=maybe_kill))
            break
        except Killed:
            kills += 1
    assert kills > 1
    assert outcomes(folder) == outcomes(reference)
    assert result.validation is not None
    expected = Tuning.load(reference).result()
    assert expected.validation is not None
    assert result.to_json()["validation"] == expected.to_json()["validation"]


@pytest.mark.parametrize("seed", range(4))
def test_a_kill_at_any_byte_of_the_index_loses_nothing(
    tmp_path: Path, reference: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Including kills between a proposal and its record."""
    rng, folder, real = random.Random(seed), tmp_path / "tuning", write_all

    def torn(stream: Any, data: bytes) -> None:
        if rng.random() < 0.06:
            real(stream, data[: rng.randrange(len(data))])
            raise Killed
        real(stream, data)

    monkeypatch.setattr("rl_training.boundary.journal.write_all", torn)
    kills = 0
    while True:
        try:
            run(folder, SimulatedExecutor(order=kills))
            break
        except Killed:
            kills += 1
    assert kills > 1
    assert outcomes(folder) == outcomes(reference)
    validation = {key for key in trained_runs(reference) if not key.startswith("trial")}
    assert validation <= trained_runs(folder)


def test_an_interrupt_resumes_running_trials(tmp_path: Path, reference: Path) -> None:
    from rl_training.runtime.stop_reason import StopReason
    from rl_training.study.coordinator import Coordinator

    folder, events = tmp_path / "tuning", [0]
    studies: list[Coordinator] = []
    real = Coordinator.run

    def following(self: Coordinator) -> str | None:
        studies.append(self)
        return real(self)

    def interrupt() -> None:
        events[0] += 1
        if events[0] == 30:
            studies[-1].request_stop(StopReason.parse("signal: SIGTERM"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Coordinator, "run", following)
        with pytest.raises(SystemExit, match="143"):
            run(folder, SimulatedExecutor(at_event=interrupt))
        index = TrialIndex.open(folder)
        assert len(index.with_status(TrialStatus.OPEN)) == 1
        state = studies[-1].state
        assert len(state.runs) + state.more == 12 * 2 + 2 * 5  # none is counted twice
        run(folder, SimulatedExecutor())
        assert studies[-1].state.more == 0  # also none of a pruned trial
    assert outcomes(folder) == outcomes(reference)


def test_the_default_number_of_open_trials() -> None:
    assert default_parallel_trials(1, 3) == 1
    assert default_parallel_trials(2, 3) == 2
    assert default_parallel_trials(8, 3) == 6


# --- Failures -----------------------------------------------------------------------------


def failing(wanted: Callable[[dict[str, Any]], bool]) -> Callable[[Job], Ended | None]:
    def outcome(job: Job) -> Ended | None:
        if wanted(job.config["algo_kwargs"]):
            return Ended(job.key, RunStatus.FAILED, reason="no luck", can_retry=False)
        return None

    return outcome


def test_a_failed_trial_counts_and_the_search_avoids_it(tmp_path: Path) -> None:
    executor = SimulatedExecutor(outcome=failing(lambda kwargs: kwargs["x"] < -0.2))
    result = run(tmp_path / "tuning", executor, trials=25)
    failed = [trial for trial in result.trials if trial.status is TrialStatus.FAILED]
    assert len(result.trials) == 25
    assert {trial.reason for trial in failed} == {"no luck"}
    late = [trial for trial in failed if trial.number >= 15]
    assert len(late) < len(failed) / 2
    assert result.best is not None


def test_if_all_trials_fail_there_is_no_best_one(tmp_path: Path) -> None:
    executor = SimulatedExecutor(outcome=failing(lambda _: True))
    result = run(tmp_path / "tuning", executor, trials=3)
    assert result.best is None
    assert not result.config_file.exists()
    assert len(executor.submitted) == 3  # each trial ends with its first failed run


def test_a_trial_that_does_not_fit_fails(tmp_path: Path) -> None:
    """Its needs depend on its settings, such as the batch size."""
    executor = SimulatedExecutor(fits=lambda what: what != "A run of trial-0002")
    result = run(tmp_path / "tuning", executor, trials=4)
    assert [trial.status is TrialStatus.FAILED for trial in result.trials] == [
        *(False, False, True, False)
    ]
    assert result.trials[2].reason == "A run of trial-0002 needs too much memory."


def test_a_small_space_is_exhausted(tmp_path: Path) -> None:
    result = run(tmp_path / "tuning", SimulatedExecutor(), space={"x": [0.0, 0.3]}, trials=10)
    assert sorted(trial.params["x"] for trial in result.trials) == [0.0, 0.3]
    assert result.best is not None
    assert result.best.params == {"x": 0.3}
    assert result.validation is not None


# --- The best trial -------------------------------------------------------------------------


def test_the_best_trial_is_validated_on_fresh_seeds(reference: Path) -> None:
    result = Tuning.load(reference).result()
    assert result.best is not None
    assert result.validation is not None
    index = StudyIndex.open(reference)
    label = f"best-{result.best.number:04d}"
    for name in (label, "base"):
        assert sorted(run.seed for run in index if run.label == name) == [2, 3, 4, 5, 6]
    assert len(result.validation.best) == 5
    assert result.validation.best_mean.value > result.validation.base_mean.value


def test_the_best_config_is_written_with_its_evidence(reference: Path) -> None:
    result = Tuning.load(reference).result()
    assert result.best is not None
    assert result.validation is not None
    text = result.config_file.read_text()
    comments = "\n".join(line for line in text.splitlines() if line.startswith("#"))
    assert f"Settings of trial {result.best.number} of 12 trials" in comments
    assert "Fresh seeds 2 to 6:" in comments
    assert "On fresh seeds, this trial is better." in comments
    config = TrainConfig.load(yaml.safe_load(text))
    assert {key: config.algo_kwargs[key] for key in SPACE} == result.best.params
    assert config.algo_kwargs["eval_interval"] == CONFIG["algo_kwargs"]["eval_interval"]


def test_a_difference_that_may_be_luck_is_not_called_better(reference: Path) -> None:
    result, plan = Tuning.load(reference).result(), Tuning.load(reference).plan()
    assert result.best is not None
    lucky = Validation(best=(-1.0, -3.0, -2.0), base=(-2.0, -2.5, -1.8))
    *_, verdict = validation_lines(plan, result.best, lucky)
    assert verdict == (
        "On fresh seeds, this trial is better, but the difference is not significant."
    )
    worse = Validation(best=(-3.0, -3.1), base=(-1.0, -1.1))
    *_, verdict = validation_lines(plan, result.best, worse)
    assert verdict == "On fresh seeds, this trial is not better: keep that config."


def test_if_no_trial_is_better_the_evidence_says_so(tmp_path: Path) -> None:
    best = CONFIG | {"algo_kwargs": CONFIG["algo_kwargs"] | {"x": OPTIMUM[0], "y": OPTIMUM[1]}}
    result = run(tmp_path / "tuning", SimulatedExecutor(), config=best, trials=3)
    assert result.best is not None
    assert result.best.number == 0
    text = result.config_file.read_text()
    assert "No trial was better than that config." in text
    labels = {run.label for run in StudyIndex.open(tmp_path / "tuning")}
    assert labels == {"trial-0000", "trial-0001", "trial-0002", "base"}


# --- Input --------------------------------------------------------------------------------


def test_a_different_tuning_needs_another_folder(reference: Path) -> None:
    for changes, key in (
        ({"seeds": 3}, r"seeds is \[0, 1\], but here it is \[0, 1, 2\]"),
        ({"set": {"learning_rate": 0.1}}, r" learning_rate is not set, but here it is 0\.1"),
        ({"sampler": "random"}, "sampler is 'tpe', but here it is 'random'"),
        ({"space": {"x": [0.0, 0.5]}}, r"space\.x"),
    ):
        with pytest.raises(ConfigError, match=f"{key}.*choose another folder"):
            run(reference, SimulatedExecutor(), **changes)


def test_other_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="contains other files and is not a tuning"):
        run(tmp_path, SimulatedExecutor())
    with pytest.raises(ConfigError, match=r"notes\.txt is not a folder"):
        run(tmp_path / "notes.txt", SimulatedExecutor())
    with pytest.raises(ConfigError, match=r"is not a folder with an index\.jsonl"):
        Tuning.load(tmp_path / "missing")


def test_unknown_names_suggest_the_nearest() -> None:
    for changes, message in (
        ({"sampler": "tpf"}, "sampler = 'tpf' is unknown; did you mean 'tpe'?"),
        ({"pruner": "mediam"}, "pruner = 'mediam' is unknown; did you mean 'median'?"),
        ({"objective": "lastreturn"}, "did you mean 'last_return'?"),
        ({"aggregate": "iqm"}, "aggregate = 'iqm' is unknown; valid names:"),
        ({"trials": 0}, "trials = 0: should be greater than 0"),
        ({"validation_seeds": [1, 9]}, "validation_seeds contains 1, which trials use as well"),
        ({"space": {}}, "The space has no keys: add at least one"),
        ({"first": [{"x": 0.5}]}, "first contains .*which is not a setting of the space"),
    ):
        with pytest.raises(ConfigError, match=message):
            tuning(**changes).plan()


def test_an_objective_that_cannot_be_measured_is_refused() -> None:
    for changes, message in (
        ({"objective": "fqe"}, "objective = fqe: synthetic learns online"),
        ({"set": {"eval_episodes": 0}}, "objective = last_return: the config has eval_episodes"),
    ):
        with pytest.raises(ConfigError, match=message):
            tuning(**changes).plan()


def test_tune_is_a_shortcut(tmp_path: Path) -> None:
    result = tune(
        CONFIG,
        tmp_path / "tuning",
        trials=2,
        space=SPACE,
        seeds=1,
        executor=SimulatedExecutor(),
        progress=False,
    )
    assert len(result.trials) == 2
    assert result.best_params is not None

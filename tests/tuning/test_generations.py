"""Tunings whose trials train as populations."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rl_training.errors import ConfigError
from rl_training.runtime.stop_reason import StopKind, StopReason
from rl_training.study.index import StudyIndex
from rl_training.study.jobs import Evaluated, Event, Job, Started
from rl_training.study.launching import ForkServer
from rl_training.study.local_executor import LocalExecutor
from rl_training.study.population_executor import PopulationExecutor
from rl_training.study.populations import population_kind
from rl_training.study.records import RunStatus
from rl_training.study.resources import Budget
from rl_training.tuning.generations import separating_keys
from rl_training.tuning.trials import TrialIndex, TrialStatus
from rl_training.tuning.tuning import TuneOptions, Tuning, TuningResult, tune
from tests.faults.runs import assert_equal_runs
from tests.tuning.simulated import SimulatedExecutor, outcomes, trained_runs, tuning
from tests.tuning.synthetic import CONFIG, SPACE

KINDS = {**SPACE, "batch_size": [4, 8]}
"""A space whose trials cannot all train together."""
SMALL: dict[str, Any] = {"trials": 7, "seeds": 2, "validation_seeds": 1, "parallel_trials": 5}
INTERRUPT = StopReason(StopKind.SIGNAL, "SIGTERM")


class Killed(BaseException):
    """Stands for SIGKILL: nothing may catch it."""


class SimulatedPopulations(SimulatedExecutor, PopulationExecutor):
    """Forms populations, but trains nothing."""

    def __init__(self, members: int | None = None, **options: Any) -> None:
        PopulationExecutor.__init__(self, Budget(2, 0), ForkServer(), members=members)
        SimulatedExecutor.__init__(self, slots=100, **options)
        self.populations: list[list[Job]] = []
        """The jobs that were submitted together."""

    def submit(self, job: Job) -> bool:
        if not self._active:
            self.populations.append([])
        known = self._groups[job.key].runs
        assert job.key in {run.key for run in known}
        self.populations[-1].append(job)
        return super().submit(job)


def simulate(folder: Path, executor: SimulatedExecutor | None = None, **changes: Any) -> Any:
    executor = executor or SimulatedPopulations()
    return tuning(**changes).run(folder, executor=executor, progress=False)


# --- Which trials there are ---------------------------------------------------------------


def test_trials_know_the_outcomes_of_earlier_generations(tmp_path: Path) -> None:
    simulate(tmp_path, trials=10, parallel_trials=4)
    assert [trial.known for trial in TrialIndex.open(tmp_path)] == [0] * 4 + [4] * 4 + [8] * 2


def test_the_first_generation_has_the_random_trials(tmp_path: Path) -> None:
    simulate(tmp_path, trials=12)
    assert Counter(trial.known for trial in TrialIndex.open(tmp_path)) == {0: 10, 10: 2}


def test_the_runs_of_a_population_differ_only_in_numbers(tmp_path: Path) -> None:
    executor = SimulatedPopulations()
    result = simulate(tmp_path, executor, trials=12, parallel_trials=6, space=KINDS, pruner="none")
    kinds = [{population_kind(job.config) for job in jobs} for jobs in executor.populations]
    assert all(len(kind) == 1 for kind in kinds)
    searching = [jobs for jobs in executor.populations if jobs[0].key.startswith("trial")]
    assert len(searching) == 4  # two generations with two batch sizes each
    for generation in (result.trials[:6], result.trials[6:]):
        sizes = Counter(trial.params["batch_size"] for trial in generation)
        assert sorted(2 * size for size in sizes.values()) in [
            sorted(map(len, pair)) for pair in (searching[:2], searching[2:])
        ]


def test_keys_that_form_several_populations_are_named() -> None:
    assert separating_keys(tuning().plan()) == []
    assert separating_keys(tuning(space=KINDS).plan()) == ["batch_size"]


def test_members_limits_the_runs_of_a_population(tmp_path: Path) -> None:
    executor = SimulatedPopulations(members=4)
    simulate(tmp_path, executor, trials=5, parallel_trials=5, pruner="none", seeds=2)
    sizes = [len(jobs) for jobs in executor.populations if jobs[0].key.startswith("trial")]
    assert sizes == [4, 4, 2]


@pytest.mark.parametrize("seed", range(2))
def test_a_tuning_that_is_killed_is_reproduced_exactly(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    changes: dict[str, Any] = {"trials": 20, "parallel_trials": 6, "space": KINDS}
    simulate(tmp_path / "reference", **changes)
    folder, kills = tmp_path / "killed", 0

    def maybe_kill() -> None:
        if rng.random() < 0.01:
            raise Killed

    while True:
        try:
            executor = SimulatedPopulations(order=kills, at_event=maybe_kill)
            simulate(folder, executor, **changes)
            break
        except Killed:
            kills += 1
    assert kills > 1
    assert outcomes(folder) == outcomes(tmp_path / "reference")
    assert validation_runs(folder) == validation_runs(tmp_path / "reference") != set()


def validation_runs(folder: Path) -> set[str]:
    return {key for key in trained_runs(folder) if not key.startswith("trial")}


def test_more_trials_continue_the_last_generation(tmp_path: Path) -> None:
    simulate(tmp_path / "tuning", trials=6, parallel_trials=4)
    simulate(tmp_path / "tuning", trials=11, parallel_trials=4)
    simulate(tmp_path / "reference", trials=11, parallel_trials=4)
    assert outcomes(tmp_path / "tuning") == outcomes(tmp_path / "reference")


def test_a_generation_keeps_its_trials_if_its_size_changes(tmp_path: Path) -> None:
    simulate(tmp_path, trials=8, parallel_trials=4)
    simulate(tmp_path, trials=12, parallel_trials=3)
    assert [trial.known for trial in TrialIndex.open(tmp_path)] == [
        *([0] * 4 + [4] * 4 + [8] * 3 + [11])
    ]


# --- Training -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    class SharedServer(ForkServer):
        def close(self) -> None:
            """Keep the server."""

    server = SharedServer()
    yield server
    ForkServer.close(server)


Train = Callable[..., TuningResult]


@pytest.fixture(scope="module")
def train(fork_server: ForkServer) -> Train:
    """Return a function that runs a small tuning as populations, and may look at each event."""

    def run(
        folder: Path,
        look: Callable[[PopulationExecutor, Event], None] = lambda executor, event: None,
        **changes: Any,
    ) -> TuningResult:
        executor = PopulationExecutor(Budget(2, 0), fork_server)
        wait = executor.wait

        def watched(seconds: float) -> Sequence[Event]:
            events = wait(seconds)
            for event in events:
                look(executor, event)
            return events

        executor.wait = watched  # type: ignore[method-assign]
        return train_with(executor, folder, **changes)

    return run


def train_with(executor: LocalExecutor, folder: Path, **changes: Any) -> TuningResult:
    imports = ["tests.tuning.registered"]
    described = tuning(**SMALL | changes)
    try:
        return described.run(folder, executor=executor, imports=imports, progress=False)
    finally:
        executor.close()


@pytest.fixture(scope="module")
def reference(train: Train, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tuning in which no trial was pruned."""
    folder = tmp_path_factory.mktemp("generations") / "tuning"
    pids: dict[int, int] = Counter()

    def look(executor: PopulationExecutor, event: Event) -> None:
        if isinstance(event, Started):
            pids[event.pid] += 1

    train(folder, look, pruner="none")
    assert list(pids.values()) == [10, 4, 2]  # two generations, and the validation
    return folder


def test_trials_equal_those_of_single_runs(
    reference: Path, fork_server: ForkServer, tmp_path: Path
) -> None:
    """The first ten trials do not depend on outcomes."""
    executor = LocalExecutor(Budget(2, 0), fork_server)
    alone = train_with(executor, tmp_path / "alone", pruner="none")
    together = Tuning.load(reference).result()
    assert [trial.params for trial in alone.trials] == [trial.params for trial in together.trials]
    for single, member in zip(alone.trials, together.trials, strict=True):
        assert member.scores == pytest.approx(single.scores, rel=1e-3)
        assert member.value == pytest.approx(single.value, rel=1e-3)
    assert (alone.best and alone.best.number) == (together.best and together.best.number)


def test_a_pruned_trial_leaves_the_others_unchanged(
    reference: Path, train: Train, tmp_path: Path
) -> None:
    result = train(tmp_path / "tuning")
    pruned = [trial for trial in result.trials if trial.status is TrialStatus.PRUNED]
    assert pruned
    found, expected = (StudyIndex.open(path).runs for path in (tmp_path / "tuning", reference))
    for trial in result.trials:
        for key in trial.run_keys([0, 1]):
            if trial.status is TrialStatus.COMPLETE:
                assert_equal_runs(found[key].path, expected[key].path)
            elif found[key].status is RunStatus.STOPPED:
                assert found[key].reason == "pruned"


def test_an_interrupted_tuning_is_resumed_exactly(
    reference: Path, train: Train, tmp_path: Path
) -> None:
    """A run is interrupted alone, and later the whole tuning."""
    interrupted: set[str] = set()

    def look(executor: PopulationExecutor, event: Event) -> None:
        if not isinstance(event, Evaluated) or event.key in interrupted:
            return
        trial, _, seed = event.key.rpartition("/")
        if trial.startswith("trial-0003") and event.step == 20:
            interrupted.add(event.key)
            executor.stop(INTERRUPT, event.key)
        if trial.startswith("trial-0005") and event.step == 30 and seed == "seed0":
            interrupted.add(event.key)
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(SystemExit, match="143"):
        train(tmp_path / "tuning", look, pruner="none")
    assert len(TrialIndex.open(tmp_path / "tuning").with_status(TrialStatus.OPEN)) == 2
    train(tmp_path / "tuning", pruner="none")
    assert outcomes(tmp_path / "tuning") == outcomes(reference)
    found, expected = (StudyIndex.open(path).runs for path in (tmp_path / "tuning", reference))
    assert found.keys() == expected.keys()
    for key, run in expected.items():
        assert_equal_runs(found[key].path, run.path)


# --- Input --------------------------------------------------------------------------------


def test_a_tuning_keeps_its_executor(tmp_path: Path) -> None:
    simulate(tmp_path, trials=2)
    described = Tuning.load(tmp_path).description
    assert (described.executor, described.parallel_trials) == ("population", 10)
    message = "executor is 'population', but here it is 'local': choose another folder"
    with pytest.raises(ConfigError, match=message):
        simulate(tmp_path, SimulatedExecutor(), trials=2)


def test_populations_train_on_this_machine_in_one_process(tmp_path: Path) -> None:
    described = tuning(executor="population", members=2)
    for options, message in (
        ({"address": "auto"}, "populations, which need a device of this machine, not a Ray"),
        ({"shard": "1/2", "cores": 1}, "shard = 1/2: a population trains in one process"),
    ):
        with pytest.raises(ConfigError, match=message):
            described.run_trials(tmp_path / "tuning", TuneOptions(**options))
    assert not (tmp_path / "tuning").exists()
    with pytest.raises(ConfigError, match="members = 2 limits populations: set executor"):
        tuning(members=2).run(tmp_path / "tuning", progress=False)


def test_tune_takes_the_name_of_an_executor(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"executor = 'gpu'.*'local' or 'population'"):
        tune(CONFIG, tmp_path, space=SPACE, executor="gpu")
    with pytest.raises(ConfigError, match="members = 2 limits populations"):
        tune(CONFIG, tmp_path, space=SPACE, executor="local", members=2)

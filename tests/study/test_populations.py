"""Populations: runs of a study whose updates are one program, and that stay ordinary runs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import load_file

from rl_training.errors import ConfigError
from rl_training.experiment import memory
from rl_training.experiment.memory import MemoryNeeds
from rl_training.runtime.checkpointing import list_steps
from rl_training.runtime.stop_reason import StopKind, StopReason
from rl_training.study.config import make_study_config
from rl_training.study.index import StudyRun
from rl_training.study.jobs import Evaluated, Event, Started
from rl_training.study.population_executor import PopulationExecutor
from rl_training.study.populations import population_kind, population_resources
from rl_training.study.records import RunStatus
from rl_training.study.resources import Budget
from rl_training.study.study import RunOptions, Study
from tests.faults.runs import CONFIG, assert_equal_runs
from tests.study.conftest import SharedServer
from tests.study.small import assert_equal_studies, small_description

SEEDS = 3
INTERRUPT = StopReason(StopKind.SIGNAL, "SIGTERM")
OFFLINE: dict[str, Any] = {
    **CONFIG,
    "algo": "td3_bc",
    "checkpoint_interval": 30,
    "algo_kwargs": {
        "hidden_sizes": [16, 16],
        "batch_size": 16,
        "eval_interval": 50,
        "num_threads": 1,
        "dataset_kind": "random",
        "dataset_size": 300,
    },
}
CASES: dict[str, dict[str, Any]] = {
    "online": small_description(("sac",), seeds=SEEDS),
    "offline": {"runs": [{"config": OFFLINE}], "seeds": SEEDS},
}
Make = Callable[..., PopulationExecutor]


@pytest.fixture
def make(fork_server: SharedServer) -> Iterator[Make]:
    """Return a function that makes an executor of populations."""
    made: list[PopulationExecutor] = []

    def make_one(members: int | None = None) -> PopulationExecutor:
        made.append(PopulationExecutor(Budget(2, 0), fork_server, members=members))
        return made[-1]

    yield make_one
    for executor in made:
        executor.kill()
        executor.close()


def watch(executor: PopulationExecutor, look: Callable[[Event], None]) -> None:
    """Call a function for each event of an executor."""
    wait = executor.wait

    def watched(seconds: float) -> Any:
        events = wait(seconds)
        for event in events:
            look(event)
        return events

    executor.wait = watched  # type: ignore[method-assign]


def stop_at(executor: PopulationExecutor, steps: Mapping[int, int], reason: StopReason) -> None:
    """Stop runs after the evaluation at a step; ``steps`` are by seed."""

    def look(event: Event) -> None:
        if isinstance(event, Evaluated) and steps.get(seed_of(event)) == event.step:
            executor.stop(reason, event.key)

    watch(executor, look)


def seed_of(event: Event) -> int:
    return int(event.key.rpartition("seed")[2])


def train_study(
    folder: Path, executor: Any, description: Mapping[str, Any]
) -> dict[tuple[str, int], StudyRun]:
    """Run a study; return its runs by label and seed."""
    result = Study.load(description).run(folder, executor=executor, progress=False)
    return {(run.label, run.seed): run for run in result.runs}


def statuses(runs: Mapping[Any, StudyRun]) -> list[str]:
    return [run.status.value for run in runs.values()]


ONLINE_ONLY = pytest.mark.parametrize(
    "case", ["online", pytest.param("offline", marks=pytest.mark.slow)], indirect=True
)


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def reference(
    case: str, fork_server: SharedServer, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A study that was trained as one population, without interruptions."""
    folder = tmp_path_factory.mktemp("population") / "study"
    executor = PopulationExecutor(Budget(2, 0), fork_server)
    assert statuses(train_study(folder, executor, CASES[case])) == ["finished"] * SEEDS
    executor.close()
    return folder


@ONLINE_ONLY
def test_members_learn_what_single_runs_learn(
    case: str, reference: Path, make_executor: Any, tmp_path: Path
) -> None:
    for (_, seed), run in train_study(tmp_path / "alone", make_executor(), CASES[case]).items():
        member = next(reference.rglob(f"seed{seed}"))
        found, expected = (
            load_file(list_steps(path)[-1] / "model.safetensors") for path in (member, run.path)
        )
        for name, tensor in expected.items():
            torch.testing.assert_close(found[name], tensor, rtol=1e-3, atol=1e-4)


def test_a_population_resumes_exactly(
    case: str, reference: Path, make: Make, tmp_path: Path
) -> None:
    """Also if one run was saved at an earlier step than the others."""
    executor = make()
    stop_at(executor, {0: 100, 1: 50, 2: 100}, INTERRUPT)
    assert statuses(train_study(tmp_path, executor, CASES[case])) == ["interrupted"] * SEEDS
    assert statuses(train_study(tmp_path, make(), CASES[case])) == ["finished"] * SEEDS
    assert_equal_studies(tmp_path, reference)


@ONLINE_ONLY
def test_a_member_resumes_exactly_if_the_others_have_ended(
    case: str, reference: Path, make: Make, tmp_path: Path
) -> None:
    executor = make()
    stop_at(executor, {1: 50}, INTERRUPT)
    runs = train_study(tmp_path, executor, CASES[case])
    assert statuses(runs) == ["finished", "interrupted", "finished"]
    train_study(tmp_path, make(), CASES[case])
    assert_equal_studies(tmp_path, reference)


@ONLINE_ONLY
def test_a_killed_population_is_resumed_exactly(
    case: str, reference: Path, make: Make, tmp_path: Path
) -> None:
    executor, workers, killed = make(), list[int](), list[int]()

    def kill(event: Event) -> None:
        if isinstance(event, Started):
            workers.append(event.pid)
        if isinstance(event, Evaluated) and event.step == 100 and not killed:
            killed.append(workers[-1])
            os.kill(workers[-1], signal.SIGKILL)

    watch(executor, kill)
    runs = train_study(tmp_path, executor, CASES[case])
    assert [run.attempts for run in runs.values()] == [2] * SEEDS
    assert_equal_studies(tmp_path, reference)


@ONLINE_ONLY
def test_a_member_that_stops_early_leaves_the_others_unchanged(
    case: str, reference: Path, make: Make, tmp_path: Path
) -> None:
    executor = make()
    stop_at(executor, {1: 50}, StopReason(StopKind.REQUESTED, "pruned"))
    runs = train_study(tmp_path, executor, CASES[case])
    assert statuses(runs) == ["finished", "stopped", "finished"]
    for (_, seed), run in runs.items():
        if seed != 1:
            assert_equal_runs(run.path, next(reference.rglob(f"seed{seed}")))


def test_a_member_with_nan_leaves_the_others_unchanged(make: Make, tmp_path: Path) -> None:
    """The members of this study have different settings."""
    found = []
    for name, scale in (("fine", 2.0), ("diverges", 1e30)):
        grid = {"reward_scale": [1.0, scale]}
        description = CASES["offline"] | {"seeds": 1, "grid": grid, "retries": 0}
        found.append(train_study(tmp_path / name, make(), description))
    fine, poisoned = found
    assert statuses(fine) == ["finished"] * 2
    assert statuses(poisoned) == ["finished", "failed"]
    for (label, seed), run in poisoned.items():
        if run.status is RunStatus.FINISHED:
            assert_equal_runs(run.path, fine[label, seed].path)
        else:
            assert "at step" in str(run.reason)


def test_populations_have_at_most_their_size(make: Make, tmp_path: Path) -> None:
    executor, workers = make(members=2), set[int]()

    def look(event: Event) -> None:
        if isinstance(event, Started):
            workers.add(event.pid)

    watch(executor, look)
    assert statuses(train_study(tmp_path, executor, CASES["online"])) == ["finished"] * SEEDS
    assert len(workers) == 2


def test_runs_that_cannot_train_together_form_whole_populations(make: Make, tmp_path: Path) -> None:
    executor, workers = make(), dict[int, set[str]]()

    def look(event: Event) -> None:
        if isinstance(event, Started):
            workers.setdefault(event.pid, set()).add(event.key.partition("/")[0])

    watch(executor, look)
    description = CASES["online"] | {"seeds": 2, "grid": {"batch_size": [8, 16]}}
    assert statuses(train_study(tmp_path, executor, description)) == ["finished"] * 4
    assert sorted(workers.values(), key=str) == [{"sac_batch_size=16"}, {"sac_batch_size=8"}]


@pytest.mark.parametrize(
    ("change", "is_same"),
    [
        ({"seed": 5}, True),
        ({"algo_kwargs": {"learning_rate": 1e-4}}, True),
        ({"algo_kwargs": {"hidden_sizes": [32]}}, False),
        ({"algo_kwargs": {"batch_size": 32}}, False),
        ({"algo_kwargs": {"alpha": 0.1}}, False),
        ({"env_id": "Pendulum-v2"}, False),
        ({"total_timesteps": 400}, False),
    ],
)
def test_what_members_may_differ_in(change: dict[str, Any], is_same: bool) -> None:
    base = {**CONFIG, "algo_kwargs": {"learning_rate": 3e-4, "alpha": "auto", "batch_size": 16}}
    other = {**base, **change}
    other["algo_kwargs"] = base["algo_kwargs"] | change.get("algo_kwargs", {})
    assert (population_kind(base) == population_kind(other)) == is_same


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0.0), (0.04, 0.2), (0.5, 1.0), (1.0, 1.0)])
def test_a_population_needs_the_shares_of_its_runs(share: float, expected: float) -> None:
    runs = [Mock(group=Mock(resources={"cpus": 1, "gpus": share, "memory": 100}))] * 5
    needs = population_resources(runs, cores=3)
    assert (needs.cpus, needs.memory) == (3, 500)
    assert needs.gpus == pytest.approx(expected)


def test_a_population_that_does_not_fit_says_how_many_would(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Study.load(CASES["online"]).plan()
    config, kind = plan.groups[0].config, next(iter(plan.kinds.values()))
    needs = MemoryNeeds.of(config, kind.spec)
    one = needs.data.size + sum(need.size for need in (*needs.host, *needs.learner))
    device = torch.device("cpu")
    monkeypatch.setattr(memory, "available_memory", lambda device: 4 * one)
    memory.check_population_memory(config, kind.spec, device, 4)
    with pytest.raises(ConfigError, match=r"A population of 9 runs .* which is enough for 4\."):
        memory.check_population_memory(config, kind.spec, device, 9)


def test_a_study_chooses_populations() -> None:
    local, population = (
        make_study_config({**CASES["online"], "executor": executor, "members": 2}, "Study")
        for executor in ("local", "population")
    )
    options = RunOptions(cores=1, memory="1GiB", gpus=0)
    with options.open_executor(population) as executor:
        assert isinstance(executor, PopulationExecutor)
    message = "members = 2 limits populations: set executor = population as well"
    with pytest.raises(ConfigError, match=message), options.open_executor(local):
        pass


def test_environments_in_processes_step_at_the_same_time(make: Make, tmp_path: Path) -> None:
    """A step of this environment ends when the other members have started theirs."""
    import tests.study.meeting  # registers the environment

    meeting = tmp_path / "meeting"
    meeting.mkdir()
    config = {key: value for key, value in CONFIG.items() if key != "algo_kwargs"} | {
        "env_id": "Meeting-v0",
        "env_kwargs": {"vectorization": "async", "folder": str(meeting), "members": SEEDS},
        "eval_episodes": 0,
        "total_timesteps": 30,
        "algo_kwargs": CONFIG["algo_kwargs"] | {"learning_starts": 10},
    }
    study = Study([{"config": config}], seeds=SEEDS)
    result = study.run(
        tmp_path / "study", executor=make(), imports=[tests.study.meeting.__name__], progress=False
    )
    assert [(run.status.value, run.reason) for run in result.runs] == [("finished", None)] * SEEDS
    assert len(list(meeting.iterdir())) == 30 * SEEDS

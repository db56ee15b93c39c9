"""The engine of a population: every member learns what it would learn alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms.base import Algorithm
from rl_training.algorithms.config import AlgorithmConfig
from rl_training.algorithms.registry import AlgorithmEntry
from rl_training.algorithms.sac import SACAlgorithm, SACConfig
from rl_training.data import PrioritizedReplay
from rl_training.errors import TrainingError
from rl_training.models.network_config import register_network
from rl_training.runtime import compilation
from rl_training.runtime.compilation import state_tensors
from rl_training.runtime.engine import Engine
from rl_training.runtime.engine_choice import EngineMode
from rl_training.runtime.population.engine import PopulationEngine
from rl_training.runtime.population.programs import stack_state
from rl_training.types import EnvSpec, Sampler
from tests.conftest import CASES, TINY, case_id
from tests.models.test_own_network import Normed
from tests.runtime.test_engine import SPEC, Cast, distance, replay
from tests.toys import DelayedSAC, GamblingSAC, HardCopySAC, PeekingSAC, SubsetSAC

Learner = type[Algorithm]
PRIORITY_KEYS = ("priority_exponent", "importance_exponent", "priority_epsilon")
CALLS = (1, 2, 37, 160)
"""200 updates, split like those of a training loop."""


@pytest.fixture(autouse=True)
def _no_slow_operations() -> Iterator[None]:
    """Fail if an operation would run once per member instead of once."""
    functorch: Any = torch._C._functorch
    functorch._set_vmap_fallback_enabled(False)
    yield
    functorch._set_vmap_fallback_enabled(True)


def source(learner: Learner, config: AlgorithmConfig, spec: EnvSpec) -> Sampler:
    buffer = replay(spec=spec)
    buffer.supply(learner.declared_fields(config))
    return Cast(buffer, torch.float64)


def build(learner: Learner, config: AlgorithmConfig, seed: int, spec: EnvSpec = SPEC) -> Algorithm:
    return learner.build(spec, config, seed=seed).double()


def make_population(
    learner: Learner,
    configs: Sequence[Any],
    spec: EnvSpec = SPEC,
    mode: EngineMode = "eager",
    **options: Any,
) -> PopulationEngine:
    members = [build(learner, config, seed, spec) for seed, config in enumerate(configs)]
    return PopulationEngine(
        [
            Engine(member, source(learner, member.config, spec), seed=10 + seed, mode=mode)
            for seed, member in enumerate(members)
        ],
        **options,
    )


def make_single(learner: Learner, config: Any, seed: int, spec: EnvSpec = SPEC) -> Engine:
    algorithm = build(learner, config, seed, spec)
    return Engine(algorithm, source(learner, config, spec), seed=10 + seed)


def run_scheduled(engine: Engine, algorithms: Sequence[Algorithm], calls: Sequence[int]) -> None:
    """Run updates in several calls with a decaying learning rate."""
    for index, count in enumerate(calls):
        for algorithm in algorithms:
            algorithm.scale_learning_rates(1.0 - index / 10)
        engine.run(count)


def assert_members_equal_single_runs(
    learner: Learner, configs: Sequence[Any], spec: EnvSpec = SPEC, calls: Sequence[int] = CALLS
) -> PopulationEngine:
    population = make_population(learner, configs, spec)
    run_scheduled(population, [member.algorithm for member in population.members], calls)
    for seed, (config, member) in enumerate(zip(configs, population.members, strict=True)):
        single = make_single(learner, config, seed, spec)
        run_scheduled(single, [single.algorithm], calls)
        assert distance(single, member) < 1e-9
        assert member.updates == single.updates == sum(calls)
        assert member.pop_metrics() == pytest.approx(single.pop_metrics(), rel=1e-7, abs=1e-9)
        assert torch.equal(member.generator.get_state(), single.generator.get_state())
    return population


def tiny_config(entry: AlgorithmEntry, **changes: Any) -> AlgorithmConfig:
    own = TINY.get(entry.name, {}) | ({"target_update_interval": 7} if entry.name == "dqn" else {})
    config: AlgorithmConfig = entry.config_class()(
        **{"hidden_sizes": (8, 8), "batch_size": 16} | own | changes
    )
    return config


def spec_of(kind: str) -> EnvSpec:
    return EnvSpec(5, 3, discrete=True) if kind == "discrete" else SPEC


@pytest.mark.slow
@pytest.mark.parametrize(("entry", "kind"), CASES, ids=case_id)
def test_members_of_every_algorithm_equal_single_runs(entry: AlgorithmEntry, kind: str) -> None:
    configs = [tiny_config(entry)] * 2
    assert_members_equal_single_runs(entry.learner_class(), configs, spec_of(kind))


@pytest.mark.parametrize(
    ("entry", "kind"),
    [case for case in CASES if case[0].name not in ("crossq", "flash_sac")],
    ids=case_id,
)
def test_members_equal_single_runs_after_a_few_updates(entry: AlgorithmEntry, kind: str) -> None:
    """The long programs of CrossQ and FlashSAC are slow tests only."""
    configs = [tiny_config(entry)] * 2
    assert_members_equal_single_runs(entry.learner_class(), configs, spec_of(kind), calls=(1, 9))


def slow_unless(*names: str) -> list[Any]:
    """Return the cases, of which only those of some algorithms are fast enough for every run."""
    return [
        pytest.param(*case, marks=() if case[0].name in names else pytest.mark.slow)
        for case in CASES
    ]


@pytest.mark.parametrize(("entry", "kind"), slow_unless("sac", "dqn", "iql"), ids=case_id)
def test_members_may_differ_in_every_number_of_a_config(entry: AlgorithmEntry, kind: str) -> None:
    """Every hyperparameter that is a float: rates, coefficients, penalties, clip values."""
    first = tiny_config(entry)
    values = {name: getattr(first, name) for name in type(first).model_fields}
    changed = {
        name: 0.8 * value
        for name, value in values.items()
        if type(value) is float and name not in PRIORITY_KEYS
    }
    second = tiny_config(entry, **changed)
    assert second != first
    learner, spec = entry.learner_class(), spec_of(kind)
    assert_members_equal_single_runs(learner, [first, second], spec, calls=(1, 20))


def optimizers(*, beta: float, eps: float, max_norm: float, decay: float) -> dict[str, Any]:
    options = {"betas": (beta, 0.99), "eps": eps, "max_norm": max_norm, "weight_decay": decay}
    return {"all": options}


def test_members_may_differ_in_the_options_of_optimizers() -> None:
    configs = [
        SACConfig(hidden_sizes=(8, 8), batch_size=16, optimizers=options)
        for options in (
            optimizers(beta=0.5, eps=1e-8, max_norm=0.1, decay=1e-3),
            optimizers(beta=0.9, eps=1e-5, max_norm=1.0, decay=1e-2),
        )
    ]
    assert_members_equal_single_runs(SACAlgorithm, configs, calls=(1, 20))


NETWORKS: dict[str, dict[str, Any]] = {
    "layer norm": {"layer_norm": True},
    "dropout": {"dropout": 0.2},
    "batch norm": {"trunk": "batch_norm", "renormalize": True, "renorm_warmup": 5},
    "residual": {"trunk": "residual", "width": 8},
    "own module": {"trunk": "normed"},
}


@pytest.mark.parametrize("options", NETWORKS.values(), ids=NETWORKS)
def test_networks_with_state_are_supported(options: dict[str, Any]) -> None:
    register_network("normed", Normed)
    sizes = {} if "trunk" in options else {"hidden_sizes": (8, 8)}
    config = SACConfig(batch_size=16, networks={"all": options}, **sizes)
    assert_members_equal_single_runs(SACAlgorithm, [config] * 2, calls=(1, 40))


@pytest.mark.parametrize("learner", [DelayedSAC, SubsetSAC, HardCopySAC])
def test_learners_of_users_are_supported(learner: type[SACAlgorithm]) -> None:
    config = SACConfig(hidden_sizes=(8, 8), batch_size=16)
    assert_members_equal_single_runs(learner, [config] * 2, calls=(1, 40))


@pytest.mark.parametrize(
    ("learner", "reason"),
    [
        (PeekingSAC, "reads the value of a tensor on the host"),
        (GamblingSAC, "draws random numbers itself"),
    ],
)
def test_an_update_that_cannot_be_traced_is_one_clear_error(
    learner: type[SACAlgorithm], reason: str
) -> None:
    population = make_population(learner, [SACConfig(hidden_sizes=(8, 8), batch_size=16)] * 2)
    with pytest.raises(TrainingError, match=f"cannot be trained together, because .*{reason}"):
        population.run(1)


def test_updates_with_different_operations_are_one_clear_error() -> None:
    """Clipping one member's gradients adds operations to its update."""
    clipped = {"optimizers": {"actor": {"max_norm": 1.0}}}
    configs = [SACConfig(hidden_sizes=(8, 8), batch_size=16, **own) for own in ({}, clipped)]
    with pytest.raises(TrainingError, match="cannot be trained together, because their updates"):
        make_population(SACAlgorithm, configs).run(1)


@pytest.mark.parametrize("changes", [{"num_critics": 3}, {"alpha": 0.1}])
def test_members_with_different_networks_are_rejected(changes: dict[str, Any]) -> None:
    configs = [SACConfig(hidden_sizes=(8, 8), batch_size=16, **own) for own in ({}, changes)]
    with pytest.raises(TrainingError, match=r"cannot be trained together, .* different sizes"):
        make_population(SACAlgorithm, configs)


def prioritized() -> PrioritizedReplay:
    """A replay that draws by the errors that each update reports."""
    buffer = PrioritizedReplay(200, 5, 3)
    rows = replay(rows=100).rows[:100]
    batch = buffer.layout.batch(rows)
    obs, actions, rewards, next_obs, terminations = (x.numpy() for x in batch[:5])
    buffer.add(obs, actions, rewards, next_obs, terminations > 0, np.zeros(len(obs), bool))
    return buffer


def test_priorities_follow_the_errors_of_their_member() -> None:
    config = SACConfig(hidden_sizes=(8, 8), batch_size=16)
    members = [SACAlgorithm.build(SPEC, config, seed=seed) for seed in range(2)]
    buffers = [prioritized() for seed in range(2)]
    population = PopulationEngine(
        [Engine(members[i], buffers[i], seed=10 + i) for i in range(len(members))]
    )
    population.run(30)
    for seed, buffer in enumerate(buffers):
        alone = prioritized()
        Engine(SACAlgorithm.build(SPEC, config, seed=seed), alone, seed=10 + seed).run(30)
        torch.testing.assert_close(buffer.priorities.values, alone.priorities.values)
    assert not torch.equal(buffers[0].priorities.values, buffers[1].priorities.values)


def test_a_member_with_nan_leaves_the_others_bit_identical() -> None:
    config = SACConfig(hidden_sizes=(8, 8), batch_size=16)
    states = []
    for is_poisoned in (False, True):
        population = make_population(SACAlgorithm, [config] * 3)
        population.run(5)
        if is_poisoned:
            with torch.no_grad():
                weights = dict(population.members[1].algorithm.named_parameters())
                weights["model.actor.flat"][3] = float("nan")
        population.run(25)
        states.append([member.algorithm.state_dict() for member in population.members])
    for index in (0, 2):
        for name, tensor in states[0][index].items():
            assert torch.equal(tensor, states[1][index][name]), name
    assert not all(x.isfinite().all() for x in states[1][1].values())


class Recorded(Cast):
    """Rows that never change, whose blocks start at multiples of their length."""

    is_fixed = True


@pytest.mark.parametrize("sampler", [Cast, Recorded])
def test_members_may_take_turns(sampler: type[Cast]) -> None:
    """Also in the middle of a block of recorded data."""
    config = SACConfig(hidden_sizes=(8, 8), batch_size=16)

    def engine(seed: int) -> Engine:
        learner = build(SACAlgorithm, config, seed)
        return Engine(learner, sampler(replay(), torch.float64), seed=10 + seed)

    first, second = members = [engine(0), engine(1)]
    population = PopulationEngine([*members, build(SACAlgorithm, config, 2)])
    population.run(25)
    population.run(10, [second])
    population.run(4, [first])
    population.run(6, [first])
    population.run(15)
    for seed, calls in enumerate(([25, 4, 6, 15], [25, 10, 15])):
        single = engine(seed)
        for count in calls:
            single.run(count)
        assert distance(single, members[seed]) < 1e-9
        assert members[seed].updates == single.updates == 50
        assert members[seed].metrics() == pytest.approx(single.metrics(), rel=1e-7, abs=1e-9)
    population.retire(first)
    population.run(10)
    single.run(10)
    assert distance(single, second) < 1e-9
    assert second.updates == 60


def test_members_are_views_of_the_stacked_state() -> None:
    config = SACConfig(hidden_sizes=(8, 8))
    members = [build(SACAlgorithm, config, seed) for seed in range(3)]
    before = [
        {name: tensor.clone() for name, tensor in member.state_dict().items()} for member in members
    ]
    state = stack_state(members)
    for member, kept in zip(members, before, strict=True):
        assert all(torch.equal(tensor, kept[name]) for name, tensor in member.state_dict().items())
    for tensor in state:
        tensor.fill_(1)
    assert all((tensor == 1).all() for member in members for tensor in member.state_dict().values())
    assert list(state_tensors(members[0])) == list(state_tensors(build(SACAlgorithm, config, 0)))


def test_a_member_continues_alone_from_its_state() -> None:
    """Also in the middle of a logging interval, whose sums of metrics continue."""
    config = SACConfig(hidden_sizes=(8, 8), batch_size=16)
    population = make_population(SACAlgorithm, [config] * 2)
    population.run(23)
    alone = make_single(SACAlgorithm, config, 1)
    alone.algorithm.load_state_dict(population.members[1].algorithm.state_dict())
    alone.load_state_dict(population.members[1].state_dict())
    for engine in (population, alone):
        engine.run(17)
    assert distance(alone, population.members[1]) < 1e-9
    assert alone.metrics() == pytest.approx(population.members[1].metrics(), rel=1e-7)


def test_a_population_continues_bit_for_bit_from_its_state() -> None:
    config = SACConfig(hidden_sizes=(8, 8), batch_size=16)
    whole, first, second = (make_population(SACAlgorithm, [config] * 2) for _ in range(3))
    for engine in (whole, first):
        engine.run(23)
    for saved, restored in zip(first.members, second.members, strict=True):
        restored.algorithm.load_state_dict(saved.algorithm.state_dict())
        restored.load_state_dict(saved.state_dict())
    for engine in (whole, second):
        engine.run(17)
    for one, other in zip(whole.members, second.members, strict=True):
        assert distance(one, other) == 0.0
        assert one.state_dict()["sums"] == other.state_dict()["sums"]
        assert one.state_dict()["counts"] == other.state_dict()["counts"]


@pytest.mark.slow
def test_compiled_members_equal_single_runs() -> None:
    config = SACConfig(hidden_sizes=(8, 8), batch_size=16)
    population = make_population(SACAlgorithm, [config] * 3, mode="compiled")
    population.run(200)
    assert population.mode == "compiled"
    for seed, member in enumerate(population.members):
        single = make_single(SACAlgorithm, config, seed)
        single.run(200)
        assert distance(single, member) < 1e-9


def test_functional_programs_are_valid_for_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compilers functionalize in-place writes, which fails if tensors overlap."""
    functional: Callable[..., Any] = torch.func.functionalize
    monkeypatch.setattr(compilation, "compile_program", lambda program, inputs: functional(program))
    config = SACConfig(hidden_sizes=(8, 8), batch_size=16)
    compiled = make_population(SACAlgorithm, [config] * 2, mode="compiled")
    eager = make_population(SACAlgorithm, [config] * 2)
    for engine in (compiled, eager):
        engine.run(25)
    assert compiled.mode == "compiled"
    for one, other in zip(compiled.members, eager.members, strict=True):
        assert distance(one, other) == 0.0

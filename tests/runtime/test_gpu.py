"""Tests that require a CUDA device (`make test-gpu`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from runpy import run_path
from typing import Any

import numpy as np
import pytest
import torch

from rl_training import Callback, evaluate_checkpoint, register_network, resume, train
from rl_training.algorithms import registry
from rl_training.algorithms.base import draw_noise
from rl_training.algorithms.cql import CQLAlgorithm, CQLConfig
from rl_training.algorithms.fqe import FQEConfig
from rl_training.algorithms.sac import SACAlgorithm, SACConfig
from rl_training.data import EpochSampler, PrioritizedReplay, ReplayBuffer, TransitionDataset
from rl_training.data.dataset_writers import write_arrays
from rl_training.errors import ConfigError
from rl_training.experiment import memory
from rl_training.experiment.machine import available_memory
from rl_training.models import network_config
from rl_training.runtime import off_policy_evaluation
from rl_training.runtime.checkpointing import open_checkpoint
from rl_training.runtime.engine import Engine
from rl_training.runtime.engine_choice import EngineMode
from rl_training.runtime.population.engine import PopulationEngine
from rl_training.runtime.population.philox import matches_generators
from rl_training.runtime.recording import record_random
from rl_training.runtime.session import Session
from rl_training.types import Batch, EnvSpec
from tests.algorithms.test_fqe import GAMMA, LENGTH, LinearPolicy, exact_value, walk
from tests.comparing import CrashAt, CrashError, assert_same_run
from tests.models.test_own_network import Gated, Normed
from tests.runtime.test_engine import (
    LEARNERS,
    Cast,
    assert_close,
    drift,
    make_engine,
    replay,
    run_scheduled,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

SPEC = EnvSpec(5, 3, (-1.0,) * 3, (1.0,) * 3)


def make_arrays(rows: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    obs = np.stack([np.arange(rows)] * 5, axis=1).astype(np.float32)
    return {
        "observations": obs,
        "actions": rng.uniform(-1, 1, (rows, 3)).astype(np.float32),
        "rewards": obs[:, 0],
        "next_observations": obs + 1,
        "terminals": np.zeros(rows, bool),
        "timeouts": np.zeros(rows, bool),
    }


def captured(work: Any, generator: torch.Generator | None = None) -> torch.cuda.CUDAGraph:
    """Capture ``work`` in a graph, without running it."""
    graph = torch.cuda.CUDAGraph()
    if generator is not None:
        graph.register_generator_state(generator)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        work()
    return graph


def test_epochs_can_be_captured() -> None:
    """Replays of one graph sample the same rows as eager code, over several epochs."""
    dataset = TransitionDataset.from_dict(make_arrays(50), device="cuda")
    eager, generator = EpochSampler(dataset), torch.Generator("cuda").manual_seed(0)
    expected = [eager.sample(8, generator).obs.clone() for _ in range(16)]
    sampler, generator = EpochSampler(dataset), torch.Generator("cuda").manual_seed(0)
    sampler.prepare(8, generator, updates=4)
    out = torch.empty(4, 8, 5, device="cuda")

    def block() -> None:
        for index in range(4):
            out[index] = sampler.gather(8, generator).obs

    graph = captured(block)
    found = []
    for turn in range(4):
        if turn:
            sampler.prepare(8, generator, updates=4)
        graph.replay()
        found += list(out.clone())
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("kind", ["replay", "dataset"])
def test_uniform_sampling_can_be_captured(kind: str) -> None:
    """Each replay draws new rows, including rows that were added after the capture."""
    generator = torch.Generator("cuda").manual_seed(0)
    arrays = make_arrays(100)
    columns = [arrays[k] for k in ("observations", "actions", "rewards", "next_observations")]
    flags = [arrays["terminals"], arrays["timeouts"]]
    out = torch.empty(256, 5, device="cuda")
    source: Any
    if kind == "replay":
        source = ReplayBuffer(100, 5, 3, device="cuda")
        source.add(*[x[:50] for x in columns], *[x[:50] for x in flags])
    else:
        source = TransitionDataset.from_dict(arrays, device="cuda")
    graph = captured(lambda: out.copy_(source.sample(256, generator).obs), generator)
    graph.replay()
    first = out.clone()
    graph.replay()
    assert not torch.equal(first, out)
    if kind == "replay":
        assert out.max() < 50
        source.add(*[x[50:] for x in columns], *[x[50:] for x in flags])
        graph.replay()
        assert out.max() >= 50


def test_declared_fields_can_be_captured() -> None:
    """Replays use rows that were added after the capture, and the position of the newest row."""
    fields = ("next_actions", "next_action_mask", "discounts", "indices")
    arrays = make_arrays(60)
    names = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")
    buffers = [ReplayBuffer(35, 5, 3, num_envs=2, device=device) for device in ("cpu", "cuda")]
    places = torch.arange(35, device="cuda")
    out: list[torch.Tensor] = []

    def gather() -> None:
        out[:] = buffers[1].batch(places).tensors()

    for buffer in buffers:
        buffer.supply(fields, gamma=0.9, n_step=3)
        buffer.add(*[arrays[name][:20] for name in names])
    gather()
    graph = captured(gather)
    for start in (20, 30, 44):
        for buffer in buffers:
            buffer.add(*[arrays[name][start : start + 10] for name in names])
        graph.replay()
        stored = len(buffers[0])
        expected = buffers[0].batch(torch.arange(stored))
        for found, wanted in zip(out, expected.tensors(), strict=True):
            torch.testing.assert_close(found[:stored].cpu(), wanted)


@pytest.mark.parametrize("algo", ["sac", "rebrac"])
def test_fields_and_several_steps_in_a_graph(tmp_path: Path, algo: str) -> None:
    """A run with both resumes bit for bit with CUDA graphs."""
    data = {"dataset_kind": "random", "dataset_size": 500} if algo == "rebrac" else {}
    starts = {} if data else {"learning_starts": 30}
    config = {
        "algo": algo,
        "env_id": "Pendulum-v1",
        "total_timesteps": 160,
        "device": "cuda",
        "eval_episodes": 0,
        "checkpoint_interval": 80,
        "log_interval": 40,
        "algo_kwargs": {"hidden_sizes": [16], "batch_size": 16, "n_step": 3, "engine": "cuda_graph"}
        | data
        | starts,
    }
    whole = train(config | {"output_dir": str(tmp_path / "whole")})
    with pytest.raises(CrashError):
        train(config | {"output_dir": str(tmp_path / "broken")}, callbacks=[CrashAt(120)])
    (broken,) = (tmp_path / "broken").iterdir()
    assert_same_run(whole, resume(broken))


@pytest.mark.parametrize("mode", ["compiled", "cuda_graph"])
def test_priorities_in_every_engine(mode: EngineMode) -> None:
    """Samples, weights and priorities inside a graph equal those of eager updates."""
    engines = []
    for one in ("eager", mode):
        config = SACConfig(hidden_sizes=(16, 16), batch_size=32)
        learner = SACAlgorithm.build(SPEC, config, seed=3).to("cuda")
        source = PrioritizedReplay(1000, 5, 3, device="cuda", horizon=1000)
        arrays = make_arrays(500)
        names = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")
        source.add(*[arrays[name] * np.float32(0.01) for name in names])
        engines.append(Engine(learner, source, seed=1, device="cuda", mode=one))
        for _ in range(10):
            engines[-1].run(3)
            source.add(*[arrays[name][:1] for name in names])
    assert engines[1].mode == mode
    tables = [engine.sampler.priorities for engine in engines]  # type: ignore[attr-defined]
    assert (tables[0].values != 1.0).sum() > 300
    torch.testing.assert_close(tables[0].values, tables[1].values, rtol=1e-2, atol=1e-3)
    torch.testing.assert_close(tables[0].largest, tables[1].largest, rtol=1e-2, atol=1e-3)
    states = [engine.generator.get_state() for engine in engines]
    assert torch.equal(*states)


def test_resume_with_priorities_is_exact_in_a_graph(tmp_path: Path) -> None:
    config = {
        "algo": "sac",
        "env_id": "Pendulum-v1",
        "total_timesteps": 160,
        "device": "cuda",
        "eval_episodes": 0,
        "checkpoint_interval": 80,
        "algo_kwargs": {
            **{"hidden_sizes": [16], "batch_size": 16, "learning_starts": 30, "n_step": 2},
            **{"engine": "cuda_graph", "replay": "prioritized", "buffer_capacity": 100},
        },
    }
    whole = train(config | {"output_dir": str(tmp_path / "whole")})
    with pytest.raises(CrashError):
        train(config | {"output_dir": str(tmp_path / "cut")}, callbacks=[CrashAt(120)])
    assert_same_run(whole, resume(next((tmp_path / "cut").iterdir())))


def test_update_equals_the_cpu() -> None:
    config = SACConfig(hidden_sizes=(32, 32), batch_size=64)
    learners = [SACAlgorithm.build(SPEC, config, seed=0).double().to(d) for d in ("cpu", "cuda")]
    g = torch.Generator().manual_seed(0)
    kind = torch.float64
    for _ in range(20):
        batch = Batch(
            torch.randn(64, 5, generator=g, dtype=kind),
            torch.rand(64, 3, generator=g, dtype=kind) * 2 - 1,
            torch.randn(64, generator=g, dtype=kind),
            torch.randn(64, 5, generator=g, dtype=kind),
            (torch.rand(64, generator=g, dtype=kind) < 0.2).double(),
        )
        noise = draw_noise(learners[0].noise(64), g, kind)
        learners[0].update(batch, noise)
        learners[1].update(batch.map(torch.Tensor.cuda), {k: v.cuda() for k, v in noise.items()})
    for name, tensor in learners[0].state_dict().items():
        other = learners[1].state_dict()[name].cpu()
        torch.testing.assert_close(other, tensor, rtol=1e-6, atol=1e-7)


def test_train_resume_evaluate(tmp_path: Path) -> None:
    config = {
        "algo": "sac",
        "env_id": "Pendulum-v1",
        "total_timesteps": 120,
        "output_dir": str(tmp_path),
        "device": "cuda",
        "eval_episodes": 1,
        "checkpoint_interval": 40,
        "log_interval": 20,
        "algo_kwargs": {"hidden_sizes": [16], "batch_size": 16, "learning_starts": 30},
    }
    result = train(config)
    further = resume(result.run_dir, ["total_timesteps=160"])
    assert further.metrics["step"] == 160
    assert evaluate_checkpoint(further.run_dir, episodes=1)["eval_episodes"] == 1
    moved = resume(result.run_dir, ["total_timesteps=200", "device=cpu"])
    assert moved.metrics["step"] == 200


@pytest.mark.parametrize("engine", ["eager", "cuda_graph"])
def test_goal_relabeling_on_the_host_with_learning_on_the_gpu(tmp_path: Path, engine: str) -> None:
    config = {
        "algo": "her",
        "env_id": "rl_training/PointGoal-v0",
        "total_timesteps": 160,
        "output_dir": str(tmp_path),
        "device": "cuda",
        "eval_episodes": 1,
        "checkpoint_interval": 80,
        "log_interval": 40,
        "algo_kwargs": {"hidden_sizes": [16], "batch_size": 16, "learning_starts": 60}
        | {"engine": engine},
    }
    result = train(config)
    assert (result.metrics["step"], result.metrics["updates"]) == (160, 100)
    assert resume(result.run_dir, ["total_timesteps=200"]).metrics["step"] == 200


@pytest.mark.parametrize("mode", ["compiled", "cuda_graph"])
@pytest.mark.parametrize("learner", LEARNERS)
def test_modes_equal_eager(learner: type[SACAlgorithm], mode: str) -> None:
    """200 updates in float64, in several calls with a decaying learning rate."""
    fast = make_engine(learner, mode, device="cuda")
    assert_close(make_engine(learner, "eager", device="cuda"), fast, 1e-9)
    assert fast.mode == mode


@pytest.mark.parametrize("mode", ["compiled", "cuda_graph"])
def test_float32_drift_is_bounded(mode: str) -> None:
    def up(x: torch.Tensor) -> torch.Tensor:
        return torch.nextafter(x, torch.full_like(x, torch.inf))

    torch.set_float32_matmul_precision("highest")
    kind: Any = {"dtype": torch.float32, "device": "cuda"}
    eager, fast = (make_engine(SACAlgorithm, m, **kind) for m in ("eager", mode))
    moved = make_engine(SACAlgorithm, "eager", change=up, **kind)
    for engine in (eager, fast, moved):
        run_scheduled(engine)
    assert fast.mode == mode
    assert 0 < drift(eager, fast) <= drift(eager, moved)


def gpu_config(folder: Path, engine: str) -> dict[str, Any]:
    return {
        "algo": "sac",
        "env_id": "HalfCheetah-v5",
        "total_timesteps": 300,
        "output_dir": str(folder),
        "device": "cuda",
        "eval_episodes": 0,
        "checkpoint_interval": 60,
        "log_interval": 20,
        "algo_kwargs": {
            "hidden_sizes": [32, 32],
            "batch_size": 32,
            "learning_starts": 50,
            "engine": engine,
            "tensorboard": False,
        },
    }


@pytest.mark.parametrize("engine", ["eager", "compiled", "cuda_graph"])
def test_resume_is_exact(tmp_path: Path, engine: str) -> None:
    """A run stopped inside an episode and resumed equals an uninterrupted one."""
    whole = train(gpu_config(tmp_path / "whole", engine))
    for step in (130, 270):
        config = gpu_config(tmp_path / str(step), engine)
        with pytest.raises(CrashError):
            train(config, callbacks=[CrashAt(step)])
        assert_same_run(whole, resume(next((tmp_path / str(step)).iterdir())))


def test_running_statistics_resume_exactly_with_graphs(tmp_path: Path) -> None:
    """They are updated in place on the device, where captured acting and sampling read them."""
    keys = {"normalize_observations": True, "normalize_rewards": True}
    configs = [gpu_config(tmp_path / name, "cuda_graph") for name in ("whole", "cut")]
    for config in configs:
        config["algo_kwargs"] |= keys
    whole = train(configs[0])
    with pytest.raises(CrashError):
        train(configs[1], callbacks=[CrashAt(270)])
    assert_same_run(whole, resume(next((tmp_path / "cut").iterdir())))


def test_out_of_memory_during_capture_falls_back(tmp_path: Path) -> None:
    """The allocator gets no additional memory from the first capture on."""

    class Full(Callback):
        def on_message(self, session: Session, text: str) -> None:
            if "ready" in text:
                torch.cuda.empty_cache()
                held = torch.cuda.memory_reserved()
                torch.cuda.set_per_process_memory_fraction(
                    held / torch.cuda.get_device_properties(0).total_memory
                )

    try:
        result = train(gpu_config(tmp_path, "cuda_graph"), callbacks=[Full()])
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert result.metrics["step"] == 300
    assert open_checkpoint(result.checkpoint_path).manifest["engine"] == "compiled"


def test_replay_that_does_not_fit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the estimate, or by the allocator if another process has taken the memory."""
    config = gpu_config(tmp_path, "eager")
    config["algo_kwargs"]["buffer_capacity"] = 10**9
    free = available_memory(torch.device("cuda"))
    assert 0 < free <= torch.cuda.get_device_properties(0).total_memory
    small = {"cuda": 2**30, "cpu": 2**60}
    monkeypatch.setattr(memory, "available_memory", lambda device: small[device.type])
    with pytest.raises(ConfigError, match=r"the replay would need at least .* cuda has 1\.0 GiB"):
        train(config)
    monkeypatch.setattr(memory, "available_memory", lambda _device: 2**60)
    torch.cuda.set_per_process_memory_fraction(0.05)
    try:
        with pytest.raises(ConfigError, match="buffer_capacity = 1000000000: the replay does not"):
            train(config)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert not (tmp_path / "runs").exists() or not [*(tmp_path / "runs").iterdir()]


@pytest.mark.parametrize("sampling", ["replacement", "epochs"])
def test_partial_blocks_equal_whole_blocks(sampling: str) -> None:
    """Calls that end inside a block, saved and restored there, sample the same rows."""
    config = SACConfig(hidden_sizes=(16, 16), batch_size=16, learning_rate=1e-3)
    ends = []
    for calls in ([120], [7, 13, 45, 1, 54], [20, 33, 67]):
        dataset = TransitionDataset.from_dict(make_arrays(450), device="cuda")
        dataset.rows /= 450.0
        sampler = EpochSampler(dataset) if sampling == "epochs" else dataset
        learner = SACAlgorithm.build(SPEC, config, seed=3).cuda()
        engine = Engine(learner, sampler, seed=1, device="cuda", mode="cuda_graph")
        for count in calls:
            engine.run(count)
            engine.load_state_dict(engine.state_dict())
        assert engine.mode == "cuda_graph"
        ends.append((learner.state_dict(), engine.generator.get_state()))
    for state, generator in ends[1:]:
        assert torch.equal(generator, ends[0][1])
        for name, tensor in ends[0][0].items():
            torch.testing.assert_close(state[name], tensor, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["eager", "compiled", "cuda_graph"])
def test_fitted_q_evaluation_finds_the_known_value(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The value of `test_fqe.py`, in every mode."""
    engines: list[Engine] = []

    def make(*args: Any, **kwargs: Any) -> Engine:
        engines.append(Engine(*args, **kwargs | {"mode": mode}))
        return engines[0]

    monkeypatch.setattr(off_policy_evaluation, "Engine", make)
    policy = LinearPolicy(EnvSpec(LENGTH, 1, (-1.0,), (1.0,))).to("cuda")
    sizes: Any = {"hidden_sizes": (32, 32), "batch_size": 64, "learning_rate": 2e-3}
    config = FQEConfig(gamma=GAMMA, tau=0.05, **sizes)
    result = off_policy_evaluation.fitted_q_evaluation(
        policy, walk(60), config=config, updates=1_500, seed=1
    )
    assert engines[0].mode == mode
    assert {value.device.type for value in engines[0].algorithm.state_dict().values()} == {"cuda"}
    assert result["fqe_value"] == pytest.approx(exact_value(), abs=0.03)
    assert result["fqe_critic_spread"] < 0.05
    assert result["fqe_loss"] < 1e-3


@pytest.mark.parametrize("algo", ["bc", "cql", "dqn"])
def test_fqe_of_a_checkpoint(
    algo: str, small_config: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """On the GPU and on the host: the same data and similar estimates."""
    config = small_config(algo=algo, total_timesteps=40)
    dataset = None
    if algo == "dqn":  # discrete actions, and an online run with a dataset
        dataset = str(tmp_path / "cartpole.npz")
        write_arrays(record_random("CartPole-v1", {}, 300, 0), Path(dataset))
    else:
        config["algo_kwargs"]["normalize_states"] = True
    run = train(config).run_dir
    host, gpu = (
        evaluate_checkpoint(run, fqe=True, fqe_updates=40, dataset=dataset, device=device)
        for device in ("cpu", "cuda")
    )
    for key in ("fqe_return_mean_data", "fqe_episodes", "fqe_updates"):
        assert gpu[key] == pytest.approx(host[key])
    assert gpu["fqe_value"] == pytest.approx(host["fqe_value"], rel=0.1)
    assert np.isfinite(gpu["fqe_loss"])


@pytest.mark.parametrize("mode", ["compiled", "cuda_graph"])
def test_summing_gradients_in_chunks_is_equal(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """CQL at its default sizes, with gradients summed in chunks and in one product per layer."""

    def learned(mode: Any, many_rows: int) -> Any:
        monkeypatch.setattr("rl_training.models.kernels.products.MANY_ROWS", many_rows)
        algorithm = CQLAlgorithm.build(SPEC, CQLConfig(hidden_sizes=(32, 32))).double().to("cuda")
        source = Cast(replay("cuda"), torch.float64)
        Engine(algorithm, source, seed=0, device="cuda", mode=mode).run(20)
        return algorithm.model.critic.flat.detach()

    plain = learned("eager", 1_000_000)
    torch.testing.assert_close(learned(mode, 4_096), plain, rtol=1e-9, atol=1e-9)


# --- Extensions: an algorithm and networks from outside the package -----------------


@pytest.fixture
def crossq() -> Iterator[Any]:
    """Register the learner of `examples/crossq.py` for the duration of a test."""
    yield run_path(str(Path(__file__).parents[2] / "examples" / "crossq.py"))["CrossQ"]
    del registry.REGISTRY["my_crossq"], registry._CUSTOM["my_crossq"]


@pytest.fixture
def _own_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two modules; the second has buffers that are updated in training."""
    monkeypatch.setattr(network_config, "_FACTORIES", {})
    register_network("gated", Gated)
    register_network("normed", Normed)


def engines_of(learner: Any, config: Any, mode: EngineMode, device: str = "cuda") -> list[Engine]:
    """Return an eager engine and one of the given mode, with equal learners in float64."""
    return [
        Engine(
            learner.build(SPEC, config, seed=3).double().to(device),
            Cast(replay(device), torch.float64),
            seed=1,
            device=device,
            mode=each,
        )
        for each in ("eager", mode)
    ]


@pytest.mark.parametrize("mode", ["compiled", "cuda_graph"])
def test_crossq_equals_eager(crossq: Any, mode: EngineMode) -> None:
    """Running statistics change inside the graph; renormalization starts at update 50 of 200."""
    networks = {"all": {"renorm_warmup": 50}}
    sizes = {"hidden_sizes": (16,), "critic_hidden_sizes": (16, 8), "batch_size": 32}
    eager, fast = engines_of(crossq, crossq.config_class(networks=networks, **sizes), mode)
    assert_close(eager, fast, 1e-8)
    assert fast.mode == mode
    learner: Any = fast.algorithm
    assert learner.model.critic.batches.max() == 200


@pytest.mark.parametrize("mode", ["compiled", "cuda_graph"])
@pytest.mark.usefixtures("_own_networks")
def test_custom_network_equals_eager(mode: EngineMode) -> None:
    networks = {"all": {"trunk": "gated", "width": 12}}
    config = SACConfig(networks=networks, batch_size=32, learning_rate=1e-3)
    eager, fast = engines_of(SACAlgorithm, config, mode)
    assert_close(eager, fast, 1e-9)
    assert fast.mode == mode


def assert_graphs_resume_exactly(folder: Path, algo: str, **kwargs: Any) -> None:
    configs = [gpu_config(folder / name, "cuda_graph") for name in ("whole", "cut")]
    for config in configs:
        config["algo"] = algo
        config["algo_kwargs"] |= kwargs
        if "networks" in kwargs:
            del config["algo_kwargs"]["hidden_sizes"]
    whole = train(configs[0])
    with pytest.raises(CrashError):
        train(configs[1], callbacks=[CrashAt(270)])
    assert_same_run(whole, resume(next((folder / "cut").iterdir())))


@pytest.mark.filterwarnings("error:the cuda_graph engine")
@pytest.mark.usefixtures("crossq")
def test_crossq_resumes_exactly_with_graphs(tmp_path: Path) -> None:
    assert_graphs_resume_exactly(tmp_path, "my_crossq", critic_hidden_sizes=[16, 8])


@pytest.mark.filterwarnings("error:the cuda_graph engine")
@pytest.mark.parametrize("trunk", ["gated", "normed"])
@pytest.mark.usefixtures("_own_networks")
def test_custom_networks_resume_exactly_with_graphs(tmp_path: Path, trunk: str) -> None:
    networks = {"all": {"trunk": trunk, "width": 12}}
    assert_graphs_resume_exactly(tmp_path, "sac", networks=networks)


# --- Populations ------------------------------------------------------------------------


def test_numbers_of_a_population_are_those_of_generators() -> None:
    assert matches_generators(torch.device("cuda"))


def make_members(count: int, dtype: torch.dtype = torch.float32) -> list[Engine]:
    """Return engines with replays of different sizes on the GPU."""
    config = SACConfig(hidden_sizes=(32, 32), batch_size=64)
    engines = []
    for seed in range(count):
        buffer = ReplayBuffer(500, 5, 3, device="cuda")
        arrays = make_arrays(300 + seed)
        names = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")
        buffer.add(*[arrays[name] * np.float32(0.01) for name in names])
        learner = SACAlgorithm.build(SPEC, config, seed=seed).to("cuda", dtype)
        sampler = Cast(buffer, dtype) if dtype == torch.float64 else buffer
        engines.append(Engine(learner, sampler, seed=seed, device="cuda", mode="cuda_graph"))
    return engines


def test_members_draw_what_single_runs_draw() -> None:
    """Equal rows, and noise that differs by rounding only; the generators end in equal states."""
    population, singles = PopulationEngine(make_members(3)), make_members(3)
    for count in (1, 1, 20, 3):
        blocks = population._draw(count)
        for row, single in enumerate(singles):
            for (batch, noise), (own, own_noise) in zip(blocks, single._draw(count), strict=True):
                for found, expected in zip(batch.tensors(), own.tensors(), strict=True):
                    assert torch.equal(found[row], expected)
                for key, expected in own_noise.items():
                    torch.testing.assert_close(noise[key][row], expected, rtol=1e-5, atol=1e-5)
            states = population.members[row].generator, single.generator
            assert torch.equal(*(state.get_state() for state in states))


def test_members_equal_single_runs_on_a_gpu() -> None:
    """200 updates in float64, in which members draw with their own generators."""
    population, singles = (make_members(3, torch.float64) for _ in range(2))
    together = PopulationEngine(population)
    for count in (1, 2, 37, 160):
        together.run(count)
        for single in singles:
            single.run(count)
    for member, single in zip(population, singles, strict=True):
        for name, tensor in single.algorithm.state_dict().items():
            found = member.algorithm.state_dict()[name]
            torch.testing.assert_close(found, tensor, rtol=1e-9, atol=1e-9)


def test_a_population_continues_bit_for_bit_on_a_gpu() -> None:
    """Members that rest, members that have left, and a new process draw the same numbers."""

    def tensors(engines: list[Engine]) -> list[torch.Tensor]:
        return [x.clone() for each in engines for x in each.algorithm.state_dict().values()]

    whole, parts = make_members(3), make_members(3)
    population = PopulationEngine(whole)
    population.run(60)
    first = PopulationEngine(parts)
    first.run(21)
    first.run(9, parts[:2])
    saved = [(each.state_dict(), each.algorithm.state_dict()) for each in parts]
    saved = [(own, {key: x.clone() for key, x in state.items()}) for own, state in saved]
    again = make_members(3)
    second = PopulationEngine(again)
    for engine, (own, state) in zip(again, saved, strict=True):
        engine.load_state_dict(own)
        engine.algorithm.load_state_dict(state)
    second.run(9, again[2:])
    second.run(30)
    assert all(map(torch.equal, tensors(again), tensors(whole)))

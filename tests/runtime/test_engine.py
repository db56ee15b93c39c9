"""The engine: every mode equals eager updates, or falls back with a warning."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl_training import resume, train
from rl_training.algorithms.rebrac import ReBRACAlgorithm
from rl_training.algorithms.registry import AlgorithmEntry
from rl_training.algorithms.sac import SACAlgorithm
from rl_training.data import ReplayBuffer
from rl_training.errors import ConfigError
from rl_training.runtime import compilation, engine
from rl_training.runtime.engine import BLOCK, Engine
from rl_training.runtime.engine_choice import (
    COMPILE_FROM_UPDATES,
    GRAPH_FROM_UPDATES,
    EngineMode,
    choose_engine,
)
from rl_training.types import Batch, EnvSpec, Sampler
from tests.comparing import CrashAt, CrashError, assert_same_run
from tests.conftest import CASES, TINY, case_id
from tests.faults.zygote import shared_zygote
from tests.toys import (
    DelayedSAC,
    GamblingSAC,
    HardCopySAC,
    HoardingSAC,
    PeekingSAC,
    SubsetSAC,
)

Config = Callable[..., dict[str, Any]]
SPEC = EnvSpec(5, 3, (-1.0,) * 3, (1.0,) * 3)
LEARNERS: list[Any] = [SACAlgorithm, DelayedSAC, SubsetSAC, HardCopySAC, ReBRACAlgorithm]
CALLS = [
    1,
    1,
    1,
    7,
    1,
    45,
    20,
    1,
    1,
    3,
    60,
    19,
    40,
]  # 200 updates, split like those of a training loop


class Cast(Sampler):
    """A replay whose batches have another type."""

    def __init__(self, source: ReplayBuffer, dtype: torch.dtype) -> None:
        self.source, self.dtype = source, dtype

    def __len__(self) -> int:
        return len(self.source)

    def prepare(self, batch_size: int, generator: torch.Generator, updates: int = 1) -> None:
        self.source.prepare(batch_size, generator, updates)

    def gather(self, batch_size: int, generator: torch.Generator, updates: int = 1) -> Batch:
        batch = self.source.gather(batch_size, generator, updates)
        return batch.map(lambda x: x.to(self.dtype))


def replay(device: str = "cpu", rows: int = 500, spec: EnvSpec = SPEC) -> ReplayBuffer:
    rng = np.random.default_rng(0)
    buffer = ReplayBuffer(1000, 5, spec.action_width, device=device)
    low, high = (0, spec.action_dim) if spec.discrete else (-1, 1)
    actions = rng.uniform(low, high, (rows, spec.action_width)).astype(np.float32)
    buffer.add(
        rng.normal(size=(rows, 5)).astype(np.float32),
        np.floor(actions) if spec.discrete else actions,
        rng.normal(size=rows).astype(np.float32),
        rng.normal(size=(rows, 5)).astype(np.float32),
        rng.random(rows) < 0.1,
        np.zeros(rows, bool),
    )
    return buffer


def make_engine(
    learner: type[SACAlgorithm],
    mode: Any,
    dtype: torch.dtype = torch.float64,
    device: str = "cpu",
    change: Callable[[torch.Tensor], torch.Tensor] | None = None,
    **options: Any,
) -> Engine:
    config: Any = learner.config_class(hidden_sizes=(16, 16), batch_size=32, learning_rate=1e-3)
    algorithm = learner.build(SPEC, config, seed=3).to(dtype).to(device)
    if change is not None:
        for parameter in algorithm.parameters():
            parameter.data.copy_(change(parameter.data))
        algorithm.model.target.copy_(algorithm.model.critic.flat.detach())
    buffer = replay(device)
    buffer.supply(algorithm.fields())
    return Engine(algorithm, Cast(buffer, dtype), seed=1, device=device, mode=mode, **options)


def run_scheduled(running: Engine) -> dict[str, float]:
    """Run 200 updates in several calls with a decaying learning rate."""
    for index, count in enumerate(CALLS):
        running.algorithm.scale_learning_rates(1.0 - index / 20)
        running.run(count)
    assert running.updates == 200
    return running.pop_metrics()


def distance(one: Engine, other: Engine) -> float:
    """Return the largest difference between the states of two learners."""
    states = one.algorithm.state_dict(), other.algorithm.state_dict()
    return max(float((a - states[1][k]).abs().max()) for k, a in states[0].items())


def drift(one: Engine, other: Engine) -> float:
    """Return the distance between the weights of two learners."""
    states = one.algorithm.state_dict(), other.algorithm.state_dict()
    names = [name for name in states[0] if name.startswith("model.")]
    squares = [float((states[0][k] - states[1][k]).square().sum()) for k in names]
    return math.sqrt(sum(squares))


def assert_close(one: Engine, other: Engine, tolerance: float) -> None:
    metrics = run_scheduled(one), run_scheduled(other)
    assert distance(one, other) < tolerance
    assert metrics[0] == pytest.approx(metrics[1], rel=1e-7, abs=1e-9)
    assert torch.equal(one.generator.get_state(), other.generator.get_state())


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.usefixtures("without_compiler")
def test_traced_updates_equal_eager_ones(learner: type[SACAlgorithm]) -> None:
    """Only the trace, without code generation."""
    traced = make_engine(learner, "compiled")
    assert_close(make_engine(learner, "eager"), traced, 1e-9)
    assert traced.mode == "compiled"


@pytest.fixture(params=["functional", pytest.param("aot_eager", marks=pytest.mark.slow)])
def _traced(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compilers functionalize in-place writes first, which fails if tensors overlap.

    The first backend does this at each call; the second traces it, which takes seconds.
    """
    if request.param == "functional":
        functional = torch.func.functionalize
        monkeypatch.setattr(
            compilation, "compile_program", lambda program, inputs: functional(program)
        )
    monkeypatch.setattr(compilation, "BACKEND", request.param)


@pytest.mark.parametrize(("entry", "kind"), CASES, ids=case_id)
@pytest.mark.usefixtures("_traced")
def test_traced_updates_of_every_algorithm_equal_eager_ones(
    entry: AlgorithmEntry, kind: str
) -> None:
    own = TINY.get(entry.name, {}) | ({"target_update_interval": 7} if entry.name == "dqn" else {})
    config = entry.config_class()(**{"hidden_sizes": (16, 16), "batch_size": 32} | own)
    spec = EnvSpec(5, 3, discrete=True) if kind == "discrete" else SPEC
    buffer = replay(spec=spec)
    buffer.supply(entry.learner_class().declared_fields(config))
    source = Cast(buffer, torch.float64)
    engines, metrics = [], []
    modes: tuple[EngineMode, ...] = ("eager", "compiled")
    for mode in modes:
        learner = entry.learner_class().build(spec, config, seed=3).double()
        engines.append(Engine(learner, source, seed=1, mode=mode))
        for count in (1, 2, 37):
            engines[-1].run(count)
        metrics.append(engines[-1].pop_metrics())
    assert engines[1].mode == "compiled"
    assert distance(engines[0], engines[1]) < 1e-9
    assert metrics[0] == pytest.approx(metrics[1], rel=1e-7, abs=1e-9)


@pytest.mark.parametrize(
    "learner",
    [
        SACAlgorithm,
        *(pytest.param(x, marks=pytest.mark.slow) for x in LEARNERS[1:]),
    ],
)
def test_compiled_updates_equal_eager_ones(learner: type[SACAlgorithm]) -> None:
    compiled = make_engine(learner, "compiled")
    assert_close(make_engine(learner, "eager"), compiled, 1e-9)
    assert compiled.mode == "compiled"


def test_compiled_float32_drift_is_bounded() -> None:
    """The drift is at most that of eager updates after a change in the last bit."""
    up = make_engine(
        SACAlgorithm,
        "eager",
        torch.float32,
        change=lambda x: torch.nextafter(x, torch.full_like(x, torch.inf)),
    )
    engines = [make_engine(SACAlgorithm, mode, torch.float32) for mode in ("eager", "compiled")]
    for running in (up, *engines):
        run_scheduled(running)
    eager, compiled = engines
    assert 0 < drift(eager, compiled) <= drift(eager, up)


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.usefixtures("without_compiler")
def test_each_pattern_is_captured_once(
    learner: type[SACAlgorithm], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduling of graphs, with plain calls instead of captures."""
    recorded = []

    def pretend(work: Callable[[], None], generator: torch.Generator) -> Callable[[], None]:
        recorded.append(work)
        return work

    monkeypatch.setattr(engine, "capture", pretend)
    graphs = make_engine(learner, "cuda_graph")
    assert_close(make_engine(learner, "eager"), graphs, 1e-9)
    patterns = set()
    updates = 0
    for call in CALLS:
        while call:
            count = min(call, BLOCK)
            if updates:  # the first block compiles and runs without a graph
                patterns.add(tuple(graphs.algorithm.due(updates + i) for i in range(count)))
            updates += count
            call -= count
    assert len(recorded) == len(patterns)


@pytest.mark.usefixtures("without_compiler")
def test_fallback_if_graphs_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """If memory runs out during a capture, this block and all others still run once."""
    room = 2

    def capture(work: Callable[[], None], generator: torch.Generator) -> Callable[[], None]:
        nonlocal room
        room -= 1
        if room < 0:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return work

    monkeypatch.setattr(engine, "capture", capture)
    said: list[str] = []
    graphs = make_engine(DelayedSAC, "cuda_graph", warn=said.append)
    assert_close(make_engine(DelayedSAC, "eager"), graphs, 1e-9)
    assert said == [
        "the cuda_graph engine cannot be used because there is not enough GPU memory for its "
        "graphs: this run uses compiled updates."
    ]
    assert graphs.mode == "compiled"


@pytest.mark.parametrize(
    ("learner", "reason"),
    [
        (PeekingSAC, "the value of a tensor"),
        (GamblingSAC, "random numbers"),
        (HoardingSAC, "neither a parameter nor a buffer"),
    ],
)
def test_unsafe_updates_run_eagerly_with_a_warning(
    learner: type[SACAlgorithm], reason: str
) -> None:
    torch.manual_seed(0)
    running = make_engine(learner, "compiled")
    with pytest.warns(UserWarning, match=f"compiled engine cannot be used.*{reason}"):
        running.run(5)
    assert running.mode == "eager"
    assert running.updates == 5
    torch.manual_seed(0)
    eager = make_engine(learner, "eager")
    eager.run(5)
    assert distance(running, eager) == 0


def test_missing_compiler_falls_back_with_a_warning(small_config: Config, tmp_path: Path) -> None:
    """Train in a process whose C++ compiler does not work."""
    config = small_config(algo="bc", total_timesteps=60, algo_kwargs={"engine": "compiled"})
    code = f"""
import os, rl_training, torch._inductor.config
os.environ["TORCHINDUCTOR_CACHE_DIR"] = {str(tmp_path / "cache")!r}
torch._inductor.config.cpp.cxx = (None, "/bin/false")  # as CXX=/bin/false would
rl_training.train({config!r})
"""
    done = shared_zygote().run(code=code)
    assert done.status == 0, done.err
    assert "Warning: the compiled engine cannot be used because the compiler failed" in done.err
    manifest = next(tmp_path.glob("runs/*/checkpoints/step_000000060/manifest.json"))
    assert json.loads(manifest.read_text())["engine"] == "eager"


@pytest.mark.parametrize("algo", ["sac", "dqn", "her"])
@pytest.mark.parametrize("compiler", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_compiled_run_resumes_bit_for_bit(
    small_config: Config, tmp_path: Path, request: pytest.FixtureRequest, compiler: bool, algo: str
) -> None:
    if not compiler:
        request.getfixturevalue("without_compiler")
    config = small_config(algo=algo, algo_kwargs={"engine": "compiled"})
    whole = train(config)
    with pytest.raises(CrashError):
        train(config | {"output_dir": str(tmp_path / "cut")}, callbacks=[CrashAt(75)])
    cut = resume(next((tmp_path / "cut").iterdir()))
    assert_same_run(whole, cut)
    manifest = json.loads((cut.checkpoint_path / "manifest.json").read_text())
    assert manifest["engine"] == "compiled"


def test_longer_budget_keeps_the_engine(
    small_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`auto` chooses once, so that a continued run has the same results."""
    monkeypatch.setattr("rl_training.runtime.engine_choice.COMPILE_FROM_UPDATES", 100)
    result = train(small_config(total_timesteps=60))
    further = resume(result.run_dir, ["total_timesteps=140"])
    manifest = json.loads((further.checkpoint_path / "manifest.json").read_text())
    assert manifest["engine"] == "eager"


def test_auto_chooses_by_device_and_budget() -> None:
    assert choose_engine("auto", "cpu", COMPILE_FROM_UPDATES - 1) == "eager"
    assert choose_engine("auto", "cpu", COMPILE_FROM_UPDATES) == "compiled"
    assert choose_engine("auto", "cuda", GRAPH_FROM_UPDATES - 1) == "eager"
    assert choose_engine("auto", "cuda", GRAPH_FROM_UPDATES) == "cuda_graph"
    assert choose_engine("auto", "mps", COMPILE_FROM_UPDATES) == "eager"
    assert choose_engine("compiled", "cpu", 1) == "compiled"


def test_graphs_without_a_gpu_are_refused(small_config: Config, tmp_path: Path) -> None:
    config = small_config(algo_kwargs={"engine": "cuda_graph"})
    with pytest.raises(ConfigError, match="requires a CUDA device"):
        train(config)
    assert not list(tmp_path.iterdir())

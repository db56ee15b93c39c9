"""Feedback from updates to the sampler in every engine, and runs with priorities."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl_training import CheckpointError, ConfigError, finetune, register_algorithm, resume, train
from rl_training.algorithms.registry import REGISTRY
from rl_training.algorithms.sac import SACAlgorithm, SACConfig
from rl_training.boundary import json_codec
from rl_training.data import PrioritizedReplay, ReplayBuffer
from rl_training.runtime import engine
from rl_training.runtime.engine import Engine
from rl_training.runtime.logging import read_metrics
from rl_training.types import TD_ERROR, Batch, EnvSpec, Metrics
from tests.comparing import CrashAt, CrashError, assert_same_run
from tests.hostile.forging import change_state
from tests.toys import DelayedSAC

Config = Callable[..., dict[str, Any]]
SPEC = EnvSpec(5, 3, (-1.0,) * 3, (1.0,) * 3)
PRIORITIZED: dict[str, Any] = {"replay": "prioritized"}


def replay(kind: type[ReplayBuffer] = PrioritizedReplay, rows: int = 500) -> ReplayBuffer:
    rng = np.random.default_rng(0)
    buffer = kind(1000, 5, 3)
    numbers = rng.normal(size=(rows, 14)).astype(np.float32)
    actions = rng.uniform(-1, 1, (rows, 3)).astype(np.float32)
    ended = rng.random(rows) < 0.1
    buffer.add(numbers[:, :5], actions, numbers[:, 5], numbers[:, 6:11], ended, ended & False)
    return buffer


def make_engine(
    mode: Any, learner: type[SACAlgorithm] = SACAlgorithm, source: ReplayBuffer | None = None
) -> Engine:
    config = SACConfig(hidden_sizes=(16, 16), batch_size=32, learning_rate=1e-3)
    algorithm = learner.build(SPEC, config, seed=3)
    return Engine(algorithm, source or replay(), seed=1, mode=mode)


def priorities(running: Engine) -> torch.Tensor:
    assert isinstance(running.sampler, PrioritizedReplay)
    return running.sampler.priorities.values


class Recorder(ReplayBuffer):
    """A replay whose batches have weights, and which stores the feedback."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.supply(("weights",))
        self.given: list[Metrics] = []

    def feedback(self, batch: Batch, values: Metrics) -> None:
        self.given.append({key: value.clone() for key, value in values.items()})


@pytest.mark.usefixtures("without_compiler")
@pytest.mark.parametrize("learner", [SACAlgorithm, DelayedSAC])
def test_every_engine_samples_the_same_rows(
    learner: type[SACAlgorithm], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eager, traced, and as graphs with plain calls instead of captures."""
    monkeypatch.setattr(engine, "capture", lambda work, _: work)
    running = [make_engine(mode, learner) for mode in ("eager", "compiled", "cuda_graph")]
    for one in running:
        for count in (1, 7, 45, 20):
            one.run(count)
    assert (priorities(running[0]) != 1.0).sum() > 300
    metrics = [list(one.pop_metrics()) for one in running]
    assert metrics[0] == metrics[1] == metrics[2]
    for other in running[1:]:
        assert other._steps, "it fell back to eager updates"
        torch.testing.assert_close(priorities(running[0]), priorities(other), rtol=1e-3, atol=1e-4)
        assert torch.equal(running[0].generator.get_state(), other.generator.get_state())


@pytest.mark.slow
def test_compiled_feedback_equals_eager() -> None:
    eager, compiled = make_engine("eager"), make_engine("compiled")
    for one in (eager, compiled):
        one.run(60)
    assert compiled.mode == "compiled"
    torch.testing.assert_close(priorities(eager), priorities(compiled), rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("without_compiler")
@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_sample_values_reach_the_sampler_but_not_the_metrics(mode: str) -> None:
    source = replay(Recorder)
    assert isinstance(source, Recorder)
    running = make_engine(mode, source=source)
    running.run(25)
    assert [list(values) for values in source.given] == [[TD_ERROR]] * 25
    assert all(values[TD_ERROR].shape == (32,) for values in source.given)
    assert not [key for key in running.state_dict()["sums"] if key.startswith("sample/")]
    assert not [key for key in running.pop_metrics() if key.startswith("sample/")]


@pytest.mark.parametrize("mode", ["eager", "compiled"])
@pytest.mark.usefixtures("without_compiler")
def test_uniform_replay_needs_no_feedback(mode: str) -> None:
    class Strict(ReplayBuffer):
        def feedback(self, batch: Batch, values: Metrics) -> None:
            assert batch.extra == {}
            assert values == {}

    make_engine(mode, source=replay(Strict)).run(3)


# --- Whole runs -----------------------------------------------------------------


@pytest.mark.parametrize("algo", [name for name in REGISTRY if name != "her"])
def test_every_online_learner_trains_with_priorities(algo: str, small_config: Config) -> None:
    entry = REGISTRY[algo]
    if entry.mode == "offline":
        with pytest.raises(ConfigError, match="'replay' is not an option of"):
            train(small_config(algo=algo, algo_kwargs=PRIORITIZED))
        return
    result = train(small_config(algo=algo, algo_kwargs=PRIORITIZED))
    state = json.loads((result.checkpoint_path / "state.json").read_text())
    assert {"priorities", "largest_priority"} <= state["storage"].keys()
    assert not [key for row in read_metrics(result.run_dir) for key in row if "sample" in key]


@pytest.mark.parametrize("num_envs", [1, 3])
def test_resume_with_priorities_is_exact(
    num_envs: int, small_config: Config, tmp_path: Path
) -> None:
    """Killed in the middle, after the ring buffer of 100 rows has wrapped around."""
    kwargs = PRIORITIZED | {"buffer_capacity": 50}
    config = small_config(num_envs=num_envs, algo_kwargs=kwargs)
    whole = train(config)
    with pytest.raises(CrashError):
        train(config | {"output_dir": str(tmp_path / "cut")}, callbacks=[CrashAt(105)])
    assert_same_run(whole, resume(next((tmp_path / "cut").iterdir())))


def test_priorities_with_several_steps_and_normalization(
    small_config: Config, tmp_path: Path
) -> None:
    kwargs = PRIORITIZED | {"n_step": 3, "normalize_observations": True, "buffer_capacity": 50}
    config = small_config(num_envs=2, algo_kwargs=kwargs)
    whole = train(config)
    with pytest.raises(CrashError):
        train(config | {"output_dir": str(tmp_path / "cut")}, callbacks=[CrashAt(105)])
    assert_same_run(whole, resume(next((tmp_path / "cut").iterdir())))


def test_checkpoint_intervals_change_nothing(small_config: Config, tmp_path: Path) -> None:
    often = train(small_config(algo_kwargs=PRIORITIZED, checkpoint_interval=10))
    other = small_config(algo_kwargs=PRIORITIZED, output_dir=str(tmp_path / "other"))
    for name in ("model.safetensors", "state.json"):
        files = [run.checkpoint_path / name for run in (often, train(other))]
        assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize("value", [float("nan"), -1.0, 0.0])
def test_forged_priorities_raise_one_sentence(value: float, small_config: Config) -> None:
    result = train(small_config(algo_kwargs=PRIORITIZED))

    def forge(state: Any) -> Any:
        values = json_codec.decode(state["storage"]["priorities"])
        values[2] = value
        state["storage"]["priorities"] = json_codec.encode(values)
        return state

    change_state(result.run_dir, forge)
    with pytest.raises(CheckpointError, match="does not match this run: priorities") as e:
        resume(result.run_dir, ["total_timesteps=200"])
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("algo", ["iql", "cql", "edac", "awac", "td3_bc"])
def test_fine_tuning_with_priorities(algo: str, small_config: Config) -> None:
    source = train(small_config(algo=algo, total_timesteps=20))
    keys = ["total_timesteps=60", "learning_starts=20", "replay=prioritized"]
    result = finetune(source.run_dir, "Pendulum-v1", keys)
    state = json.loads((result.checkpoint_path / "state.json").read_text())
    assert (
        state["storage"]["largest_priority"] > 1.0
    )  # new rows have priority 1, so there was feedback


class OwnReplay(PrioritizedReplay):
    """A user's replay."""


class OwnReplaySAC(SACAlgorithm):
    """SAC with its own replay."""

    name = "own_replay_sac"
    replay_class = OwnReplay


class SilentSAC(SACAlgorithm):
    """SAC that does not return TD errors."""

    name = "silent_sac"

    def update(self, batch: Batch, noise: Any, due: Any = None) -> Metrics:
        metrics = super().update(batch, noise, due)
        return {key: value for key, value in metrics.items() if key != TD_ERROR}


@pytest.fixture
def _own() -> Iterator[None]:
    for learner in (OwnReplaySAC, SilentSAC):
        register_algorithm(learner)
    yield
    for learner in (OwnReplaySAC, SilentSAC):
        del REGISTRY[learner.name]


@pytest.mark.usefixtures("_own")
def test_algorithm_can_select_its_replay(small_config: Config) -> None:
    kinds = []

    class Look(CrashAt):
        def on_start(self, session: Any) -> None:
            kinds.append(type(session.collector.buffer))

    train(small_config(algo="own_replay_sac"), callbacks=[Look(1000)])
    assert kinds == [OwnReplay]
    with pytest.raises(ConfigError, match="uses its own replay"):
        train(small_config(algo="own_replay_sac", algo_kwargs=PRIORITIZED))


@pytest.mark.usefixtures("_own")
def test_learner_without_td_errors_is_refused(small_config: Config) -> None:
    with pytest.raises(ConfigError, match="sample/td_error"):
        train(small_config(algo="silent_sac", algo_kwargs=PRIORITIZED))

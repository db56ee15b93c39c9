"""Running normalization: statistics of the whole history, saved, resumed and applied everywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.torch import load_file

from rl_training import evaluate_checkpoint, finetune, predict_checkpoint, train
from rl_training.algorithms.sac import SACAlgorithm, SACConfig
from rl_training.data import MixedSampler, NormalizedSampler, TransitionDataset
from rl_training.errors import ConfigError
from rl_training.experiment.saved_run import SavedRun
from rl_training.normalization import OBSERVATION_CLIP, Normalization, RunningMoments
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.checkpointing import MODEL
from rl_training.runtime.evaluation import Validation
from rl_training.runtime.session import Session
from rl_training.types import Batch, EnvSpec
from tests.comparing import assert_same_run
from tests.runtime.test_exact_resume import crash_and_resume
from tests.scaled_envs import SCALED, register

Config = Callable[..., dict[str, Any]]
Array = npt.NDArray[np.float64]
BOTH = {"normalize_observations": True, "normalize_rewards": True}
BUFFERS = {
    *(f"{name}_moments.{part}" for name in ("obs", "return") for part in ("count", "mean")),
    *("obs_moments.squares", "return_moments.squares", "reward_scale"),
}
SPEC = EnvSpec(3, 1, (-1.0,), (1.0,))


# --- Moments ------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_moments_cover_the_whole_history(data: st.DataObject) -> None:
    """For any division into batches, and with constant entries."""
    sizes = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=6))
    numbers = st.floats(-1e6, 1e6, width=32)
    pieces = [data.draw(arrays.arrays(np.float32, (size, 3), elements=numbers)) for size in sizes]
    for piece in pieces:
        piece[:, 1] = 7.5
    moments = RunningMoments(3)
    for piece in pieces:
        moments.update(torch.from_numpy(piece))
    whole = np.concatenate(pieces).astype(np.float64)
    size = float(np.abs(whole).max())
    std = whole.std(axis=0)
    assert float(moments.count) == len(whole)
    np.testing.assert_allclose(moments.mean.numpy(), whole.mean(axis=0), atol=1e-9 * size)
    found = np.sqrt(moments.squares.numpy() / len(whole))
    np.testing.assert_allclose(found, std, atol=1e-6 * size)
    scale = moments.scale().numpy()
    assert scale[1] == 1.0
    clear = std > 1e-3 * max(size, 1.0)
    np.testing.assert_allclose(scale[clear], 1.0 / std[clear], rtol=1e-6)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_bounded_rewards_equal_the_formula(data: st.DataObject) -> None:
    """Rewards are divided by max(√(Var G + 1e-8), max |G| / bound) of the whole history."""
    numbers = st.floats(-100, 100, width=32)
    steps, bound = data.draw(st.integers(1, 6)), data.draw(st.floats(0.5, 20.0))
    returns = data.draw(arrays.arrays(np.float32, (steps, 2), elements=numbers))
    config = SACConfig(hidden_sizes=(4,), normalize_rewards=True, return_bound=bound)
    learner = SACAlgorithm.build(SPEC, config)
    for row in returns:
        learner.observe(torch.zeros(2, 3), torch.from_numpy(row))
    flat = returns.astype(np.float64).flatten()
    divisor = max(float(np.sqrt(flat.var() + 1e-8)), float(np.abs(flat).max()) / bound)
    assert float(learner.reward_scale) == pytest.approx(1 / divisor, rel=1e-4)
    assert np.abs(flat).max() * float(learner.reward_scale) <= bound * (1 + 1e-4)


def test_bounded_rewards_resume_exactly(small_config: Config) -> None:
    kwargs = {"normalize_rewards": True, "return_bound": 5.0}
    config = small_config(algo_kwargs=kwargs, num_envs=2)
    assert_same_run(train(config), crash_and_resume(config, 84, 98))


def test_a_bound_without_normalization_raises_an_error() -> None:
    with pytest.raises(ValueError, match="return_bound only applies to normalize_rewards=true"):
        SACConfig(return_bound=5.0)


def test_batch_is_normalized_and_clipped() -> None:
    obs = torch.tensor([[1.0, 50.0], [-1.0, -2.0]])
    one = torch.ones(2)
    extra = {"returns_to_go": 3 * one, "discounts": one}
    batch = Batch(obs, one, 4 * one, obs + 1, one, extra)
    place = torch.tensor([1.0, 0.0]), torch.tensor([2.0, 1.0])
    whole = Normalization(*place, 10.0, torch.tensor(0.25)).batch(batch)
    assert whole.obs.tolist() == [[0.0, 10.0], [-4.0, -2.0]]
    assert whole.next_obs.tolist() == [[2.0, 10.0], [-2.0, -1.0]]
    assert whole.rewards.tolist() == [1.0, 1.0]
    assert whole.returns_to_go.tolist() == [0.75, 0.75]
    assert whole.extra["discounts"].tolist() == [1.0, 1.0]
    fixed = Normalization(*place).batch(batch)  # as with `normalize_states`
    assert fixed.obs.tolist() == [[0.0, 50.0], [-4.0, -2.0]]
    assert fixed.rewards.tolist() == [4.0, 4.0]


# --- Runs ---------------------------------------------------------------------


class RecordEnd(Callback):
    """Records the collected rows, the learner and a batch."""

    def on_end(self, session: Session) -> None:
        assert session.collector is not None
        self.session, self.learner = session, session.algorithm
        self.rows = session.collector.buffer.segment(0).astype(np.float64)
        self.batch = session.engine.sampler.sample(32, torch.Generator().manual_seed(5))


def slow_returns(rewards: Array, ended: Any, gamma: float) -> list[float]:
    """Return the discounted return up to each step of its episode, by definition."""
    found = []
    for last in range(len(rewards)):
        first = max((i + 1 for i in range(last) if ended[i]), default=0)
        found.append(sum(gamma ** (last - i) * rewards[i] for i in range(first, last + 1)))
    return found


def assert_moments(moments: Any, values: Array) -> None:
    assert float(moments.count) == len(values)
    np.testing.assert_allclose(moments.mean.numpy(), values.mean(axis=0), rtol=1e-9, atol=1e-9)
    std = np.sqrt((moments.squares / moments.count).numpy())
    np.testing.assert_allclose(std, values.std(axis=0), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("num_envs", [1, 3])
def test_every_transition_is_counted_once(small_config: Config, num_envs: int) -> None:
    """Including random play before learning; each vector environment has a separate return."""
    recorder, config = RecordEnd(), small_config(num_envs=num_envs, algo_kwargs=BOTH)
    config["env_kwargs"] = {"max_episode_steps": 17}
    config["log_interval"] = 60
    result = train(config, callbacks=[recorder])
    learner, rows = (
        recorder.learner,
        recorder.rows,
    )  # obs 3 | action 1 | reward | next_obs 3 | ended | cut
    assert learner.obs_moments is not None
    assert len(rows) == 120
    assert_moments(learner.obs_moments, rows[:, :3])
    np.testing.assert_allclose(learner.obs_shift.numpy(), rows[:, :3].mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(learner.obs_scale.numpy(), 1 / rows[:, :3].std(axis=0), rtol=1e-6)
    returns = np.zeros(120)
    for env in range(num_envs):
        own = rows[env::num_envs]
        returns[env::num_envs] = slow_returns(own[:, 4], own[:, -2:].any(axis=1), 0.99)
    assert_moments(learner.return_moments, returns[:, None])
    assert float(learner.reward_scale) == pytest.approx(1 / returns.std(), rel=1e-6)
    assert result.metrics["rollout/return_mean"] < -20  # metrics use unnormalized rewards


def test_rows_stay_raw_and_batches_are_normalized(small_config: Config) -> None:
    recorder = RecordEnd()
    train(small_config(algo_kwargs=BOTH), callbacks=[recorder])
    learner = recorder.learner
    assert isinstance(recorder.session.engine.sampler, NormalizedSampler)
    raw = recorder.session.engine.sampler.source.sample(32, torch.Generator().manual_seed(5))
    expected = (raw.obs - learner.obs_shift) * learner.obs_scale
    assert torch.equal(recorder.batch.obs, expected.clamp(-10.0, 10.0))
    assert torch.equal(recorder.batch.rewards, raw.rewards * learner.reward_scale)
    lengths = recorder.rows[:, 0] ** 2 + recorder.rows[:, 1] ** 2  # cos² + sin² of raw observations
    np.testing.assert_allclose(lengths, 1.0, atol=1e-5)


@pytest.mark.parametrize(
    ("algo", "num_envs", "kwargs"),
    [
        ("sac", 1, {}),
        ("sac", 2, {"replay": "prioritized", "n_step": 3}),
        ("dqn", 2, {}),
        ("rlpd", 1, {"offline_pretrain_updates": 30}),
    ],
)
def test_resumes_exactly_in_the_middle_of_an_episode(
    small_config: Config, algo: str, num_envs: int, kwargs: dict[str, Any]
) -> None:
    config = small_config(algo=algo, num_envs=num_envs, algo_kwargs=BOTH | kwargs, log_interval=25)
    config["env_kwargs"] = {"max_episode_steps": 47}
    assert_same_run(train(config), crash_and_resume(config, 57, 99))


def test_no_statistics_are_saved_without_normalization(small_config: Config) -> None:
    assert not BUFFERS & set(load_file(train(small_config()).checkpoint_path / MODEL))
    result = train(small_config(algo_kwargs=BOTH))
    assert set(load_file(result.checkpoint_path / MODEL)) >= BUFFERS


def test_acting_evaluating_and_predicting_use_the_statistics(small_config: Config) -> None:
    register()
    config = small_config(env_id=SCALED, algo_kwargs={"normalize_observations": True})
    result = train(config)
    run = SavedRun.load(result.checkpoint_path)
    tensors = load_file(result.checkpoint_path / MODEL)
    raw = np.array([[1.0, 90.0, 0.05], [0.2, -40.0, 70.0]], dtype=np.float32)
    obs = (torch.from_numpy(raw) - tensors["obs_shift"]) * tensors["obs_scale"]
    obs = obs.clamp(-OBSERVATION_CLIP, OBSERVATION_CLIP)
    assert obs[1, 2] == OBSERVATION_CLIP  # far outside the observed range
    learner = run.load_policy("cpu").algorithm
    chosen = learner.choose_actions(obs, deterministic=True, noise=None).detach().numpy()
    assert predict_checkpoint(result.run_dir, raw) == pytest.approx(2.0 * chosen)
    before = evaluate_checkpoint(result.run_dir, episodes=1)["eval_return_mean"]
    learner.obs_scale.fill_(1.0)
    assert run.load_policy("cpu")(raw) == pytest.approx(2.0 * chosen)
    assert before == evaluate_checkpoint(result.run_dir, episodes=1)["eval_return_mean"]


def test_statistics_start_with_the_dataset(small_config: Config, recorded: Path) -> None:
    recorder = RecordEnd()
    train(small_config(algo="rlpd", algo_kwargs=BOTH), callbacks=[recorder])
    data = np.load(recorded)
    obs = np.concatenate([data["observations"].astype(np.float32), recorder.rows[:, :3]])
    assert_moments(recorder.learner.obs_moments, obs.astype(np.float64))
    own = recorder.rows
    parts = [
        slow_returns(data["rewards"], np.isin(np.arange(450), [199, 399]), 0.99),
        slow_returns(own[:, 4], own[:, -2:].any(axis=1), 0.99),
    ]
    returns = np.concatenate(parts)[:, None]
    assert recorder.learner.return_moments is not None
    assert float(recorder.learner.return_moments.count) == len(returns)
    assert float(recorder.learner.reward_scale) == pytest.approx(1 / returns.std(), rel=1e-5)
    mixed = recorder.session.engine.sampler
    assert isinstance(mixed, MixedSampler)
    assert all(isinstance(part, NormalizedSampler) for part in (mixed.offline, mixed.online))


def test_goals_are_normalized_with_the_observation(small_config: Config) -> None:
    recorder = RecordEnd()
    train(
        small_config(algo="her", algo_kwargs={"normalize_observations": True}), callbacks=[recorder]
    )
    width = recorder.learner.spec.obs_dim
    assert_moments(recorder.learner.obs_moments, recorder.rows[:, :width])


def test_held_out_rows_are_normalized() -> None:
    learner = SACAlgorithm.build(SPEC, SACConfig(hidden_sizes=(8,), batch_size=64, **BOTH))
    rng = np.random.default_rng(0)
    obs = rng.normal(5.0, 3.0, (50, 3)).astype(np.float32)
    learner.observe(torch.from_numpy(obs), torch.from_numpy(rng.normal(size=50)))
    data = {"observations": obs, "next_observations": obs, "actions": np.zeros((50, 1))}
    data |= {"rewards": rng.normal(size=50), "terminations": np.zeros(50, bool)}
    dataset = TransitionDataset.from_dict(data)
    found = Validation(dataset, seed=0).evaluate(learner)
    raw = dataset.batch(torch.arange(50))
    dataset.rows[:, :3] = (raw.obs - learner.obs_shift) * learner.obs_scale
    dataset.rows[:, 5:8] = (raw.next_obs - learner.obs_shift) * learner.obs_scale
    dataset.rows[:, 4] *= learner.reward_scale
    learner.obs_moments = learner.return_moments = None
    assert found == pytest.approx(Validation(dataset, seed=0).evaluate(learner))


@pytest.mark.usefixtures("without_compiler")
def test_compiled_updates_use_the_same_batches(small_config: Config) -> None:
    states = []
    for engine in ("eager", "compiled"):
        result = train(small_config(algo_kwargs=BOTH | {"engine": engine}))
        states.append(load_file(result.checkpoint_path / MODEL))
    for name, tensor in states[0].items():
        torch.testing.assert_close(states[1][name], tensor, rtol=1e-3, atol=1e-3, msg=name)


def test_fitted_q_evaluation_normalizes_like_the_policy() -> None:
    obs = np.array([[1.0, 50.0, 0.0], [-1.0, -2.0, 0.0]])
    data = {"observations": obs, "next_observations": obs + 1, "actions": np.zeros((2, 1))}
    dataset = TransitionDataset.from_dict(data | {"rewards": [1.0, 1.0], "terminals": [0, 1]})
    dataset.normalize_observations(np.array([1.0, 0.0, 0.0]), np.array([0.5, 1.0, 1.0]), 10.0)
    assert dataset.column("observations").tolist() == [[0.0, 10.0, 0.0], [-4.0, -2.0, 0.0]]
    assert dataset.column("next_observations").tolist() == [[2.0, 10.0, 1.0], [-2.0, -1.0, 1.0]]


# --- Fine-tuning and invalid combinations ----------------------------------------


class Start(Callback):
    """Records the learner's tensors before the first step."""

    def on_start(self, session: Session) -> None:
        state = session.algorithm.state_dict()
        self.tensors = {name: tensor.clone() for name, tensor in state.items()}


GO_ON = ["total_timesteps=60", "learning_starts=20", "num_envs=2"]


def test_finetuning_continues_the_statistics(small_config: Config, recorded: Path) -> None:
    source, start = train(small_config(algo_kwargs=BOTH)), Start()
    result = finetune(source.run_dir, "Pendulum-v1", GO_ON, dataset=recorded, callbacks=[start])
    saved, moved = (load_file(run.checkpoint_path / MODEL) for run in (source, result))
    for name in (*BUFFERS, "obs_shift", "obs_scale"):
        assert torch.equal(start.tensors[name], saved[name]), name
    assert float(moved["obs_moments.count"]) == 120 + 60
    assert float(moved["return_moments.count"]) == 120 + 60


def test_finetuning_neither_adds_nor_drops_statistics(small_config: Config) -> None:
    source = train(small_config(algo_kwargs={"normalize_observations": True}))
    with pytest.raises(ConfigError, match=r"^normalize_observations = false: .* trained with it"):
        finetune(source.run_dir, overrides=[*GO_ON, "normalize_observations=false"])
    with pytest.raises(ConfigError, match=r"^normalize_rewards = true: .* trained without it"):
        finetune(source.run_dir, overrides=[*GO_ON, "normalize_rewards=true"])
    offline = train(small_config(algo="iql", total_timesteps=20))
    with pytest.raises(ConfigError, match=r"^normalize_observations = true: .* without it"):
        finetune(offline.run_dir, overrides=[*GO_ON, "normalize_observations=true"])


@pytest.mark.parametrize(
    ("algo", "kwargs", "sentence"),
    [
        ("her", BOTH, "normalize_rewards = true does not work with relabeled"),
        ("rlpd", BOTH | {"normalize_states": True}, "normalize_observations and normalize_states"),
        (
            "iql",
            {"normalize_observations": True},
            "'normalize_observations' is not an option of IQL",
        ),
        ("sac", {"normalize_rewards": 1}, "normalize_rewards = 1: should be true or false"),
    ],
)
def test_invalid_combinations_are_rejected(
    small_config: Config, algo: str, kwargs: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        train(small_config(algo=algo, algo_kwargs=kwargs))
    assert str(caught.value).startswith(sentence)

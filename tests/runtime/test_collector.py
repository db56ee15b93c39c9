"""Transitions in the replay: true next observations, terminations and time limits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from rl_training import train
from rl_training.algorithms.base import Algorithm
from rl_training.algorithms.dqn import DQNAlgorithm, DQNConfig
from rl_training.algorithms.sac import SACAlgorithm, SACConfig
from rl_training.data import ReplayBuffer
from rl_training.envs import (
    ActionScaler,
    EnvConfig,
    describe_env,
    make_env,
    make_training_envs,
    read_env_spec,
)
from rl_training.errors import ConfigError, TrainingError
from rl_training.runtime.acting import Explorer
from rl_training.runtime.collector import Collector
from rl_training.types import EnvSpec
from tests.comparing import assert_same_run


class Counting(gym.Env[Any, Any]):
    """Observes (episode, time in episode); terminates at ``ends_at``."""

    observation_space = gym.spaces.Box(-1e6, 1e6, (2,), np.float64)
    action_space = gym.spaces.Box(-2.0, 6.0, (1,), np.float32)

    def __init__(
        self,
        ends_at: int = 10**9,
        poison: str = "",
        poison_at: int = -1,
        discrete: tuple[int, int] | None = None,
    ) -> None:
        if discrete is not None:
            size, start = discrete
            self.action_space = gym.spaces.Discrete(size, start=start)  # type: ignore[assignment]
        self.ends_at, self.poison, self.poison_at = ends_at, poison, poison_at
        self.episode, self.time, self.steps = -1, 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.time = self.episode + 1, 0
        return np.array([self.episode, 0.0]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time, self.steps = self.time + 1, self.steps + 1
        assert self.action_space.contains(action)
        obs, reward = np.array([self.episode, float(self.time)]), float(np.sum(action))
        if self.steps == self.poison_at:
            obs, reward = (obs * np.nan, reward) if self.poison == "obs" else (obs, float("inf"))
        return obs, reward, self.time >= self.ends_at, False, {}


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    gym.register("tests/Counting-v0", entry_point=lambda **kwargs: Counting(**kwargs))
    yield
    del gym.registry["tests/Counting-v0"]


def collect(
    steps: int, num_envs: int = 1, *, vectorization: str = "sync", **kwargs: Any
) -> tuple[Collector, ReplayBuffer]:
    config = EnvConfig(vectorization=vectorization, **kwargs)
    spec = describe_env("tests/Counting-v0", config)
    learner: Algorithm = (
        DQNAlgorithm.build(spec, DQNConfig(hidden_sizes=(8,)))
        if spec.discrete
        else SACAlgorithm.build(spec, SACConfig(hidden_sizes=(8,)))
    )
    buffer = ReplayBuffer(1000, spec.obs_dim, spec.action_width)
    envs = make_training_envs("tests/Counting-v0", config, num_envs)
    explorer = Explorer(learner, num_envs, torch.Generator().manual_seed(0))
    collector = Collector(envs, explorer, buffer, spec, seed=0)
    collector.reset()
    try:
        for step in range(steps):
            collector.request_actions(random=step < steps // 2)
            collector.step(step)
    finally:
        collector.close()
    return collector, buffer


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("vectorization", ["sync", "async"])
@pytest.mark.parametrize(("limit", "ends_at"), [(5, 100), (100, 5), (5, 5), (7, 5)])
def test_no_transition_crosses_two_episodes(
    num_envs: int, vectorization: str, limit: int, ends_at: int
) -> None:
    if vectorization == "async" and (num_envs, limit) != (3, 5):
        pytest.skip("one asynchronous case is enough: the books are the same")
    collector, buffer = collect(
        23, num_envs, vectorization=vectorization, max_episode_steps=limit, ends_at=ends_at
    )
    rows = buffer.rows[: len(buffer)]
    episode, time, next_episode, next_time = rows[:, 0], rows[:, 1], rows[:, 4], rows[:, 5]
    assert torch.equal(episode, next_episode)
    assert torch.equal(next_time, time + 1)
    last = min(limit, ends_at)
    ended, cut = rows[:, -2].bool(), rows[:, -1].bool()
    assert torch.equal(ended, next_time == ends_at)
    assert torch.equal(cut, next_time == limit)
    assert int((ended | cut).sum()) == collector.episodes == (23 // last) * num_envs


def test_rewards_and_actions_are_stored_in_their_own_scales() -> None:
    """The replay has actions in [-1, 1]; the environment gets -2 to 6 and returns it as reward."""
    _, buffer = collect(40)
    actions, rewards = buffer.rows[:40, 2], buffer.rows[:40, 3]
    assert actions.abs().max() <= 1
    torch.testing.assert_close(rewards, 2.0 + 4.0 * actions)


def test_actions_requested_while_transitions_are_stored_are_the_same(
    small_config: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU, actions are requested one step early, before the transitions are stored."""
    monkeypatch.setattr(Explorer, "lag", 1)
    config = small_config(num_envs=2)
    config["algo_kwargs"] |= {"normalize_observations": True}
    early = train(config)
    step = Collector.step

    def late(self: Collector, number: int, *, request: Callable[[], None]) -> int:
        count = step(self, number)
        request()
        return count

    monkeypatch.setattr(Collector, "step", late)
    assert_same_run(early, train(config))


@pytest.mark.parametrize(("size", "start"), [(2, 0), (3, 5), (4, -2)])
@pytest.mark.parametrize("num_envs", [1, 3])
def test_discrete_actions_are_stored_as_indices(size: int, start: int, num_envs: int) -> None:
    """The environment gets integers starting at `start` and returns them as reward."""
    _, buffer = collect(90, num_envs, discrete=(size, start))
    for rows in (buffer.rows[: 45 * num_envs], buffer.rows[45 * num_envs : 90 * num_envs]):
        actions, rewards = rows[:, 2], rows[:, 3]  # random actions first, then the policy
        assert set(actions.tolist()) == set(range(size))
        torch.testing.assert_close(rewards, actions + start)
    batch = buffer.sample(8, torch.Generator().manual_seed(0))
    assert batch.actions.shape == (8, 1)


@pytest.mark.parametrize(("poison", "quantity"), [("obs", "observation"), ("reward", "reward")])
def test_nonfinite_values_raise_and_are_not_stored(poison: str, quantity: str) -> None:
    with pytest.raises(TrainingError, match=f"the {quantity} of environment 0.* at step 7"):
        collect(20, poison=poison, poison_at=7)


def test_episode_returns_are_untransformed() -> None:
    collector, buffer = collect(10, max_episode_steps=5)
    metrics = collector.pop_metrics()
    expected = [float(buffer.rows[i : i + 5, 3].sum()) for i in (0, 5)]
    assert metrics["rollout/return_mean"] == pytest.approx(np.mean(expected), rel=1e-5)
    assert metrics["rollout/length_mean"] == 5
    assert collector.pop_metrics() == {}


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_episode_returns_ignore_reward_transforms(vectorization: str) -> None:
    """The learner's rewards are clipped to a single value."""
    reward = {"scale": 0.1, "shift": 30.0, "clip_max": 7.0}
    collector, buffer = collect(
        *(10, 2), vectorization=vectorization, max_episode_steps=5, wrappers={"reward": reward}
    )
    collector.close()
    assert (buffer.rows[:20, 3] == 7.0).all()
    raw = 2.0 + 4.0 * buffer.rows[:20, 2].reshape(2, 5, 2)  # [episode, step, environment]
    metrics = collector.pop_metrics()
    assert metrics["rollout/return_mean"] == pytest.approx(float(raw.sum(1).mean()), rel=1e-5)
    assert collector.last_return == pytest.approx(float(raw[1, :, 1].sum()), rel=1e-5)


def test_action_scaling_is_exact_at_the_bounds_and_inverts() -> None:
    spec = EnvSpec(1, 3, (-2.0, 0.1, -1.0), (6.0, 0.3, 1.0))
    scaler = ActionScaler(spec)
    ends = scaler.to_env(np.array([[-1.0] * 3, [1.0] * 3], dtype=np.float32))
    below = np.nextafter(np.float32(0.3), np.float32(0.0))  # as float32, 0.3 is above 0.3
    expected = np.array([[-2.0, 0.1, -1.0], [6.0, below, 1.0]], np.float32)
    np.testing.assert_array_equal(ends, expected)
    middle = np.random.default_rng(0).uniform(-1, 1, (50, 3)).astype(np.float32)
    np.testing.assert_allclose(scaler.to_model(scaler.to_env(middle)), middle, atol=1e-5)


def test_discrete_actions_are_converted_for_the_environment() -> None:
    scaler = ActionScaler(EnvSpec(1, 3, discrete=True, action_start=-1))
    integers = scaler.to_env(np.array([[0.0], [2.0]], dtype=np.float32))
    assert (integers.tolist(), integers.dtype) == ([-1, 1], np.dtype(np.int64))
    assert scaler.to_model(integers).tolist() == [[0.0], [2.0]]
    one = scaler.to_env(np.array([2.0], dtype=np.float32))
    assert (int(one), np.shape(one)) == (1, ())


def test_large_finite_values_are_accepted() -> None:
    """Their squares overflow, but the values do not."""
    collector, _ = collect(1)
    collector.check_finite(1, observation=np.full((1, 2), 1e30, dtype=np.float32))
    with pytest.raises(TrainingError, match="entry 1 is inf"):
        collector.check_finite(1, observation=np.array([[1e30, np.inf]], dtype=np.float32))


def fake_env(obs: gym.Space[Any], actions: gym.Space[Any]) -> gym.Env[Any, Any]:
    env = Counting()
    env.observation_space, env.action_space = obs, actions  # type: ignore[assignment]
    return env


FLAT = gym.spaces.Box(-1.0, 1.0, (3,))
BOUNDED = gym.spaces.Box(-1.0, 1.0, (2,))


@pytest.mark.parametrize(
    ("obs", "actions", "sentence"),
    [
        (
            gym.spaces.Dict(a=FLAT, b=gym.spaces.Text(5)),
            BOUNDED,
            "with the entry 'b', Text, which is not supported: .* gymnasium.ObservationWrapper",
        ),
        (gym.spaces.Sequence(FLAT), BOUNDED, "space Sequence.*, which is not supported"),
        (gym.spaces.Graph(FLAT, None), BOUNDED, "space Graph.*, which is not supported"),
        (
            gym.spaces.Discrete(10**9),
            BOUNDED,
            r"Discrete\(1000000000\): a discrete value becomes one input per choice, at most 65,",
        ),
        (gym.spaces.Dict({}), BOUNDED, "observations of length 0"),
        (
            gym.spaces.Dict({"a": gym.spaces.Dict({"b": FLAT}), "a/b": FLAT}),
            BOUNDED,
            "two observation entries with the name 'a/b': rename the keys",
        ),
        (FLAT, gym.spaces.Box(-np.inf, np.inf, (2,)), "unbounded.*TransformAction"),
        (gym.spaces.Box(-1.0, 1.0, (0,)), BOUNDED, "observations of length 0"),
        (FLAT, gym.spaces.Box(-1.0, 1.0, (0,)), "actions of length 0"),
        (FLAT, gym.spaces.Box(-1, 1, (2,), np.int64), "integer actions.*dtype=np.float32"),
        (
            FLAT,
            gym.spaces.Box(np.array([-1.0, 2.0]), np.array([1.0, 2.0]), dtype=np.float64),
            "Action 1 of .* has the bounds 2.0 and 2.0, but low must be below high",
        ),
        (FLAT, gym.spaces.MultiDiscrete(np.array([[2, 2]])), "action space MultiDiscrete"),
        (FLAT, gym.spaces.MultiBinary(3), "action space MultiBinary"),
        (FLAT, gym.spaces.Dict({"a": BOUNDED}), "action space Dict"),
        (FLAT, gym.spaces.Tuple([BOUNDED]), "action space Tuple"),
        (FLAT, gym.spaces.Box(-1, 1, (2, 2)), "action space Box"),
    ],
)
def test_unsupported_spaces_raise_a_clear_error(
    obs: gym.Space[Any], actions: gym.Space[Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        read_env_spec(fake_env(obs, actions), "Some-v0")


def test_advice_for_unbounded_actions_works() -> None:
    env = fake_env(FLAT, gym.spaces.Box(-np.inf, np.inf, (2,)))
    bounded = gym.wrappers.TransformAction(env, lambda action: 3 * action, BOUNDED)
    assert read_env_spec(bounded, "Some-v0").action_high == (1.0, 1.0)


@pytest.mark.parametrize(
    ("env_id", "sentence"),
    [
        ("Pendulm-v1", "did you mean 'Pendulum"),
        ("Mine-v0", r"import the module that registers it \(rl-training --import MODULE"),
        ("Pendulum", r"^Unknown environment 'Pendulum'; did you mean 'Pendulum-v1'\?$"),
        ("pendulum-v1", r"; did you mean 'Pendulum-v1'\?$"),
        ("Pendulum-v9", r"; did you mean 'Pendulum-v1'\?$"),
        ("HalfCheetah", r"; did you mean 'HalfCheetah-v5'\?$"),
        ("ALE/Pong-v5", r'pip install "gymnasium\[atari\]"\) and imported'),
        ("PongNoFrameskip-v4", "Atari environments need ale-py"),
        ("Pong-v4", "^Unknown environment 'Pong-v4'. If it is your own"),
        ("no/such/Env-v0", "has the form Name-v0 or namespace/Name-v0"),
        ("nomodule:Env-v0", "--import nomodule"),
        ("", "has the form Name-v0"),
    ],
)
def test_unknown_environments_get_a_suggestion(env_id: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        make_env(env_id)


@pytest.mark.filterwarnings("ignore:.*out of date")
@pytest.mark.parametrize(
    ("env_id", "module", "sentence"),
    [
        ("LunarLander-v3", "Box2D", r'needs Box2D.*pip install "gymnasium\[box2d\]"$'),
        ("CarRacing-v3", "Box2D", r'needs Box2D.*pip install "gymnasium\[box2d\]"$'),
        ("HalfCheetah-v5", "mujoco", r"needs MuJoCo.*pip install 'rl-training\[mujoco\]'$"),
        ("Ant-v3", "", "Gymnasium does not include Ant-v3: use Ant-v5 instead"),
    ],
)
def test_missing_package_error_has_the_install_line(
    env_id: str, module: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(sys.modules):
        if name.startswith(("gymnasium.envs.mujoco", "gymnasium.envs.box2d", "mujoco")):
            monkeypatch.delitem(sys.modules, name)
    if module:
        monkeypatch.setitem(sys.modules, module, None)  # its import fails
    with pytest.raises(ConfigError, match=sentence):
        make_env(env_id)


def test_unknown_environment_arguments_raise_a_clear_error() -> None:
    with pytest.raises(ConfigError, match="gravitation"):
        make_env("Pendulum-v1", {"gravitation": 3})

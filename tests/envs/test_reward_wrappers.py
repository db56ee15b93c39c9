"""Reward wrappers, datasets and config keys transform rewards identically."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_training import train
from rl_training.data import TransitionDataset
from rl_training.envs import (
    RewardClipWrapper,
    RewardScaleWrapper,
    RewardShiftWrapper,
    apply_reward_wrappers,
    capture_env,
    make_env,
    restore_env,
)
from rl_training.errors import ConfigError
from rl_training.experiment.config import make_config
from rl_training.experiment.task import check_config
from rl_training.rewards import RewardTransformConfig
from rl_training.runtime.checkpointing import MODEL

Config = Callable[..., dict[str, Any]]
NUMBERS = st.floats(-100, 100, width=32, allow_subnormal=False)


class Echo(gym.Env[Any, Any]):
    """Returns the given rewards in order."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, rewards: list[float]) -> None:
        self.rewards = rewards
        self.time = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return np.zeros(1, np.float32), self.rewards[self.time - 1], False, False, {}


@st.composite
def transforms(draw: Any) -> RewardTransformConfig:
    low = draw(st.none() | NUMBERS)
    high = draw(st.none() | NUMBERS)
    if low is not None and high is not None and low >= high:
        low, high = None, high
    return RewardTransformConfig(
        scale=draw(NUMBERS), shift=draw(NUMBERS), clip_min=low, clip_max=high
    )


@given(config=transforms(), rewards=st.lists(NUMBERS, min_size=1, max_size=20))
def test_wrappers_equal_the_dataset_transform(
    config: RewardTransformConfig, rewards: list[float]
) -> None:
    env = apply_reward_wrappers(Echo(rewards), config)
    env.reset()
    played = np.array([env.step(np.zeros(1))[1] for _ in rewards], dtype=np.float32)
    n = len(rewards)
    data = {"obs": np.zeros((n, 1)), "actions": np.zeros((n, 1)), "rewards": np.array(rewards)}
    data |= {"next_obs": np.zeros((n, 1)), "terminals": np.zeros(n)}
    dataset = TransitionDataset.from_dict(data)
    changed = dataset.with_reward_transform(config)
    np.testing.assert_array_equal(changed.column("rewards"), played)
    np.testing.assert_array_equal(dataset.column("rewards"), np.array(rewards, np.float32))


def test_order_is_scale_shift_clip() -> None:
    config = RewardTransformConfig(scale=2.0, shift=1.0, clip_max=5.0)
    np.testing.assert_array_equal(config([1.0, 2.0, 3.0]), [3.0, 5.0, 5.0])


def test_each_wrapper_does_its_step() -> None:
    for wrapper, expected in (
        (RewardScaleWrapper(Echo([3.0]), 2.0), 6.0),
        (RewardShiftWrapper(Echo([3.0]), -1.0), 2.0),
        (RewardClipWrapper(Echo([3.0]), clip_max=1.5), 1.5),
    ):
        wrapper.reset()
        assert wrapper.step(np.zeros(1))[1] == expected


def test_without_a_transform_no_wrapper_is_added() -> None:
    env = Echo([1.0])
    assert apply_reward_wrappers(env, RewardTransformConfig()) is env


def test_wrapped_environment_is_captured_and_restored() -> None:
    config = RewardTransformConfig(scale=0.1, shift=1.0, clip_min=0.0)
    first, second = (apply_reward_wrappers(make_env("Pendulum-v1"), config) for _ in range(2))
    first.reset(seed=0)
    second.reset(seed=1)
    restore_env(second, capture_env(first))
    assert first.step(np.ones(1))[1] == second.step(np.ones(1))[1]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"clip_min": 2.0, "clip_max": 1.0}, "clip_min = .* must be below"),
        ({"scale": float("nan")}, "finite"),
        ({"factor": 2.0}, "factor"),
    ],
)
def test_bad_transforms(changes: dict[str, float], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        RewardTransformConfig(**changes)


def test_keys_and_wrappers_train_identically_and_evaluation_is_raw(small_config: Config) -> None:
    keyed = small_config(eval_episodes=2)
    keyed["algo_kwargs"] |= {"reward_scale": 0.1, "reward_shift": 0.5, "reward_clip_min": -1.0}
    wrapped = small_config(eval_episodes=2)
    wrapped["env_kwargs"] = {"wrappers": {"reward": {"scale": 0.1, "shift": 0.5, "clip_min": -1}}}
    plain = train(small_config(eval_episodes=2))
    results = [train(keyed), train(wrapped)]
    one, two = ((r.checkpoint_path / MODEL).read_bytes() for r in results)
    assert one == two
    assert one != (plain.checkpoint_path / MODEL).read_bytes()
    for result in results:  # Pendulum's returns, not the scaled ones
        assert result.metrics["eval_return_mean"] < -300


def test_differing_settings_are_an_error(small_config: Config) -> None:
    config = small_config(env_kwargs={"wrappers": {"reward": {"scale": 2.0}}})
    config["algo_kwargs"] |= {"reward_scale": 3.0}
    with pytest.raises(ConfigError, match="differ"):
        check_config(make_config(config))
    config["algo_kwargs"] |= {"reward_scale": 2.0}
    check_config(make_config(config))

"""Recording: copies of observations, and independent random streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rl_training.envs import GuardedEnv
from rl_training.errors import TrainingError
from rl_training.runtime.recording import noisy_policy, record, record_random
from rl_training.runtime.seeding import Stream, derive_seed
from rl_training.types import EnvSpec


def test_actions_and_environment_use_independent_streams() -> None:
    """With a shared stream, a random action would equal the number that set the first state."""
    for seed in range(4):
        data = record_random("Pendulum-v1", {}, 2, seed)
        cos, sin, velocity = data["observations"][0]
        angle = np.arctan2(sin, cos) / np.pi  # both drawn uniformly from -1 to 1, then scaled
        drawn = data["actions"][:, 0] / 2.0
        assert np.abs(drawn[0] - angle) > 1e-3
        assert np.abs(drawn[1] - velocity) > 1e-3


def test_noise_and_environment_use_independent_streams() -> None:
    """The noise on a policy does not equal the random numbers of the environment."""
    policy: Any = _Still(EnvSpec(3, 1, (-1.0,), (1.0,)))
    noise = float(noisy_policy(policy, 0.1, 3)(np.zeros(3, np.float32))[0])
    for taken in (3, derive_seed(3, Stream.RECORDING)):
        assert abs(noise - 0.1 * np.random.default_rng(taken).standard_normal()) > 1e-6


def test_evaluation_seeds_differ_from_recording_seeds() -> None:
    """Both derive different seeds from the same number, 0 by default."""
    recorded = record_random("Pendulum-v1", {}, 400, 0)["observations"][[0, 200]]
    env = gym.make("Pendulum-v1")
    starts = np.array([env.reset(seed=seed)[0] for seed in range(20)])
    assert not (recorded[:, None] == starts).all(-1).any()


@dataclass
class _Still:
    """A policy that always returns zeros."""

    spec: EnvSpec

    def __call__(self, _obs: Any) -> Any:
        return np.zeros(1, np.float32)


def test_environment_may_reuse_its_observation_array() -> None:
    """The recording contains copies, not the array that the next step overwrites."""
    env = _Counting()
    data = record(GuardedEnv(env), lambda _obs: np.zeros(1, np.float32), steps=4, seed=0)
    assert data["observations"][:, 0].tolist() == [0, 1, 2, 3]
    assert data["next_observations"][:, 0].tolist() == [1, 2, 3, 4]


class _Counting(gym.Env[Any, Any]):
    """Counts in one array, which it returns at every step."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self) -> None:
        self._count = np.zeros(1, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._count[:] = 0
        return self._count, {}

    def step(self, action: Any) -> Any:
        self._count += 1
        return self._count, 0.0, False, False, {}


@pytest.mark.parametrize(("reward", "last"), [(float("nan"), 3.0), (0.0, float("inf"))])
def test_nonfinite_value_stops_recording(reward: float, last: float) -> None:
    class Breaking(_Counting):
        def step(self, action: Any) -> Any:
            obs, good, *rest = super().step(action)
            return (obs, good, *rest) if obs[0] < 3 else (np.array([last]), reward, *rest)

    with pytest.raises(TrainingError, match="not finite at step 3"):
        record(GuardedEnv(Breaking()), lambda _obs: np.zeros(1, np.float32), steps=5, seed=0)

"""Environments as users write them, and the ways to pass them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

Step = tuple[np.ndarray[Any, Any], float, bool, bool, dict[str, Any]]


class Drift(gym.Env[Any, Any]):
    """A point that drifts at random; the action moves it back. Episodes have ``length`` steps."""

    def __init__(self, size: int = 3, length: int = 17) -> None:
        self.observation_space = gym.spaces.Box(-9.0, 9.0, (size,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.length = length
        self.steps = 0
        self.position = np.zeros(size, dtype=np.float32)
        self.is_closed = False
        self.resets = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        self.resets += 1
        self.position = self.np_random.normal(size=self.position.shape).astype(np.float32)
        return self.position.copy(), {}

    def step(self, action: Any) -> Step:
        self.steps += 1
        noise = 0.1 * self.np_random.normal(size=self.position.shape)
        self.position = np.clip(0.9 * self.position + noise + 0.1 * action[0], -9.0, 9.0)
        self.position = self.position.astype(np.float32)
        reward = -float(np.abs(self.position).sum())
        return self.position.copy(), reward, False, self.steps >= self.length, {}

    def close(self) -> None:
        self.is_closed = True


class Doubled(gym.RewardWrapper[Any, Any]):
    """Doubles rewards; Gymnasium cannot create it again, since it does not record arguments."""

    def reward(self, reward: Any) -> float:
        return 2.0 * float(reward)


class Uncapturable(Drift):
    """Has a state that cannot be saved."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = object()


def make_doubled() -> gym.Env[Any, Any]:
    """Make a wrapped environment."""
    return Doubled(Drift())


def make_pendulum() -> gym.Env[Any, Any]:
    """Make a registered environment with Gymnasium's wrappers."""
    limited = gym.make("Pendulum-v1", max_episode_steps=17)
    return gym.wrappers.RescaleAction(limited, np.float32(-1.0), np.float32(1.0))


KINDS: dict[str, Callable[[], Any]] = {
    "instance": Drift,
    "wrapped instance": make_doubled,
    "made instance": make_pendulum,
    "class": lambda: Drift,
    "function": lambda: make_doubled,
    "lambda": lambda: lambda: gym.make("Pendulum-v1", max_episode_steps=17),
}
"""For each kind, a function that returns a fresh object to pass as `env`."""

"""An environment that fails at a given step in a given way."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym
import numpy as np

from rl_training.types import FloatArray

POISON = "Faults/Poison-v0"


class PoisonEnv(gym.Env[FloatArray, FloatArray]):
    """A point on a line; step or reset number ``at`` returns ``value`` for one quantity.

    The value is text, since configs and saved states cannot contain NaN.
    """

    def __init__(
        self,
        quantity: Literal["observation", "reward", "reset"] = "reward",
        at: int = 60,
        value: str = "nan",
        length: int = 200,
    ) -> None:
        self.observation_space = gym.spaces.Box(-10.0, 10.0, (2,), dtype=np.float64)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), dtype=np.float32)
        self.quantity = quantity
        self.at = at
        self.value = value
        self.length = length
        self.steps = 0
        self.resets = 0
        self.position = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Start near the middle."""
        super().reset(seed=seed)
        self.resets += 1
        self.position = float(self.np_random.uniform(-1.0, 1.0))
        return self._obs(poisoned=self.quantity == "reset" and self.resets == self.at), {}

    def step(self, action: FloatArray) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        """Move; the reward is for staying in the middle."""
        self.steps += 1
        # Only the returned values are changed, not the position of the point.
        self.position = float(np.clip(self.position + 0.1 * np.nan_to_num(action[0]), -2.0, 2.0))
        due = self.steps == self.at
        reward = float(self.value) if due and self.quantity == "reward" else -abs(self.position)
        obs = self._obs(poisoned=due and self.quantity == "observation")
        return obs, reward, False, self.steps % self.length == 0, {}

    def _obs(self, *, poisoned: bool) -> FloatArray:
        return np.array([self.position, float(self.value) if poisoned else 1.0])


def register() -> None:
    """Register it with Gymnasium, once."""
    if POISON not in gym.registry:
        gym.register(POISON, entry_point=f"{__name__}:PoisonEnv")

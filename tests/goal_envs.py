"""Small goal environments for tests: each state encodes its episode and time."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

BOX = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)


class CountingGoals(gym.Env[Any, Any]):
    """Achieves (episode, time), never the desired goal; episode lengths cycle through 3, 4, 5."""

    observation_space = gym.spaces.Dict(observation=BOX, achieved_goal=BOX, desired_goal=BOX)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, success: str = "is_success") -> None:
        self.episode, self.time = -1, 0
        self.success = success

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.time = self.episode + 1, 0
        return self.obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        cut = self.time == 3 + self.episode % 3
        return self.obs(), -1.0, False, cut, {self.success: cut}

    def obs(self) -> dict[str, Any]:
        state = np.array([self.episode, self.time], dtype=np.float64)
        return {"observation": state, "achieved_goal": state, "desired_goal": state * 0 - 1}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return np.all(achieved == desired, axis=-1).astype(np.float64) - 1.0


class SingleGoals(CountingGoals):
    """Its functions take one goal at a time, as in gymnasium-robotics' mazes."""

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return 0.0 if np.linalg.norm(achieved - desired) < 0.5 else -1.0

    def compute_terminated(self, achieved: Any, desired: Any, info: Any) -> bool:
        return bool(np.linalg.norm(achieved - desired) < 0.5)


class JointGoals(CountingGoals):
    """Its functions take a batch and return a number for each goal, but mix up the goals."""

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        reached = np.linalg.norm(achieved - desired) < 0.5
        return np.full(np.shape(achieved)[:-1], 0.0 if reached else -1.0)

    def compute_terminated(self, achieved: Any, desired: Any, info: Any) -> Any:
        return self.compute_reward(achieved, desired, info) == 0.0


class NoReward(CountingGoals):
    """Lacks the function that relabeling needs."""

    compute_reward = None  # type: ignore[assignment]


class DiscreteGoals(CountingGoals):
    """Has discrete actions."""

    action_space = gym.spaces.Discrete(3)  # type: ignore[assignment]


class OpaqueGoals(CountingGoals):
    """Contains an object that cannot be saved."""

    def __init__(self) -> None:
        super().__init__()
        self.secret = object()


def register() -> None:
    """Register the environments under ``tests/``."""
    for kind in (CountingGoals, SingleGoals, JointGoals, NoReward, DiscreteGoals, OpaqueGoals):
        env_id = f"tests/{kind.__name__}-v0"
        if env_id not in gym.registry:
            gym.register(env_id, entry_point=f"tests.goal_envs:{kind.__name__}")

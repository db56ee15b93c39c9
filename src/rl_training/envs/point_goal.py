"""A small task with a sparse reward: steer a point with inertia to a goal and stay there."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.types import BoolArray, FloatArray

POINT_GOAL = "rl_training/PointGoal-v0"
TIME_LIMIT = 50
RADIUS = 0.03
"""Distance within which the goal counts as reached."""
_PIXELS = 160


class PointGoalEnv(gym.Env[Any, FloatArray]):
    """A point in [-1, 1]² that starts at rest; the action is its acceleration.

    The goal is uniform among the positions at least ``min_distance`` from the start. The reward is
    0 within `RADIUS` of the goal and -1 elsewhere. An episode ends only at the time limit; with
    ``terminates`` it also ends on success. ``info["is_success"]`` is True at the goal.
    """

    metadata = {  # noqa: RUF012 - as Gymnasium declares it
        "render_modes": ["rgb_array"],
        "render_fps": 20,
    }

    def __init__(
        self, terminates: bool = False, min_distance: float = 0.5, render_mode: str | None = None
    ) -> None:
        if not 0 <= min_distance <= 1:
            raise ValueError(f"min_distance = {min_distance}: should be between 0 and 1")
        self.terminates = terminates
        self.min_distance = min_distance
        self.render_mode = render_mode
        position = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.observation_space = gym.spaces.Dict(
            observation=gym.spaces.Box(-1.0, 1.0, (4,), np.float32),
            achieved_goal=position,
            desired_goal=position,
        )
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.position = np.zeros(2)
        self.velocity = np.zeros(2)
        self.goal = np.zeros(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, FloatArray], dict[str, Any]]:
        """Sample a start and a goal."""
        super().reset(seed=seed)
        self.position = self.np_random.uniform(-1.0, 1.0, 2)
        self.velocity = np.zeros(2)
        self.goal = self.np_random.uniform(-1.0, 1.0, 2)
        while np.linalg.norm(self.goal - self.position) < self.min_distance:
            self.goal = self.np_random.uniform(-1.0, 1.0, 2)
        return self._obs(), {"is_success": self._is_success()}

    def step(
        self, action: FloatArray
    ) -> tuple[dict[str, FloatArray], float, bool, bool, dict[str, Any]]:
        """Accelerate and move the point; it stops at the walls."""
        push = np.clip(np.asarray(action, dtype=np.float64), -1.0, 1.0)
        self.velocity = 0.8 * self.velocity + 0.04 * push
        moved = self.position + self.velocity
        self.position = np.clip(moved, -1.0, 1.0)
        self.velocity = np.where(moved == self.position, self.velocity, 0.0)
        obs = self._obs()
        goals = obs["achieved_goal"], obs["desired_goal"]
        reward = float(self.compute_reward(*goals, {}))
        terminated = bool(self.compute_terminated(*goals, {}))
        return obs, reward, terminated, False, {"is_success": self._is_success()}

    def compute_reward(
        self, achieved_goal: FloatArray, desired_goal: FloatArray, info: Any
    ) -> FloatArray:
        """Return 0 at the goal and -1 elsewhere, for one pair of goals or for rows of them."""
        return np.asarray(is_near(achieved_goal, desired_goal), dtype=np.float64) - 1.0

    def compute_terminated(
        self, achieved_goal: FloatArray, desired_goal: FloatArray, info: Any
    ) -> BoolArray:
        """Return whether the goal is reached if ``terminates`` is set, else False."""
        return np.asarray(is_near(achieved_goal, desired_goal) & self.terminates)

    def render(self) -> Any:
        """Draw the square from above, with the goal in green and the point in black."""
        axis = np.linspace(-1.0, 1.0, _PIXELS)
        points = np.stack(np.meshgrid(axis, -axis), axis=-1)  # [rows, columns, xy]
        image = np.full((_PIXELS, _PIXELS, 3), 255, dtype=np.uint8)
        image[np.linalg.norm(points - self.goal, axis=-1) <= RADIUS] = (60, 170, 60)
        image[np.linalg.norm(points - self.position, axis=-1) <= RADIUS / 2] = 0
        return image

    def _is_success(self) -> bool:
        return bool(is_near(self.position.astype(np.float32), self.goal.astype(np.float32)))

    def _obs(self) -> dict[str, FloatArray]:
        position = self.position.astype(np.float32)
        return {
            "observation": np.concatenate([position, self.velocity.astype(np.float32)]),
            "achieved_goal": position,
            "desired_goal": self.goal.astype(np.float32),
        }


def is_near(achieved_goal: FloatArray, desired_goal: FloatArray) -> BoolArray:
    """Return whether the positions are within `RADIUS` of each other."""
    distance = np.linalg.norm(achieved_goal - desired_goal, axis=-1)
    return np.asarray(distance <= RADIUS)


def register() -> None:
    """Register the environment with Gymnasium."""
    if POINT_GOAL not in gym.registry:
        gym.register(
            POINT_GOAL,
            entry_point="rl_training.envs.point_goal:PointGoalEnv",
            max_episode_steps=TIME_LIMIT,
        )

"""Pendulum with observation entries of very different scales."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control.pendulum import PendulumEnv

SCALED = "tests/ScaledPendulum-v0"


class ScaledPendulum(PendulumEnv):
    """Multiplies each entry of the observation by its scale."""

    def __init__(self, scales: Sequence[float] = (1.0, 100.0, 0.01), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scales = np.array(scales, dtype=np.float32)
        high = np.array([1.0, 1.0, self.max_speed], dtype=np.float32) * self.scales
        self.observation_space = gym.spaces.Box(-high, high, dtype=np.float32)

    def _get_obs(self) -> Any:
        return super()._get_obs() * self.scales  # type: ignore[no-untyped-call]


def register() -> None:
    if SCALED not in gym.registry:
        gym.register(SCALED, entry_point=ScaledPendulum, max_episode_steps=200)

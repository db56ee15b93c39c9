"""Importing this module registers an environment that fails in episodes with certain seeds."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

ENV_ID = "Fragile-v0"
LENGTH, LAST = 20, 15


class Fragile(gymnasium.Env[np.ndarray[Any, Any], np.ndarray[Any, Any]]):
    """Walks at random; fails after a few steps of an episode with one of ``seeds``.

    With ``differs_in_a_worker``, a state that was captured in the trainer does not fit there.
    """

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, seeds: Sequence[int] = (), differs_in_a_worker: bool = False) -> None:
        self.seeds = list(seeds)
        self.is_fragile = False
        self.steps = 0
        self.place = np.zeros(2)
        self.tool: Any = 0.0
        if differs_in_a_worker and multiprocessing.parent_process() is not None:
            self.tool = self.step

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.is_fragile = seed in self.seeds
        self.steps = 0
        self.place = self.np_random.normal(size=2)
        return self.place.astype(np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.is_fragile and self.steps > LAST:
            raise RuntimeError("this episode is fragile")
        self.place = 0.9 * self.place + 0.1 * self.np_random.normal(size=2) + 0.1 * action
        reward = -float(np.abs(self.place).sum())
        return self.place.astype(np.float32), reward, False, self.steps == LENGTH, {}


gymnasium.register(ENV_ID, f"{__name__}:Fragile")

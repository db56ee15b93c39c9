"""A small environment with action masks for tests: each observation contains its mask."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

MASKED = "tests/Masked-v0"
ACTIONS, START = 4, 3
"""Number of actions, and the first one."""
MASK = slice(2, 2 + ACTIONS)
"""The mask's place in an observation."""


class MaskedWalk(gym.Env[Any, Any]):
    """Observes (position, time, mask); a random subset of the actions is legal at each step.

    An action moves by its index. The episode terminates at position ``ends_at``, where no action is
    legal. An illegal action raises an error if the environment is ``strict``.

    Args:
        ends_at: Position at which the episode terminates.
        fault: The kind of mask to return from call ``at`` on; none by default.
        at: The reset or step, counted from 1, at which the fault starts.
        banned: An action that is never legal, by its index.
        strict: Whether illegal actions raise an error.
        masked: Whether the infos have masks.
    """

    def __init__(
        self,
        ends_at: int = 12,
        fault: str = "",
        at: int = 1,
        banned: int | None = None,
        strict: bool = True,
        masked: bool = True,
    ) -> None:
        self.observation_space = gym.spaces.Box(-1e6, 1e6, (2 + ACTIONS,), np.float32)
        self.action_space = gym.spaces.Discrete(ACTIONS, start=START)
        self.ends_at, self.fault, self.at = ends_at, fault, at
        self.banned, self.strict, self.masked = banned, strict, masked
        self.position, self.time, self.calls = 0, 0, 0
        self.mask = np.ones(ACTIONS, dtype=np.int8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.position, self.time = 0, 0
        return self._result()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        index = int(action) - START
        if self.strict and not self.mask[index]:
            raise ValueError(f"the action {action} is illegal, the mask is {self.mask}")
        self.position, self.time = self.position + index, self.time + 1
        obs, info = self._result()
        return obs, float(index), self.position >= self.ends_at, False, info

    def _result(self) -> tuple[Any, dict[str, Any]]:
        self.calls += 1
        ended = self.position >= self.ends_at
        self.mask[:] = 0 if ended else self.np_random.integers(0, 2, ACTIONS)
        if not ended:
            self.mask[self.np_random.integers(ACTIONS)] = 1
        if self.banned is not None and not ended:
            self.mask[self.banned], self.mask[self.banned - 1] = 0, 1
        obs = np.array([self.position, self.time, *self.mask], np.float32)
        info: dict[str, Any] = {"action_mask": self.mask} if self.masked else {}
        if self.fault and self.calls >= self.at:
            info = FAULTS[self.fault](self.mask)
        return obs, info


FAULTS: dict[str, Any] = {
    "missing": lambda mask: {},
    "shape": lambda mask: {"action_mask": mask[:-1]},
    "type": lambda mask: {"action_mask": mask.astype(np.float64)},
    "value": lambda mask: {"action_mask": mask * 2},
    "text": lambda mask: {"action_mask": "left"},
    "none": lambda mask: {"action_mask": mask * 0},
}
"""Infos with a wrong mask."""


class LateMasks(MaskedWalk):
    """Its first info has no mask."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        obs, _ = super().reset(seed=seed)
        self.mask[:] = 1
        return obs, {}


def register() -> None:
    """Register the environments, with a time limit of 9 steps."""
    for env_id, kind in ((MASKED, MaskedWalk), ("tests/LateMasks-v0", LateMasks)):
        if env_id not in gym.registry:
            entry_point = f"tests.masked_envs:{kind.__name__}"
            gym.register(env_id, entry_point=entry_point, max_episode_steps=9)

"""A vector environment in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rl_training.envs.contract import ACTION_MASK, AnyEnv


class LocalEnvs(SyncVectorEnv[Any, Any]):
    """Environments in this process, stepped one after the other.

    The next step overwrites the arrays that a step returned.
    """

    def __init__(self, makers: Sequence[Callable[[], AnyEnv]]) -> None:
        super().__init__(makers, copy=False, autoreset_mode=AutoresetMode.SAME_STEP)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Start new episodes; environment ``i`` is seeded with ``seed + i``."""
        infos: dict[str, Any] = {}
        for index, env in enumerate(self.envs):
            own = None if seed is None else seed + index
            self._observations[index], info = env.reset(seed=own, options=options)
            if ACTION_MASK in info:
                infos = self._add_info(infos, {ACTION_MASK: info[ACTION_MASK]}, index)
        return self._observations, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all environments like Gymnasium, but only for flat spaces and SAME_STEP resets."""
        infos: dict[str, Any] = {}
        for index, env in enumerate(self.envs):
            obs, reward, terminated, truncated, info = env.step(actions[index])
            if terminated or truncated:
                infos = self._add_info(infos, {"final_obs": obs, "final_info": info}, index)
                obs, info = env.reset()
            if ACTION_MASK in info:
                infos = self._add_info(infos, {ACTION_MASK: info[ACTION_MASK]}, index)
            self._observations[index] = obs
            self._rewards[index] = reward
            self._terminations[index] = terminated
            self._truncations[index] = truncated
        return self._observations, self._rewards, self._terminations, self._truncations, infos

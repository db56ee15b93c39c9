"""Environment wrappers that scale, shift and clip rewards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, SupportsFloat

import gymnasium as gym

from rl_training.envs.contract import AnyEnv, as_reward
from rl_training.rewards import RewardTransformConfig as RewardTransformConfig


class RewardTransformWrapper(gym.RewardWrapper[Any, Any]):
    """Applies a transform to every reward; the wrappers below are its individual steps."""

    def __init__(self, env: AnyEnv, transform: RewardTransformConfig) -> None:
        super().__init__(env)
        self._transform = transform

    def reward(self, reward: SupportsFloat) -> float:
        """Return the reward that the learner receives."""
        return float(self._transform(float(reward)))


class RewardScaleWrapper(RewardTransformWrapper):
    """Multiplies rewards by ``scale``."""

    def __init__(self, env: AnyEnv, scale: float) -> None:
        super().__init__(env, RewardTransformConfig(scale=scale))


class RewardShiftWrapper(RewardTransformWrapper):
    """Adds ``shift`` to rewards."""

    def __init__(self, env: AnyEnv, shift: float) -> None:
        super().__init__(env, RewardTransformConfig(shift=shift))


class RewardClipWrapper(RewardTransformWrapper):
    """Clips rewards to ``clip_min`` and ``clip_max``."""

    def __init__(
        self, env: AnyEnv, clip_min: float | None = None, clip_max: float | None = None
    ) -> None:
        super().__init__(env, RewardTransformConfig(clip_min=clip_min, clip_max=clip_max))


OWN_RETURN = "own_return"
"""Info key of a finished episode's return without reward transforms."""


class OwnReturnWrapper(gym.Wrapper[Any, Any, Any, Any]):
    """Adds up rewards before the transforms, to report the untransformed return."""

    def __init__(self, env: AnyEnv) -> None:
        super().__init__(env)
        self.total = 0.0

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode with a return of 0."""
        self.total = 0.0
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Add up the rewards; the info of the last step contains the sum."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.total += as_reward(reward)
        if terminated or truncated:
            kept = info if isinstance(info, Mapping) else {}
            info = {**kept, OWN_RETURN: self.total}
        return obs, reward, terminated, truncated, info


def apply_reward_wrappers(env: AnyEnv, config: RewardTransformConfig) -> AnyEnv:
    """Scale, then shift, then clip rewards; a step without effect adds no wrapper."""
    if config.scale != 1.0:
        env = RewardScaleWrapper(env, config.scale)
    if config.shift != 0.0:
        env = RewardShiftWrapper(env, config.shift)
    if config.clip_min is not None or config.clip_max is not None:
        env = RewardClipWrapper(env, config.clip_min, config.clip_max)
    return env

"""The reward arithmetic as environment wrappers."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium as gym

from rl_training.envs.contract import AnyEnv, as_reward
from rl_training.rewards import RewardTransformConfig as RewardTransformConfig


class RewardTransformWrapper(gym.RewardWrapper[Any, Any]):
    """Applies a transform to every reward; the three wrappers below are its single steps."""

    def __init__(self, env: AnyEnv, transform: RewardTransformConfig) -> None:
        super().__init__(env)
        self._transform = transform

    def reward(self, reward: SupportsFloat) -> float:
        """The reward that the learner sees."""
        return float(self._transform(float(reward)))


class RewardScaleWrapper(RewardTransformWrapper):
    """Multiplies rewards."""

    def __init__(self, env: AnyEnv, scale: float) -> None:
        super().__init__(env, RewardTransformConfig(scale=scale))


class RewardShiftWrapper(RewardTransformWrapper):
    """Adds to rewards."""

    def __init__(self, env: AnyEnv, shift: float) -> None:
        super().__init__(env, RewardTransformConfig(shift=shift))


class RewardClipWrapper(RewardTransformWrapper):
    """Limits rewards."""

    def __init__(
        self, env: AnyEnv, clip_min: float | None = None, clip_max: float | None = None
    ) -> None:
        super().__init__(env, RewardTransformConfig(clip_min=clip_min, clip_max=clip_max))


OWN_RETURN = "own_return"
"""Info key of an ended episode's return in the environment's own rewards."""


class OwnReturnWrapper(gym.Wrapper[Any, Any, Any, Any]):
    """Below the transforms: keeps an episode's return as it would be without them."""

    def __init__(self, env: AnyEnv) -> None:
        super().__init__(env)
        self.total = 0.0

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode at 0."""
        self.total = 0.0
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Add up; the last step's info is the sum."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.total += as_reward(reward)
        if terminated or truncated:
            info = {OWN_RETURN: self.total}
        return obs, reward, terminated, truncated, info


def apply_reward_wrappers(env: AnyEnv, config: RewardTransformConfig) -> AnyEnv:
    """Scale, then shift, then clip, each only where it changes something."""
    if config.scale != 1.0:
        env = RewardScaleWrapper(env, config.scale)
    if config.shift != 0.0:
        env = RewardShiftWrapper(env, config.shift)
    if config.clip_min is not None or config.clip_max is not None:
        env = RewardClipWrapper(env, config.clip_min, config.clip_max)
    return env

"""Flatten Gymnasium's goal layout: a Dict of `observation`, `achieved_goal`, `desired_goal`.

A learner gets ``[observation, desired_goal]``; training environments append ``achieved_goal``,
which only relabeling uses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.envs.contract import AnyEnv, ContractError, in_words
from rl_training.envs.guard import GuardedEnv
from rl_training.errors import ConfigError, EnvError
from rl_training.rewards import RewardTransformConfig
from rl_training.types import BoolArray, FloatArray

GOAL_KEYS = ("observation", "desired_goal", "achieved_goal")
"""Order of the parts of a flat observation."""


class FlatGoals(gym.ObservationWrapper[Any, Any, Any]):
    """The goal layout as one flat Box: the parts of ``keys``, in that order."""

    def __init__(self, env: AnyEnv, keys: tuple[str, ...]) -> None:
        super().__init__(env)
        self._keys = keys
        parts: Any = env.observation_space
        self.goal_dim = int(parts["desired_goal"].shape[0])
        low = np.concatenate([parts[key].low for key in keys])
        high = np.concatenate([parts[key].high for key in keys])
        self.observation_space = gym.spaces.Box(low, high, dtype=low.dtype.type)

    def observation(self, observation: Any) -> FloatArray:
        """Return the parts as one flat array."""
        return np.concatenate([observation[key] for key in self._keys])


def flatten_goals(env: AnyEnv, *, achieved: bool = False) -> AnyEnv:
    """Return a goal environment with flat observations; return any other unchanged.

    In the goal layout, each part is a flat Box and both goals have the same size.
    """
    space = env.observation_space
    if not isinstance(space, gym.spaces.Dict) or set(space.spaces) != set(GOAL_KEYS):
        return env
    parts = [space.spaces[key] for key in GOAL_KEYS]
    flat = all(isinstance(part, gym.spaces.Box) and len(part.shape) == 1 for part in parts)
    if not flat or parts[1].shape != parts[2].shape:
        return env
    return FlatGoals(env, GOAL_KEYS if achieved else GOAL_KEYS[:2])


class GoalTask:
    """Computes rewards and terminations for other goals, for relabeling.

    They come from the environment's `compute_reward` and `compute_terminated`, which are called
    with an empty info. The reward transform of the training environments is applied to rewards.
    """

    def __init__(self, env: GuardedEnv, env_id: str, rewards: RewardTransformConfig) -> None:
        core: Any = env.unwrapped
        if not callable(getattr(core, "compute_reward", None)):
            raise ConfigError(
                f"{env_id} has no method compute_reward(achieved_goal, desired_goal, info), which "
                "HER needs to relabel goals: add it to the environment."
            )
        self._transform = rewards
        has_ends = callable(getattr(core, "compute_terminated", None))
        try:
            env.reset(seed=0)  # some environments set attributes there that the functions read
            self._reward = _for_rows(env, "compute_reward")
            self._terminated = _for_rows(env, "compute_terminated") if has_ends else None
        except EnvError as error:
            raise ConfigError(f"{error}.") from error

    def rewards(self, achieved: FloatArray, desired: FloatArray) -> FloatArray:
        """Return rewards as the learner receives them, for goals ``[B, goal_dim]``."""
        return self._transform(self._reward(achieved, desired)).astype(np.float32)

    def terminations(self, achieved: FloatArray, desired: FloatArray) -> BoolArray | None:
        """Return whether the task would have ended; None if the environment cannot compute it."""
        if self._terminated is None:
            return None
        return self._terminated(achieved, desired).astype(bool)


def _for_rows(
    env: GuardedEnv, name: str
) -> Callable[[FloatArray, FloatArray], np.ndarray[Any, Any]]:
    """Return a goal function over rows: one call if it is vectorized, otherwise row by row.

    Some functions accept a batch but reduce it to one number, so both versions are compared on two
    reached goals and a distant one.
    """
    core: Any = env.unwrapped
    space, function = core.observation_space, getattr(core, name)
    kinds = space["achieved_goal"].dtype, space["desired_goal"].dtype

    def compute(achieved: FloatArray, desired: FloatArray) -> np.ndarray[Any, Any]:
        # Copy inputs and outputs: the function may modify its inputs or reuse its output array.
        result = np.array(function(achieved.astype(kinds[0]), desired.astype(kinds[1]), {}))
        if result.dtype.kind not in "biuf" or result.size != achieved[..., 0].size:
            raise ContractError(
                f"{name}() returns {in_words(result)} for goals of shape {achieved.shape}, but "
                "should return one number for each goal"
            )
        return result

    def batched(achieved: FloatArray, desired: FloatArray) -> np.ndarray[Any, Any]:
        return env.call(name, compute, achieved, desired)

    def one_by_one(achieved: FloatArray, desired: FloatArray) -> np.ndarray[Any, Any]:
        rows = zip(achieved, desired, strict=True)
        return np.array([batched(*goals).item() for goals in rows])

    near = np.zeros((3, space["desired_goal"].shape[0]), dtype=np.float32)
    far = near + np.array([[0.0], [0.0], [1e3]], dtype=np.float32)
    expected = one_by_one(near, far)
    try:
        found = batched(near, far)
    except EnvError:  # code for a single goal may fail in any way on a batch
        return one_by_one
    return batched if np.array_equal(found, expected, equal_nan=True) else one_by_one

"""Misbehaving environments. Workers and command lines import this module."""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch

WALK = "odd/Walk-v0"
GOALS = "odd/Goals-v0"
POSITION, CLOCK, LAST_ACTION = range(3)
"""Entries of a walk's observation."""


class Walk(gym.Env[Any, Any]):
    """A point that moves by its action; an episode has ``length`` steps.

    Args:
        length: Number of steps of an episode.
        trouble: The misbehavior, a key of `TROUBLES`; none by default.
        method: The method that misbehaves.
        at: The call of that method that misbehaves, counted from 1; 0 means every call.
        reuse: "own" or "all" returns one array per environment or for all environments.
        writes_actions: Whether it writes into the actions that it receives.
    """

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 10}  # noqa: RUF012
    shared_buffer = np.zeros(3)

    def __init__(
        self,
        length: int = 5,
        trouble: str = "",
        method: str = "step",
        at: int = 0,
        reuse: str = "",
        writes_actions: bool = False,
        render_mode: str | None = None,
    ) -> None:
        self.observation_space = gym.spaces.Box(-1e6, 1e6, (3,), np.float64)
        self.action_space = gym.spaces.Box(-2.0, 6.0, (1,), np.float32)
        self.length, self.trouble, self.method, self.at = length, trouble, method, at
        self.reuse, self.writes_actions, self.render_mode = reuse, writes_actions, render_mode
        self.calls = dict.fromkeys(("__init__", "reset", "step", "render", "close"), 0)
        self.position, self.clock = 0.0, 0
        self.buffer = np.zeros(3)
        self._misbehave("__init__")

    def _misbehave(self, method: str, result: Any = None) -> Any:
        self.calls[method] += 1
        due = method == self.method and self.at in (0, self.calls[method])
        return TROUBLES[self.trouble](result) if due and self.trouble else result

    def _obs(self, action: float) -> Any:
        fresh = np.array([self.position, self.clock, action])
        if not self.reuse:
            return fresh
        kept = self.buffer if self.reuse == "own" else self.shared_buffer
        kept[:] = fresh
        return kept

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.position, self.clock = float(self.np_random.uniform(-1.0, 1.0)), 0
        return self._misbehave("reset", (self._obs(0.0), {}))

    def step(self, action: Any) -> Any:
        taken = float(action[0])
        if self.writes_actions:
            action[:] = 77.0
        self.position += 0.1 * taken
        self.clock += 1
        ended = self.clock >= self.length
        return self._misbehave("step", (self._obs(taken), -abs(self.position), ended, False, {}))

    def render(self) -> Any:
        return self._misbehave("render", np.zeros((4, 4, 3), np.uint8))

    def close(self) -> None:
        self._misbehave("close")


class OddError(Exception):
    """An exception that cannot be pickled and has several lines."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{reason} {code}\nmore of it")
        self.code = lambda: code


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def _raise(error: BaseException) -> Callable[[Any], Any]:
    def act(_result: Any) -> Any:
        raise error

    return act


def _change_settings(result: Any) -> Any:
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    torch.set_num_threads(2)
    torch.set_default_device("meta")
    np.seterr(all="raise")
    np.random.seed(1)
    random.seed(1)
    torch.manual_seed(1)
    return result


def _replace(index: int, value: Any) -> Callable[[Any], Any]:
    """Replace one value of a result."""
    return lambda result: (*result[:index], value, *result[index + 1 :])


class Uninspectable:
    """An object whose inspection raises an error."""

    def __bool__(self) -> bool:
        raise RuntimeError("neither true nor false")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise ValueError("no array")


RESERVED = (
    *("final_obs", "final_info", "_final_obs", "own_return", "_own_return", "episode"),
    *("is_success", "a"),
)
"""Keys that Gymnasium or this package use in infos."""


def _odd_infos(result: Any) -> Any:
    odd = [1, "one", None, np.zeros(2), np.zeros((3, 1)), {"a": 1}, [1, 2], Uninspectable(), 2.5]
    value = random.Random(len(str(result))).choice(odd)
    return (*result[:-1], dict.fromkeys(RESERVED, value))


def _alternating_infos(result: Any) -> Any:
    """Return infos whose types change from step to step."""
    value = {0: 1, 1: "text", 2: [1], 3: {"b": 2}}[int(result[0][CLOCK]) % 4]
    return (*result[:-1], {"a": value} if result[0][CLOCK] != 3 else None)


TROUBLES: dict[str, Callable[[Any], Any]] = {
    "error": _raise(ZeroDivisionError("division by zero\nsecond line")),
    "odd_error": lambda _: (_ for _ in ()).throw(OddError(3, "broken")),
    "unprintable": lambda _: (_ for _ in ()).throw(UnprintableError()),
    "exit": lambda _: sys.exit(0),
    "os_exit": lambda _: os._exit(3),
    "hangs_in_a_worker": lambda _: time.sleep(3600 if multiprocessing.parent_process() else 0),
    "settings": _change_settings,
    "none": lambda _: None,
    "four_values": lambda result: result[:4],
    "no_reward": _replace(1, None),
    "array_reward": _replace(1, np.ones(1)),
    "text_reward": _replace(1, "1.0"),
    "huge_reward": _replace(1, 10**400),
    "nan_reward": _replace(1, float("nan")),
    "no_flag": _replace(2, None),
    "text_flag": _replace(3, "False"),
    "other_shape": _replace(0, np.zeros(4)),
    "scalar": _replace(0, 1.0),
    "objects": _replace(0, np.array([None, 1, "a"], dtype=object)),
    "text": _replace(0, np.array(["a", "b", "c"])),
    "odd_infos": _odd_infos,
    "alternating_infos": _alternating_infos,
}


class Goals(gym.Env[Any, Any]):
    """A similar walk toward a goal; with ``reuse``, it always returns the same arrays.

    With ``reuse``, `compute_reward` also writes into its arguments.
    """

    def __init__(self, reuse: bool = False, fails: bool = False) -> None:
        box = gym.spaces.Box(-1e6, 1e6, (1,), np.float32)
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = gym.spaces.Dict(dict.fromkeys(names, box))
        self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.reuse, self.fails = reuse, fails
        self.parts = {name: np.zeros(1, np.float32) for name in names}
        self.position, self.goal, self.clock, self.asked = 0.0, 0.0, 0, 0

    def _obs(self) -> Any:
        if not self.reuse:
            self.parts = {name: np.zeros(1, np.float32) for name in self.parts}
        for name, value in zip(self.parts, (self.clock, self.position, self.goal), strict=True):
            self.parts[name][:] = value
        return self.parts

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.clock, self.position = 0, 0.0
        self.goal = float(self.np_random.uniform(-1.0, 1.0))
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self.clock += 1
        self.position += float(action[0])
        reward = -abs(self.position - self.goal)
        return self._obs(), reward, False, self.clock >= 5, {"is_success": reward > -0.1}

    def compute_reward(self, achieved: Any, desired: Any, _info: Any) -> Any:
        self.asked += 1
        if self.fails and self.asked > 7:
            raise ZeroDivisionError("division by zero")
        reward = -np.abs(achieved - desired)[..., 0]
        if self.reuse:
            achieved[...] = 55.0
            desired[...] = 66.0
        return reward


def register() -> None:
    """Register the environments with Gymnasium, once."""
    if WALK not in gym.registry:
        gym.register(WALK, entry_point=f"{__name__}:Walk", max_episode_steps=50)
        gym.register(GOALS, entry_point=f"{__name__}:Goals", max_episode_steps=50)


register()

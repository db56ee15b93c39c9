"""Check an environment with one reset and one step, to find mistakes before a run."""

from __future__ import annotations

import inspect
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch

from rl_training.envs.actions import ActionScaler
from rl_training.envs.contract import (
    ACTION_MASK,
    CHECKS,
    IGNORE_MASKS,
    AnyEnv,
    ContractError,
    check_obs,
    read_action_mask,
)
from rl_training.envs.goals import FlatGoals
from rl_training.envs.guard import FAILURES, GuardedEnv
from rl_training.envs.observations import FlatObservations
from rl_training.envs.state import wrappers_and_core
from rl_training.errors import ConfigError
from rl_training.text import error_text
from rl_training.types import EnvSpec

SLACK = 1e-5
"""How far a value may exceed its bound due to rounding, relative to its size."""


def check_spaces(env: AnyEnv, env_id: str) -> None:
    """Reject an environment without an observation space or an action space."""
    for name in ("observation_space", "action_space"):
        if not isinstance(getattr(env, name, None), gym.Space):
            raise ConfigError(
                f"{env_id} has no {name}: set self.{name} to a space from gymnasium.spaces in "
                "__init__."
            )


class CheckedEpisode(NamedTuple):
    """What one reset and one step show about an environment."""

    notes: list[str]
    """Minor problems."""
    action_masks: bool
    """Whether the infos have action masks."""


def check_episode(
    env: GuardedEnv, env_id: str, spec: EnvSpec, *, use_masks: bool = True
) -> CheckedEpisode:
    """Try one reset and one step; without ``use_masks``, action masks are not read."""
    inner = env.env.env if isinstance(env.env, FlatGoals | FlatObservations) else env.env
    read_masks = use_masks and spec.discrete and not spec.action_choices
    try:
        with _preserve_random_state():
            found = env.isolation.run(_reset_and_step, inner, spec, read_masks)
    except ContractError as mistake:
        raise ConfigError(f"{env_id}: {mistake}.") from mistake.__cause__
    notes = [f"{env_id}: {note}." for note in dict.fromkeys(found.notes) if note]
    return found._replace(notes=notes)


def _reset_and_step(env: AnyEnv, spec: EnvSpec, read_masks: bool) -> CheckedEpisode:
    space = env.observation_space
    obs, info = _call(env, "reset", seed=0, options=None)
    action = np.zeros(spec.action_width, dtype=np.float32)
    has_masks = read_masks and ACTION_MASK in info
    if has_masks:
        action[0] = read_action_mask(info, spec.action_dim, "reset").argmax()  # a legal one
    notes = [_outside(obs, space)]
    obs, _, terminated, _, info = _call(env, "step", ActionScaler(spec).to_env(action))
    notes.append(_outside(obs, space))
    if has_masks and not terminated:
        read_action_mask(info, spec.action_dim, "step")
    elif read_masks and ACTION_MASK in info and not has_masks:
        raise ContractError(
            f"step() returns {ACTION_MASK!r} in its info, but reset() does not; return it in both, "
            f"or {IGNORE_MASKS}"
        )
    return CheckedEpisode([note for note in notes if note], has_masks)


def describe_running(env: AnyEnv, env_id: str, *, evaluated: bool) -> list[str]:
    """Return notes on an environment that passed the check; see `examine_env`."""
    layers = wrappers_and_core(env)
    notes = [
        f"{type(layer).__name__} in {env_id} keeps running statistics in each environment, so "
        "training and evaluation normalize differently, and a resumed run starts new statistics; "
        "use the keys normalize_observations and normalize_rewards instead."
        for layer in layers
        if any(type(value).__name__ == "RunningMeanStd" for value in vars(layer).values())
    ]
    if evaluated and not any(isinstance(layer, gym.wrappers.TimeLimit) for layer in layers):
        notes.append(
            f"{env_id} has no time limit, so an evaluation waits until each episode ends; if "
            "episodes may not end, set env_kwargs.max_episode_steps=N, or wrap an environment "
            "object with gymnasium.wrappers.TimeLimit."
        )
    return notes


@contextmanager
def _preserve_random_state() -> Iterator[None]:
    """Restore the global random generators, so that the check does not change results."""
    shared, plain = np.random.get_state(), random.getstate()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        np.random.set_state(shared)
        random.setstate(plain)


def _call(env: AnyEnv, method: str, *args: Any, **kwargs: Any) -> Any:
    """Reset or step once; return the result, or raise a ContractError."""
    try:
        result = getattr(env, method)(*args, **kwargs)
    except ContractError:  # from a wrapper of this package
        raise
    except FAILURES as error:
        if isinstance(error, TypeError) and method == "reset":
            _check_signatures(env, error)
        _check_core(env, method, error, *args, **kwargs)
        raise ContractError(
            f"the first {method}() failed with {error_text(error)}; fix the environment or "
            "env_kwargs"
        ) from error
    CHECKS[method](result)
    check_obs(result[0], env.observation_space, method)
    return result


def _check_signatures(env: AnyEnv, error: TypeError) -> None:
    """Find the `reset` that lacks a required argument."""
    for layer in wrappers_and_core(env):
        taken = inspect.signature(layer.reset).parameters
        if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in taken.values()):
            continue
        missing = [name for name in ("seed", "options") if name not in taken]
        if missing:
            raise ContractError(
                f"{type(layer).__name__}.reset does not accept {' and '.join(missing)}: define it "
                "as reset(self, *, seed=None, options=None)"
            ) from error


def _check_core(env: AnyEnv, method: str, error: BaseException, *args: Any, **kwargs: Any) -> None:
    """Check the core environment, whose result may have caused a wrapper's error."""
    try:
        result = getattr(env.unwrapped, method)(*args, **kwargs)
    except FAILURES:  # the wrapper has already reported it
        return
    try:
        CHECKS[method](result)
    except ContractError as mistake:
        raise mistake from error


def _outside(obs: Any, space: gym.Space[Any]) -> str | None:
    """Describe where an observation exceeds the bounds of its space; None if it does not."""
    if isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
        parts = space.items() if isinstance(space, gym.spaces.Dict) else enumerate(space)
        notes = (_outside(obs[key], part) for key, part in parts)
        return next((note for note in notes if note), None)
    if not isinstance(space, gym.spaces.Box):
        return None  # `check_obs` has checked the value itself
    values = np.ravel(np.asarray(obs, dtype=np.float64))
    low, high = np.ravel(space.low), np.ravel(space.high)
    slack = SLACK * np.maximum(1.0, np.abs(values))
    wrong = np.flatnonzero((values < low - slack) | (values > high + slack))
    if not wrong.size:
        return None
    entry = int(wrong[0])
    return (
        f"entry {entry} of an observation is {values[entry]:.6g}, outside the bounds "
        f"[{low[entry]:.6g}, {high[entry]:.6g}] of its space"
    )

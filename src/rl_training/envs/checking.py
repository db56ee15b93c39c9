"""One reset and one step of an environment, so that what is wrong with it shows before a run."""

from __future__ import annotations

import inspect
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from rl_training.envs.actions import ActionScaler
from rl_training.envs.goals import FlatGoals
from rl_training.envs.state import wrappers_and_core
from rl_training.errors import ConfigError
from rl_training.types import EnvSpec

SLACK = 1e-5
"""How far, beside its size, a bound may be passed by rounding."""


class _MistakeError(Exception):
    """What is wrong, in words that stand behind the environment's name."""


def check_spaces(env: gym.Env[Any, Any], env_id: str) -> None:
    """Whether an environment says what it shows and what it takes."""
    for name in ("observation_space", "action_space"):
        if not isinstance(getattr(env, name, None), gym.Space):
            raise ConfigError(
                f"{env_id} has no {name}: set self.{name} to one of gymnasium.spaces in its "
                "__init__."
            )


def check_episode(env: gym.Env[Any, Any], env_id: str, spec: EnvSpec) -> list[str]:
    """Try one reset and one step; what is odd and no reason to stop comes back as notes."""
    inner = env.env if isinstance(env, FlatGoals) else env
    try:
        with _undisturbed():
            shown = [_reset(inner), _step(inner, spec)]
    except _MistakeError as mistake:
        raise ConfigError(f"{env_id}: {mistake}.") from mistake.__cause__
    notes = [_outside(obs, inner.observation_space) for obs in shown]
    return [f"{env_id}: {note}." for note in dict.fromkeys(notes) if note]


def describe_running(env: gym.Env[Any, Any], env_id: str, *, plays: bool) -> list[str]:
    """What a user should know of an environment that works; ``plays``: episodes are evaluated."""
    layers = wrappers_and_core(env)
    notes = [
        f"{type(layer).__name__} in {env_id} keeps running statistics in each environment: "
        "training and evaluation see different numbers, and they begin anew when the run is "
        "continued; use fixed numbers instead."
        for layer in layers
        if any(type(value).__name__ == "RunningMeanStd" for value in vars(layer).values())
    ]
    if plays and not any(isinstance(layer, gym.wrappers.TimeLimit) for layer in layers):
        notes.append(
            f"{env_id} has no time limit, neither from its registration nor from "
            "env_kwargs.max_episode_steps: an evaluation waits for episodes that may not end; set "
            "env_kwargs.max_episode_steps=N if they do not."
        )
    return notes


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Leave the generators that all code shares as they were: a run's numbers stay the same."""
    shared, plain = np.random.get_state(), random.getstate()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        np.random.set_state(shared)
        random.setstate(plain)


def _reset(env: gym.Env[Any, Any]) -> Any:
    try:
        result = env.reset(seed=0, options=None)
    except Exception as error:
        if isinstance(error, TypeError):
            _check_signatures(env, error)
        _ask_core(env, "reset", error)
        raise _failure("reset", error) from error
    obs, _info = _check_reset(result)
    _check_obs(obs, env.observation_space, "reset")
    return obs


def _step(env: gym.Env[Any, Any], spec: EnvSpec) -> Any:
    action = ActionScaler(spec).to_env(np.zeros(spec.action_width, dtype=np.float32))
    try:
        result = env.step(action)
    except Exception as error:
        _ask_core(env, "step", error, action)
        raise _failure("step", error) from error
    obs, reward, *_ = _check_step(result)
    _check_obs(obs, env.observation_space, "step")
    if not _is_number(reward, "biuf"):
        raise _MistakeError(
            f"its step gives the reward {_in_words(reward)}, but one number is needed: return a "
            "float"
        )
    return obs


def _check_signatures(env: gym.Env[Any, Any], error: TypeError) -> None:
    """Find the `reset` that does not take what every reset must."""
    for layer in wrappers_and_core(env):
        taken = inspect.signature(layer.reset).parameters
        if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in taken.values()):
            continue
        missing = [name for name in ("seed", "options") if name not in taken]
        if missing:
            raise _MistakeError(
                f"{type(layer).__name__}.reset does not take {' and '.join(missing)}: write it as "
                "reset(self, *, seed=None, options=None)"
            ) from error


def _ask_core(env: gym.Env[Any, Any], method: str, error: Exception, action: Any = None) -> None:
    """Where a wrapper failed on what the environment inside gave, find the mistake there."""
    try:
        core: Any = env.unwrapped
        result = core.step(action) if method == "step" else core.reset(seed=0, options=None)
    except Exception:  # which was told by the wrapper already
        return
    try:
        _ = _check_step(result) if method == "step" else _check_reset(result)
    except _MistakeError as mistake:
        raise mistake from error


def _failure(method: str, error: Exception) -> _MistakeError:
    text = " ".join(str(error).split())
    return _MistakeError(
        f"its first {method} failed with {type(error).__name__}: {text}; mend the environment, or "
        "its env_kwargs"
    )


def _check_reset(result: Any) -> Any:
    if not isinstance(result, tuple) or len(result) != 2:
        given = f"{len(result)} values" if isinstance(result, tuple) else "the observation alone"
        raise _MistakeError(
            f"its reset gives {given}, but two are needed: return observation, info (a dict)"
        )
    _check_info(result[1], "reset")
    return result


def _check_step(result: Any) -> Any:
    wanted = "return observation, reward, terminated, truncated, info"
    if not isinstance(result, tuple) or len(result) != 5:
        given = f"{len(result)} values" if isinstance(result, tuple) else _in_words(result)
        old = ", which was Gym's way before 0.26" if given == "4 values" else ""
        raise _MistakeError(f"its step gives {given}{old}, but five are needed: {wanted}")
    for name, flag in zip(("terminated", "truncated"), result[2:4], strict=True):
        if not _is_number(flag, "biu"):
            raise _MistakeError(
                f"its step gives {_in_words(flag)} for {name}, but True or False is needed: "
                f"{wanted}"
            )
    _check_info(result[4], "step")
    return result


def _check_info(info: Any, method: str) -> None:
    if not isinstance(info, Mapping):
        raise _MistakeError(
            f"its {method} gives {_in_words(info)} for info, but a dict is needed: return {{}} "
            "where there is nothing to tell"
        )


def _check_obs(obs: Any, space: gym.Space[Any], method: str, name: str = "observation") -> None:
    """Whether an observation, or each part of one, has the shape that its space declares."""
    if isinstance(space, gym.spaces.Dict):
        if not isinstance(obs, Mapping) or not set(space.spaces) <= set(obs):
            raise _MistakeError(
                f"its {method} gives {_in_words(obs)} for the observation, but a dict of "
                f"{', '.join(space.spaces)} is needed"
            )
        for key, part in space.spaces.items():
            _check_obs(obs[key], part, method, key)
        return
    if not _is_numeric(obs) or np.shape(obs) != space.shape:
        raise _MistakeError(
            f"its {method} gives {_in_words(obs)} for the {name}, but numbers of shape "
            f"{space.shape} are declared: make the space and what is returned agree"
        )


def _outside(obs: Any, space: gym.Space[Any]) -> str | None:
    """Where an observation passes the bounds of its space; nothing where it stays inside."""
    if isinstance(space, gym.spaces.Dict):
        notes = (_outside(obs[key], part) for key, part in space.spaces.items())
        return next((note for note in notes if note), None)
    assert isinstance(space, gym.spaces.Box)
    values = np.asarray(obs, dtype=np.float64)
    slack = SLACK * np.maximum(1.0, np.abs(values))
    wrong = np.flatnonzero((values < space.low - slack) | (values > space.high + slack))
    if not wrong.size:
        return None
    entry = int(wrong[0])
    return (
        f"entry {entry} of an observation is {values[entry]:.6g}, outside the bounds "
        f"[{space.low[entry]:.6g}, {space.high[entry]:.6g}] that its space declares"
    )


def _is_numeric(value: Any) -> bool:
    try:
        return np.asarray(value).dtype.kind in "biuf"
    except (TypeError, ValueError):  # rows of different lengths
        return False


def _is_number(value: Any, kinds: str) -> bool:
    return _is_numeric(value) and np.ndim(value) == 0 and np.asarray(value).dtype.kind in kinds


def _in_words(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} of shape {value.shape}"
    if isinstance(value, Mapping):
        return f"a dict of {', '.join(map(str, value))}"
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"

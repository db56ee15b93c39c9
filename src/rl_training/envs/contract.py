"""Check the values that an environment's reset and step return."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.text import printable, shorten, shown

AnyEnv = gym.Env[Any, Any]


class ContractError(Exception):
    """An invalid result; the message is shown after the name of the environment."""


def check_reset(result: Any) -> None:
    """Reject a result that is not ``(observation, info)``."""
    if not isinstance(result, tuple) or len(result) != 2:
        given = f"{len(result)} values" if isinstance(result, tuple) else "only the observation"
        raise ContractError(
            f"reset() returns {given}, but should return two values: observation, info (a dict)"
        )
    check_info(result[1], "reset")


_WANTED = "observation, reward, terminated, truncated, info"


def check_step(result: Any) -> None:
    """Reject a result that is not the five values of a step; the observation is not checked."""
    if not isinstance(result, tuple) or len(result) != 5:
        given = f"{len(result)} values" if isinstance(result, tuple) else in_words(result)
        old = " (the interface of Gym before 0.26)" if given == "4 values" else ""
        raise ContractError(f"step() returns {given}{old}, but should return five: {_WANTED}")
    as_flag(result[2], "terminated")
    as_flag(result[3], "truncated")
    as_reward(result[1])
    check_info(result[4], "step")


CHECKS = {"reset": check_reset, "step": check_step}


def as_flag(flag: Any, name: str) -> bool:
    """Return a flag as a bool; reject other values."""
    if type(flag) is not np.bool_ and not is_number(flag, "iub"):
        raise ContractError(
            f"step() returns {in_words(flag)} for {name}, but should return True or False "
            f"({_WANTED})"
        )
    return bool(flag)


def as_reward(reward: Any) -> float:
    """Return a reward as a float; reject anything but a single number."""
    if not is_number(reward, "fiub"):
        raise ContractError(
            f"step() returns {in_words(reward)} for the reward, but should return a single number"
        )
    return float(reward)


def check_info(info: Any, method: str) -> None:
    """Reject an info that is not a dict."""
    if not isinstance(info, Mapping):
        raise ContractError(
            f"{method}() returns {in_words(info)} for info, but should return a dict, which may "
            "be empty"
        )


def check_obs(obs: Any, space: gym.Space[Any], method: str, name: str = "observation") -> None:
    """Reject an observation whose shape or type does not match its space."""
    if isinstance(space, gym.spaces.Dict):
        if not isinstance(obs, Mapping) or not set(space.spaces) <= set(obs):
            raise ContractError(
                f"{method}() returns {in_words(obs)} for the observation, but should return a "
                f"dict of {', '.join(space.spaces)}"
            )
        for key, part in space.spaces.items():
            check_obs(obs[key], part, method, key)
        return
    kinds = number_kinds(space)
    if not is_numeric(obs, kinds) or np.shape(obs) != space.shape:
        numbers = "numbers" if "f" in kinds else "whole numbers"
        raise ContractError(
            f"{method}() returns {in_words(obs)} for the {name}, but its space declares "
            f"{numbers} of shape {space.shape}; change one of them"
        )


def number_kinds(space: gym.Space[Any]) -> str:
    """Return the kinds of NumPy numbers that a space can represent without rounding."""
    return "fiub" if space.dtype is None or space.dtype.kind == "f" else "iub"


def is_numeric(value: Any, kinds: str = "fiub") -> bool:
    """Return whether a value is a number or an array of numbers of the given NumPy kinds."""
    try:
        return np.asarray(value).dtype.kind in kinds
    except (TypeError, ValueError):  # rows of different lengths
        return False


def is_number(value: Any, kinds: str = "fiub") -> bool:
    """Return whether a value is a single number of the given NumPy kinds."""
    return is_numeric(value, kinds) and np.ndim(value) == 0


def in_words(value: Any) -> str:
    """Describe a value for an error message."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} of shape {value.shape}"
    if isinstance(value, Mapping):
        return f"a dict of {shorten(printable(', '.join(map(str, value)), keep=''))}"
    text = shown(value)
    return text if len(text) <= 60 else f"a value of type {type(value).__name__}"

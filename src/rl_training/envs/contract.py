"""Checks of what an environment's reset and step return; each mistake is one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.text import printable, shorten, shown

AnyEnv = gym.Env[Any, Any]


class ContractError(Exception):
    """What is wrong, as the rest of a sentence that begins with the environment's name."""


def check_reset(result: Any) -> None:
    """Refuse what is not an observation and an info."""
    if not isinstance(result, tuple) or len(result) != 2:
        given = f"{len(result)} values" if isinstance(result, tuple) else "the observation alone"
        raise ContractError(
            f"its reset gives {given}, but two are needed: return observation, info (a dict)"
        )
    check_info(result[1], "reset")


_WANTED = "return observation, reward, terminated, truncated, info"


def check_step(result: Any) -> None:
    """Refuse what is not the five values of a step, all but the first of the right types."""
    if not isinstance(result, tuple) or len(result) != 5:
        given = f"{len(result)} values" if isinstance(result, tuple) else in_words(result)
        old = ", which was Gym's way before 0.26" if given == "4 values" else ""
        raise ContractError(f"its step gives {given}{old}, but five are needed: {_WANTED}")
    as_flag(result[2], "terminated")
    as_flag(result[3], "truncated")
    as_reward(result[1])
    check_info(result[4], "step")


CHECKS = {"reset": check_reset, "step": check_step}


def as_flag(flag: Any, name: str) -> bool:
    """A flag; what is neither true nor false is refused."""
    if type(flag) is not np.bool_ and not is_number(flag, "iub"):
        raise ContractError(
            f"its step gives {in_words(flag)} for {name}, but True or False is needed: {_WANTED}"
        )
    return bool(flag)


def as_reward(reward: Any) -> float:
    """A reward; what is not one number is refused."""
    if not is_number(reward, "fiub"):
        raise ContractError(
            f"its step gives the reward {in_words(reward)}, but one number is needed: return a "
            "float"
        )
    return float(reward)


def check_info(info: Any, method: str) -> None:
    """Refuse an info that is not a dict."""
    if not isinstance(info, Mapping):
        raise ContractError(
            f"its {method} gives {in_words(info)} for info, but a dict is needed: return {{}} "
            "where there is nothing to tell"
        )


def check_obs(obs: Any, space: gym.Space[Any], method: str, name: str = "observation") -> None:
    """Whether an observation, or each part of one, has the shape that its space declares."""
    if isinstance(space, gym.spaces.Dict):
        if not isinstance(obs, Mapping) or not set(space.spaces) <= set(obs):
            raise ContractError(
                f"its {method} gives {in_words(obs)} for the observation, but a dict of "
                f"{', '.join(space.spaces)} is needed"
            )
        for key, part in space.spaces.items():
            check_obs(obs[key], part, method, key)
        return
    kinds = number_kinds(space)
    if not is_numeric(obs, kinds) or np.shape(obs) != space.shape:
        numbers = "numbers" if "f" in kinds else "whole numbers"
        raise ContractError(
            f"its {method} gives {in_words(obs)} for the {name}, but {numbers} of shape "
            f"{space.shape} are declared: make the space and what is returned agree"
        )


def number_kinds(space: gym.Space[Any]) -> str:
    """NumPy's kinds of numbers that a space can hold without rounding them."""
    return "fiub" if space.dtype is None or space.dtype.kind == "f" else "iub"


def is_numeric(value: Any, kinds: str = "fiub") -> bool:
    """Whether a value is a number, or an array of numbers, of some of NumPy's kinds."""
    try:
        return np.asarray(value).dtype.kind in kinds
    except (TypeError, ValueError):  # rows of different lengths
        return False


def is_number(value: Any, kinds: str = "fiub") -> bool:
    """The same for one number."""
    return is_numeric(value, kinds) and np.ndim(value) == 0


def in_words(value: Any) -> str:
    """A value as an error message names it."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} of shape {value.shape}"
    if isinstance(value, Mapping):
        return f"a dict of {shorten(printable(', '.join(map(str, value)), keep=''))}"
    text = shown(value)
    return text if len(text) <= 60 else f"a value of type {type(value).__name__}"

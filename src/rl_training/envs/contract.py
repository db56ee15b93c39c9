"""Check the values that an environment's reset and step return."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv

from rl_training.text import printable, shorten, shown
from rl_training.types import BoolArray

AnyEnv = gym.Env[Any, Any]
AnyVectorEnv = VectorEnv[Any, Any, Any]


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

ACTION_MASK = "action_mask"
"""Key of the infos with the legal actions: 1 for each legal action, 0 for the others."""

SUCCESS_KEYS = ("is_success", "success")
"""Usual keys of the last info of an episode that tell whether it succeeded."""

IGNORE_MASKS = "set env_kwargs.action_masks=false to ignore the masks"


def read_action_mask(info: Mapping[str, Any], num_actions: int, method: str) -> BoolArray:
    """Return a copy of the action mask in an info; reject one that cannot be used."""
    if ACTION_MASK not in info:
        raise ContractError(
            f"{method}() returns an info without {ACTION_MASK!r}, but every reset and step should "
            f"return one; {IGNORE_MASKS}"
        )
    mask = info[ACTION_MASK]
    if not is_numeric(mask, "iub") or np.shape(mask) != (num_actions,):
        raise ContractError(
            f"{method}() returns {in_words(mask)} for the action mask, but should return an array "
            f"of {num_actions} booleans or integers, one for each action; {IGNORE_MASKS}"
        )
    values = np.asarray(mask)
    legal: BoolArray = values == 1
    if not (legal | (values == 0)).all():
        odd = values[~legal & (values != 0)][0]
        raise ContractError(
            f"{method}() returns an action mask with the value {odd}, but should return 1 for each "
            f"legal action and 0 for the others; {IGNORE_MASKS}"
        )
    if not legal.any():
        raise ContractError(
            f"{method}() returns an action mask without a legal action, but at least one is needed "
            f"unless the episode has terminated; {IGNORE_MASKS}"
        )
    return legal


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
    if isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
        _check_parts(obs, space, method, name)
        return
    is_array = type(obs) is np.ndarray and type(space) is gym.spaces.Box
    if is_array and obs.dtype == space.dtype and obs.shape == space.shape:
        return
    kinds = number_kinds(space)
    if not is_numeric(obs, kinds) or np.shape(obs) != space.shape:
        numbers = "numbers" if "f" in kinds else "whole numbers"
        raise ContractError(
            f"{method}() returns {in_words(obs)} for the {name}, but its space declares "
            f"{numbers} of shape {space.shape}; change one of them"
        )
    if not isinstance(space, gym.spaces.Box) and not space.contains(np.asarray(obs, space.dtype)):
        raise ContractError(
            f"{method}() returns {in_words(obs)} for the {name}, which is not in its space "
            f"{space_name(space)}; change one of them"
        )


def _check_parts(
    obs: Any, space: gym.spaces.Dict | gym.spaces.Tuple[Any], method: str, name: str
) -> None:
    """Reject an observation that is not the Dict or Tuple of its space."""
    where = "" if name == "observation" else f"{name}/"
    if isinstance(space, gym.spaces.Dict):
        if not isinstance(obs, Mapping) or not set(space.spaces) <= set(obs):
            raise ContractError(
                f"{method}() returns {in_words(obs)} for the {name}, but should return a "
                f"dict of {', '.join(map(str, space.spaces))}"
            )
        pairs = [(key, obs[key], part) for key, part in space.spaces.items()]
    else:
        if not isinstance(obs, tuple | list) or len(obs) != len(space.spaces):
            raise ContractError(
                f"{method}() returns {in_words(obs)} for the {name}, but should return a "
                f"tuple of {len(space.spaces)} values"
            )
        pairs = [(str(i), value, space[i]) for i, value in enumerate(obs)]
    for key, value, part in pairs:
        check_obs(value, part, method, f"{where}{key}")


def number_kinds(space: gym.Space[Any]) -> str:
    """Return the kinds of NumPy numbers that a space can represent without rounding."""
    return "fiub" if space.dtype is None or space.dtype.kind == "f" else "iub"


def space_name(space: gym.Space[Any]) -> str:
    """Return the text of a space, shortened to its type and shape if it is long."""
    text = repr(space)
    return text if len(text) <= 80 else f"{type(space).__name__}{space.shape or ''}"


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

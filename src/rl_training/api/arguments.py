"""Validation of the arguments of API functions."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.errors import ConfigError
from rl_training.experiment.plain_values import env_id_of
from rl_training.runtime.callbacks import Callback, check_hooks
from rl_training.text import shown


def whole_number(name: str, value: Any, *, least: int | None = None) -> int:
    """Return an integer, or a float with an integer value such as 1e5, as an int.

    Strings, booleans and numbers below ``least`` are rejected.
    """
    if isinstance(value, float | np.floating) and float(value).is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ConfigError(f"{name} = {shown(value)}: should be a whole number.")
    if least is not None and value < least:
        raise ConfigError(f"{name} = {shown(value)}: should be at least {least}.")
    return int(value)


def as_path(name: str, value: Any, wanted: str = "a run or a checkpoint") -> Path:
    """Return a valid path; the error for an object with a `run_dir` suggests passing that."""
    if not isinstance(value, str | os.PathLike):
        advice = ": pass its run_dir" if hasattr(value, "run_dir") else ""
        raise ConfigError(f"{name} = {shown(value)}: should be the path of {wanted}{advice}.")
    try:
        os.lstat(value)
    except ValueError:
        raise ConfigError(
            f"{name} = {shown(value)}: the path contains a character that is not allowed."
        ) from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise ConfigError(f"{name} = {shown(value)}: the path is too long.") from None
    return Path(value)


def as_output(name: str, value: Any, endings: Sequence[str] = ()) -> Path:
    """Return the path of a file to write; its folder must exist and its suffix must be valid."""
    path = as_path(name, value, "a file")
    if endings and path.suffix.lower() not in endings:
        *others, last = endings
        allowed = f"{', '.join(others)} or {last}" if others else last
        raise ConfigError(f"{name} = {shown(str(path))}: the file name must end in {allowed}.")
    if not path.parent.is_dir():
        raise ConfigError(
            f"{name} = {shown(str(path))}: the folder {shown(str(path.parent))} does not exist."
        )
    return path


def check_positional(
    name: str, env_id: Any, extra: Sequence[Any], options: Mapping[str, Any]
) -> None:
    """Reject positional arguments after the first, such as those of Stable-Baselines3."""
    policy = options.get("policy", env_id)
    if isinstance(policy, str) and re.fullmatch(r"\w*Policy", policy):
        given = next(iter(extra), options.get("env", options.get("env_id")))
        known = given if isinstance(given, str) else env_id_of(given)
        raise ConfigError(
            f"{name} takes an environment id, not a policy: write {name}({known or 'ENV_ID'!r}). "
            "Options such as hidden_sizes=[256, 256] configure the networks."
        )
    if extra:
        raise ConfigError(
            f"{name} takes one positional argument, the environment id: pass {shown(extra[0])} by "
            f"its name, as in {name}('Pendulum-v1', seed=1)."
        )


def check_callbacks(callbacks: Sequence[Callback]) -> list[Callback]:
    """Return the callbacks as a list; errors show what to pass instead."""
    if isinstance(callbacks, Callback):
        name = type(callbacks).__name__
        raise ConfigError(f"callbacks is a single {name}: pass a list, callbacks=[{name}()].")
    if not isinstance(callbacks, Sequence):
        raise ConfigError(
            f"callbacks = {shown(callbacks)}: should be a list of Callback objects. Leave it out "
            "if you have none."
        )
    for index, callback in enumerate(callbacks):
        if isinstance(callback, type) and issubclass(callback, Callback):
            name = callback.__name__
            raise ConfigError(f"callbacks[{index}] is the class {name}: pass an object, {name}().")
        if not isinstance(callback, Callback):
            raise ConfigError(
                f"callbacks[{index}] = {shown(callback)}: should be a Callback. Derive a class "
                "from rl_training.Callback and override on_step (docs/callbacks.md)."
            )
        check_hooks(callback)
    return list(callbacks)

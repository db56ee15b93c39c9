"""Validation of the arguments of API functions."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.data.given_data import DatasetLike, GivenData, select_dataset
from rl_training.envs import EnvLike
from rl_training.envs.given import GivenEnv
from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig, make_config, read_config
from rl_training.experiment.run_envs import with_env
from rl_training.runtime.callbacks import Callback, check_hooks
from rl_training.text import shown

ConfigLike = TrainConfig | Mapping[str, Any] | str | Path


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


def with_objects(
    config: ConfigLike,
    *,
    env: str | GivenEnv | None = None,
    dataset: DatasetLike | None = None,
) -> tuple[TrainConfig, GivenData | None]:
    """Return a validated config that uses ``env`` and ``dataset`` instead of its own, and the data.

    The data is None if the config alone selects it.
    """
    if env is None and dataset is None:
        return as_config(config), None
    data = config.to_dict() if isinstance(config, TrainConfig) else config
    data = dict(data) if isinstance(data, Mapping) else read_config(data)
    if env is not None:
        data = with_env(data, env)
    if dataset is None:
        return make_config(data), None
    keys, given = select_dataset(dataset)
    kwargs = data.get("algo_kwargs") or {}
    if isinstance(kwargs, Mapping):
        data["algo_kwargs"] = {**kwargs, **keys}
    return make_config(data), given


def as_config(config: ConfigLike) -> TrainConfig:
    """Return a validated config."""
    if isinstance(config, TrainConfig):
        return config
    return make_config(config) if isinstance(config, Mapping) else TrainConfig.load(config)


def one_env(env: EnvLike | None, env_id: str | None) -> EnvLike | None:
    """Return the environment that was passed as ``env`` or, if it is an id, as ``env_id``."""
    if env is not None and env_id is not None:
        raise ConfigError(
            f"env = {shown(env)} and env_id = {shown(env_id)}: pass only one of them."
        )
    if env_id is not None and not isinstance(env_id, str):
        raise ConfigError(f"env_id = {shown(env_id)}: should be an id; pass an object as env.")
    return env if env_id is None else env_id


def positional_env(name: str, positional: Sequence[Any], env: Any, policy: Any = None) -> Any:
    """Return the environment of a call such as ``SAC(env)`` or ``SAC(env=env)``.

    Other positional arguments, such as those of Stable-Baselines3, are rejected.
    """
    given = [*positional, *([] if env is None else [env])]
    for value in (policy, *positional[:1]):
        if isinstance(value, str) and re.fullmatch(r"\w*Policy", value):
            others = [other for other in given if other is not value]
            known = repr(others[0]) if others and isinstance(others[0], str) else "env"
            raise ConfigError(
                f"{name} takes an environment, not a policy: write {name}({known}). Options such "
                "as hidden_sizes=[256, 256] configure the networks."
            )
    if len(given) > 1:
        raise ConfigError(
            f"{name} takes one positional argument, the environment: pass {shown(given[1])} by its "
            f"name, as in {name}('Pendulum-v1', seed=1)."
        )
    return given[0] if given else None


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

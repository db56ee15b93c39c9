"""Find the environment of an `env_id`, and decide whether it may be created.

An id and its keyword arguments come from one of two sources. Either the user specified them: on
the command line, in a config file given with `--config`, or as arguments in Python. `name_env`
records these for the lifetime of the process. Or they were read from a checkpoint, a run folder or
a dataset, which are not trusted. Then the id is only looked up among environments that are already
registered, no module is imported for it, and its arguments must be numbers and plain words, never
paths.

No other module calls `gymnasium.make`, `gymnasium.spec` or `importlib` for an environment
(enforced by tests/boundary/test_contract.py).
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import warnings
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from importlib import import_module, metadata
from importlib.util import find_spec as find_module
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec as RegisteredSpec

from rl_training.envs.contract import AnyEnv
from rl_training.errors import ConfigError, close_match
from rl_training.text import printable, shorten, shown

RESERVED_KWARGS = frozenset(
    {"id", "entry_point", "vector_entry_point", "additional_wrappers", "disable_env_checker"}
    | {"order_enforce", "nondeterministic", "reward_threshold", "namespace", "kwargs"}
    | {"vectorization_mode", "vector_kwargs", "apply_api_compatibility", "autoreset"}
)
"""Keywords of Gymnasium's registration and of `gymnasium.make`, not of an environment."""

ROBOTICS = "gymnasium_robotics"
_ROBOTICS_IDS = re.compile(
    r"(PointMaze|AntMaze|Fetch|Hand(Reach|Manipulate)|AdroitHand|FrankaKitchen)"
)
"""Prefixes of the environments of gymnasium-robotics."""

_ATARI_IDS = re.compile(r"ALE/|\w+(NoFrameskip|Deterministic)-v\d+$")
"""Ids of Atari environments, which ale-py registers when it is imported."""

_COMPATIBILITY_IDS = re.compile(r"(.*/)?GymV\d+Environment(-v\d+)?", re.IGNORECASE)
"""Environments that create an environment of another library, selected by their arguments."""

_WORD = re.compile(r"[A-Za-z0-9_+-]{1,64}")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_SUSPECT_KEY = re.compile(
    r"file|path|folder|xml|url|module|package|plugin|entry|wrapper|class|import(s|_|$)"
    r"|dir(s|ectory|ectories)?(_|$)",  # not direction, not importance
    re.IGNORECASE,
)
"""Parts of argument names that suggest a file or code."""

_MAX_DEPTH = 8
_MAX_VALUES = 10_000
_MAX_INTEGER = 2**64


# --- User-specified values ----------------------------------------------------------


@dataclass
class _Named:
    """Environments and arguments that the user specified in this process."""

    ids: set[str] = field(default_factory=set)
    kwargs: dict[tuple[str, ...], set[str]] = field(default_factory=dict)
    """JSON values by environment and argument, such as ``("Ant-v5", "xml_file")``."""


_named = _Named()


def name_env(env_id: str | None, kwargs: Mapping[str, Any] | None = None) -> None:
    """Record that the user specified an environment with these arguments."""
    if isinstance(env_id, str):
        _named.ids.add(env_id)
        name_kwargs(env_id, kwargs or {})


def name_kwargs(env_id: str | None, kwargs: Mapping[str, Any], *place: str) -> None:
    """Record arguments that the user specified for an environment, whose id may be from a file.

    ``place`` is the path to them if they are nested inside another argument.
    """
    if isinstance(env_id, str):
        for key, value in kwargs.items():
            _named.kwargs.setdefault((env_id, *place, key), set()).add(_as_json(value))


def _is_named(env_id: str | None, place: tuple[str, ...], value: Any) -> bool:
    values = _named.kwargs.get((env_id, *place)) if env_id is not None else None
    return values is not None and _as_json(value) in values


def _as_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=repr)


# --- Resolving ---------------------------------------------------------------------


@dataclass(frozen=True)
class ResolvedEnv:
    """An environment that may be created, as returned by `resolve_env`."""

    spec: RegisteredSpec
    kwargs: dict[str, Any]

    @property
    def name(self) -> str:
        """The id."""
        return self.spec.id

    def make(self) -> AnyEnv:
        """Create the environment, even in a process in which it is not registered."""
        with warnings.catch_warnings():  # our own error covers an unknown render mode
            warnings.filterwarnings("ignore", message=".*render_mode")
            return gym.make(self.spec, disable_env_checker=True, **self.kwargs)


def resolve_env(env_id: str, kwargs: Mapping[str, Any] | None = None) -> ResolvedEnv:
    """Return the environment to create; reject unknown environments and untrusted arguments."""
    options = dict(kwargs or {})
    spec = find_spec(env_id)
    for key in options:
        if key in RESERVED_KWARGS:
            raise ConfigError(
                f"env_kwargs.{key} is an argument of Gymnasium's registration, not of {spec.id}: "
                "remove it."
            )
    _check_limit(options.get("max_episode_steps"))
    check_kwargs(env_id, options)
    return ResolvedEnv(spec, options)


def find_spec(env_id: str) -> RegisteredSpec:
    """Return the registered environment, or raise an error that suggests a similar id.

    Gymnasium would import the module in ``module:Name-v0``. This is always rejected.
    """
    if not isinstance(env_id, str):
        raise ConfigError(f"env_id = {shown(env_id)}: should be the id of an environment.")
    if is_object_label(env_id):
        raise ConfigError(
            f"The environment {_line(env_id)} was passed as an object in Python, so it cannot be "
            "created from a file: pass it again as env=…, or register it with Gymnasium and use "
            "rl-training --import MODULE … with --env-id ID (evaluate, finetune, data) or "
            "env_id=ID (resume)."
        )
    module, colon, name = env_id.rpartition(":")
    if colon:
        raise ConfigError(
            f"env_id = {shown(env_id)} contains a module: import it explicitly (rl-training "
            f"--import {_line(module)} …) and use env_id={_line(name)}."
        )
    if _COMPATIBILITY_IDS.fullmatch(env_id) and env_id not in _named.ids:
        raise ConfigError(
            f"env_id = {shown(env_id)} creates an environment of another library, which a file is "
            "not allowed to select: specify it with --env-id (evaluate, finetune) or "
            f"env_id={_line(env_id)} (resume)."
        )
    if _ROBOTICS_IDS.match(env_id) and env_id not in gym.registry:
        _register_robotics(env_id)
    try:
        return gym.spec(env_id)
    except gym.error.Error as error:
        raise ConfigError(_unknown_env(env_id, error)) from None
    except (ImportError, ValueError) as error:
        raise ConfigError(f"env_id = {shown(env_id)}: {_line(error)}") from None


def _unknown_env(env_id: str, error: gym.error.Error) -> str:
    """Return the error for an id that is not registered, with the id that was probably meant."""
    newest: dict[str, RegisteredSpec] = {}
    for spec in gym.registry.values():
        name = spec.id.rpartition("-v")[0] if spec.version is not None else spec.id
        if name not in newest or (spec.version or 0) > (newest[name].version or 0):
            newest[name] = spec
    by_lower = {name.lower(): name for name in newest}
    name = re.sub(r"-v\d+$", "", env_id)
    text = f"Unknown environment {shown(env_id)}"
    if name.lower() in by_lower:
        return f"{text}; did you mean {newest[by_lower[name.lower()]].id!r}?"
    if _ATARI_IDS.match(env_id):
        return (
            f"{text}: Atari environments need ale-py, which has to be installed (pip install "
            '"gymnasium[atari]") and imported (rl-training --import ale_py …, or import ale_py in '
            "Python)."
        )
    if not isinstance(error, gym.error.UnregisteredEnv):  # it does not have the form of an id
        return f"env_id = {shown(env_id)}: an id has the form Name-v0 or namespace/Name-v0."
    close = close_match(name, newest)
    hint = f"; did you mean {newest[close].id!r}?" if close is not None else "."
    return (
        f"{text}{hint} If it is your own or from another package, import the module that registers "
        "it (rl-training --import MODULE …, or an import in Python)."
    )


def _line(text: object) -> str:
    """Return a text as one short, printable line for a message."""
    return shorten(printable(str(text), keep=""), 200)


def find_env_class(env_id: str) -> Any:
    """Return the class or function that creates an environment; None if it is not imported yet."""
    entry = find_spec(env_id).entry_point
    if not isinstance(entry, str):
        return entry
    module, _, name = entry.partition(":")
    return getattr(sys.modules.get(module), name, None)


def registered_time_limit(env_id: str, kwargs: Mapping[str, Any]) -> int | None:
    """Return the time limit in steps: `max_episode_steps` if given, else the registered one."""
    asked = kwargs.get("max_episode_steps")
    _check_limit(asked)
    limit = find_spec(env_id).max_episode_steps if asked is None else asked
    return limit if limit is not None and limit > 0 else None  # Gymnasium uses -1 for no limit


def _check_limit(asked: Any) -> None:
    if asked is not None and (type(asked) is not int or (asked < 1 and asked != -1)):
        raise ConfigError(
            f"env_kwargs.max_episode_steps = {shown(asked)}: should be a positive integer, or -1 "
            "for no limit."
        )


def _register_robotics(env_id: str) -> None:
    """Import gymnasium-robotics for an environment that the user specified."""
    if env_id not in _named.ids:
        raise ConfigError(
            f"{shown(env_id)} is an environment of gymnasium-robotics, which is not imported just "
            f"because a file contains its name: use rl-training --import {ROBOTICS} evaluate RUN "
            f"(or another command), or import {ROBOTICS} in Python."
        )
    if ROBOTICS not in sys.modules:
        _check_installed(env_id)
    try:
        gym.register_envs(import_module(ROBOTICS))
    except ImportError as error:
        raise ConfigError(
            f"{env_id} needs gymnasium-robotics ({_line(error)}): pip install "
            "'rl-training[robotics]'"
        ) from None


def _check_installed(env_id: str) -> None:
    """Reject a module of this name that is not the installed package, such as a local file."""
    module = find_module(ROBOTICS)
    try:
        package = metadata.distribution(ROBOTICS)
    except metadata.PackageNotFoundError:
        package = None
    if module is None or package is None:
        raise ConfigError(f"{env_id} needs gymnasium-robotics: pip install 'rl-training[robotics]'")
    own = os.path.realpath(str(package.locate_file(f"{ROBOTICS}/__init__.py")))
    here = os.path.realpath(os.curdir)
    if os.path.realpath(str(module.origin)) != own or own.startswith(os.path.join(here, ROBOTICS)):
        raise ConfigError(
            f"{env_id} needs gymnasium-robotics, but {shown(module.origin)} is not the installed "
            f"package: rename it, or import it explicitly with --import {ROBOTICS}."
        )


# --- Objects that the user passes in Python ---------------------------------------------


def object_label(name: str) -> str:
    """Return the `env_id` of an environment that was passed as an object: ``<MyEnv>``.

    Gymnasium does not allow angle brackets in an id, so no file can resolve it.
    """
    return f"<{name}>"


def is_object_label(env_id: str | None) -> bool:
    """Return whether an `env_id` describes an object instead of a registered environment."""
    return isinstance(env_id, str) and env_id.startswith("<")


def registered_as(spec: RegisteredSpec) -> tuple[str, dict[str, Any]] | None:
    """Return the id and arguments that make the environment of ``spec``; None if there are none.

    Arguments must be plain data, since a config file contains them.
    """
    registered = gym.registry.get(spec.id)
    if registered is None or registered.entry_point != spec.entry_point or spec.additional_wrappers:
        return None
    kwargs = {k: v for k, v in spec.kwargs.items() if k != "render_mode"}
    if not all(_is_data(value) for value in kwargs.values()):
        return None
    kwargs = {
        k: v
        for k, v in kwargs.items()
        if k not in registered.kwargs or _as_json(registered.kwargs[k]) != _as_json(v)
    }
    if spec.max_episode_steps != registered.max_episode_steps:
        steps = spec.max_episode_steps
        kwargs["max_episode_steps"] = -1 if steps is None else steps
    return spec.id, kwargs


def _is_data(value: Any) -> bool:
    """Return whether a config file can contain a value as it is."""
    if isinstance(value, list):
        return all(_is_data(item) for item in value)
    if isinstance(value, dict):
        return all(type(key) is str and _is_data(item) for key, item in value.items())
    return value is None or type(value) in (bool, int, float, str)


def make_spec(spec: RegisteredSpec) -> AnyEnv:
    """Create an environment with all its wrappers from the `spec` of an instance.

    It does not render, since it is used for evaluation.
    """
    again = deepcopy(spec)
    again.kwargs.pop("render_mode", None)
    return gym.make(again, disable_env_checker=True)


# --- Arguments from files --------------------------------------------------------------


def check_kwargs(env_id: str, kwargs: Mapping[str, Any]) -> None:
    """Reject arguments that are not plain values, unless the user specified them."""
    for key, value in kwargs.items():
        problem = _problem(value, key, env_id)
        if problem is not None:
            place, reason = problem
            raise ConfigError(
                f"env_kwargs.{_line('.'.join(place))} {reason}, so {env_id} does not accept it "
                f"from a file. If you trust it, specify it: --env-kwarg {_line(key)}=VALUE "
                f"(evaluate, data), env_kwargs.{_line(key)}=VALUE (resume, finetune), or "
                f"env_kwargs={{{shown(key)}: …}} in Python."
            )


def kwargs_to_name(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that are rejected from a file, so they must be specified again."""
    return {key: value for key, value in kwargs.items() if _problem(value, key) is not None}


def import_to_name(env_id: str) -> str | None:
    """Return the package that another process imports only with ``--import``."""
    return ROBOTICS if _ROBOTICS_IDS.match(env_id) else None


def is_compatibility_env(env_id: str) -> bool:
    """Return whether another process creates this environment only if it is specified again."""
    return _COMPATIBILITY_IDS.fullmatch(env_id) is not None


def _problem(value: Any, key: str, env_id: str | None = None) -> tuple[tuple[str, ...], str] | None:
    """Return the path to the first part of an argument that is not plain, and the reason, or None.

    Values that the user specified for ``env_id`` are accepted without checks.
    """
    todo: list[tuple[tuple[str, ...], int, Any]] = [((key,), 1, value)]
    count = 0
    while todo:
        place, depth, part = todo.pop()
        count += 1
        if _is_named(env_id, place, part):
            continue
        if count > _MAX_VALUES or depth > _MAX_DEPTH:
            return (key,), f"has more than {_MAX_VALUES:,} values or {_MAX_DEPTH} levels"
        if not _KEY.fullmatch(place[-1]):
            return place, "has a name that is not an identifier"
        if _SUSPECT_KEY.search(place[-1]):
            return place, "may refer to a file or to code"
        if isinstance(part, Mapping):
            todo += [((*place, str(name)), depth + 1, item) for name, item in part.items()]
        elif isinstance(part, list | tuple):
            todo += [(place, depth + 1, item) for item in part]
        elif not _is_plain(part):
            return place, f"= {shown(part)} is neither a number nor a plain word"
    return None


def _is_plain(value: Any) -> bool:
    """Return whether a value is a number, or a word that cannot be a path or a module."""
    if isinstance(value, str):
        return _WORD.fullmatch(value) is not None
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or (isinstance(value, int) and abs(value) < _MAX_INTEGER)

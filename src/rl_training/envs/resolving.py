"""Which environment an `env_id` means, and whether it may be made.

An id and its keyword arguments have one of two origins. A person named them: on the command line,
in a config file given with `--config`, or as arguments in Python. `name_env` records these for as
long as the process lives. Or they were read from a checkpoint, a run folder or a dataset, which
anybody may have written. Those are not trusted: the id is only looked up among environments that
are already registered, nothing is imported for it, and its arguments are numbers and plain words,
never paths.

No other module calls `gymnasium.make`, `gymnasium.spec` or `importlib` for an environment
(tests/boundary/test_contract.py checks it).
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module, metadata
from importlib.util import find_spec as find_module
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec as RegisteredSpec

from rl_training.errors import ConfigError, close_match
from rl_training.text import printable, shorten, shown

RESERVED_KWARGS = frozenset(
    {"id", "entry_point", "vector_entry_point", "additional_wrappers", "disable_env_checker"}
    | {"order_enforce", "nondeterministic", "reward_threshold", "namespace", "kwargs"}
    | {"vectorization_mode", "vector_kwargs", "apply_api_compatibility", "autoreset"}
)
"""Keywords of Gymnasium's registration and of `gymnasium.make`: never an environment's own."""

ROBOTICS = "gymnasium_robotics"
_ROBOTICS_IDS = re.compile(
    r"(PointMaze|AntMaze|Fetch|Hand(Reach|Manipulate)|AdroitHand|FrankaKitchen)"
)
"""How the names of gymnasium-robotics' environments begin."""

_ATARI_IDS = re.compile(r"ALE/|\w+(NoFrameskip|Deterministic)-v\d+$")
"""Ids of Atari environments, which ale-py registers when it is imported."""

_COMPATIBILITY_IDS = re.compile(r"(.*/)?GymV\d+Environment(-v\d+)?", re.IGNORECASE)
"""Environments that make an environment of another library by the name in their arguments."""

_WORD = re.compile(r"[A-Za-z0-9_+-]{1,64}")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_SUSPECT_KEY = re.compile(
    r"file|path|folder|xml|url|module|package|plugin|entry|wrapper|class|import(s|_|$)"
    r"|dir(s|ectory|ectories)?(_|$)",  # not direction, not importance
    re.IGNORECASE,
)
"""What the names of arguments that lead to a file or to code contain."""

_MAX_DEPTH = 8
_MAX_VALUES = 10_000
_MAX_INTEGER = 2**64


# --- What a person named -----------------------------------------------------------


@dataclass
class _Named:
    """The environments that a person named in this process, and the arguments they gave."""

    ids: set[str] = field(default_factory=set)
    kwargs: dict[tuple[str, ...], set[str]] = field(default_factory=dict)
    """Values as JSON, by environment and argument, such as ``("Ant-v5", "xml_file")``."""


_named = _Named()


def name_env(env_id: str | None, kwargs: Mapping[str, Any] | None = None) -> None:
    """Record that a person named an environment, and gave these arguments with it."""
    if isinstance(env_id, str):
        _named.ids.add(env_id)
        name_kwargs(env_id, kwargs or {})


def name_kwargs(env_id: str | None, kwargs: Mapping[str, Any], *place: str) -> None:
    """Record arguments that a person gave for an environment, which may itself come from a file.

    ``place`` leads to them where they are part of another argument.
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
    """An environment that may be made; `resolve_env` returns these."""

    spec: RegisteredSpec
    kwargs: dict[str, Any]

    def make(self) -> gym.Env[Any, Any]:
        """Make the environment, also in a process in which it is not registered."""
        with warnings.catch_warnings():  # an unknown render mode is refused in our own words
            warnings.filterwarnings("ignore", message=".*render_mode")
            return gym.make(self.spec, disable_env_checker=True, **self.kwargs)


def resolve_env(env_id: str, kwargs: Mapping[str, Any] | None = None) -> ResolvedEnv:
    """The environment to make; a ConfigError if it is unknown, or its arguments are refused."""
    options = dict(kwargs or {})
    spec = find_spec(env_id)
    for key in options:
        if key in RESERVED_KWARGS:
            raise ConfigError(
                f"env_kwargs.{key} is a keyword of Gymnasium's registration, not an argument of "
                f"{spec.id}: leave it out."
            )
    _check_limit(options.get("max_episode_steps"))
    _check_kwargs(env_id, options)
    return ResolvedEnv(spec, options)


def find_spec(env_id: str) -> RegisteredSpec:
    """The registered environment, or an error with the nearest names.

    Gymnasium would import the module of ``module:Name-v0``: this is refused, whoever named it.
    """
    if not isinstance(env_id, str):
        raise ConfigError(f"env_id = {shown(env_id)}: should be the id of an environment.")
    module, colon, name = env_id.rpartition(":")
    if colon:
        raise ConfigError(
            f"env_id {shown(env_id)} names a module: import it yourself (rl-training --import "
            f"{_line(module)} …) and write env_id={_line(name)}."
        )
    if _COMPATIBILITY_IDS.fullmatch(env_id) and env_id not in _named.ids:
        raise ConfigError(
            f"env_id {shown(env_id)} makes an environment of another library, which must not be "
            "chosen by a file: name it yourself, with --env-id (evaluate, finetune) or "
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
    if not isinstance(error, gym.error.UnregisteredEnv):  # not even the form of an id
        return f"{text}: an id has the form Name-v0 or namespace/Name-v0."
    close = close_match(name, newest)
    hint = f"; did you mean {newest[close].id!r}?" if close is not None else "."
    return (
        f"{text}{hint} If it is your own or from another package, import the module that registers "
        "it (rl-training --import MODULE …, or an import in Python)."
    )


def _line(text: object) -> str:
    """A text in a message: one line that no terminal takes for a command, and not a long one."""
    return shorten(printable(str(text), keep=""), 200)


def time_limit(env_id: str, kwargs: Mapping[str, Any]) -> int | None:
    """Steps after which an episode is cut: the registered ones, or `max_episode_steps`."""
    asked = kwargs.get("max_episode_steps")
    _check_limit(asked)
    limit = find_spec(env_id).max_episode_steps if asked is None else asked
    return limit if limit is not None and limit > 0 else None  # -1: Gymnasium's "none"


def _check_limit(asked: Any) -> None:
    if asked is not None and (type(asked) is not int or (asked < 1 and asked != -1)):
        raise ConfigError(
            f"env_kwargs.max_episode_steps = {shown(asked)}: should be a whole number above 0, or "
            "-1 for no limit."
        )


def _register_robotics(env_id: str) -> None:
    """Import gymnasium-robotics for an environment that a person named."""
    if env_id not in _named.ids:
        raise ConfigError(
            f"{shown(env_id)} is an environment of gymnasium-robotics, and no package is imported "
            f"because a file names it: import it yourself, rl-training --import {ROBOTICS} "
            f"evaluate RUN (or another command), or import {ROBOTICS} in Python."
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
    """Refuse a module of this name that is not the installed package's, such as a local file."""
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
            f"package: rename it, or import it yourself with --import {ROBOTICS}."
        )


# --- Arguments that a file holds ------------------------------------------------------


def _check_kwargs(env_id: str, kwargs: Mapping[str, Any]) -> None:
    for key, value in kwargs.items():
        problem = _problem(value, key, env_id)
        if problem is not None:
            place, reason = problem
            raise ConfigError(
                f"env_kwargs.{_line('.'.join(place))} {reason}, so {env_id} does not get it from a "
                f"file. If you trust it, name it: --env-kwarg {_line(key)}=VALUE (evaluate, data), "
                f"env_kwargs.{_line(key)}=VALUE (resume, finetune), or env_kwargs={{{shown(key)}: "
                "…} in Python."
            )


def kwargs_to_name(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that another process does not take from a file: they must be named again."""
    return {key: value for key, value in kwargs.items() if _problem(value, key) is not None}


def import_to_name(env_id: str) -> str | None:
    """The package that another process does not import unless it is told to."""
    return ROBOTICS if _ROBOTICS_IDS.match(env_id) else None


def is_compatibility_env(env_id: str) -> bool:
    """Whether another process makes this environment only where a person names it again."""
    return _COMPATIBILITY_IDS.fullmatch(env_id) is not None


def _problem(value: Any, key: str, env_id: str | None = None) -> tuple[tuple[str, ...], str] | None:
    """The place of a part of an argument that is not plain, and what is wrong; None for none.

    What a person named for ``env_id`` is taken as it is.
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
            return place, "may lead to a file or to code"
        if isinstance(part, Mapping):
            todo += [((*place, str(name)), depth + 1, item) for name, item in part.items()]
        elif isinstance(part, list | tuple):
            todo += [(place, depth + 1, item) for item in part]
        elif not _is_plain(part):
            return place, f"= {shown(part)} is neither a number nor a plain word"
    return None


def _is_plain(value: Any) -> bool:
    """Whether a value is a number or a word that can be neither a path nor a module's name."""
    if isinstance(value, str):
        return _WORD.fullmatch(value) is not None
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or (isinstance(value, int) and abs(value) < _MAX_INTEGER)

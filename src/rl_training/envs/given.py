"""Environments that the user passes in Python: an instance, a class, a function or a vector.

Objects are never saved, and no file can select one: a run only records a description of them
(`EnvRecord`), and the user passes them again to continue it.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Protocol

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec as RegisteredSpec
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from rl_training.envs.contract import AnyEnv, AnyVectorEnv
from rl_training.envs.resolving import (
    check_kwargs,
    make_spec,
    object_label,
    registered_as,
    resolve_env,
)
from rl_training.envs.state import wrappers_and_core
from rl_training.errors import ConfigError
from rl_training.text import printable, shorten, shown

Kind = Literal["instance", "class", "function", "vector"]

_ALLOWED = (
    "an environment id, a gymnasium.Env, a class or a function that makes one, or a Gymnasium "
    "vector environment"
)

_STANDARD = (OrderEnforcing, PassiveEnvChecker, TimeLimit)
"""Wrappers that `gymnasium.make` adds."""


# --- Descriptions ------------------------------------------------------------------


@dataclass(frozen=True)
class EnvRecord:
    """What a run records about an environment that was passed as an object."""

    given: Kind
    name: str
    """Name for messages and run folders, such as ``Scaled(Pendulum-v1)``."""
    class_name: str
    """``module:Class`` of the environment without its wrappers."""
    wrappers: tuple[str, ...]
    """Class names of the wrappers, the outermost first."""
    spec: RegisteredSpec | None = None
    """Gymnasium's description, if `gymnasium.make` created the environment."""
    registration: tuple[str, dict[str, Any]] | None = None
    """Id and arguments from which Gymnasium makes an equal environment, if there are any."""
    time_limit: int | None = None
    """Number of steps after which a `TimeLimit` wrapper ends an episode."""

    @property
    def env_id(self) -> str:
        """The run's `env_id`: a registered id, or a label that no file can resolve."""
        return self.registration[0] if self.registration else object_label(self.name)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for manifests and ``run.json``."""
        spec = self.spec
        entry = None if spec is None else spec.entry_point
        return {
            "given": self.given,
            "name": self.name,
            "class": self.class_name,
            "wrappers": list(self.wrappers),
            "id": None if spec is None else spec.id,
            "entry_point": entry if entry is None or isinstance(entry, str) else _path(entry),
            "time_limit": self.time_limit,
        }


def record_env(env: AnyEnv | AnyVectorEnv, given: Kind, name: str = "") -> EnvRecord:
    """Describe an environment; ``name`` replaces the name that follows from its layers."""
    *wrappers, core = wrappers_and_core(env)
    spec, extra = spec_of(env), [layer for layer in wrappers if type(layer) not in _STANDARD]
    described = type(core).__name__ if spec is None else spec.id
    for layer in reversed(extra):
        described = f"{type(layer).__name__}({described})"
    limits = [x._max_episode_steps for x in wrappers if isinstance(x, TimeLimit)]
    is_plain = given != "class" and not extra and len(limits) <= 1
    return EnvRecord(
        given=given,
        name=shorten(printable(name or described, keep="")),
        class_name=_path(type(core)),
        wrappers=tuple(type(layer).__name__ for layer in wrappers),
        spec=spec,
        registration=registered_as(spec) if spec is not None and is_plain else None,
        time_limit=min(limits, default=None),
    )


def spec_of(env: Any) -> RegisteredSpec | None:
    """Return Gymnasium's description of an environment; None if it did not create it."""
    try:
        spec = env.spec
    except Exception:  # a wrapper's spec copies its arguments, which may raise anything
        return None
    return spec if isinstance(spec, RegisteredSpec) else None


def _path(named: Any) -> str:
    """Return ``module:name`` of a class or a function."""
    return f"{getattr(named, '__module__', '')}:{getattr(named, '__qualname__', '')}"


# --- Objects -------------------------------------------------------------------------


class EnvMaker(Protocol):
    """Creates one environment, such as a `ResolvedEnv`."""

    @property
    def name(self) -> str:
        """Name for messages."""

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """Arguments of the environment, for messages."""

    def make(self) -> Any:
        """Create the environment."""


@dataclass(frozen=True)
class ObjectMaker:
    """Calls a class or a function of the user, also in a worker process."""

    name: str
    kwargs: Mapping[str, Any]
    function: Callable[..., Any]
    is_lender: bool = False
    """Whether it returns the user's instance instead of a new environment."""

    def make(self) -> Any:
        """Call the function."""
        return self.function(**self.kwargs)

    @property
    def advice(self) -> str:
        """What to do if the call fails."""
        if not isinstance(self.function, type):
            return "fix the function"
        return (
            "pass its arguments as env_kwargs={…}, or pass a function, such as "
            f"lambda: {self.name}(…)"
        )


class GivenEnv(ABC):
    """An environment that the user passed as an object."""

    belongs_to_user: bool = False
    """Whether the user made the environment, and therefore closes it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name for messages, known without creating an environment."""

    @property
    def label(self) -> str:
        """The run's `env_id` until the environment is created."""
        return object_label(self.name)

    @abstractmethod
    def maker(self, kwargs: Mapping[str, Any], *, render: bool = False) -> EnvMaker:
        """Return what makes one environment; ``render`` asks for one that renders frames."""

    @abstractmethod
    def record(self, env: AnyEnv | AnyVectorEnv) -> EnvRecord:
        """Describe an environment that came from `maker`."""

    @abstractmethod
    def another(self) -> GivenEnv | None:
        """Return how to make another, equal environment; None if that is impossible."""


@dataclass(frozen=True)
class GivenInstance(GivenEnv):
    """An environment that the user made. It is used as it is and not closed."""

    env: AnyEnv
    belongs_to_user = True

    @property
    def name(self) -> str:
        """Name for messages."""
        return self.record(self.env).name

    @property
    def label(self) -> str:
        """The run's `env_id`."""
        return self.record(self.env).env_id

    def maker(self, kwargs: Mapping[str, Any], *, render: bool = False) -> EnvMaker:
        """Return a maker of the instance, whose arguments were used when it was created."""
        return ObjectMaker(self.name, {}, lambda: self.env, is_lender=True)

    def record(self, env: AnyEnv | AnyVectorEnv) -> EnvRecord:
        """Describe the instance."""
        return record_env(env, "instance")

    def another(self) -> GivenEnv | None:
        """Return a function that makes it from Gymnasium's description, which has its wrappers."""
        spec, name, label = spec_of(self.env), self.name, self.label
        if spec is None:
            return None
        return GivenFunction(partial(make_spec, spec), name, env_id=label, takes_kwargs=False)


@dataclass(frozen=True)
class GivenFunction(GivenEnv):
    """A class, or a function that makes a new environment at every call."""

    function: Callable[..., Any]
    known_name: str = ""
    """Name of the environments, if it is known before one is made."""
    env_id: str | None = None
    """The run's `env_id`, if it is known."""
    takes_kwargs: bool = True
    """Whether `env_kwargs` are its arguments, not those with which Gymnasium made the result."""

    @property
    def given(self) -> Kind:
        """Class or function."""
        return "class" if isinstance(self.function, type) else "function"

    @property
    def name(self) -> str:
        """Name of the class or the function."""
        own = getattr(self.function, "__name__", type(self.function).__name__)
        return self.known_name or str(own).strip("<>")  # the name of a lambda is <lambda>

    @property
    def label(self) -> str:
        """The run's `env_id`."""
        return self.env_id or object_label(self.name)

    def maker(self, kwargs: Mapping[str, Any], *, render: bool = False) -> EnvMaker:
        """Return a maker that calls the function; arguments from a file must be plain values."""
        options = dict(kwargs) if self.takes_kwargs else {}
        check_kwargs(self.label, options)
        if render and self.given == "class":
            options.setdefault("render_mode", "rgb_array")
        return ObjectMaker(self.name, options, self.function)

    def record(self, env: AnyEnv | AnyVectorEnv) -> EnvRecord:
        """Describe an environment that the function made."""
        return record_env(env, self.given, self.name if self.given == "class" else "")

    def another(self) -> GivenEnv | None:
        """Return the function itself."""
        return self


@dataclass(frozen=True)
class GivenVector(GivenEnv):
    """A vector environment of Gymnasium that the user made.

    The environments of a `SyncVectorEnv` are used as they are and not closed. Those of an
    `AsyncVectorEnv` are in its own processes, so its functions make new ones.
    """

    env: SyncVectorEnv[Any, Any] | AsyncVectorEnv[Any, Any]
    belongs_to_user = True

    @property
    def name(self) -> str:
        """Name for messages."""
        return record_env(self.env, "vector").name

    @property
    def uses_processes(self) -> bool:
        """Whether the environments run in worker processes."""
        return isinstance(self.env, AsyncVectorEnv)

    def each(self) -> list[GivenEnv]:
        """Return the single environments in order."""
        if isinstance(self.env, SyncVectorEnv):
            return [GivenInstance(env) for env in self.env.envs]
        return [self._made_by(function) for function in self.env.env_fns]

    def _made_by(self, function: Callable[[], Any]) -> GivenEnv:
        return GivenFunction(function, self.name, env_id=self.label, takes_kwargs=False)

    def maker(self, kwargs: Mapping[str, Any], *, render: bool = False) -> EnvMaker:
        """Refuse: it cannot make a single environment."""
        raise ConfigError(
            f"{self.name} is a vector environment, but a single one is needed here: pass an "
            "environment, a class or a function."
        )

    def record(self, env: AnyEnv | AnyVectorEnv) -> EnvRecord:
        """Describe its environments; Gymnasium can only make them if they are all the same."""
        found = record_env(env, "vector", self.name)
        return found if len(set(self._functions)) == 1 else replace(found, registration=None)

    def another(self) -> GivenEnv | None:
        """Return the function that made its first environment."""
        return self._made_by(self._functions[0]) if self._functions else None

    @property
    def _functions(self) -> Sequence[Callable[[], Any]]:
        """The functions that made its environments; none if it got them as an iterator."""
        found = self.env.env_fns
        return found if isinstance(found, list | tuple) else ()


EnvLike = str | AnyEnv | type[AnyEnv] | Callable[[], AnyEnv] | AnyVectorEnv | GivenEnv
"""What can be passed as an environment: an id, a `gymnasium.Env`, a class or a function that makes
one, or a Gymnasium vector environment. A `GivenEnv` is one of these after it was checked."""


# --- From arguments -------------------------------------------------------------------


def as_given(value: Any, where: str = "env") -> str | GivenEnv:
    """Return an id as it is and an object as a `GivenEnv`; reject anything else."""
    if isinstance(value, str | GivenEnv):
        return value
    if isinstance(value, VectorEnv):
        if value.closed:
            raise ConfigError(f"{where} = {shown(value)} is closed: create a new one.")
        if not isinstance(value, SyncVectorEnv | AsyncVectorEnv):
            raise ConfigError(
                f"{where} is a {type(value).__name__}, but of vector environments, only "
                "gymnasium.vector.SyncVectorEnv and AsyncVectorEnv are supported: pass a function "
                f"that makes one environment, and set num_envs={value.num_envs}."
            )
        return GivenVector(value)
    if isinstance(value, gym.Env):
        return GivenInstance(value)
    if isinstance(value, type) and not issubclass(value, gym.Env):
        raise ConfigError(f"{where} is the class {value.__name__}, but {_not_an_env(value)}")
    if callable(value):
        return GivenFunction(value)
    if isinstance(value, list | tuple) and value and all(callable(item) for item in value):
        raise ConfigError(
            f"{where} is a list of {len(value)} functions: pass one of them, and set num_envs="
            f"{len(value)}."
        )
    raise ConfigError(f"{where} = {shown(value)}: {_not_an_env(type(value))}")


_made: weakref.WeakValueDictionary[int, AnyEnv] = weakref.WeakValueDictionary()
"""Environments that functions made in this process, by `id`."""


def check_made(maker: EnvMaker, env: Any) -> AnyEnv:
    """Return what a maker made if it is a new environment; reject anything else."""
    if isinstance(env, gym.Env):
        core, lent = env.unwrapped, isinstance(maker, ObjectMaker) and maker.is_lender
        if not lent and _made.get(id(core)) is core:
            raise ConfigError(
                f"{maker.name}() returned the same environment twice, but should make a new one at "
                "every call: create it inside the function, or pass the environment itself."
            )
        _made[id(core)] = core
        return env
    if isinstance(env, VectorEnv):
        raise ConfigError(
            f"{maker.name}() returned a vector environment: pass the vector environment itself."
        )
    raise ConfigError(f"{maker.name}() returned {shown(env)}, but {_not_an_env(type(env))}")


def _not_an_env(kind: type[Any]) -> str:
    """Return the rest of a sentence about a class that is not an environment."""
    modules = {base.__module__.partition(".")[0] for base in kind.__mro__}
    if "gym" in modules:
        return (
            "environments of the gym package are not supported: derive it from gymnasium.Env, or "
            "convert it with shimmy (https://shimmy.farama.org)."
        )
    if "stable_baselines3" in modules:
        return (
            "vector environments of Stable-Baselines3 are not supported: pass the function that "
            "makes one environment, and set num_envs."
        )
    return f"the environment should be {_ALLOWED}."


def resolve(
    env: str | GivenEnv, kwargs: Mapping[str, Any] | None = None, *, render: bool = False
) -> EnvMaker:
    """Return what creates one environment with ``kwargs``."""
    options = dict(kwargs or {})
    if isinstance(env, GivenEnv):
        return env.maker(options, render=render)
    return resolve_env(env, options | ({"render_mode": "rgb_array"} if render else {}))

"""The registry of algorithms.

The package's algorithms are listed in generated/catalog.py, which does not import torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from inspect import isabstract, signature
from typing import TYPE_CHECKING, Any, cast, get_args

from rl_training.errors import ConfigError, nearest
from rl_training.generated import catalog
from rl_training.text import shown
from rl_training.types import ActionKind, Mode

if TYPE_CHECKING:
    from rl_training.algorithms.base import Algorithm
    from rl_training.algorithms.config import AlgorithmConfig


@dataclass(frozen=True)
class AlgorithmEntry:
    """The declaration of a learner class (`algorithms/base.py:Algorithm`)."""

    name: str
    title: str
    paper: str
    class_name: str
    mode: Mode
    actions: ActionKind
    summary: str
    goals: bool = False
    """Whether it needs a goal environment; otherwise it needs flat observations."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of action spaces that it supports, in alphabetical order."""
        return ("continuous", "discrete") if self.actions == "both" else (self.actions,)

    @property
    def short_name(self) -> str:
        """The name of the managed class."""
        return self.class_name.removesuffix("Algorithm")

    def learner_class(self, kwargs: Mapping[str, Any] | None = None) -> type[Algorithm]:
        """Import and return the learner class, which may depend on `algo_kwargs`."""
        module = import_module(f"rl_training.algorithms.{self.name}")
        return cast("type[Algorithm]", getattr(module, self.class_name))

    def config_class(self, kwargs: Mapping[str, Any] | None = None) -> type[AlgorithmConfig]:
        """Import and return the config class, which may depend on `algo_kwargs`."""
        own = self.learner_class(kwargs).config_class
        if not isinstance(kwargs, Mapping) or "finetuned_step" not in kwargs:
            return own
        from rl_training.algorithms.finetuning_config import finetuning_config

        return finetuning_config(own)


class HindsightEntry(AlgorithmEntry):
    """HER: the learner of `base_algo`, with additional options."""

    def learner_class(self, kwargs: Mapping[str, Any] | None = None) -> type[Algorithm]:
        """Return the learner class of the base algorithm."""
        return self.base(kwargs).learner_class()

    def config_class(self, kwargs: Mapping[str, Any] | None = None) -> type[AlgorithmConfig]:
        """Return the base algorithm's config class extended with HER's keys."""
        from rl_training.algorithms.her import hindsight_config

        return hindsight_config(self.base(kwargs).config_class())

    def base(self, kwargs: Mapping[str, Any] | None = None) -> AlgorithmEntry:
        """Return the entry of `base_algo`."""
        name = kwargs.get("base_algo", "sac") if isinstance(kwargs, Mapping) else "sac"
        if name not in self.bases():
            options = _listed(self.bases(), "or")
            raise ConfigError(f"base_algo = {shown(name)}: should be {options}.")
        return REGISTRY[name]

    @staticmethod
    def bases() -> list[str]:
        """Return the algorithms that HER supports: online, with continuous actions."""
        return [
            entry.name
            for entry in REGISTRY.values()
            if entry.mode == "online" and entry.actions != "discrete" and not entry.goals
        ]


class CustomEntry(AlgorithmEntry):
    """A learner registered by the user."""

    def learner_class(self, kwargs: Mapping[str, Any] | None = None) -> type[Algorithm]:
        """Return the registered class."""
        return _CUSTOM[self.name]


_CUSTOM: dict[str, type[Algorithm]] = {}

REGISTRY: dict[str, AlgorithmEntry] = {
    declared["name"]: (HindsightEntry if declared["goals"] else AlgorithmEntry)(**declared)
    for declared in catalog.ALGORITHMS
}


def get_algorithm(name: str) -> AlgorithmEntry:
    """Return the entry of an algorithm; the error for an unknown name suggests the nearest one."""
    if name not in REGISTRY:
        hint = nearest(name, REGISTRY)
        raise ConfigError(
            f"Unknown algorithm {shown(name)}{hint}{'' if hint.endswith('?') else '.'} A custom "
            "algorithm needs register_algorithm in Python, or --import MODULE on the command line."
        )
    return REGISTRY[name]


def register_algorithm(
    learner: type[Algorithm], *, mode: Mode | None = None, actions: ActionKind | None = None
) -> None:
    """Register a custom learner under its `name` for this process (docs/own_algorithm.md).

    Configs, training, checkpoints and the command line then accept it like a built-in algorithm.
    ``mode`` and ``actions`` override the declaration of the class.

    Raises:
        ConfigError: If the class is not a complete learner, or its name is taken.
    """
    check_learner(learner, mode, actions)
    name, own = learner.name, vars(learner)
    if name in REGISTRY and name not in _CUSTOM:
        remedy = "choose another name" if "name" in own else f"set name in {learner.__name__}"
        raise ConfigError(f"The algorithm {name!r} already exists: {remedy}.")
    text = (own.get("summary") or learner.__doc__ or "").strip()
    _CUSTOM[name] = learner
    REGISTRY[name] = CustomEntry(
        name=name,
        title=own.get("title") or learner.__name__,
        paper=own.get("paper", ""),
        class_name=learner.__name__,
        mode=mode or learner.mode,
        actions=actions or action_kind(learner),
        summary=text.splitlines()[0] if text else "",
    )


def action_kind(learner: type[Any]) -> ActionKind:
    """Return the actions that a class supports, itself or with its `discrete_variant`."""
    kind: ActionKind = "both" if "discrete_variant" in vars(learner) else learner.actions
    return kind


def check_learner(
    learner: type[Algorithm], mode: Mode | None = None, actions: ActionKind | None = None
) -> None:
    """Raise an error with the reason if a class cannot be trained."""
    from rl_training.algorithms.base import Algorithm

    if not (isinstance(learner, type) and issubclass(learner, Algorithm)):
        raise ConfigError(f"{shown(learner)} is not a learner: derive a class from Algorithm.")
    label, name = learner.__name__, getattr(learner, "name", None)
    if name is None:
        raise ConfigError(f"{label} has no name: set one in the class, such as name = 'mine'.")
    if not (isinstance(name, str) and re.fullmatch("[a-z][a-z0-9_]*", name)):
        raise ConfigError(
            f"{label}.name = {shown(name)}: should contain only lowercase letters, digits "
            "and underscores, such as 'my_sac'."
        )
    if isabstract(learner):
        missing = _listed(sorted(learner.__abstractmethods__))
        raise ConfigError(f"{label} is abstract: define {missing}.")
    mode = mode or learner.mode
    for key, value, kinds in (
        ("mode", mode, Mode),
        ("actions", actions or learner.actions, ActionKind),
    ):
        if value not in get_args(kinds):
            options = _listed(map(repr, get_args(kinds)), "or")
            raise ConfigError(f"{label} has {key} = {shown(value)}, but should have {options}.")
    _check_update(learner)
    _check_config_class(label, getattr(learner, "config_class", None), mode)


def _check_update(learner: type[Algorithm]) -> None:
    """Reject attributes and signatures of earlier versions, which would be ignored."""
    for former in ("period", "form", "moves_policy"):
        if hasattr(learner, former):
            raise ConfigError(
                f"{learner.__name__}.{former} is no longer used: declare intervals, such as "
                "{'actor': 2}, and define update(self, batch, noise, due)."
            )
    taken = list(signature(learner.update).parameters)
    if "phase" in taken or not 3 <= len(taken) <= 4:
        raise ConfigError(
            f"{learner.__name__}.update has the parameters {_listed(taken)}: define it as "
            "update(self, batch, noise), or as update(self, batch, noise, due) with intervals."
        )


def _listed(words: Iterable[str], link: str = "and") -> str:
    *first, last = words
    return f"{', '.join(first)} {link} {last}" if first else last


def _check_config_class(label: str, config: Any, mode: Mode) -> None:
    from rl_training.algorithms.config import AlgorithmConfig, CollectionConfig, MixingConfig

    if config is None:
        raise ConfigError(f"{label} has no config_class: set it to a subclass of AlgorithmConfig.")
    if not (isinstance(config, type) and issubclass(config, AlgorithmConfig)):
        raise ConfigError(
            f"{label}.config_class = {shown(config)}: should be a subclass of AlgorithmConfig."
        )
    needed = {"online": CollectionConfig, "offline_to_online": MixingConfig}.get(mode)
    if needed is not None and not issubclass(config, needed):
        raise ConfigError(
            f"{label} has mode {mode!r}, so {config.__name__} should derive from {needed.__name__}."
        )
    if mode == "offline" and issubclass(config, CollectionConfig):
        raise ConfigError(
            f"{label} has mode 'offline', so {config.__name__} should not derive from "
            "CollectionConfig, whose options would have no effect."
        )

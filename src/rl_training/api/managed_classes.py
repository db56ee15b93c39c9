"""`SAC`, `TD3`, … and `train_sac`, `train_td3`, …, built from what the learners declare.

Type checkers and editors read the same classes, written out, in `generated/managed.pyi`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from inspect import Parameter, Signature
from pathlib import Path
from textwrap import fill
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rl_training.algorithms.registry import REGISTRY, AlgorithmEntry, HindsightEntry
from rl_training.api.managed import RUN_KEYS, ManagedAlgorithm
from rl_training.api.training import as_config, train
from rl_training.data.config import DataConfig
from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.control_config import ControlsConfig
from rl_training.runtime.training_loop import TrainResult

_EXAMPLES = {
    "continuous": '("Pendulum-v1").learn(20_000).evaluate()',
    "discrete": '("CartPole-v1").learn(50_000).evaluate()',
    "goals": '("rl_training/PointGoal-v0", base_algo="sac").learn(20_000).evaluate()',
    "data": '("Pendulum-v1", dataset_kind="npz", dataset_path="data.npz").learn(10_000).evaluate()',
}


class TypeText(str):
    """Source text of a type; its repr has no quotes, so that signatures read like code."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Option(NamedTuple):
    """One keyword of a managed class."""

    name: str
    type: TypeText
    default: Any
    """`...` where it depends on `base_algo`."""
    description: str


def managed_class(entry: AlgorithmEntry) -> type[ManagedAlgorithm]:
    """Build an algorithm's managed class."""
    namespace = {
        "__module__": "rl_training",
        "__doc__": describe(entry),
        "__signature__": signature(entry),
        "algo": entry.name,
    }
    return type(entry.short_name, (ManagedAlgorithm,), namespace)


def train_function(entry: AlgorithmEntry) -> Callable[..., TrainResult]:
    """Build an algorithm's `train_<name>`."""

    def train_algorithm(
        config: TrainConfig | dict[str, Any] | str | Path, *, callbacks: Sequence[Callback] = ()
    ) -> TrainResult:
        checked = as_config(config)
        if checked.algo != entry.name:
            raise ConfigError(f"{name} was given a config of {checked.algo!r}: use train().")
        return train(checked, callbacks=callbacks)

    name = train_algorithm.__name__ = train_algorithm.__qualname__ = f"train_{entry.name}"
    train_algorithm.__module__ = "rl_training"
    train_algorithm.__doc__ = f"Train {entry.short_name} from a config, which must be for it."
    return train_algorithm


if not TYPE_CHECKING:  # see generated/managed.pyi

    def __getattr__(name: str) -> Any:
        for entry in REGISTRY.values():
            if name == entry.short_name:
                return globals().setdefault(name, managed_class(entry))
            if name == f"train_{entry.name}":
                return globals().setdefault(name, train_function(entry))
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# --- Options: signature and documentation ----------------------------------------


def option_groups(entry: AlgorithmEntry) -> dict[str, list[Option]]:
    """The options of a managed class, by heading."""
    run = {key: field for key, field in TrainConfig.model_fields.items() if key in RUN_KEYS}
    own = entry.config_class().model_fields
    groups = {f"{entry.short_name} options": [*_options(own)]}
    if isinstance(entry, HindsightEntry):
        for base in entry.bases():
            fields = entry.config_class({"base_algo": base}).model_fields
            other = {
                key: field
                for key, field in fields.items()
                if key not in own or field.default != own[key].default
            }
            if other:
                groups[f"With base_algo={base!r}"] = [*_options(other)]
    groups["Run options"] = [*_options(run)]
    groups["Data and reward options"] = [*_options(DataConfig.model_fields)]
    groups["Control options"] = [*_options(ControlsConfig.model_fields)]
    return groups


def _options(fields: dict[str, FieldInfo]) -> Iterator[Option]:
    for name, field in fields.items():
        text = type_text(field.annotation)
        if name.endswith(("_dir", "_path")):
            text = text.replace("str", "str | PathLike[str]", 1)
        default = field.get_default(call_default_factory=True)
        yield Option(name, TypeText(text), default, field.description or "")


def type_text(annotation: Any) -> str:
    """The type of an option's values as source text; a tuple may be given as any sequence."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_text(arguments[0])
    if origin in (Union, UnionType):
        return " | ".join(type_text(argument) for argument in arguments)
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if origin is tuple:
        return f"Sequence[{type_text(arguments[0])}]"
    if origin is dict or issubclass(annotation, BaseModel):
        return "dict[str, Any]"
    return "None" if annotation is NoneType else str(annotation.__name__)


def signature(entry: AlgorithmEntry) -> Signature:
    """Every option as a keyword with its type and default."""
    offline = entry.mode == "offline"
    first = Parameter(
        "env_id",
        Parameter.POSITIONAL_OR_KEYWORD,
        annotation=TypeText("str | None" if offline else "str"),
        default=None if offline else Parameter.empty,
    )
    options: dict[str, Option] = {}
    for heading, group in option_groups(entry).items():
        for option in group:
            varies = heading.startswith("With ")
            options.setdefault(option.name, option._replace(default=...) if varies else option)
    keywords = (
        Parameter(name, Parameter.KEYWORD_ONLY, annotation=option.type, default=option.default)
        for name, option in options.items()
    )
    return Signature([first, *keywords], return_annotation=TypeText("None"))


def describe(entry: AlgorithmEntry) -> str:
    """The docstring of a managed class: an example, and every option with its default."""
    kind = entry.actions if entry.mode == "online" else "data"
    paper = f" ({entry.paper})" if entry.paper else ""
    lines = [
        f"{entry.title}{paper}.",
        "",
        entry.summary,
        "",
        f">>> {entry.short_name}{_EXAMPLES['goals' if entry.goals else kind]}",
        "",
        "docs/configuration.md explains the options at length.",
    ]
    for heading, options in option_groups(entry).items():
        lines += ["", f"{heading}:"]
        for option in options:
            text = f"{option.name} (default {option.default!r}): {option.description}"
            text = re.sub(r"\bnull\b", "None", text)
            lines.append(fill(text, 92, initial_indent="    ", subsequent_indent=" " * 8))
    return "\n".join(lines) + "\n"

"""`SAC`, `TD3`, … and `train_sac`, `train_td3`, …, built from the declarations of the learners.

Type checkers and editors read `generated/managed.pyi`, which contains the same classes as source.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from inspect import Parameter, Signature
from textwrap import fill
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rl_training.algorithms.registry import REGISTRY, AlgorithmEntry, HindsightEntry
from rl_training.api.arguments import ConfigLike, with_objects
from rl_training.api.managed import RUN_KEYS, ManagedAlgorithm
from rl_training.api.training import train
from rl_training.data.config import DataConfig
from rl_training.data.given_data import DatasetLike
from rl_training.envs import EnvLike
from rl_training.envs.given import as_given
from rl_training.envs.point_goal import POINT_GOAL
from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.config_keys import default_of
from rl_training.runtime.control_config import ControlsConfig
from rl_training.runtime.training_loop import TrainResult

DATASET = (
    "Recorded data: a path, a Minari id, a mapping of arrays, a TransitionDataset or a Minari "
    "dataset."
)
"""Description of the argument `dataset`."""
ENVIRONMENTS = (
    "env: An environment id, a gymnasium.Env, a class or a function that makes one, or a Gymnasium "
    "vector environment.",
    "env_id: The same as env, for an id.",
    "eval_env: The environment to evaluate in (default: a new one like env).",
)
"""Description of the arguments of a managed class that are not options."""


class TypeText(str):
    """Source text of a type; its repr has no quotes, so that signatures read like code."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


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
    """Build an algorithm's `train_<name>` function."""

    def train_algorithm(
        config: ConfigLike,
        *,
        env: EnvLike | None = None,
        dataset: DatasetLike | None = None,
        **options: Any,
    ) -> TrainResult:
        given = None if env is None else as_given(env)
        checked, _ = with_objects(config, env=given, dataset=dataset)
        if checked.algo != entry.name:
            raise ConfigError(
                f"{name} cannot train a config with algo {checked.algo!r}: use train()."
            )
        return train(checked, env=env, dataset=dataset, **options)

    name = train_algorithm.__name__ = train_algorithm.__qualname__ = f"train_{entry.name}"
    train_algorithm.__module__ = "rl_training"
    vars(train_algorithm)["__signature__"] = inspect.signature(train)
    train_algorithm.__doc__ = f"Train {entry.short_name} from a config with `algo: {entry.name}`."
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


def option_groups(entry: AlgorithmEntry) -> dict[str, dict[str, FieldInfo]]:
    """Return the options of a managed class as config fields, grouped by heading."""
    run, own = TrainConfig.model_fields, entry.config_class().model_fields
    groups = {f"{entry.short_name} options": own}
    for base in entry.bases() if isinstance(entry, HindsightEntry) else ():
        fields = entry.config_class({"base_algo": base}).model_fields
        groups[f"With base_algo={base!r}"] = {
            key: field
            for key, field in fields.items()
            if key not in own or field.default != own[key].default
        }
    groups["Run options"] = {key: run[key] for key in run if key in RUN_KEYS}
    groups["Data and reward options"] = DataConfig.model_fields
    groups["Control options"] = ControlsConfig.model_fields
    return {heading: fields for heading, fields in groups.items() if fields}


def signature(entry: AlgorithmEntry) -> Signature:
    """Return the signature, with every option as a keyword; `...` if it depends on `base_algo`."""
    env = Parameter(
        "env",
        Parameter.POSITIONAL_OR_KEYWORD,
        annotation=TypeText("EnvLike | None"),
        default=None,
    )
    others = [
        Parameter(name, Parameter.KEYWORD_ONLY, annotation=TypeText(text), default=None)
        for name, text in (("env_id", "str | None"), ("eval_env", "EnvLike | None"))
    ]
    keywords: dict[str, Parameter] = {}
    if entry.mode != "online":
        keywords["dataset"] = Parameter(
            "dataset",
            Parameter.KEYWORD_ONLY,
            annotation=TypeText("DatasetLike | None"),
            default=None,
        )
    for heading, fields in option_groups(entry).items():
        for name, field in fields.items():
            text = type_text(field.annotation)
            if name.endswith(("_dir", "_path")):
                text = text.replace("str", "str | PathLike[str]")
            if name == "seeds":
                text = f"int | {text}"  # a count or a list
            default = default_of(field)
            keyword = Parameter(
                name,
                Parameter.KEYWORD_ONLY,
                annotation=TypeText(text),
                default=... if heading.startswith("With base_algo") else default,
            )
            keywords.setdefault(name, keyword)
    return Signature([env, *others, *keywords.values()], return_annotation=TypeText("None"))


def type_text(annotation: Any) -> str:
    """Return the type of an option as source text; tuples are shown as sequences."""
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


def describe(entry: AlgorithmEntry) -> str:
    """Return the docstring of a managed class: an example, and every option with its default."""
    env_id = "CartPole-v1" if entry.actions == "discrete" else "Pendulum-v1"
    arguments = f'"{POINT_GOAL if entry.goals else env_id}"'
    if entry.mode != "online":
        arguments += ', dataset="data.npz"'
    lines = [
        f"{entry.title} ({entry.paper}).",
        "",
        entry.summary,
        "",
        f">>> {entry.short_name}({arguments}).learn(20_000).evaluate()",
        "",
        "See docs/environments.md for environments and docs/configuration.md for the options.",
        "",
        "Environments:",
        *(
            fill(text, 92, initial_indent="    ", subsequent_indent=" " * 8)
            for text in ENVIRONMENTS
        ),
    ]
    if entry.mode != "online":
        lines += ["", *fill(f"dataset: {DATASET}", 92, subsequent_indent="    ").splitlines()]
    for heading, fields in option_groups(entry).items():
        lines += ["", f"{heading}:"]
        for name, field in fields.items():
            default = default_of(field)
            text = re.sub(r"\bnull\b", "None", f"{name} (default {default!r}): {field.description}")
            lines.append(fill(text, 92, initial_indent="    ", subsequent_indent=" " * 8))
    return "\n".join(lines) + "\n"

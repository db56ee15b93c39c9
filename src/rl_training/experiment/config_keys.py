"""The keys of a config, with defaults, allowed values and descriptions from the config classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rl_training.boundary.yaml_codec import yaml_text
from rl_training.config_model import ConfigModel
from rl_training.experiment.config import TrainConfig, kwargs_models
from rl_training.experiment.plain_values import tuples_to_lists

NON_SETTINGS = ("algo", "algo_kwargs")


@dataclass(frozen=True)
class ConfigKey:
    """One key that a config or an override of an algorithm can set."""

    name: str
    group: str
    required: bool
    default: Any
    """Default as plain data; None if the key is required."""
    allowed: str
    """Description of the allowed values."""
    description: str

    @property
    def default_text(self) -> str:
        """Default as YAML on one line, or ``required``."""
        return "required" if self.required else yaml_text(self.default)


def config_keys(algo: str) -> list[ConfigKey]:
    """Return all keys of an algorithm: its own first, then those of all runs."""
    own, controls, data = kwargs_models(algo)
    groups: dict[str, type[ConfigModel]] = {
        algo: own,
        "run": TrainConfig,
        "control": controls,
        "data": data,
    }
    return [
        ConfigKey(
            name=name,
            group=group,
            required=field.is_required(),
            default=None if field.is_required() else tuples_to_lists(default_of(field)),
            allowed=allowed_text(field),
            description=" ".join((field.description or "").split()),
        )
        for group, model in groups.items()
        for name, field in _named_fields(model)
        if name not in NON_SETTINGS
    ]


def _named_fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield the fields of a model; those of a nested model have names such as `logging.csv`."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _named_fields(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field


def default_of(field: FieldInfo) -> Any:
    """Return a default; of a nested model, only what differs from its own defaults."""
    default = field.get_default(call_default_factory=True)
    if isinstance(default, BaseModel):
        return default.model_dump(exclude_defaults=True)
    return default


def changed_settings(config: TrainConfig) -> dict[str, Any]:
    """Return the settings that differ from their defaults, as plain data by short key."""
    parts = config.parts
    changed: dict[str, Any] = {}
    for model in (config, parts.algorithm, parts.controls, parts.data):
        for name, field in type(model).model_fields.items():
            value = getattr(model, name)
            default = field.get_default(call_default_factory=True)
            if name not in NON_SETTINGS and value != default:
                changed[name] = tuples_to_lists(
                    model.model_dump(include={name}, exclude_defaults=True)[name]
                )
    return changed


# --- Descriptions of fields -------------------------------------------------------


def default_text(field: FieldInfo, mark: str = "") -> str:
    """Return a default as YAML on one line, surrounded by ``mark``."""
    if field.is_required():
        return "required"
    return f"{mark}{yaml_text(default_of(field))}{mark}"


def allowed_text(field: FieldInfo, mark: str = "") -> str:
    """Describe the values that a field accepts; literal values are surrounded by ``mark``."""
    return _allowed(field.annotation, field.metadata, mark)


def _allowed(annotation: Any, metadata: Any, mark: str) -> str:
    if hasattr(annotation, "__metadata__"):
        base, *inner = get_args(annotation)
        extra = [item for part in inner for item in getattr(part, "metadata", [part])]
        return _allowed(base, [*extra, *metadata], mark)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(f"{mark}{yaml_text(value)}{mark}" for value in arguments)
    if origin is dict or (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return "a mapping"
    if origin is tuple:
        each = _allowed(arguments[0], (), mark)
        return (
            f"list, each {each}" if ... in arguments else f"list of {len(arguments)}, each {each}"
        )
    if arguments:
        return " or ".join(_allowed(argument, metadata, mark) for argument in arguments)
    if annotation is type(None):
        return f"{mark}null{mark}"
    if annotation is bool:
        return f"{mark}true{mark}, {mark}false{mark}"
    if annotation is str:
        return "text"
    return ", ".join(_bounds(metadata)) or ("an integer" if annotation is int else "a number")


def _bounds(metadata: Any) -> Iterator[str]:
    """Yield the bounds of a number; if two are declared on one side, the tighter one."""
    lower: list[tuple[float, str]] = []
    upper: list[tuple[float, str]] = []
    for item in metadata:
        for key, sign, side in (
            ("gt", ">", lower),
            ("ge", "≥", lower),
            ("lt", "<", upper),
            ("le", "≤", upper),
        ):
            value = getattr(item, key, None)
            if value is not None:
                side.append((value, f"{sign} {value:,}"))
    for _, text in [*sorted(lower)[-1:], *sorted(upper)[:1]]:
        yield text

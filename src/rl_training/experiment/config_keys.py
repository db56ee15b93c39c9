"""The keys of a config: defaults, allowed values and descriptions, read from the config classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from rl_training.boundary.yaml_codec import yaml_text
from rl_training.config_model import ConfigModel
from rl_training.experiment.config import TrainConfig, kwargs_models
from rl_training.experiment.plain_values import listed

NOT_SETTINGS = ("algo", "algo_kwargs")


@dataclass(frozen=True)
class ConfigKey:
    """One key that a config or an override of an algorithm can set."""

    name: str
    group: str
    required: bool
    default: Any
    """Plain data."""
    allowed: str
    """In words."""
    description: str

    @property
    def default_text(self) -> str:
        """The default as YAML on one line, or ``required``."""
        return "required" if self.required else yaml_text(self.default)


def config_keys(algo: str) -> list[ConfigKey]:
    """Every key of an algorithm: its own first, then those of all runs."""
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
            default=_plain_default(field),
            allowed=allowed_text(field),
            description=" ".join((field.description or "").split()),
        )
        for group, model in groups.items()
        for name, field in model.model_fields.items()
        if name not in NOT_SETTINGS
    ]


def _plain_default(field: FieldInfo) -> Any:
    if field.is_required():
        return None
    return listed(field.get_default(call_default_factory=True))


def changed_settings(config: TrainConfig) -> dict[str, Any]:
    """The settings that differ from their defaults, as plain data, each under its short key."""
    parts = config.parts
    changed: dict[str, Any] = {}
    for model in (config, parts.algorithm, parts.controls, parts.data):
        for name, field in type(model).model_fields.items():
            value = getattr(model, name)
            default = field.get_default(call_default_factory=True)
            if name not in NOT_SETTINGS and value != default:
                changed[name] = listed(model.model_dump(include={name})[name])
    return changed


# --- Fields in words --------------------------------------------------------------


def default_text(field: FieldInfo, mark: str = "") -> str:
    """A default as YAML on one line, between two ``mark``."""
    if field.is_required():
        return "required"
    return f"{mark}{yaml_text(field.get_default(call_default_factory=True))}{mark}"


def allowed_text(field: FieldInfo, mark: str = "") -> str:
    """The values that a field accepts, in words; literal ones are between two ``mark``."""
    return _allowed(field.annotation, field.metadata, mark)


def _allowed(annotation: Any, metadata: Any, mark: str) -> str:
    if hasattr(annotation, "__metadata__"):
        base, *inner = get_args(annotation)
        extra = [item for part in inner for item in getattr(part, "metadata", [part])]
        return _allowed(base, [*extra, *metadata], mark)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(f"{mark}{yaml_text(value)}{mark}" for value in arguments)
    if origin is dict:
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
    """The bounds of a number, the tighter one where two are declared."""
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

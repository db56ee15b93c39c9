"""Base of every config class: exact types, usable values and one-sentence errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin
from unicodedata import category

from pydantic import (
    BaseModel,
    ConfigDict,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_serializer,
)

from rl_training.errors import ConfigError, nearest
from rl_training.text import shown

Model = TypeVar("Model", bound=BaseModel)

LARGEST_FLOAT = (2 - 2.0**-23) * 2.0**127
SMALLEST_FLOAT = 2.0**-126
"""Range of normal float32 numbers, the type of networks, rewards and optimizers."""

LARGEST_INT = 2**128
"""Large enough for the seeds that NumPy recommends, and short enough to print."""

# A separate constant: inside the class, mypy's plugin would also reject lists.
_EXACT = ConfigDict(strict=True)


class Trait(Enum):
    """Property of a config key in addition to its type: ``Annotated[int, Trait.MAY_CHANGE]``.

    A key without traits is constant for the whole run, affects its result, and is inherited by
    fine-tuned runs.
    """

    MAY_CHANGE = auto()
    """Resuming may change it."""
    LABEL = auto()
    """It does not affect the result, and is not part of the fingerprint."""
    FRESH = auto()
    """Fine-tuning starts from the default instead of the source run's value."""
    DATASET = auto()
    """It selects the recorded data."""
    REWARD = auto()
    """It is part of the transform of recorded and new rewards."""
    NETWORK_SIZE = auto()
    """The memory of the networks grows with it."""
    UPDATE_SIZE = auto()
    """The memory of an update grows with it."""
    CONTINUOUS = auto()
    """It has no effect with discrete actions."""
    DISCRETE = auto()
    """It has no effect with continuous actions."""


def keys_with(trait: Trait, *models: type[BaseModel]) -> list[str]:
    """Return the keys with a trait, including keys that a subclass declares again without it."""
    return [
        name
        for model in models
        for name in model.model_fields
        if any(
            trait in base.model_fields[name].metadata
            for base in model.__mro__
            if issubclass(base, BaseModel) and name in base.model_fields
        )
    ]


class ConfigModel(BaseModel):
    """A mapping of known keys whose values have exactly the declared types.

    Values are not coerced: ``'16'`` and ``true`` are not numbers, and 1 is not a boolean. Only the
    differences between YAML and Python are converted: a list to a tuple, and 1e5, which YAML reads
    as a float, to an integer.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        **_EXACT,
    )

    @field_validator("*", mode="before")
    @classmethod
    def _from_yaml(cls, value: Any, info: ValidationInfo) -> Any:
        field = cls.model_fields.get(info.field_name or "")
        return value if field is None else _as_declared(value, field.annotation)

    @field_validator("*")
    @classmethod
    def _check_values(cls, value: Any) -> Any:
        for item in value if isinstance(value, tuple) else (value,):
            _check_value(item)
        return value


class NamedSettings(ConfigModel):
    """Settings of one named part of a learner, such as an optimizer or a network.

    The config key is a mapping from names, or `all`, to these settings. A setting that is missing
    or null keeps the algorithm's default.
    """

    def given(self) -> dict[str, Any]:
        """Return the settings that are not None."""
        return {
            key: value
            for key in type(self).model_fields
            if (value := getattr(self, key)) is not None
        }

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in handler(self).items() if value is not None}


def merged_settings(settings: Mapping[str, NamedSettings], name: str) -> dict[str, Any]:
    """Return the settings of `all`, overridden by those of ``name``."""
    merged: dict[str, Any] = {}
    for key in ("all", name):
        if key in settings:
            merged |= settings[key].given()
    return merged


def refuse_unknown_names(settings: Iterable[str], known: Iterable[str], where: str) -> None:
    """Reject an entry for a part that the learner does not have."""
    names = ["all", *known]
    for name in settings:
        if name not in names:
            raise ConfigError(f"Unknown name {shown(name)} in {where}{nearest(name, names)}")


def _as_declared(value: Any, annotation: Any) -> Any:
    """Convert a list to a tuple and an integral float to an integer if the field declares them."""
    options = list(_options(annotation))
    if isinstance(value, list | tuple):
        for option in options:
            if get_origin(option) is tuple:
                return tuple(_as_declared(item, get_args(option)[0]) for item in value)
    if isinstance(value, float) and value.is_integer() and int in options and float not in options:
        return int(value)
    return value


def _options(annotation: Any) -> Iterator[Any]:
    """Yield the types of a union, or the single type."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from _options(arguments[0])
    elif origin in (Union, UnionType):
        for option in arguments:
            yield from _options(option)
    else:
        yield annotation


def has_control_characters(text: str) -> bool:
    """Return whether a text contains control characters or lone surrogates."""
    return any(category(char) in ("Cc", "Cs") for char in text)


def _check_value(value: Any) -> None:
    if isinstance(value, str) and has_control_characters(value):
        raise ValueError(f"should be {_NO_CONTROL}")
    if isinstance(value, int) and abs(value) >= LARGEST_INT:
        raise ValueError("should have at most 38 digits")
    is_float = isinstance(value, float) and value != 0.0
    if is_float and not SMALLEST_FLOAT <= abs(value) <= LARGEST_FLOAT:
        raise ValueError(
            f"should be 0 or have a magnitude between {SMALLEST_FLOAT:.1e} and "
            f"{LARGEST_FLOAT:.1e}, the range of float32"
        )


# --- Pydantic's errors as sentences -----------------------------------------------


def validated(model: type[Model], data: Mapping[str, Any]) -> Model:
    """Validate a mapping; raise a one-sentence ConfigError if it is invalid."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ConfigError(sentence(error, model)) from None


def sentence(error: ValidationError, model: type[BaseModel]) -> str:
    """Describe a problem with its field, value and what is allowed; count the others.

    An unknown key comes first, since it may be the misspelled name of a missing one.
    """
    problems = error.errors()
    first = min(problems, key=lambda problem: problem["type"] != "extra_forbidden")
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, ConfigError):
        return str(cause)
    *outer, last = [*first["loc"]] or [""]
    path = [str(part) for part in outer if not _is_branch(part)]
    if first["type"] == "extra_forbidden":
        inside = f" in {'.'.join(path)}" if path else ""
        text = f"Unknown key {shown(last)}{inside}{nearest(str(last), _fields(model, path))}"
    else:
        where = ".".join(path if _is_branch(last) else [*path, str(last)])
        value = f"{where} = {shown(first['input'])}: " if where else ""
        missing = first["type"] == "missing"
        text = (
            f"The key {where!r} is missing." if missing else f"{value}{_wanted(first, problems)}."
        )
    more = len({problem["loc"][:1] for problem in problems}) - 1
    return text + (f" ({more} more problem{'s' if more > 1 else ''})" if more else "")


_NO_CONTROL = "text without control characters"
_PLAIN_WORDS = {
    "a valid tuple": "a list",
    "a valid list": "a list",
    "a valid string, unable to parse raw data as a unicode string": _NO_CONTROL,
    "a valid string": "text",
    "a valid boolean": "true or false",
    "a valid dictionary or instance of": "a mapping with the keys of",
    "a valid dictionary": "a mapping",
}


def _wanted(first: Any, problems: Sequence[Any]) -> str:
    """Describe what is allowed, including the words that can replace a number (`auto`)."""
    message = str(first["msg"]).removeprefix("Value error, ").removeprefix("Input ")
    for original, plain in _PLAIN_WORDS.items():
        message = message.replace(original, plain)
    words = [
        str(problem["ctx"]["expected"])
        for problem in problems[1:]
        if problem["type"] == "literal_error" and problem["loc"][:-1] == first["loc"][:-1]
    ]
    return " or ".join([message, *words])


def _is_branch(part: Any) -> bool:
    """Return whether a part of a location is a branch of a union rather than a field."""
    return isinstance(part, str) and ("[" in part or part in ("bool", "float", "constrained-float"))


def _fields(model: type[BaseModel], path: list[str]) -> list[str]:
    """Return the keys of the model at a path, which may be one branch of a union."""
    if path and path[0].isdigit():  # the position in a list
        return _fields(model, path[1:])
    if not path:
        return list(model.model_fields)
    field = model.model_fields.get(path[0])
    annotation: Any = field.annotation if field else None
    names = 2 if get_origin(annotation) is dict else 1  # the key of a mapping is not a field
    for option in (annotation, *get_args(annotation)):
        if hasattr(option, "model_fields"):
            return _fields(option, path[names:])
    return []

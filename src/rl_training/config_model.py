"""The base of every config class: exact types, values that can be used, one-sentence errors."""

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
"""The range of a normal float32, in which networks, rewards and optimizers compute."""

LARGEST_INT = 2**128
"""Enough for every seed that NumPy recommends, and few enough digits to be printed."""

# A constant of its own: were it written inside the class, mypy's plugin would refuse lists too.
_EXACT = ConfigDict(strict=True)


class Trait(Enum):
    """What holds for a config key besides its type: ``Annotated[int, Trait.MAY_CHANGE]``.

    A key without traits stays as it is for the whole run, decides its result, and is inherited by
    fine-tuning.
    """

    MAY_CHANGE = auto()
    """A resume may change it."""
    LABEL = auto()
    """It does not decide the result, and is not in the fingerprint."""
    FRESH = auto()
    """Fine-tuning starts from the default: the source's value belongs to its training."""
    DATASET = auto()
    """It says which recorded data is used."""
    REWARD = auto()
    """It is part of the arithmetic on recorded and new rewards."""
    NETWORK_SIZE = auto()
    """The memory of the networks grows with it."""
    UPDATE_SIZE = auto()
    """The memory of an update grows with it."""


def keys_with(trait: Trait, *models: type[BaseModel]) -> list[str]:
    """The keys of config classes that have a trait, also where a subclass declares them again."""
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
    """A mapping of known keys, whose values have exactly the declared types.

    Nothing is guessed: ``'16'`` and ``true`` are not numbers, and 1 is not a boolean. What YAML
    writes differently from Python is converted: a list to a tuple, and 1e5, which YAML reads as a
    float, to an integer.
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
    def _can_be_used(cls, value: Any) -> Any:
        for item in value if isinstance(value, tuple) else (value,):
            _check_value(item)
        return value


class NamedSettings(ConfigModel):
    """Settings of one named part of a learner, such as an optimizer or a network.

    A config key with such settings is a mapping from names, or `all`, to them. What is left out, or
    null, stays as the algorithm has it.
    """

    def given(self) -> dict[str, Any]:
        """What is set."""
        return {
            key: value
            for key in type(self).model_fields
            if (value := getattr(self, key)) is not None
        }

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in handler(self).items() if value is not None}


def merged_settings(settings: Mapping[str, NamedSettings], name: str) -> dict[str, Any]:
    """What `all` sets, overridden by what the entry of this name sets."""
    merged: dict[str, Any] = {}
    for key in ("all", name):
        if key in settings:
            merged |= settings[key].given()
    return merged


def refuse_unknown_names(settings: Iterable[str], known: Iterable[str], where: str) -> None:
    """Refuse an entry for a part that the learner does not have."""
    names = ["all", *known]
    for name in settings:
        if name not in names:
            raise ConfigError(f"Unknown name {shown(name)} in {where}{nearest(name, names)}")


def _as_declared(value: Any, annotation: Any) -> Any:
    """A list as the tuple, and an integral float as the integer, that a field declares."""
    options = list(_options(annotation))
    if isinstance(value, list | tuple):
        for option in options:
            if get_origin(option) is tuple:
                return tuple(_as_declared(item, get_args(option)[0]) for item in value)
    if isinstance(value, float) and value.is_integer() and int in options and float not in options:
        return int(value)
    return value


def _options(annotation: Any) -> Iterator[Any]:
    """The types of a union, or the one type."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from _options(arguments[0])
    elif origin in (Union, UnionType):
        for option in arguments:
            yield from _options(option)
    else:
        yield annotation


def has_control_characters(text: str) -> bool:
    """Whether a text has characters that no name has: control codes and halves of surrogates."""
    return any(category(char) in ("Cc", "Cs") for char in text)


def _check_value(value: Any) -> None:
    if isinstance(value, str) and has_control_characters(value):
        raise ValueError(f"should be {_NO_CONTROL}")
    if isinstance(value, int) and abs(value) >= LARGEST_INT:
        raise ValueError("should have at most 38 digits")
    is_float = isinstance(value, float) and value != 0.0
    if is_float and not SMALLEST_FLOAT <= abs(value) <= LARGEST_FLOAT:
        raise ValueError(
            f"should be 0 or between {SMALLEST_FLOAT:.1e} and {LARGEST_FLOAT:.1e} in size, the "
            "range of float32"
        )


# --- Pydantic's errors as sentences -----------------------------------------------


def validated(model: type[Model], data: Mapping[str, Any]) -> Model:
    """A mapping as a model of it; errors are one sentence."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ConfigError(sentence(error, model)) from None


def sentence(error: ValidationError, model: type[BaseModel]) -> str:
    """The first problem, with field, value and what is allowed; the number of further ones."""
    problems = error.errors()
    first = problems[0]
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
    return text + (f" ({more} more)" if more else "")


_NO_CONTROL = "text without control characters"
_PLAINER = {
    "a valid tuple": "a list",
    "a valid string, unable to parse raw data as a unicode string": _NO_CONTROL,
    "a valid string": "text",
    "a valid boolean": "true or false",
    "a valid dictionary or instance of": "a mapping with the keys of",
    "a valid dictionary": "a mapping",
}


def _wanted(first: Any, problems: Sequence[Any]) -> str:
    """What is allowed, with the words that a number may be given as (`auto`)."""
    message = str(first["msg"]).removeprefix("Value error, ").removeprefix("Input ")
    for heavy, plain in _PLAINER.items():
        message = message.replace(heavy, plain)
    words = [
        str(problem["ctx"]["expected"])
        for problem in problems[1:]
        if problem["type"] == "literal_error" and problem["loc"][:-1] == first["loc"][:-1]
    ]
    return " or ".join([message, *words])


def _is_branch(part: Any) -> bool:
    """Whether a location's part names a branch of a union rather than a field."""
    return isinstance(part, str) and ("[" in part or part in ("bool", "float", "constrained-float"))


def _fields(model: type[BaseModel], path: list[str]) -> list[str]:
    """The keys of the model at a path, alone or as one branch of a union."""
    if not path:
        return list(model.model_fields)
    field = model.model_fields.get(path[0])
    annotation: Any = field.annotation if field else None
    names = 2 if get_origin(annotation) is dict else 1  # a mapping's own key is not a field
    for option in (annotation, *get_args(annotation)):
        if hasattr(option, "model_fields"):
            return _fields(option, path[names:])
    return []

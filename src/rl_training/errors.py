"""The errors a user can meet: each is one sentence that says what to do next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar, get_args

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

Model = TypeVar("Model", bound="BaseModel")


class RLTrainingError(Exception):
    """Base of all errors that this package raises on purpose."""

    exit_code = 1


class ConfigError(RLTrainingError, ValueError):
    """Bad input: a key, a value, a space, a file that is not there."""

    exit_code = 2


class CheckpointError(RLTrainingError):
    """A checkpoint that is damaged, incomplete, hostile or from another format."""


class TrainingError(RLTrainingError):
    """Training cannot go on: a value that is not finite, a write that failed."""


_COMMON = (
    *("env_id", "total_timesteps", "seed", "learning_rate", "batch_size", "gamma", "hidden_sizes"),
    *("learning_starts", "num_envs", "eval_interval"),
)
"""The keys that are set most often, first in a list that is too long to show."""

_ELSEWHERE = {
    **{"env": "env_id", "env_name": "env_id", "n_envs": "num_envs", "ent_coef": "alpha"},
    **{"lr": "learning_rate", "discount": "gamma", "n_critics": "num_critics"},
    **{"buffer_size": "buffer_capacity", "net_arch": "hidden_sizes", "n_steps": "total_timesteps"},
    **{"policy_kwargs": "hidden_sizes", "gradient_steps": "gradient_updates_per_step"},
    **{"tensorboard_log": "tensorboard", "n_epochs": "num_epochs"},
}
"""What other libraries call a key."""


def nearest(word: str, known: Iterable[str]) -> str:
    """A suggestion for a misspelt name, ready to stand behind it in a sentence."""
    options = sorted(known)
    close = get_close_matches(word, options, n=1, cutoff=0.6)
    if _ELSEWHERE.get(word) in options:
        close = [_ELSEWHERE[word]]
    if close:
        return f"; did you mean {close[0]!r}?"
    near = get_close_matches(word, options, n=4, cutoff=0.4)
    common = [name for name in _COMMON if name in options]
    ordered = list(dict.fromkeys([*near, *common, *options]))
    shown = ", ".join(ordered[:12]) + (", …" if len(ordered) > 12 else "")
    return f"; known are: {shown}" if options else ""


# --- Pydantic's errors as sentences -----------------------------------------------


def validated(model: type[Model], data: Mapping[str, Any]) -> Model:
    """A mapping as a model of it; errors are one sentence."""
    from pydantic import ValidationError

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
    path = [str(part) for part in first["loc"] if not _is_branch(part)]
    where = ".".join(path)
    if first["type"] == "extra_forbidden":
        inside = f" in {'.'.join(path[:-1])}" if path[:-1] else ""
        text = f"Unknown key {path[-1]!r}{inside}{nearest(path[-1], _fields(model, path[:-1]))}"
    elif first["type"] == "missing":
        text = f"The key {where!r} is missing."
    else:
        value = "" if not where else f"{where} = {first['input']!r}: "
        text = f"{value}{_wanted(first, problems)}."
    more = len({problem["loc"][:1] for problem in problems}) - 1
    return text + (f" ({more} more)" if more else "")


_PLAINER = {
    ", unable to parse string as a number": "",
    ", unable to parse string as an integer": "",
    "a valid tuple": "a list",
    "a valid dictionary or instance of": "a mapping with the keys of",
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
    return isinstance(part, str) and ("[" in part or part in ("float", "constrained-float"))


def _fields(model: type[BaseModel], path: list[str]) -> list[str]:
    """The keys of the model that stands at a path, alone or as one branch of a union."""
    if not path:
        return list(model.model_fields)
    field = model.model_fields.get(path[0])
    annotation: Any = field.annotation if field else None
    for option in (annotation, *get_args(annotation)):
        if hasattr(option, "model_fields"):
            return _fields(option, path[1:])
    return []

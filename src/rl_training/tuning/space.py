"""The space of a tuning: which config keys vary, and over which values."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from importlib import resources
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import model_validator

from rl_training.api.resuming import RESUMABLE_KEYS
from rl_training.boundary.yaml_codec import parse_yaml, yaml_text
from rl_training.config_model import ConfigModel, validated
from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig, kwargs_models, make_config, set_key
from rl_training.study.naming import is_task_key
from rl_training.text import shown

_PACKAGED = resources.files("rl_training") / "assets" / "spaces.yaml"

MAX_KEYS = 100
MAX_CHOICES = 1_000
DIGITS = 4
"""Number of significant digits of the numbers that are tried."""

_TRIES = 20
"""How many random settings of the other keys are tried to find a valid one."""

_FIXED = {
    "algo": "tune each algorithm separately",
    "seed": "use seeds",
    "num_epochs": "its effect is not that of a hyperparameter",
}
"""Config keys that no space may contain, with the reason."""

Params = dict[str, Any]
"""A setting of each key of a space."""


class RangeConfig(ConfigModel):
    """Numbers between two bounds, as in a space file."""

    low: int | float
    """Smallest value."""
    high: int | float
    """Largest value."""
    log: bool = False
    """Search on a logarithmic scale."""
    step: int | float | None = None
    """Distance between two values; null for any value."""

    @model_validator(mode="after")
    def _check_bounds(self) -> RangeConfig:
        if not self.low < self.high:
            raise ConfigError(f"low = {self.low:g} should be less than high = {self.high:g}.")
        if self.log and self.low <= 0:
            raise ConfigError(f"low = {self.low:g} should be more than 0 with log: true.")
        if self.log and self.step is not None:
            raise ConfigError("log and step cannot be combined: remove one of them.")
        if self.step is not None and not 0 < self.step <= self.high - self.low:
            raise ConfigError(
                f"step = {self.step:g} should be more than 0 and at most high - low = "
                f"{self.high - self.low:g}."
            )
        return self


class ChoicesConfig(ConfigModel):
    """A list of values, as in a space file."""

    choices: list[Any]
    """The values."""


@dataclass(frozen=True)
class Numbers:
    """A key that varies over a range of numbers."""

    low: float
    high: float
    log: bool = False
    step: float | None = None
    is_integer: bool = False

    def to_plain(self) -> dict[str, Any]:
        """Return the entry of a space file."""
        kind = int if self.is_integer else float
        plain: dict[str, Any] = {"low": kind(self.low), "high": kind(self.high)}
        if self.log:
            plain["log"] = True
        if self.step is not None:
            plain["step"] = kind(self.step)
        return plain

    @property
    def size(self) -> float:
        """Number of different values."""
        if self.step is not None:
            return math.floor((self.high - self.low) / self.step * (1 + 1e-9)) + 1
        return self.high - self.low + 1 if self.is_integer else math.inf

    def contains(self, value: Any) -> bool:
        """Return whether a value is in the range."""
        if not isinstance(value, int | float) or isinstance(value, bool):
            return False
        if not self.low <= value <= self.high or (self.is_integer and value != int(value)):
            return False
        steps = 0.0 if self.step is None else (value - self.low) / self.step
        return abs(steps - round(steps)) < 1e-6

    def tidy(self, value: float) -> int | float:
        """Return a value of the range with few digits."""
        if self.is_integer:
            return round(value)
        digits = 12 if self.step is not None else DIGITS
        return min(max(float(f"{value:.{digits}g}"), self.low), self.high)

    def probes(self) -> Iterator[int | float]:
        """Yield values that show whether the config accepts the range."""
        yield self.tidy(self.low)
        yield self.tidy(self.high)

    def draw(self, rng: random.Random) -> int | float:
        """Return a random value, for checks."""
        if self.step is not None:
            return self.tidy(self.low + self.step * rng.randrange(int(self.size)))
        return self.tidy(rng.uniform(self.low, self.high))


@dataclass(frozen=True)
class Choices:
    """A key that varies over a list of values."""

    values: tuple[Any, ...]

    def to_plain(self) -> list[Any]:
        """Return the entry of a space file."""
        return list(self.values)

    @property
    def size(self) -> float:
        """Number of different values."""
        return len(self.values)

    def contains(self, value: Any) -> bool:
        """Return whether a value is one of the choices."""
        return value in self.values

    def probes(self) -> Iterator[Any]:
        """Yield values that show whether the config accepts the choices."""
        yield from self.values

    def draw(self, rng: random.Random) -> Any:
        """Return a random value, for checks."""
        return rng.choice(self.values)

    @property
    def labels(self) -> tuple[bool | int | float | str | None, ...]:
        """The values as Optuna can store them: lists and mappings become text."""
        return tuple(
            value
            if value is None or isinstance(value, bool | int | float | str)
            else yaml_text(value)
            for value in self.values
        )


Dimension = Numbers | Choices


@dataclass(frozen=True)
class Space:
    """What a tuning varies: a range or a list of values for each config key."""

    dimensions: Mapping[str, Dimension]

    def to_plain(self) -> dict[str, Any]:
        """Return the contents of a space file."""
        return {key: dimension.to_plain() for key, dimension in self.dimensions.items()}

    @property
    def size(self) -> float:
        """Number of different settings; infinite if a key varies continuously."""
        return math.prod(dimension.size for dimension in self.dimensions.values())

    def contains(self, params: Mapping[str, Any]) -> bool:
        """Return whether a setting belongs to the space."""
        return params.keys() == self.dimensions.keys() and all(
            dimension.contains(params[key]) for key, dimension in self.dimensions.items()
        )


# --- Reading ----------------------------------------------------------------------------


def make_space(
    data: Mapping[str, Any], config: Mapping[str, Any], fixed: Mapping[str, str], source: str
) -> Space:
    """Return the space that a file or a mapping describes.

    Args:
        data: The contents of a space file.
        config: The mapping of the config that is tuned.
        fixed: Keys that the space must not contain, with the reason.
        source: Name of the space in errors.
    """
    if not data:
        raise ConfigError(
            f"{source} has no keys: add at least one, such as "
            "learning_rate: {low: 1e-4, high: 1e-2, log: true}."
        )
    if len(data) > MAX_KEYS:
        raise ConfigError(f"{source} has {len(data):,} keys, but at most {MAX_KEYS} are allowed.")
    base, dimensions = make_config(config), dict[str, Dimension]()
    for name, entry in data.items():
        if not isinstance(name, str):
            raise ConfigError(f"{source} has the key {shown(name)}, but keys should be strings.")
        key = short_key(name)
        try:
            with_params(config, {key: None})  # which rejects an unknown key
        except ConfigError as error:
            raise ConfigError(f"{source}: {error}") from None
        try:
            _check_key(key, fixed)
            if key in dimensions:
                raise ConfigError("it appears twice, with and without algo_kwargs.")
            dimensions[key] = _dimension(entry, _kinds(base, key))
        except ConfigError as error:
            raise ConfigError(f"{source}: {key}: {error}") from None
    space = Space(dimensions)
    for key in dimensions:
        problem = find_problem(space, key, config)
        if problem is not None:
            raise ConfigError(f"{source}: {problem}")
    return space


def short_key(key: str) -> str:
    """Return a config key without the prefix that may be left out."""
    return key.removeprefix("algo_kwargs.")


def _check_key(key: str, fixed: Mapping[str, str]) -> None:
    """Reject keys that a tuning cannot vary."""
    reason = _FIXED.get(key, fixed.get(key))
    if reason is not None:
        raise ConfigError(f"it cannot be tuned: {reason}.")
    if is_task_key(key):
        raise ConfigError(
            "it cannot be tuned, because it changes the task: tune each task separately."
        )
    if key.partition(".")[0] in RESUMABLE_KEYS:
        raise ConfigError("it cannot be tuned, because it is not a setting of the learner.")


def _dimension(entry: Any, kinds: frozenset[Any]) -> Dimension:
    """Return the dimension of one entry; ``kinds`` are the types that the key is declared with."""
    if isinstance(entry, list):
        entry = {"choices": entry}
    if not isinstance(entry, Mapping):
        raise ConfigError(
            f"{shown(entry)} should be a list of values or a range, such as "
            "{low: 1e-4, high: 1e-2, log: true}."
        )
    if "choices" in entry:
        return Choices(_checked_choices(validated(ChoicesConfig, entry).choices))
    given = validated(RangeConfig, entry)
    numbers = [value for value in (given.low, given.high, given.step) if value is not None]
    whole = all(float(value).is_integer() for value in numbers)
    only_integers = int in kinds and float not in kinds
    if only_integers and not whole:
        raise ConfigError("it is an integer, so low, high and step should be integers.")
    as_integers = only_integers or (not kinds and all(isinstance(value, int) for value in numbers))
    if as_integers and max(abs(value) for value in numbers) > 2**53:
        raise ConfigError("low and high should be at most 2^53.")
    step = None if given.step is None else float(given.step)
    return Numbers(float(given.low), float(given.high), given.log, step, as_integers)


def _checked_choices(values: list[Any]) -> tuple[Any, ...]:
    if len(values) < 2:
        raise ConfigError("it has fewer than two choices: set a single value as KEY=VALUE instead.")
    if len(values) > MAX_CHOICES:
        raise ConfigError(f"it has {len(values):,} choices, but at most {MAX_CHOICES} are allowed.")
    for number, value in enumerate(values):
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"the choice {value} is not finite.")
        if any(value == other for other in values[:number]):
            raise ConfigError(f"the choice {shown(value)} appears twice.")
    return tuple(values)


def _kinds(config: TrainConfig, key: str) -> frozenset[Any]:
    """Return the types that a key is declared with; none for a key inside a mapping."""
    models = (TrainConfig, *kwargs_models(config.algo, config.algo_kwargs))
    field = next((m.model_fields[key] for m in models if key in m.model_fields), None)
    return frozenset() if field is None else frozenset(_options(field.annotation))


def _options(annotation: Any) -> Iterator[Any]:
    """Yield the types of a union, or the single type, without their metadata."""
    if get_origin(annotation) in (Union, UnionType):
        for option in get_args(annotation):
            yield from _options(option)
    elif hasattr(annotation, "__metadata__"):
        yield from _options(get_args(annotation)[0])
    else:
        yield annotation


# --- Checking -----------------------------------------------------------------------------


def with_params(config: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config's mapping with the settings of a trial."""
    data = deepcopy(dict(config))
    for key, value in params.items():
        set_key(data, key, deepcopy(value))
    return data


def find_problem(space: Space, key: str, config: Mapping[str, Any]) -> str | None:
    """Return why the config rejects a value of a key, or None if it accepts all that are checked.

    A value may be valid only together with certain values of other keys.
    """
    rng = random.Random(0)
    dimension = space.dimensions[key]
    for value in dimension.probes():
        first = _rejection(config, {key: value})
        others = (
            {other: d.draw(rng) for other, d in space.dimensions.items()} | {key: value}
            for _ in range(_TRIES)
        )
        if first is not None and all(_rejection(config, params) for params in others):
            return f"{key} = {shown(value)} does not work: {first}"
    return None


def _rejection(config: Mapping[str, Any], params: Mapping[str, Any]) -> str | None:
    try:
        make_config(with_params(config, params))
    except ConfigError as error:
        return str(error)
    return None


def own_params(space: Space, config: TrainConfig) -> Params | None:
    """Return the settings of a config, or None if they are not part of the space."""
    params = {key: config_value(config, key) for key in space.dimensions}
    return params if space.contains(params) else None


def config_value(config: TrainConfig, key: str) -> Any:
    """Return the value of a config key, with defaults filled in; None if it has none."""
    data: Any = config.resolved().to_dict()
    path = key.split(".")
    if path[0] not in data:
        data = data["algo_kwargs"]
    for part in path:
        if not isinstance(data, Mapping) or part not in data:
            return None
        data = data[part]
    return data


# --- Packaged spaces -------------------------------------------------------------------------


def packaged_space(config: Mapping[str, Any], fixed: Mapping[str, str]) -> Space:
    """Return the packaged space of the algorithm of a config, which contains its own settings.

    Args:
        config: The mapping of the config that is tuned.
        fixed: Keys that are left out.
    """
    base = make_config(config)
    tables = parse_yaml(_PACKAGED.read_text(encoding="utf-8"), "spaces.yaml")
    entries = tables["all"] | tables.get(base.algo, {})
    known = {
        key for model in kwargs_models(base.algo, base.algo_kwargs) for key in model.model_fields
    }
    dimensions: dict[str, Dimension] = {}
    for key, entry in entries.items():
        if entry is None or key not in known or key in fixed:
            continue
        dimension = _containing(_dimension(entry, _kinds(base, key)), config_value(base, key))
        if dimension is not None and find_problem(Space({key: dimension}), key, config) is None:
            dimensions[key] = dimension
    if not dimensions:
        raise ConfigError(
            f"All keys of the packaged space of {base.algo} are fixed: pass a space with --space."
        )
    return Space(dimensions)


def _containing(dimension: Dimension, value: Any) -> Dimension | None:
    """Return a dimension that contains a value; None if the value is of another kind."""
    if dimension.contains(value):
        return dimension
    if isinstance(dimension, Choices):
        alike = all(isinstance(value, type(other)) for other in dimension.values)
        return Choices((*dimension.values, value)) if alike else None
    if not isinstance(value, int | float) or (dimension.log and value <= 0):
        return None
    low, high = min(dimension.low, value), max(dimension.high, value)
    return Numbers(low, high, dimension.log, dimension.step, dimension.is_integer)

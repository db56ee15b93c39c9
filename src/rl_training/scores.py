"""Normalized scores: 0 is a random policy, 1 is an expert.

The reference returns are in ``assets/reference_returns.yaml``, with their sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from rl_training.boundary.reading import read_text
from rl_training.boundary.yaml_codec import parse_yaml
from rl_training.config_model import ConfigModel, validated
from rl_training.errors import ConfigError, RLTrainingError
from rl_training.text import shown

__all__ = ["Reference", "normalized_score", "read_references", "reference_returns"]

Returns = TypeVar("Returns", float, NDArray[np.float64])

_PACKAGED = resources.files("rl_training") / "assets" / "reference_returns.yaml"


@dataclass(frozen=True)
class Reference:
    """Returns of a random policy and of an expert in one environment."""

    random: float
    expert: float
    source: str = ""
    """Where the two returns come from."""

    def normalized(self, value: Returns) -> Returns:
        """Return a return, or an array of them, as a score: 0 is random play, 1 is the expert."""
        return (value - self.random) / (self.expert - self.random)


class ReferenceReturns(ConfigModel):
    """Reference returns of an environment, as in a YAML file."""

    random: float
    """Mean return of uniformly random actions."""
    expert: float
    """Mean return of a good policy."""
    source: str = ""
    """Where the two returns come from."""

    @model_validator(mode="after")
    def _check_order(self) -> ReferenceReturns:
        if self.random == self.expert:
            raise ConfigError(
                f"random and expert are both {self.random:g}: a score needs two different returns."
            )
        return self


class _PackagedReturns(ReferenceReturns):
    """An entry of the packaged table."""

    env_ids: tuple[str, ...]
    """Environments to which the returns apply."""
    datasets: tuple[str, ...] = Field(default=())
    """First characters of the names of datasets that were recorded in these environments."""


def reference_returns(
    name: str | None, custom: Mapping[str, Reference] | None = None
) -> Reference | None:
    """Return the reference returns of an environment, or None if there are none.

    Args:
        name: The id of an environment, or the name of a Minari or D4RL dataset.
        custom: References that take precedence, as read by `read_references`.
    """
    if name is None:
        return None
    if custom and name in custom:
        return custom[name]
    table = _packaged()
    if name in table.environments:
        return table.environments[name]
    return next((found for start, found in table.datasets.items() if name.startswith(start)), None)


def normalized_score(
    name: str | None, value: float, custom: Mapping[str, Reference] | None = None
) -> float | None:
    """Return a return as a score between random (0) and expert (1).

    D4RL and Minari multiply the same score by 100.

    Args:
        name: The id of an environment, or the name of a Minari or D4RL dataset.
        value: A return.
        custom: References that take precedence, as read by `read_references`.

    Returns:
        The score, or None if the environment has no reference returns.
    """
    reference = reference_returns(name, custom)
    return None if reference is None else reference.normalized(value)


def read_references(file: str | Path) -> dict[str, Reference]:
    """Read reference returns from a YAML file.

    The file maps environment ids to ``random`` and ``expert`` returns:
    ``MyEnv-v0: {random: -120, expert: 350}``.
    """
    path = Path(file)
    data = parse_yaml(read_text(path, follow_links=True), str(path))
    if not isinstance(data, dict):
        raise ConfigError(
            f"{path} should map environment ids to their random and expert returns, such as "
            "MyEnv-v0: {random: -120, expert: 350}."
        )
    return {str(name): _reference(name, entry, path) for name, entry in data.items()}


def _reference(name: Any, entry: Any, path: Path) -> Reference:
    if not isinstance(entry, dict):
        raise ConfigError(
            f"{path}: {shown(name)} = {shown(entry)}: should be a mapping with the keys random and "
            "expert."
        )
    try:
        found = validated(ReferenceReturns, entry)
    except RLTrainingError as error:
        raise ConfigError(f"{path}: {shown(name)}: {error}") from None
    return Reference(found.random, found.expert, found.source or str(path))


@dataclass(frozen=True)
class _Table:
    environments: dict[str, Reference]
    datasets: dict[str, Reference]


@cache
def _packaged() -> _Table:
    table = _Table({}, {})
    entries = parse_yaml(_PACKAGED.read_text(encoding="utf-8"), "reference_returns.yaml")
    for entry in entries:
        found = validated(_PackagedReturns, entry)
        reference = Reference(found.random, found.expert, found.source)
        table.environments.update(dict.fromkeys(found.env_ids, reference))
        table.datasets.update(dict.fromkeys(found.datasets, reference))
    return table

"""Data that is passed as an object: arrays, a `TransitionDataset` or a Minari dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike, fspath
from typing import Any

from rl_training.boundary.minari_format import (
    MinariObject,
    is_minari_object,
    open_minari_object,
)
from rl_training.config_model import Trait, keys_with
from rl_training.data.column_names import Fields, find_fields
from rl_training.data.config import DataConfig, infer_keys
from rl_training.data.offline_dataset import array_columns
from rl_training.data.recorded import RecordedData
from rl_training.errors import ConfigError
from rl_training.text import shown

DatasetLike = str | PathLike[str] | Mapping[str, Any] | RecordedData | MinariObject
"""What an argument `dataset` accepts: a path, a Minari id, arrays, or a dataset object."""

DATASET_KEYS = keys_with(Trait.DATASET, DataConfig)
"""Config keys that select a dataset."""


@dataclass(frozen=True)
class GivenData:
    """Data in memory, which a run records by its content but does not store."""

    source: str
    """Description of the data for messages."""
    fields: Callable[[Sequence[str]], Fields]
    """Returns the columns, with the declared ones; may be called several times."""


def select_dataset(dataset: DatasetLike) -> tuple[dict[str, Any], GivenData | None]:
    """Return the config keys that select a dataset, and the data itself if it is an object.

    Raises:
        ConfigError: It is none of the accepted types, or neither a path nor a Minari id.
    """
    keys = {key: DataConfig.model_fields[key].default for key in DATASET_KEYS}
    del keys["dataset_download"]  # it only permits a download
    if isinstance(dataset, str | PathLike):
        return keys | infer_keys(fspath(dataset)), None
    return keys | {"dataset_kind": "memory"}, _given(dataset)


def _given(dataset: Any) -> GivenData:
    if isinstance(dataset, RecordedData):
        return GivenData("the given dataset", dataset.fields)
    if is_minari_object(dataset):
        opened = open_minari_object(dataset)
        source = opened.source
        return GivenData(source, lambda own: find_fields(opened.columns(), source, own))
    if not isinstance(dataset, Mapping):
        raise ConfigError(
            f"dataset = {shown(dataset)}: should be a path, a Minari id, a mapping of arrays, a "
            "TransitionDataset or a Minari dataset."
        )
    for name in dataset:
        if not isinstance(name, str):
            raise ConfigError(f"dataset has the key {shown(name)}, but keys should be strings.")
    return GivenData("the given arrays", partial(_array_fields, dataset))


def _array_fields(arrays: Mapping[str, Any], declared: Sequence[str]) -> Fields:
    return find_fields(array_columns(arrays), "the given arrays", declared)

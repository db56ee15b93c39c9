"""List the datasets on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rl_training.api.arguments import as_path
from rl_training.boundary.minari_format import (
    MinariDataset,
    is_minari_folder,
    local_minari_ids,
    minari_folder,
    open_minari,
    open_minari_folder,
)
from rl_training.boundary.npy import is_npy_folder
from rl_training.boundary.reading import list_folder
from rl_training.data.config import SUFFIXES
from rl_training.data.dataset_loaders import config_for, open_fields
from rl_training.errors import ConfigError
from rl_training.scores import reference_returns


@dataclass(frozen=True)
class DatasetEntry:
    """A dataset on this machine."""

    source: str
    """Its Minari id or its path, as other commands accept them."""
    kind: str
    bytes: int
    """Size of its files."""
    rows: int | None = None
    """Number of transitions; None if it is not recorded or cannot be read."""
    episodes: int | None = None
    """Number of episodes, if it is recorded."""
    env_id: str | None = None
    """The environment, if it is recorded."""
    random_return: float | None = None
    expert_return: float | None = None
    """Reference returns of the environment, if they are known."""
    problem: str | None = None
    """Why it cannot be read."""

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as plain data."""
        return asdict(self)


def list_datasets(folder: str | Path = ".") -> list[DatasetEntry]:
    """Return the Minari datasets on this machine and the datasets in a folder.

    Only sizes and metadata are read, not the rows.
    """
    path = as_path("folder", folder)
    if not path.is_dir():
        raise ConfigError(f"There is no folder {str(path)!r}: choose another one.")
    return [*map(_minari, local_minari_ids()), *_in_folder(path)]


def _minari(dataset_id: str) -> DatasetEntry:
    folder = minari_folder(dataset_id)
    try:
        return _described(open_minari(dataset_id), dataset_id, folder)
    except ConfigError as error:
        return DatasetEntry(dataset_id, "minari", _size(folder), problem=str(error))


def _described(dataset: MinariDataset, source: str, folder: Path) -> DatasetEntry:
    known = reference_returns(source) or reference_returns(dataset.env_id)
    return DatasetEntry(
        source,
        "minari",
        _size(folder),
        rows=dataset.rows,
        episodes=len(dataset.episodes),
        env_id=dataset.env_id,
        random_return=None if known is None else known.random,
        expert_return=None if known is None else known.expert,
    )


def _in_folder(folder: Path) -> Iterator[DatasetEntry]:
    for path in list_folder(folder):
        if path.is_dir():
            if is_minari_folder(path):
                try:
                    yield _described(open_minari_folder(path / "data", str(path)), str(path), path)
                except ConfigError as error:
                    yield DatasetEntry(str(path), "minari", _size(path), problem=str(error))
            elif _has_arrays(path):
                yield _file(path)
        elif path.suffix.lower() in SUFFIXES:
            yield _file(path)


def _has_arrays(folder: Path) -> bool:
    try:
        return is_npy_folder(folder)
    except ConfigError:  # a folder that cannot be read is not a dataset
        return False


def _file(path: Path) -> DatasetEntry:
    kind = "npy" if path.is_dir() else SUFFIXES[path.suffix.lower()]
    try:
        with open_fields(config_for(str(path))) as fields:
            return DatasetEntry(str(path), kind, _size(path), rows=fields.rows)
    except ConfigError as error:
        return DatasetEntry(str(path), kind, _size(path), problem=str(error))


def _size(path: Path) -> int:
    """Return the bytes of a file or of the files in a folder; links are not followed."""
    if not path.is_dir():
        return path.lstat().st_size
    return sum(
        (Path(folder) / name).lstat().st_size
        for folder, _, names in os.walk(path)
        for name in names
    )

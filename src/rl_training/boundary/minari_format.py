"""Read Minari datasets without Minari's loader.

If the metadata has no spaces, Minari's loader creates an environment from ``env_spec``, which runs
any entry point in the file. Here the metadata is validated by a strict schema, and the arrays are
read from HDF5 directly. The minari package is only needed to download and write datasets.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from rl_training.boundary.columns import NUMBERS, Column, reject_damage
from rl_training.boundary.hdf5 import INSTALL, open_hdf5
from rl_training.boundary.reading import MAX_TEXT, list_folder, read_json
from rl_training.errors import ConfigError
from rl_training.text import first_line, shorten, shown

if TYPE_CHECKING:
    import gymnasium as gym

_PART = r"[A-Za-z0-9_]+(?:[.-]+[A-Za-z0-9_]+)*"
_ID = re.compile(rf"(?:{_PART}/)*{_PART}-v\d{{1,9}}")
_COLUMNS = ("observations", "actions", "rewards", "terminations", "truncations")
_MAX_EPISODES = 10_000_000


def check_minari_id(dataset_id: str) -> str:
    """Return a Minari id such as ``D4RL/door/human-v2``; reject paths and URLs."""
    if len(dataset_id) > 200 or not _ID.fullmatch(dataset_id):
        raise ConfigError(
            f"dataset_id = {shown(dataset_id)}: should be a Minari id such as "
            "'D4RL/door/human-v2', not a path or a URL."
        )
    return dataset_id


def minari_folder(dataset_id: str) -> Path:
    """Return the folder of a dataset on this machine."""
    root = os.environ.get("MINARI_DATASETS_PATH") or os.path.join("~", ".minari", "datasets")
    return Path(root).expanduser() / check_minari_id(dataset_id)


class _Metadata(BaseModel, strict=True):
    """The keys of ``metadata.json`` that are read; others are ignored."""

    data_format: str = "hdf5"
    total_episodes: int = Field(ge=0, le=_MAX_EPISODES)
    total_steps: int | None = Field(default=None, ge=0)
    env_spec: Any = None
    observation_space: str | None = Field(default=None, max_length=MAX_TEXT)
    action_space: str | None = Field(default=None, max_length=MAX_TEXT)


@dataclass(frozen=True)
class MinariDataset:
    """A local dataset: its columns, and its spaces if they are recorded."""

    source: str
    """Description of the dataset for messages."""
    observation_space: gym.Space[Any] | None
    action_space: gym.Space[Any] | None
    episodes: Sequence[int]
    """Numbers of the episodes to read, in order."""
    folder: Path
    """The folder with the data and the metadata."""
    rows: int | None = None
    """Number of steps, if it is recorded."""
    env_id: str | None = None
    """Id of the environment, if it is recorded. It is text: nothing is created from it."""

    def columns(self) -> dict[str, Column]:
        """Read all episodes in order; the columns have Minari's names."""
        file_path = self.folder / "main_data.hdf5"
        with (
            open_hdf5(
                file_path,
                depth=2,
                groups=["observations"],
                source=self.source,
                follow_links=False,
            ) as found,
            reject_damage(self.source, "a Minari dataset"),
        ):
            episodes = [_episode(found, index, self.source) for index in self.episodes]
            if not episodes:
                raise ConfigError(f"{self.source} has no episodes.")
            arrays = [
                _read_episode(episode, f"{self.source}: episode {index}")
                for index, episode in zip(self.episodes, episodes, strict=True)
            ]
            return {
                key: Column.of(np.concatenate([episode[key] for episode in arrays]))
                for key in arrays[0]
            }


def open_minari(dataset_id: str, *, download: bool = False) -> MinariDataset:
    """Open a dataset on this machine; with ``download``, download it first if it is missing."""
    folder = minari_folder(dataset_id)
    if not os.path.exists(folder / "data"):
        if not download:
            raise ConfigError(
                f"Minari dataset {dataset_id!r} is not on this machine ({shorten(str(folder))}): "
                "set dataset_download=true to download it from Minari's server."
            )
        download_minari(dataset_id)
    return open_minari_folder(folder / "data", f"Minari dataset {dataset_id!r}")


class MinariObject(Protocol):
    """The part of a `minari.MinariDataset` that is used."""

    @property
    def id(self) -> str:
        """Id of the dataset."""
        ...

    @property
    def episode_indices(self) -> Iterable[Any]:
        """Numbers of the selected episodes."""
        ...

    @property
    def storage(self) -> Any:
        """Its files; `data_path` is their folder."""
        ...


def open_minari_object(dataset: MinariObject) -> MinariDataset:
    """Open the files behind a `minari.MinariDataset`, with the episodes that it selects.

    The object's environment and spaces are not used, since its metadata may refer to code.
    """
    opened = open_minari_folder(
        Path(dataset.storage.data_path), f"Minari dataset {shown(dataset.id)}"
    )
    return replace(opened, episodes=[int(index) for index in dataset.episode_indices])


def is_minari_object(value: object) -> bool:
    """Return whether a value is a `minari.MinariDataset`, without importing minari."""
    minari = sys.modules.get("minari")
    return minari is not None and isinstance(value, minari.MinariDataset)


def is_minari_folder(folder: Path) -> bool:
    """Return whether a folder looks like a Minari dataset."""
    return (folder / "data" / "metadata.json").is_file()


def open_minari_folder(folder: Path, source: str) -> MinariDataset:
    """Open the dataset whose data and metadata are in a folder."""
    file = folder / "metadata.json"
    try:
        metadata = _Metadata.model_validate(read_json(file, limit=MAX_TEXT))
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"])) or "the file"
        raise ConfigError(
            f"{file} is not valid Minari metadata: {place}: {problem['msg']}"
        ) from None
    if metadata.data_format != "hdf5":
        raise ConfigError(
            f"{source} is stored in the format {shown(metadata.data_format)}, but only hdf5 is "
            "supported: create it with data_format='hdf5'."
        )
    return MinariDataset(
        source,
        _space(metadata.observation_space, f"{file}: observation_space"),
        _space(metadata.action_space, f"{file}: action_space"),
        range(metadata.total_episodes),
        folder,
        metadata.total_steps,
        _env_id(metadata.env_spec),
    )


def _env_id(recorded: Any) -> str | None:
    """Return the id in a recorded specification of an environment."""
    try:
        found = json.loads(recorded) if isinstance(recorded, str) else None
    except (ValueError, RecursionError):
        return None
    env_id = found.get("id") if isinstance(found, dict) else None
    return env_id if isinstance(env_id, str) and len(env_id) <= 200 else None


def local_minari_ids() -> list[str]:
    """Return the ids of the Minari datasets on this machine."""
    root = minari_folder("any-v0").parent
    found: list[str] = []
    waiting = [root] if root.is_dir() else []
    while waiting:
        folder = waiting.pop()
        if is_minari_folder(folder):
            name = folder.relative_to(root).as_posix()
            if _ID.fullmatch(name):
                found.append(name)
            continue
        nested = len(folder.relative_to(root).parts) < _MAX_NESTING
        waiting += [path for path in list_folder(folder) if nested and _is_own_folder(path)]
    return sorted(found)


def _is_own_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def download_minari(dataset_id: str) -> None:
    """Download one dataset from Minari's server, but nothing that its metadata refers to."""
    try:
        from minari.storage.datasets_root_dir import get_dataset_path
        from minari.storage.remotes import get_cloud_storage
    except ImportError:
        raise ConfigError(
            f"Downloading {dataset_id!r} requires minari. Install it with: {INSTALL}"
        ) from None
    try:
        get_cloud_storage().download_dataset(dataset_id, get_dataset_path())
    except Exception as error:  # from the network, the server or a missing client
        raise ConfigError(
            f"Minari dataset {dataset_id!r} could not be downloaded: {first_line(error)}"
        ) from None


# --- Spaces ---------------------------------------------------------------------------


class _Box(BaseModel, strict=True, extra="forbid"):
    type: str
    dtype: str = Field(pattern=r"^((float|int|uint)(8|16|32|64)|bool)$")
    shape: list[int] = Field(max_length=8)
    low: Any
    high: Any


class _Discrete(BaseModel, strict=True, extra="forbid"):
    type: str
    dtype: str = "int64"
    start: int = Field(default=0, ge=-(2**53), le=2**53)
    n: int = Field(ge=1, le=2**31)


class _MultiDiscrete(BaseModel, strict=True, extra="forbid"):
    type: str
    dtype: str = Field(default="int64", pattern=r"^(int|uint)(8|16|32|64)$")
    nvec: Any
    start: Any = None


class _MultiBinary(BaseModel, strict=True, extra="forbid"):
    type: str
    n: int | list[int]


_MAX_NESTING = 8
"""Levels of Dict and Tuple spaces that are read."""


def _space(text: str | None, place: str) -> gym.Space[Any] | None:
    """Return a recorded space; None if it is not recorded or has parts of other types."""
    if text is None:
        return None
    try:
        return _read_space(json.loads(text))  # accepts Infinity, which bounds may contain
    except (ValueError, TypeError, OverflowError, RecursionError, AssertionError) as error:
        raise ConfigError(f"{place} cannot be read: {first_line(error)}") from None


def _read_space(data: Any, depth: int = 0) -> gym.Space[Any] | None:
    from gymnasium import spaces

    kind = data.get("type") if isinstance(data, dict) else None
    if kind == "Box":
        return _read_box(_Box.model_validate(data))
    if kind == "Discrete":
        choice = _Discrete.model_validate(data)
        return spaces.Discrete(choice.n, start=choice.start)
    if kind == "MultiDiscrete":
        choices = _MultiDiscrete.model_validate(data)
        nvec = _whole_numbers(choices.nvec)
        start = None if choices.start is None else _whole_numbers(choices.start)
        return spaces.MultiDiscrete(nvec, start=start)
    if kind == "MultiBinary":
        size = _MultiBinary.model_validate(data).n
        if math.prod(np.ravel(size).tolist()) > MAX_TEXT:
            raise ValueError(f"the size {size} is invalid")
        return spaces.MultiBinary(size)
    if kind in ("Dict", "Tuple") and depth < _MAX_NESTING:
        return _read_parts(data.get("subspaces"), depth)
    return None


def _read_parts(parts: Any, depth: int) -> gym.Space[Any] | None:
    """Return a Dict or Tuple of spaces; None if one of them has another type."""
    from gymnasium import spaces

    if not isinstance(parts, dict | list):
        raise ValueError("subspaces is missing")
    if isinstance(parts, list):
        found = [_read_space(part, depth + 1) for part in parts]
        known = [part for part in found if part is not None]
        return spaces.Tuple(known) if len(known) == len(found) else None
    named = {key: _read_space(part, depth + 1) for key, part in parts.items()}
    entries = {key: part for key, part in named.items() if part is not None}
    # An OrderedDict keeps the order of the environment's space; a dict would be sorted.
    return spaces.Dict(OrderedDict(entries)) if len(entries) == len(named) else None


def _read_box(box: _Box) -> gym.Space[Any]:
    from gymnasium import spaces

    shape, dtype = tuple(box.shape), np.dtype(box.dtype)
    if min(shape, default=1) < 0 or math.prod(shape) > MAX_TEXT:
        raise ValueError(f"the shape {shape} is invalid")
    low, high = (
        np.broadcast_to(np.asarray(bound, dtype=np.float64), shape).astype(dtype)
        for bound in (box.low, box.high)
    )
    return spaces.Box(low, high, dtype=dtype.type)


def _whole_numbers(values: Any) -> Any:
    array = np.asarray(values)
    if array.dtype.kind != "i" or array.ndim > 8:
        raise ValueError(f"{shown(values)} should be whole numbers")
    return array


# --- Episodes -------------------------------------------------------------------------


def _episode(found: dict[str, Column | None], index: int, source: str) -> dict[str, Column]:
    """Return the columns of an episode without reading them.

    The entries of a Dict or Tuple are ``observations/<entry>``.
    """
    group = f"episode_{index}"
    if group not in found:
        raise ConfigError(f"{source} is damaged: it has no episode {index}.")
    columns: dict[str, Column] = {}
    for name in _COLUMNS:
        if f"{group}/{name}" not in found:
            raise ConfigError(f"{source} is damaged: episode {index} has no {name}.")
        parts = {f"{group}/{name}": found[f"{group}/{name}"]}
        if name == "observations" and parts[f"{group}/{name}"] is None:
            inside = f"{group}/{name}/"
            parts = {key: c for key, c in found.items() if c and key.startswith(inside)}
        for key, column in parts.items():
            if column is None or column.dtype.kind not in NUMBERS:
                kinds = "Dict and Tuple" if name == "actions" else "Text, Graph and Sequence"
                raise ConfigError(
                    f"{source}: {name} should be a single numeric array. {kinds} spaces are not "
                    "supported."
                )
            # Minari names the parts of a Tuple _index_0, _index_1, …
            columns[key.removeprefix(f"{group}/").replace("/_index_", "/")] = column
        if not parts:
            raise ConfigError(f"{source} is damaged: episode {index} has no {name}.")
    return columns


def _read_episode(columns: dict[str, Column], place: str) -> dict[str, np.ndarray[Any, Any]]:
    if not all(column.shape for column in columns.values()):
        raise ConfigError(f"{place} has a single value instead of a column.")
    rows = columns["rewards"].shape[0]
    wanted = {name: rows + name.startswith("observations") for name in columns}
    if any(column.shape[0] != wanted[name] for name, column in columns.items()):
        raise ConfigError(f"{place} has columns of different lengths.")
    if rows == 0:
        raise ConfigError(f"{place} has no steps.")
    arrays = {name: column.read_whole() for name, column in columns.items()}
    terminations, truncations = (
        arrays[name].reshape(rows).astype(bool) for name in ("terminations", "truncations")
    )
    if not (terminations[-1] or truncations[-1]):
        truncations[-1] = True  # the recording stopped before the episode ended
    observed = {
        # Policies use float32; converting early halves the memory of float64 data.
        name: obs.astype(np.float32) if obs.dtype.kind == "f" else obs
        for name, obs in arrays.items()
        if name.startswith("observations")
    }
    return {
        **{name: obs[:-1] for name, obs in observed.items()},
        **{f"next_{name}": obs[1:] for name, obs in observed.items()},
        "actions": arrays["actions"],
        "rewards": arrays["rewards"].astype(np.float32),
        "terminations": terminations,
        "truncations": truncations,
    }

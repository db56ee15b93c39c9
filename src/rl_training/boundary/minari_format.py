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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from rl_training.boundary.columns import NUMBERS, Column, reject_damage
from rl_training.boundary.hdf5 import INSTALL, open_hdf5
from rl_training.boundary.reading import MAX_TEXT, read_json
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
    """The keys of ``metadata.json`` that are read; others, such as ``env_spec``, are ignored."""

    data_format: str = "hdf5"
    total_episodes: int = Field(ge=0, le=_MAX_EPISODES)
    observation_space: str | None = Field(default=None, max_length=MAX_TEXT)
    action_space: str | None = Field(default=None, max_length=MAX_TEXT)


@dataclass(frozen=True)
class MinariDataset:
    """A local dataset: its columns, and its spaces if they are recorded."""

    dataset_id: str
    observation_space: gym.Space[Any] | None
    action_space: gym.Space[Any] | None
    episodes: int
    folder: Path

    @property
    def source(self) -> str:
        """Description of the dataset for messages."""
        return f"Minari dataset {self.dataset_id!r}"

    def columns(self) -> dict[str, Column]:
        """Read all episodes in order; the columns have Minari's names."""
        file_path = self.folder / "data" / "main_data.hdf5"
        with (
            open_hdf5(file_path, depth=2, source=self.source, follow_links=False) as found,
            reject_damage(self.source, "a Minari dataset"),
        ):
            episodes = [_episode(found, index, self.source) for index in range(self.episodes)]
            if not episodes:
                raise ConfigError(f"{self.source} has no episodes.")
            arrays = [
                _read_episode(episode, f"{self.source}: episode {index}")
                for index, episode in enumerate(episodes)
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
    file = folder / "data" / "metadata.json"
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
            f"Minari dataset {dataset_id!r} is stored in the format {shown(metadata.data_format)}, "
            "but only hdf5 is supported: create it with data_format='hdf5'."
        )
    return MinariDataset(
        dataset_id,
        _space(metadata.observation_space, f"{file}: observation_space"),
        _space(metadata.action_space, f"{file}: action_space"),
        metadata.total_episodes,
        folder,
    )


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
    dtype: str = Field(pattern=r"^(float|int|uint)(8|16|32|64)$")
    shape: list[int] = Field(max_length=8)
    low: Any
    high: Any


class _Discrete(BaseModel, strict=True, extra="forbid"):
    type: str
    dtype: str = "int64"
    start: int = Field(default=0, ge=-(2**53), le=2**53)
    n: int = Field(ge=1, le=2**31)


def _space(text: str | None, place: str) -> gym.Space[Any] | None:
    """Return a Box or Discrete space; None if it is not recorded or of another type."""
    if text is None:
        return None
    from gymnasium import spaces

    try:
        data = json.loads(text)  # accepts Infinity, which bounds may contain
        kind = data.get("type") if isinstance(data, dict) else None
        if kind == "Box":
            box = _Box.model_validate(data)
            shape, dtype = tuple(box.shape), np.dtype(box.dtype)
            if min(shape, default=1) < 0 or math.prod(shape) > MAX_TEXT:
                raise ValueError(f"the shape {shape} is invalid")
            low, high = (
                np.broadcast_to(np.asarray(bound, dtype=np.float64), shape).astype(dtype)
                for bound in (box.low, box.high)
            )
            return spaces.Box(low, high, dtype=dtype.type)
        if kind == "Discrete":
            choice = _Discrete.model_validate(data)
            return spaces.Discrete(choice.n, start=choice.start)
    except (ValueError, TypeError, OverflowError, RecursionError, AssertionError) as error:
        raise ConfigError(f"{place} cannot be read: {first_line(error)}") from None
    return None


# --- Episodes -------------------------------------------------------------------------


def _episode(found: dict[str, Column | None], index: int, source: str) -> dict[str, Column]:
    """Return the columns of an episode without reading them."""
    group = f"episode_{index}"
    if group not in found:
        raise ConfigError(f"{source} is damaged: it has no episode {index}.")
    columns: dict[str, Column] = {}
    for name in _COLUMNS:
        if f"{group}/{name}" not in found:
            raise ConfigError(f"{source} is damaged: episode {index} has no {name}.")
        column = found[f"{group}/{name}"]
        if column is None or column.dtype.kind not in NUMBERS:
            raise ConfigError(
                f"{source}: {name} should be a single numeric array. Dict and Tuple "
                "spaces are not supported."
            )
        columns[name] = column
    return columns


def _read_episode(columns: dict[str, Column], place: str) -> dict[str, np.ndarray[Any, Any]]:
    if not all(column.shape for column in columns.values()):
        raise ConfigError(f"{place} has a single value instead of a column.")
    rows = columns["rewards"].shape[0]
    wanted = {name: rows + (name == "observations") for name in columns}
    if any(column.shape[0] != wanted[name] for name, column in columns.items()):
        raise ConfigError(f"{place} has columns of different lengths.")
    if rows == 0:
        raise ConfigError(f"{place} has no steps.")
    arrays = {name: np.concatenate(list(column.chunks())) for name, column in columns.items()}
    obs = arrays["observations"].reshape(rows + 1, -1).astype(np.float32)
    terminations, truncations = (
        arrays[name].reshape(rows).astype(bool) for name in ("terminations", "truncations")
    )
    if not (terminations[-1] or truncations[-1]):
        truncations[-1] = True  # the recording stopped before the episode ended
    return {
        "observations": obs[:-1],
        "next_observations": obs[1:],
        "actions": arrays["actions"],
        "rewards": arrays["rewards"].astype(np.float32),
        "terminations": terminations,
        "truncations": truncations,
    }

"""Write datasets as npz, pt and HDF5 files or folders of npy files, or with Minari's library."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import gymnasium as gym
import numpy as np
import torch

from rl_training.boundary.columns import Column
from rl_training.boundary.hdf5 import INSTALL
from rl_training.boundary.minari_format import minari_folder
from rl_training.boundary.npy import write_npy, write_npz
from rl_training.boundary.writing import create_file, remove, replace_file, temporary_name
from rl_training.data.config import SUFFIXES
from rl_training.data.recorded import RecordedData, episode_bounds
from rl_training.errors import ConfigError
from rl_training.observations import MAX_PIXEL
from rl_training.text import first_line, reason

Arrays = dict[str, np.ndarray[Any, Any]]
Columns = Mapping[str, Column]


def dataset_columns(dataset: RecordedData) -> dict[str, Column]:
    """Return the columns under D4RL's names; discrete actions are integers, ``[N]``.

    Observations are flat vectors, or arrays in the shapes of the entries if there are images.
    """
    actions: np.ndarray[Any, Any] = dataset.column("actions")
    if dataset.findings.integer_actions:
        actions = actions.astype(np.int64)
        actions = actions[:, 0] if actions.shape[1] == 1 else actions
    return {
        **_named("observations", dataset),
        "actions": Column.of(actions),
        "rewards": Column.of(dataset.column("rewards")),
        **_named("next_observations", dataset),
        "terminals": Column.of(dataset.column("terminations") > 0),
        "timeouts": Column.of(dataset.column("truncations") > 0),
    }


def _named(field: str, dataset: RecordedData) -> dict[str, Column]:
    parts = dataset.observation_parts(field)
    return {f"{field}/{name}" if name else field: column for name, column in parts.items()}


def as_arrays(columns: Columns) -> Arrays:
    """Read columns into memory."""
    return {name: column.read_whole() for name, column in columns.items()}


def check_destination(path: Path, *, folder: bool = False) -> str:
    """Return the format for a file's suffix, or that of a folder; neither is ever replaced."""
    kind = "npy" if folder else SUFFIXES.get(path.suffix.lower())
    if kind is None:
        raise ConfigError(
            f"{str(path)!r}: the file name must end in {' or '.join(SUFFIXES)}, or in / for a "
            "folder of .npy files."
        )
    if path.exists():
        raise ConfigError(f"{str(path)!r} already exists: choose another name.")
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir():
        raise ConfigError(f"{str(path)!r}: {str(above)!r} is a file, not a folder.")
    return kind


def write_columns(columns: Columns, path: Path, *, folder: bool = False) -> Path:
    """Write a file or a folder of npy files atomically; its parent is created if needed."""
    kind = check_destination(path, folder=folder)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if folder:
            _write_npy_folder(columns, path)
            return path
        # Libraries write to a Python file: with their own files, a failed write raises arbitrary
        # errors, and HDF5 crashes when the process exits.
        with replace_file(path) as stream:
            {"npz": _write_npz, "pt": _write_pt, "hdf5": _write_hdf5}[kind](columns, stream)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {reason(error)}.") from None
    return path


def write_arrays(arrays: Arrays, path: Path) -> Path:
    """Write arrays like `write_columns`."""
    return write_columns({name: Column.of(values) for name, values in arrays.items()}, path)


def _write_npy_folder(columns: Columns, path: Path) -> None:
    temporary = temporary_name(path)
    remove(temporary)
    try:
        for name, column in columns.items():
            file = temporary / f"{name}.npy"
            file.parent.mkdir(parents=True, exist_ok=True)
            with create_file(file) as stream:
                write_npy(stream, column)
        os.replace(temporary, path)
    finally:
        remove(temporary)


def _write_npz(columns: Columns, stream: IO[bytes]) -> None:
    write_npz(stream, columns)


def _write_pt(columns: Columns, stream: IO[bytes]) -> None:
    tensors = {k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in as_arrays(columns).items()}
    try:
        torch.save(tensors, stream)
    except RuntimeError as error:  # raised by closing the archive; it hides the failed write
        failed = error.__context__
        raise (failed if isinstance(failed, OSError) else OSError(first_line(error))) from None


def _write_hdf5(columns: Columns, stream: IO[bytes]) -> None:
    try:
        import h5py
    except ImportError:
        raise ConfigError(f"Writing HDF5 files requires h5py. Install it with: {INSTALL}") from None
    with h5py.File(stream, "w") as file:
        for name, column in columns.items():
            values = file.create_dataset(name, column.shape, column.dtype)
            start = 0
            for chunk in column.chunks():
                values[start : start + len(chunk)] = chunk
                start += len(chunk)


def write_minari(
    arrays: Arrays,
    dataset_id: str,
    env: gym.Env[Any, Any] | None,
    obs_space: gym.Space[Any] | None = None,
) -> str:
    """Write a Minari dataset, episode by episode, into Minari's folder.

    The dataset records the spaces and the specification of ``env``. The caller creates ``env``,
    since Minari would create an environment from an id without any checks. Observations are stored
    in the form of ``obs_space``, flat by default.
    """
    folder = minari_folder(dataset_id)
    try:
        import minari
        from minari.data_collector import EpisodeBuffer
    except ImportError:
        raise ConfigError(
            f"Writing Minari datasets requires minari. Install it with: {INSTALL}"
        ) from None
    if isinstance(obs_space, gym.spaces.Box) and len(obs_space.shape) == 1:
        obs_space = None  # rows already have its form
    prefix = "observations"
    names = [key.removeprefix(prefix) for key in arrays if key.partition("/")[0] == prefix]
    if env is None and names != [""]:
        raise ConfigError(
            f"{dataset_id}: a Minari dataset with images in a Dict or Tuple records the spaces of "
            "its environment: set --env-id."
        )
    episodes = []
    bounds = episode_bounds(arrays["terminals"] | arrays["timeouts"])
    for index, (start, stop) in enumerate(pairwise(bounds)):
        obs = {
            name: np.concatenate(
                [
                    arrays[f"observations{name}"][start:stop],
                    arrays[f"next_observations{name}"][stop - 1 : stop],
                ]
            )
            for name in names
        }
        episodes.append(
            EpisodeBuffer(
                id=index,
                observations=_own_form(obs, obs_space),
                actions=arrays["actions"][start:stop],
                rewards=arrays["rewards"][start:stop].tolist(),
                terminations=arrays["terminals"][start:stop].tolist(),
                truncations=arrays["timeouts"][start:stop].tolist(),
            )
        )
    spaces: dict[str, Any] = {} if obs_space is None else {"observation_space": obs_space}
    if env is None:  # use spaces that contain the data
        low, high = arrays["actions"].min(axis=0), arrays["actions"].max(axis=0)
        found = arrays["observations"]
        least, most, dtype = -np.inf, np.inf, np.float32
        if found.ndim > 2:  # images
            least, most, dtype = 0, (1 if found.dtype == np.bool_ else MAX_PIXEL), found.dtype.type
        spaces["observation_space"] = gym.spaces.Box(least, most, found.shape[1:], dtype)
        spaces["action_space"] = gym.spaces.Box(low, np.maximum(high, low + 1e-6), dtype=np.float32)
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        with warnings.catch_warnings():  # about missing metadata, such as the author
            warnings.simplefilter("ignore", UserWarning)
            minari.create_dataset_from_buffers(dataset_id, buffer=episodes, env=env, **spaces)
    except (ValueError, TypeError, OSError, ImportError, AssertionError) as error:
        _remove_created(missing)  # otherwise the next attempt would find the dataset
        raise ConfigError(f"Minari could not create {dataset_id!r}: {first_line(error)}") from None
    return dataset_id


def _own_form(
    parts: Mapping[str, np.ndarray[Any, Any]], space: gym.Space[Any] | None, name: str = ""
) -> Any:
    """Return observations as the nested arrays of a space; all have the same rows.

    ``parts`` are flat vectors without a name, or an array for each entry under ``/name``.
    """
    if space is None:
        return parts[""]
    if not isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
        rows = parts[name]
        if rows.shape[1:] == space.shape:
            return rows.astype(space.dtype, copy=False)
        return np.stack([np.asarray(gym.spaces.unflatten(space, row)) for row in rows])
    named = space.spaces if isinstance(space, gym.spaces.Dict) else dict(enumerate(space.spaces))
    if name in parts:
        ends = np.cumsum([gym.spaces.flatdim(part) for part in named.values()])
        split = np.split(parts[name], ends[:-1], axis=-1)
        parts = {f"{name}/{key}": part for key, part in zip(named, split, strict=True)}
    formed = {key: _own_form(parts, inner, f"{name}/{key}") for key, inner in named.items()}
    return formed if isinstance(space, gym.spaces.Dict) else tuple(formed.values())


def _remove_created(folders: list[Path]) -> None:
    """Remove the folder of a failed dataset, and its new parent folders that are empty."""
    for folder in folders[:1]:
        shutil.rmtree(folder, ignore_errors=True)
    for folder in folders[1:]:
        with suppress(OSError):
            folder.rmdir()

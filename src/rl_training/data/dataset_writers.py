"""Write datasets as npz, pt and HDF5 files, or as Minari datasets with Minari's library."""

from __future__ import annotations

import shutil
import warnings
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import gymnasium as gym
import numpy as np
import torch

from rl_training.boundary.hdf5 import INSTALL
from rl_training.boundary.minari_format import minari_folder
from rl_training.boundary.writing import replace_file
from rl_training.data.dataset_loaders import SUFFIXES
from rl_training.data.offline_dataset import TransitionDataset, episode_bounds
from rl_training.errors import ConfigError
from rl_training.text import first_line, reason

Arrays = dict[str, np.ndarray[Any, Any]]


def dataset_arrays(dataset: TransitionDataset) -> Arrays:
    """Return the columns under D4RL's names; discrete actions are integers, ``[N]``."""
    actions: np.ndarray[Any, Any] = dataset.column("actions")
    if dataset.integer_actions:
        actions = actions.astype(np.int64)
        actions = actions[:, 0] if actions.shape[1] == 1 else actions
    return {
        "observations": dataset.column("observations"),
        "actions": actions,
        "rewards": dataset.column("rewards"),
        "next_observations": dataset.column("next_observations"),
        "terminals": dataset.column("terminations") > 0,
        "timeouts": dataset.column("truncations") > 0,
    }


def check_destination(path: Path) -> str:
    """Return the format for a file's suffix; an existing file is never replaced."""
    kind = SUFFIXES.get(path.suffix.lower())
    if kind is None:
        raise ConfigError(f"{str(path)!r}: the file name must end in {' or '.join(SUFFIXES)}.")
    if path.exists():
        raise ConfigError(f"{str(path)!r} already exists: choose another name.")
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir():
        raise ConfigError(f"{str(path)!r}: {str(above)!r} is a file, not a folder.")
    return kind


def write_arrays(arrays: Arrays, path: Path) -> Path:
    """Write a file atomically; its folder is created if needed."""
    kind = check_destination(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Libraries write to a Python file: with their own files, a failed write raises arbitrary
        # errors, and HDF5 crashes when the process exits.
        with replace_file(path) as stream:
            if kind == "npz":
                np.savez(stream, **arrays)  # type: ignore[arg-type]
            else:
                {"pt": _write_pt, "hdf5": _write_hdf5}[kind](arrays, stream)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {reason(error)}.") from None
    return path


def _write_pt(arrays: Arrays, stream: IO[bytes]) -> None:
    tensors = {k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in arrays.items()}
    try:
        torch.save(tensors, stream)
    except RuntimeError as error:  # raised by closing the archive; it hides the failed write
        failed = error.__context__
        raise (failed if isinstance(failed, OSError) else OSError(first_line(error))) from None


def _write_hdf5(arrays: Arrays, stream: IO[bytes]) -> None:
    try:
        import h5py
    except ImportError:
        raise ConfigError(f"Writing HDF5 files requires h5py. Install it with: {INSTALL}") from None
    with h5py.File(stream, "w") as file:
        for name, values in arrays.items():
            file.create_dataset(name, data=values)


def write_minari(arrays: Arrays, dataset_id: str, env: gym.Env[Any, Any] | None) -> str:
    """Write a Minari dataset, episode by episode, into Minari's folder.

    The dataset records the spaces and the specification of ``env``. The caller creates ``env``,
    since Minari would create an environment from an id without any checks.
    """
    folder = minari_folder(dataset_id)
    try:
        import minari
        from minari.data_collector import EpisodeBuffer
    except ImportError:
        raise ConfigError(
            f"Writing Minari datasets requires minari. Install it with: {INSTALL}"
        ) from None
    episodes = []
    bounds = episode_bounds(arrays["terminals"] | arrays["timeouts"])
    for index, (start, stop) in enumerate(pairwise(bounds)):
        obs = arrays["observations"][start:stop]
        last = arrays["next_observations"][stop - 1 : stop]
        episodes.append(
            EpisodeBuffer(
                id=index,
                observations=np.concatenate([obs, last]),
                actions=arrays["actions"][start:stop],
                rewards=arrays["rewards"][start:stop].tolist(),
                terminations=arrays["terminals"][start:stop].tolist(),
                truncations=arrays["timeouts"][start:stop].tolist(),
            )
        )
    spaces: dict[str, Any] = {}
    if env is None:  # use spaces that contain the data
        low, high = arrays["actions"].min(axis=0), arrays["actions"].max(axis=0)
        shape = arrays["observations"].shape[1:]
        spaces["observation_space"] = gym.spaces.Box(-np.inf, np.inf, shape)
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


def _remove_created(folders: list[Path]) -> None:
    """Remove the folder of a failed dataset, and its new parent folders that are empty."""
    for folder in folders[:1]:
        shutil.rmtree(folder, ignore_errors=True)
    for folder in folders[1:]:
        with suppress(OSError):
            folder.rmdir()

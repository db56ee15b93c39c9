"""Datasets from files: npz, pt, HDF5 in D4RL's layout, Minari, or collected on the spot."""

from __future__ import annotations

import ctypes
import math
import mmap
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rl_training.data.config import DataConfig, DatasetKind
from rl_training.data.fields import CHUNK_ROWS, ArrayColumn, Column, Fields, find_fields
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.errors import ConfigError, validated
from rl_training.rewards import RewardTransformConfig
from rl_training.types import EnvSpec

RandomCollector = Callable[[int, int], Mapping[str, Any]]
"""Collects ``size`` transitions of uniform play from ``seed``; handed in by the caller."""

INSTALL = "pip install 'rl-training[offline]'"
SUFFIXES: dict[str, DatasetKind] = {
    ".npz": "npz",
    ".pt": "pt",
    ".pth": "pt",
    ".hdf5": "hdf5",
    ".h5": "hdf5",
}


def load_transition_dataset(
    config: DataConfig | Mapping[str, Any],
    *,
    spec: EnvSpec | None = None,
    time_limit: int | None = None,
    collect_random: RandomCollector | None = None,
    device: torch.device | str = "cpu",
) -> TransitionDataset:
    """Load what the config names, check it, and transform its rewards.

    ``spec`` maps actions to [-1, 1] and refuses a dataset of other sizes; without it `action_low`
    and `action_high` give the bounds. ``time_limit`` helps to tell time limits from terminations
    where a file has one flag for both.
    """
    settings = config if isinstance(config, DataConfig) else validated(DataConfig, config)
    if settings.dataset_kind is None:
        raise ConfigError("dataset_kind is missing: use random, npz, pt, hdf5 or minari.")
    source = settings.source
    with open_fields(settings, collect_random) as fields:
        if spec is None and settings.action_low is not None:
            spec = spec_of(fields, settings)
        dataset = TransitionDataset.from_fields(
            fields, spec=spec, device=device, source=source, time_limit=time_limit
        )
    if settings.return_scaling:
        spread = dataset.statistics(time_limit).return_range
        if spread <= 0:
            raise ConfigError(
                f"{source} has no two whole episodes of different return: return_scaling has no "
                "range."
            )
        dataset.return_scale = 1000.0 / spread
        dataset.transform_rewards(RewardTransformConfig(scale=dataset.return_scale))
        dataset.notes += (f"rewards are scaled by 1000 over the return range, {spread:.6g}",)
    dataset.transform_rewards(settings.rewards())
    return dataset


def spec_of(fields: Fields, settings: DataConfig) -> EnvSpec:
    """Sizes as they are in the data, bounds as the config gives them."""

    def width(name: str) -> int:
        return math.prod(fields.columns[name].shape[1:])

    if fields.columns["actions"].dtype.kind in "biu":
        raise ConfigError(
            f"{settings.source} holds actions as {fields.columns['actions'].dtype}: without env_id "
            "actions are continuous. Name the environment, or store them as floats if they are."
        )
    size = width("actions")
    return EnvSpec(width("observations"), size, *settings.action_bounds(size))


def config_for(source: str) -> DataConfig:
    """The config that a path or a Minari id means, by its ending."""
    suffix = Path(source).suffix.lower()
    if suffix in SUFFIXES:
        return DataConfig(dataset_kind=SUFFIXES[suffix], dataset_path=source)
    if Path(source).exists():
        raise ConfigError(f"{source!r}: the name must end in {', '.join(SUFFIXES)}.")
    return DataConfig(dataset_kind="minari", dataset_id=source)


@contextmanager
def open_fields(
    config: DataConfig, collect_random: RandomCollector | None = None
) -> Iterator[Fields]:
    """A dataset's columns, open for as long as the block lasts."""
    kind = config.dataset_kind
    if kind == "random":
        if collect_random is None:
            raise ConfigError(
                "dataset_kind 'random' needs an environment to collect from: give env_id, or to "
                "load_transition_dataset collect_random=, a function of size and seed."
            )
        data = collect_random(config.dataset_size, config.dataset_seed)
        columns: Mapping[str, Column] = {k: ArrayColumn(np.asarray(v)) for k, v in data.items()}
        yield find_fields(columns, config.source)
    elif kind == "minari":
        yield _minari_fields(str(config.dataset_id), config.dataset_download)
    else:
        path = Path(str(config.dataset_path))
        if not path.is_file():
            place = "" if path.is_absolute() else f" in the present folder, {str(Path.cwd())!r}"
            raise ConfigError(
                f"There is no dataset file {str(path)!r}{place}: give the path of one "
                "(dataset_path=FILE; --dataset FILE with finetune and evaluate), or record one "
                "with rl-training data collect."
            )
        opener = {"npz": _open_npz, "pt": _open_pt, "hdf5": _open_hdf5}[str(kind)]
        with opener(path) as found:
            yield find_fields(found, config.source)


@contextmanager
def _reading(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever a made-up file raises into one sentence."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:  # archives, filters and parsers of headers have no common class
        raise ConfigError(f"{path} is damaged or not {kind} file: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """What an exception says in its first line, or its name where it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]


# --- npz: streamed out of the archive --------------------------------------------


@dataclass(frozen=True)
class _ZipColumn:
    """An array in an npz archive, never whole in memory."""

    archive: zipfile.ZipFile
    member: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def chunks(self) -> Iterator[np.ndarray[Any, Any]]:
        path = Path(str(self.archive.filename))
        with _reading(path, "an npz"), self.archive.open(self.member) as stream:
            _read_header(stream)
            row_shape = self.shape[1:]
            row_bytes = self.dtype.itemsize * math.prod(row_shape)
            for start in range(0, self.shape[0], CHUNK_ROWS):
                rows = min(CHUNK_ROWS, self.shape[0] - start)
                data = stream.read(rows * row_bytes)
                if len(data) != rows * row_bytes:
                    raise ConfigError(f"{path}: {self.member} is cut short.")
                yield np.frombuffer(data, dtype=self.dtype).reshape(rows, *row_shape)


def _read_header(stream: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    return np.lib.format.read_array_header_2_0(stream)


@contextmanager
def _open_npz(path: Path) -> Iterator[dict[str, Column]]:
    with _reading(path, "an npz"):
        archive = zipfile.ZipFile(path)
    with archive:
        members = [(info.filename.removesuffix(".npy"), info) for info in archive.infolist()]
        for name, times in Counter(name for name, _ in members).items():
            if times > 1:
                raise ConfigError(f"{path} holds {name!r} twice: keep one.")
        with _reading(path, "an npz"):
            columns = {
                name: _npz_column(archive, info, f"{path}: {name!r}") for name, info in members
            }
        yield columns


def _npz_column(archive: zipfile.ZipFile, info: zipfile.ZipInfo, place: str) -> Column:
    """One array of an archive, once its header is known to fit what the archive holds."""
    with archive.open(info.filename) as stream:
        shape, fortran, dtype = _read_header(stream)
        room = info.file_size - stream.tell()
    if dtype.hasobject:
        raise ConfigError(
            f"{place} holds Python objects, which are never loaded: store plain arrays."
        )
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize > room:
        raise ConfigError(
            f"{place} has shape {shape} by its header, but {room} bytes of values are there."
        )
    if fortran and len(shape) > 1:
        with archive.open(info.filename) as stream:
            return ArrayColumn(np.lib.format.read_array(stream, allow_pickle=False))
    return _ZipColumn(archive, info.filename, shape, dtype)


# --- pt: tensors and nothing else --------------------------------------------------


@contextmanager
def _open_pt(path: Path) -> Iterator[dict[str, Column]]:
    try:
        data = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # unpickling errors have no common class
        raise ConfigError(
            f"{path} cannot be read as tensors alone, and nothing else is loaded: {_reason(error)}"
        ) from None
    if not isinstance(data, dict) or not all(
        isinstance(key, str) and isinstance(value, torch.Tensor) for key, value in data.items()
    ):
        raise ConfigError(f"{path} must hold a dict of tensors.")
    try:
        columns = _tensor_columns(data)
    except (TypeError, RuntimeError) as error:
        raise ConfigError(
            f"{path} holds a type that NumPy does not know: {_reason(error)}"
        ) from None
    yield columns


def _tensor_columns(data: dict[str, torch.Tensor]) -> dict[str, Column]:
    users = Counter(tensor.untyped_storage().data_ptr() for tensor in data.values())

    def column(tensor: torch.Tensor) -> Column:
        storage = tensor.untyped_storage()
        mapped = not storage.resizable()
        alone = users[storage.data_ptr()] == 1  # a file of the other byte order is swapped in place
        kind = _MappedColumn if mapped and alone else ArrayColumn
        return kind(tensor.detach().numpy())

    return {name: column(tensor) for name, tensor in data.items()}


class _MappedColumn(ArrayColumn):
    """A column of a memory-mapped file, whose pages are given back once they are read."""

    def chunks(self) -> Iterator[np.ndarray[Any, Any]]:
        for chunk in super().chunks():
            yield chunk
            # An expanded tensor has more bytes than memory: what follows it is not its own.
            if sys.platform == "linux" and chunk.flags.c_contiguous:
                _give_back(chunk)


def _give_back(chunk: np.ndarray[Any, Any]) -> None:
    """Drop the pages that hold nothing but ``chunk``."""
    start = -(-chunk.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
    stop = (chunk.ctypes.data + chunk.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if stop > start:
        dont_need = ctypes.c_int(mmap.MADV_DONTNEED)
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), dont_need)


# --- HDF5: D4RL's layout -----------------------------------------------------------


@contextmanager
def _open_hdf5(path: Path) -> Iterator[dict[str, Column]]:
    try:
        import h5py
    except ImportError:
        raise ConfigError(f"Reading {path} needs h5py: {INSTALL}") from None
    with _reading(path, "an HDF5"):
        file = h5py.File(path, "r")
    with file:
        with _reading(path, "an HDF5"):
            columns: dict[str, Column] = {
                str(name): _HDF5Column(found, path)  # a name that is no UTF-8 comes as bytes
                for name, found in file.items()
                if isinstance(found, h5py.Dataset) and found.shape is not None  # which may be null
            }
        yield columns


@dataclass(frozen=True)
class _HDF5Column(ArrayColumn):
    """A column of an open file."""

    path: Path

    @property
    def dtype(self) -> np.dtype[Any]:
        with _reading(self.path, "an HDF5"):
            return super().dtype

    def chunks(self) -> Iterator[np.ndarray[Any, Any]]:
        with _reading(self.path, "an HDF5"):
            yield from super().chunks()


# --- Minari ------------------------------------------------------------------------


def _minari_fields(dataset_id: str, download: bool) -> Fields:
    dataset = open_minari(dataset_id, download)
    try:
        episodes = [_minari_episode(episode, dataset_id) for episode in dataset.iterate_episodes()]
    except ConfigError:
        raise
    except Exception as error:  # of HDF5, or of a piece that is not where Minari looks for it
        raise ConfigError(f"Minari dataset {dataset_id!r} is damaged: {_reason(error)}") from None
    if not episodes:
        raise ConfigError(f"Minari dataset {dataset_id!r} holds no episodes.")
    columns: dict[str, Column] = {
        key: ArrayColumn(np.concatenate([episode[key] for episode in episodes]))
        for key in episodes[0]
    }
    return find_fields(columns, f"Minari dataset {dataset_id!r}")


def open_minari(dataset_id: str, download: bool = False) -> Any:
    """A Minari dataset by its own library, local unless a download is asked for."""
    try:
        import minari
    except ImportError:
        raise ConfigError(f"Minari datasets need minari: {INSTALL}") from None
    try:
        return minari.load_dataset(dataset_id, download=download)
    except Exception as error:  # the library raises many kinds, for a missing id FileNotFoundError
        reason = " ".join(str(error).split())[:200]
        hint = "" if download else "; dataset_download=true would look for it on Minari's server"
        raise ConfigError(
            f"Minari dataset {dataset_id!r} is not to be had: {reason}{hint}"
        ) from None


def _minari_episode(episode: Any, dataset_id: str) -> dict[str, np.ndarray[Any, Any]]:
    obs = episode.observations
    if not isinstance(obs, np.ndarray) or not isinstance(episode.actions, np.ndarray):
        kind = type(obs).__name__
        raise ConfigError(
            f"Minari dataset {dataset_id!r} has observations or actions in a {kind}, but flat "
            "arrays are needed."
        )
    terminations = np.asarray(episode.terminations, dtype=bool)
    truncations = np.asarray(episode.truncations, dtype=bool)
    lengths = {len(obs) - 1, len(terminations), len(truncations)}
    lengths |= {len(episode.actions), len(episode.rewards)}
    if len(lengths) > 1 or 0 in lengths:
        steps = "no steps" if lengths == {0} else "columns of different lengths"
        raise ConfigError(f"Minari dataset {dataset_id!r}: episode {episode.id} holds {steps}.")
    if not (terminations[-1] or truncations[-1]):
        truncations = truncations.copy()
        truncations[-1] = True  # an episode that was recorded to here and no further
    return {
        "observations": obs[:-1].reshape(len(obs) - 1, -1).astype(np.float32),
        "next_observations": obs[1:].reshape(len(obs) - 1, -1).astype(np.float32),
        "actions": episode.actions,
        "rewards": np.asarray(episode.rewards, dtype=np.float32),
        "terminations": terminations,
        "truncations": truncations,
    }

"""Load datasets from npz, pt, HDF5 (D4RL's layout) and Minari, or collect random ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from rl_training.boundary.columns import Column
from rl_training.boundary.hdf5 import open_hdf5_columns
from rl_training.boundary.minari_format import MinariDataset, open_minari, open_minari_folder
from rl_training.boundary.npy import open_npy_folder, open_npz
from rl_training.boundary.pt import open_pt
from rl_training.config_model import validated
from rl_training.data.action_units import data_range, within_bounds
from rl_training.data.column_names import OBSERVATION_NAMES, Fields, find_fields
from rl_training.data.config import DataConfig, infer_keys
from rl_training.data.frames import FrameLayout
from rl_training.data.given_data import GivenData
from rl_training.data.mapped_dataset import MappedDataset
from rl_training.data.offline_dataset import TransitionDataset, array_columns
from rl_training.data.recorded import RecordedData
from rl_training.data.rows import SCALAR_FIELDS
from rl_training.errors import ConfigError
from rl_training.observations import Entry
from rl_training.rewards import RewardTransformConfig
from rl_training.types import EnvSpec

MAP_FROM = 2 << 30
"""Bytes from which data stay in their files by default."""


class MemoryLimits(NamedTuple):
    """How many bytes of recorded data are loaded into memory."""

    map_from: int = MAP_FROM
    """Data of more bytes stay in their files if these can be mapped into memory."""
    available: int | None = None
    """Data of more bytes cannot be loaded."""


RandomCollector = Callable[[int, int], Mapping[str, Any]]
"""A function of ``size`` and ``seed`` that collects transitions in an environment."""

OPENERS: dict[str, Callable[[Path], AbstractContextManager[dict[str, Column]]]] = {
    "npz": open_npz,
    "pt": open_pt,
    "hdf5": partial(open_hdf5_columns, groups=OBSERVATION_NAMES),
    "npy": partial(open_npy_folder, groups=OBSERVATION_NAMES),
}
"""The reader of each format that `dataset_path` may have."""


def load_transition_dataset(
    config: DataConfig | Mapping[str, Any],
    *,
    spec: EnvSpec | None = None,
    time_limit: int | None = None,
    collect_random: RandomCollector | None = None,
    columns: Sequence[str] = (),
    device: torch.device | str = "cpu",
    given: GivenData | None = None,
    limits: MemoryLimits | None = None,
) -> RecordedData:
    """Load and check the dataset that the config selects, and transform its rewards.

    With ``spec``, actions are mapped to [-1, 1] and a dataset with other sizes is rejected; without
    it, `action_low` and `action_high` set the bounds. ``time_limit`` separates time limits from
    terminations if a file has one flag for both. ``columns`` lists further columns to keep.
    ``given`` is the data of `dataset_kind: memory`. ``limits`` decide which data stay in their
    files with `dataset_memory: auto`.
    """
    settings = config if isinstance(config, DataConfig) else validated(DataConfig, config)
    if settings.dataset_kind is None:
        raise ConfigError("There is no dataset: set dataset_path, dataset_id or dataset_kind.")
    source = settings.source if given is None else given.source
    with open_fields(settings, collect_random, columns, given) as fields:
        spec = spec_for(fields, settings, spec, source)
        mapped = should_map(fields, settings.dataset_memory, source, limits or MemoryLimits())
        dataset = read_fields(
            fields, mapped=mapped, spec=spec, source=source, time_limit=time_limit
        )
    dataset.to(device)
    if settings.return_scaling:
        spread = dataset.statistics(time_limit).return_range
        if spread <= 0:
            raise ConfigError(
                f"return_scaling needs at least two complete episodes with different returns, but "
                f"{source} does not have them: set return_scaling=false."
            )
        dataset.return_scale = 1000.0 / spread
        dataset.transform_rewards(RewardTransformConfig(scale=dataset.return_scale))
        dataset.notes += (
            f"rewards are multiplied by {dataset.return_scale:.6g}, which is 1000 divided by the "
            f"range of returns, {spread:.6g}",
        )
    dataset.transform_rewards(settings.rewards())
    return dataset


def read_fields(
    fields: Fields,
    *,
    mapped: bool,
    spec: EnvSpec | None,
    source: str,
    time_limit: int | None = None,
    finite: bool = True,
    entries: tuple[Entry, ...] = (),
) -> RecordedData:
    """Return the rows of a dataset, in memory or ``mapped``."""
    options: dict[str, Any] = {
        "spec": spec,
        "source": source,
        "time_limit": time_limit,
        "finite": finite,
        "entries": entries,
    }
    shapes = fields.entries if spec is None and not entries else (spec.entries if spec else entries)
    if FrameLayout.of(shapes) is not None:
        return TransitionDataset.from_fields(fields, mapped=mapped, **options)
    data = MappedDataset if mapped else TransitionDataset
    return data.from_fields(fields, **options)


def should_map(fields: Fields, memory: str, source: str, limits: MemoryLimits) -> bool:
    """Return whether the rows of a dataset should stay in their files."""
    columns = [column for name, column in fields.columns.items() if name not in SCALAR_FIELDS]
    mappable = all(column.on_disk for column in columns)
    advice = (
        f"convert it to a folder of .npy files (rl-training data convert {source} FOLDER/), which "
        "are read as they are needed"
    )
    if memory == "map" and not mappable:
        raise ConfigError(
            f"dataset_memory = map needs files that can be mapped into memory, and {source} is not "
            f"one: {advice}."
        )
    size = loaded_bytes(fields)
    if memory == "map" or (memory == "auto" and mappable and size > limits.map_from):
        return True
    if limits.available is not None and size > limits.available:
        advice = "set dataset_memory=auto, which reads it as it is needed" if mappable else advice
        raise ConfigError(
            f"{source} would need {size / 2**30:,.1f} GiB, but this machine has "
            f"{limits.available / 2**30:,.1f} GiB of memory: {advice}."
        )
    return False


def loaded_bytes(fields: Fields) -> int:
    """Return the size of a dataset in memory, where images are stored once."""
    obs = fields.columns["observations"]
    width = fields.width("observations")
    observed = width if obs.dtype == np.uint8 else 8 * width
    return fields.rows * (observed + 4 * (fields.width("actions") + len(SCALAR_FIELDS)))


def spec_for(
    fields: Fields, settings: DataConfig, spec: EnvSpec | None, source: str
) -> EnvSpec | None:
    """Return the spec whose bounds map the actions to [-1, 1]; None if they are unknown."""
    chosen = settings.action_range
    if spec is None and (settings.action_low is not None or chosen != "environment"):
        spec = spec_of(fields, settings)
    if spec is None or chosen == "environment":
        return spec
    if chosen != "data":
        return within_bounds(spec, *chosen, source)
    if fields.spec is not None:
        raise ConfigError(
            f"action_range = data: the actions of {source} are scaled already. Create it without "
            "spec=, from actions in the environment's units."
        )
    if spec.discrete:
        raise ConfigError("action_range = data applies to continuous actions: leave it out.")
    if fields.width("actions") != spec.action_dim:
        return spec  # an error says how the sizes differ
    return within_bounds(spec, *data_range(fields.columns["actions"].chunks(), spec), source)


def spec_of(fields: Fields, settings: DataConfig) -> EnvSpec:
    """Return the sizes found in the data with the bounds set in the config."""
    if fields.integer_actions:
        raise ConfigError(
            f"{settings.source} has actions of type {fields.columns['actions'].dtype}, but without "
            "env_id actions must be continuous: set env_id, or store the actions as floats."
        )
    size = fields.width("actions")
    limit = float(np.finfo(np.float32).max)
    bounds = (-limit,) * size, (limit,) * size
    if settings.action_low is not None:
        bounds = settings.action_bounds(size)
    elif settings.action_range == "data":
        low, high = data_range(
            fields.columns["actions"].chunks(), EnvSpec(0, size, bounds[0], bounds[1])
        )
        if limit in high:
            raise ConfigError(
                f"action_range = data: action {high.index(limit)} of {settings.source} is always "
                "the same, so its bounds are unknown: set action_low and action_high."
            )
        bounds = tuple(low), tuple(high)
    return EnvSpec(fields.width("observations"), size, *bounds, entries=fields.entries)


def config_for(source: str) -> DataConfig:
    """Return the config for a path or a Minari id."""
    return validated(DataConfig, infer_keys(source))


@contextmanager
def open_fields(
    config: DataConfig,
    collect_random: RandomCollector | None = None,
    declared: Sequence[str] = (),
    given: GivenData | None = None,
) -> Iterator[Fields]:
    """Open a dataset's columns for the duration of the block."""
    kind = config.dataset_kind
    if kind == "memory":
        if given is None:
            raise ConfigError(
                "The data was passed in Python and is not stored in the run: pass it again as "
                "dataset=…, or set dataset_path to a file with the same rows."
            )
        yield given.fields(declared)
    elif kind == "random" or config.needs_starter_recording:
        if collect_random is None:
            raise ConfigError(
                f"dataset_kind {kind!r} needs an environment to collect from: set env_id, or pass "
                "collect_random=, a function of size and seed, to load_transition_dataset."
            )
        data = collect_random(config.dataset_size, config.dataset_seed)
        yield find_fields(array_columns(data), config.source, declared)
    elif kind == "minari":
        yield find_fields(open_minari_dataset(config).columns(), config.source, declared)
    else:
        with _open_path(Path(config.source), kind) as found:
            yield find_fields(found, config.source, declared)


@contextmanager
def _open_path(path: Path, kind: str | None) -> Iterator[dict[str, Column]]:
    """Open the columns of a file or folder."""
    if kind == "starter":
        kind = config_for(str(path)).dataset_kind
    is_folder = kind == "npy"
    if not (path.is_dir() if is_folder else path.is_file()):
        place = "" if path.is_absolute() else f" in the current folder, {str(Path.cwd())!r}"
        raise ConfigError(
            f"There is no dataset {'folder' if is_folder else 'file'} {str(path)!r}{place}. Check "
            "the path (dataset_path=FILE, or --dataset FILE with finetune and evaluate), or record "
            "a dataset with rl-training data collect."
        )
    with OPENERS[str(kind)](path) as found:
        yield found


def open_minari_dataset(config: DataConfig) -> MinariDataset:
    """Open the Minari dataset of a config, given by its id or its folder."""
    if config.dataset_id is not None:
        return open_minari(config.dataset_id, download=config.dataset_download)
    return open_minari_folder(Path(config.source) / "data", config.source)

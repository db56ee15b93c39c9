"""Load datasets from npz, pt, HDF5 (D4RL's layout) and Minari, or collect random ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rl_training.boundary.columns import Column
from rl_training.boundary.hdf5 import open_hdf5_columns
from rl_training.boundary.minari_format import check_minari_id, open_minari
from rl_training.boundary.npy import open_npz
from rl_training.boundary.pt import open_pt
from rl_training.config_model import validated
from rl_training.data.column_names import Fields, find_fields
from rl_training.data.config import DataConfig, DatasetKind
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.errors import ConfigError
from rl_training.rewards import RewardTransformConfig
from rl_training.text import shown
from rl_training.types import EnvSpec

RandomCollector = Callable[[int, int], Mapping[str, Any]]
"""A function of ``size`` and ``seed`` that collects transitions in an environment."""

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
    columns: Sequence[str] = (),
    device: torch.device | str = "cpu",
) -> TransitionDataset:
    """Load and check the dataset that the config selects, and transform its rewards.

    With ``spec``, actions are mapped to [-1, 1] and a dataset with other sizes is rejected; without
    it, `action_low` and `action_high` set the bounds. ``time_limit`` separates time limits from
    terminations if a file has one flag for both. ``columns`` lists further columns to keep.
    """
    settings = config if isinstance(config, DataConfig) else validated(DataConfig, config)
    if settings.dataset_kind is None:
        raise ConfigError("dataset_kind is missing: use random, npz, pt, hdf5, minari or starter.")
    source = settings.source
    with open_fields(settings, collect_random, columns) as fields:
        if spec is None and settings.action_low is not None:
            spec = spec_of(fields, settings)
        dataset = TransitionDataset.from_fields(
            fields, spec=spec, device=device, source=source, time_limit=time_limit
        )
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


def spec_of(fields: Fields, settings: DataConfig) -> EnvSpec:
    """Return the sizes found in the data with the bounds set in the config."""
    if fields.integer_actions:
        raise ConfigError(
            f"{settings.source} has actions of type {fields.columns['actions'].dtype}, but without "
            "env_id actions must be continuous: set env_id, or store the actions as floats."
        )
    size = fields.width("actions")
    return EnvSpec(fields.width("observations"), size, *settings.action_bounds(size))


def config_for(source: str) -> DataConfig:
    """Return the config for a file, by its suffix, or for a Minari id."""
    suffix = Path(source).suffix.lower()
    if suffix in SUFFIXES:
        return DataConfig(dataset_kind=SUFFIXES[suffix], dataset_path=source)
    if Path(source).exists():
        raise ConfigError(f"{source!r}: the file name must end in {' or '.join(SUFFIXES)}.")
    try:
        check_minari_id(source)
    except ConfigError:
        raise ConfigError(
            f"{shown(source)} is neither a dataset file ({', '.join(SUFFIXES)}) nor a Minari id "
            "such as 'D4RL/door/human-v2'."
        ) from None
    return DataConfig(dataset_kind="minari", dataset_id=source)


@contextmanager
def open_fields(
    config: DataConfig,
    collect_random: RandomCollector | None = None,
    declared: Sequence[str] = (),
) -> Iterator[Fields]:
    """Open a dataset's columns for the duration of the block."""
    kind = config.dataset_kind
    if kind == "random" or config.needs_starter_recording:
        if collect_random is None:
            raise ConfigError(
                f"dataset_kind {kind!r} needs an environment to collect from: set env_id, or pass "
                "collect_random=, a function of size and seed, to load_transition_dataset."
            )
        data = collect_random(config.dataset_size, config.dataset_seed)
        columns = {key: Column.of(np.asarray(values)) for key, values in data.items()}
        yield find_fields(columns, config.source, declared)
    elif kind == "minari":
        dataset = open_minari(str(config.dataset_id), download=config.dataset_download)
        yield find_fields(dataset.columns(), config.source, declared)
    else:
        path = Path(config.source)
        if not path.is_file():
            place = "" if path.is_absolute() else f" in the current folder, {str(Path.cwd())!r}"
            raise ConfigError(
                f"There is no dataset file {str(path)!r}{place}. Check the path "
                "(dataset_path=FILE, or --dataset FILE with finetune and evaluate), or record a "
                "dataset with rl-training data collect."
            )
        if kind == "starter":
            kind = config_for(config.source).dataset_kind
        opener = {"npz": open_npz, "pt": open_pt, "hdf5": open_hdf5_columns}[str(kind)]
        with opener(path) as found:
            yield find_fields(found, config.source, declared)

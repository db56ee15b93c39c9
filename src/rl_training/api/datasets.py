"""Inspect, validate, record and convert datasets."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from rl_training.api.arguments import as_path
from rl_training.boundary.minari_format import is_minari_folder
from rl_training.boundary.npy import is_npy_folder
from rl_training.data.advice import advise
from rl_training.data.config import DataConfig
from rl_training.data.dataset_loaders import (
    MemoryLimits,
    config_for,
    open_fields,
    open_minari_dataset,
    read_fields,
    should_map,
)
from rl_training.data.dataset_writers import (
    as_arrays,
    check_destination,
    dataset_columns,
    write_columns,
    write_minari,
)
from rl_training.data.frames import FrameLayout
from rl_training.data.inspection import (
    DatasetReport,
    Expectation,
    find_problems,
    inspect_dataset,
)
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.recorded import Findings, RecordedData
from rl_training.envs import (
    ActionScaler,
    make_env,
    name_env,
    name_kwargs,
    read_env_spec,
    time_limit,
)
from rl_training.envs.observations import flat_bounds, own_space, read_entries
from rl_training.errors import CheckpointError, ConfigError
from rl_training.experiment.build import build_replay
from rl_training.experiment.config import plain_env_kwargs
from rl_training.experiment.machine import available_memory
from rl_training.experiment.memory import transition_bytes
from rl_training.experiment.saved_run import SavedRun
from rl_training.observations import Entry
from rl_training.runtime.checkpointing import STATE
from rl_training.runtime.recording import noisy_policy, record_columns


def read_raw(source: str, entries: tuple[Entry, ...] = ()) -> RecordedData:
    """Read a dataset without conversion or checks, or the replay of a run or a checkpoint.

    Actions keep their units, and values that are not finite are kept. ``entries`` describe the
    observations; without them, discrete observations of a file are read as numbers.
    """
    path = as_path("source", source, "a dataset or a run")
    if _is_run(source):
        return read_replay(SavedRun.load(path, replay=True))
    config = config_for(source)
    if config.dataset_kind == "minari" and not entries:
        entries = _recorded_entries(config)
    with open_fields(config) as fields:
        limits = MemoryLimits(available=available_memory(torch.device("cpu")))
        mapped = should_map(fields, config.dataset_memory, config.source, limits)
        return read_fields(
            fields, mapped=mapped, spec=None, source=config.source, finite=False, entries=entries
        )


def _is_run(source: str) -> bool:
    """Return whether a source is a folder of a run or a checkpoint, not of a dataset."""
    folder = Path(source)
    # Unlike Path.is_dir, this accepts names that are too long for the system.
    if not os.path.isdir(folder):
        return False
    return not is_minari_folder(folder) and not is_npy_folder(folder)


def _recorded_entries(config: DataConfig) -> tuple[Entry, ...]:
    """Return the entries of the observation space in the metadata of a Minari dataset."""
    dataset = open_minari_dataset(config)
    space = dataset.observation_space
    return () if space is None else read_entries(space, dataset.source)


def read_replay(checkpoint: SavedRun) -> TransitionDataset:
    """Return the transitions in a run's replay, grouped by environment."""
    config, spec = checkpoint.config, checkpoint.spec
    if config.mode == "offline":
        raise ConfigError(f"{checkpoint.path} was trained on recorded data and has no replay.")
    if spec.goal_dim:
        raise ConfigError(
            f"{checkpoint.path} has a replay with goals, which datasets cannot represent."
        )
    if not config.parts.rewards.is_identity:
        raise ConfigError(
            f"{checkpoint.path} has a replay with transformed rewards (reward_scale and similar "
            "keys) and without the original ones: record new data with rl-training data collect "
            "instead."
        )
    buffer = build_replay(config, spec, torch.device("cpu"))
    try:
        checkpoint.restore_storage(buffer, checkpoint.state()["storage"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CheckpointError(
            f"{checkpoint.path / STATE} has invalid replay counters: {error}"
        ) from None
    if len(buffer) == 0:
        raise ConfigError(f"{checkpoint.path} has not collected any transitions yet.")
    stored = len(buffer) if buffer.frames is None else buffer.frames.usable
    order = torch.arange(buffer.total - stored, buffer.total)
    env, by_env = torch.sort(order % config.num_envs, stable=True)
    rows, names = buffer.rows[order[by_env] % buffer.capacity], buffer.layout.slices
    actions = ActionScaler(spec).to_env(rows[:, names["actions"]].numpy())
    rows[:, names["actions"]] = torch.from_numpy(actions.reshape(len(rows), -1)).float()
    last = torch.cat((env.diff() > 0, torch.tensor([True])))  # of each environment
    rows[last, names["truncations"]] = 1.0 - rows[last, names["terminations"]]
    findings = Findings(integer_actions=spec.discrete, entries=spec.entries)
    return TransitionDataset(rows, buffer.layout, findings=findings, frames=buffer.frames)


def inspect_data(source: str, plot: str | Path | None = None) -> DatasetReport:
    """Return statistics of a dataset, and write histograms to the file ``plot`` if given."""
    dataset = read_raw(source)
    report = inspect_dataset(dataset)
    if plot is not None:
        from rl_training.api.plots import plot_dataset

        plot_dataset(dataset, Path(plot), source)
    return report


def validate_data(
    source: str, env_id: str | None = None, *, env_kwargs: Mapping[str, Any] | None = None
) -> tuple[DatasetReport, list[str]]:
    """Return statistics of a dataset, with advice, and all mismatches with its environment.

    The environment is ``env_id``, or the one recorded in a run or a Minari dataset.

    Raises:
        ConfigError: The sizes of the data do not match the spaces of ``env_id``.
    """
    name_env(env_id)
    given = plain_env_kwargs(env_kwargs)
    expected = _expect_env(env_id, given, given) if env_id else _expect_record(source, given)
    dataset = read_raw(source, expected.spec.entries)
    mismatch = dataset.layout.mismatch(expected.spec, "the data", expected.name)
    if env_id and mismatch is not None:
        raise ConfigError(f"{source} does not match {env_id}: {mismatch}")
    advice = advise(dataset, expected.spec, time_limit=expected.time_limit)
    report = replace(inspect_dataset(dataset), advice=[item.text for item in advice])
    return report, find_problems(dataset, expected)


def _expect_env(env_id: str, kwargs: dict[str, Any], given: Mapping[str, Any]) -> Expectation:
    """Return what an environment with ``kwargs`` expects; the user specified those in ``given``."""
    name_kwargs(env_id, given)
    with closing(make_env(env_id, kwargs)) as env:
        return _expectation(env, time_limit(env_id, kwargs), env_id)


def _expect_record(source: str, given: Mapping[str, Any]) -> Expectation:
    if _is_run(source):
        env_id, own = _env_of_run(source)
        return _expect_env(env_id, own | dict(given), given)
    config = config_for(source)
    if config.dataset_kind != "minari":
        raise ConfigError(f"{source} does not record its environment: set --env-id.")
    dataset = open_minari_dataset(config)
    if dataset.observation_space is None or dataset.action_space is None:
        raise ConfigError(f"{dataset.source} does not record supported spaces: set --env-id.")
    return _expectation(dataset, None, f"the metadata of {source}")


def _env_of_run(source: str) -> tuple[str, dict[str, Any]]:
    """Return the environment id of a run that has a replay, and the arguments to create it."""
    config = SavedRun.load(Path(source)).config
    assert config.env_id is not None
    return config.env_id, config.parts.env.make_kwargs


def _expectation(spaces: Any, limit: int | None, name: str) -> Expectation:
    low, high = flat_bounds(spaces.observation_space)
    return Expectation(
        spec=read_env_spec(spaces, name),
        obs_low=low,
        obs_high=high,
        time_limit=limit,
        name=name,
    )


def collect_data(
    checkpoint: str | Path,
    *,
    steps: int,
    out: str | Path | None = None,
    minari_id: str | None = None,
    noise: float = 0.0,
    seed: int = 0,
    best: bool = False,
    env_kwargs: Mapping[str, Any] | None = None,
    progress: Callable[[int], None] | None = None,
) -> str:
    """Record transitions of a checkpoint's policy; the same seed gives the same file.

    ``env_kwargs`` override the arguments of the run's environment.
    """
    if (out is None) == (minari_id is None):
        raise ConfigError("Set either --out FILE or --minari ID.")
    if steps < 1 or not 0 <= noise < math.inf or seed < 0:
        raise ConfigError(
            f"steps = {steps} should be at least 1, noise = {noise} finite and at least 0, and "
            f"seed = {seed} at least 0."
        )
    if out is not None:
        check_destination(as_path("out", out, "a file"))
    opened = SavedRun.load(as_path("checkpoint", checkpoint), best=best)
    config = opened.config
    if config.env_id is None:
        raise ConfigError(
            f"{opened.path} was trained without an environment, so no data can be recorded."
        )
    policy = opened.load_policy()
    images = FrameLayout.of(policy.spec.entries)
    stacks = (images.stack - 1) * images.frame_size if images else 0  # frames are kept in stacks
    size = steps * (transition_bytes(policy.spec) + stacks)
    room = available_memory(torch.device("cpu"))
    if size > room:
        raise ConfigError(
            f"steps = {steps}: the transitions need {size / 2**30:,.0f} GiB, but this machine has "
            f"{room / 2**30:,.0f} GiB. Record fewer steps at a time."
        )
    given = plain_env_kwargs(env_kwargs)
    name_kwargs(config.env_id, given)
    with closing(make_env(config.env_id, config.parts.env.make_kwargs | given)) as env:
        choose = noisy_policy(policy, noise, seed)
        masks = policy.spec.action_masks
        columns = record_columns(
            env, choose, steps=steps, seed=seed, action_masks=masks, progress=progress
        )
    if out is not None:
        return str(write_columns(columns, Path(out)))
    return write_minari(as_arrays(columns), str(minari_id), env.unwrapped, own_space(env))


def convert_data(
    source: str | Path,
    destination: str | Path,
    *,
    env_id: str | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
) -> str:
    """Convert a dataset or a run's replay to the format of the suffix, or to ``minari:ID``.

    A destination that ends with a slash is a folder of npy files, into which the columns of a
    dataset are copied as they are, without loading them into memory.
    """
    source, destination = str(source), str(destination)
    name_env(env_id)
    minari_id = destination.removeprefix("minari:")
    folder = destination.endswith(("/", os.sep))
    if minari_id == destination:
        check_destination(as_path("destination", destination, "a file"), folder=folder)
    if folder and not _is_run(source):
        config = config_for(source)
        with open_fields(config) as fields:
            return str(write_columns(fields.as_named(), Path(destination), folder=True))
    dataset = read_raw(source)
    if dataset.findings.odd_flags:  # they would be written as 0 or 1, which hides the problem
        raise ConfigError(f"{source}: {dataset.findings.odd_flags[0]}.")
    columns = dataset_columns(dataset)
    if minari_id == destination:
        return str(write_columns(columns, Path(destination), folder=folder))
    given, own = plain_env_kwargs(env_kwargs), dict[str, Any]()
    if env_id is None and _is_run(source):
        env_id, own = _env_of_run(source)
    if env_id is None:
        return write_minari(as_arrays(columns), minari_id, None)
    name_kwargs(env_id, given)
    with closing(make_env(env_id, own | given)) as env:
        return write_minari(as_arrays(columns), minari_id, env.unwrapped, own_space(env))

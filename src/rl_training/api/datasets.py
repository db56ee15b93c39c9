"""Inspect, validate, record and convert datasets."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rl_training.api.arguments import as_path
from rl_training.boundary.minari_format import open_minari
from rl_training.data.dataset_loaders import config_for, open_fields
from rl_training.data.dataset_writers import (
    check_destination,
    dataset_arrays,
    write_arrays,
    write_minari,
)
from rl_training.data.inspection import (
    DatasetReport,
    Expectation,
    find_problems,
    inspect_dataset,
)
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.rows import RowLayout
from rl_training.envs import (
    ActionScaler,
    make_env,
    name_env,
    name_kwargs,
    read_env_spec,
    time_limit,
)
from rl_training.errors import CheckpointError, ConfigError
from rl_training.experiment.build import build_replay
from rl_training.experiment.config import plain_env_kwargs
from rl_training.experiment.machine import available_memory
from rl_training.experiment.memory import FLOAT_BYTES
from rl_training.experiment.saved_run import SavedRun
from rl_training.runtime.checkpointing import STATE
from rl_training.runtime.recording import noisy_policy, record


def read_raw(source: str) -> TransitionDataset:
    """Read a dataset without conversion or checks, or the replay of a run or a checkpoint.

    Actions keep their units, and values that are not finite are kept.
    """
    path = as_path("source", source, "a dataset or a run")
    if path.is_dir():
        return read_replay(SavedRun.load(path, replay=True))
    config = config_for(source)
    with open_fields(config) as fields:
        return TransitionDataset.from_fields(fields, spec=None, source=config.source, finite=False)


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
    order = torch.arange(buffer.total - len(buffer), buffer.total)
    env, by_env = torch.sort(order % config.num_envs, stable=True)
    rows, names = buffer.rows[order[by_env] % buffer.capacity], buffer.layout.slices
    actions = ActionScaler(spec).to_env(rows[:, names["actions"]].numpy())
    rows[:, names["actions"]] = torch.from_numpy(actions.reshape(len(rows), -1)).float()
    last = torch.cat((env.diff() > 0, torch.tensor([True])))  # of each environment
    rows[last, names["truncations"]] = 1.0 - rows[last, names["terminations"]]
    dataset = TransitionDataset(rows, buffer.layout)
    dataset.integer_actions = spec.discrete
    return dataset


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
    """Return statistics of a dataset, and all mismatches with its environment.

    The environment is ``env_id``, or the one recorded in a run or a Minari dataset.

    Raises:
        ConfigError: The sizes of the data do not match the spaces of ``env_id``.
    """
    name_env(env_id)
    given = plain_env_kwargs(env_kwargs)
    dataset = read_raw(source)
    expected = _expect_env(env_id, given, given) if env_id else _expect_record(source, given)
    mismatch = dataset.layout.mismatch(expected.spec, "the data", expected.name)
    if env_id and mismatch is not None:
        raise ConfigError(f"{source} does not match {env_id}: {mismatch}")
    return inspect_dataset(dataset), find_problems(dataset, expected)


def _expect_env(env_id: str, kwargs: dict[str, Any], given: Mapping[str, Any]) -> Expectation:
    """Return what an environment with ``kwargs`` expects; the user specified those in ``given``."""
    name_kwargs(env_id, given)
    with closing(make_env(env_id, kwargs)) as env:
        return _expectation(env, time_limit(env_id, kwargs), env_id)


def _expect_record(source: str, given: Mapping[str, Any]) -> Expectation:
    if Path(source).is_dir():
        env_id, own = _env_of_run(source)
        return _expect_env(env_id, own | dict(given), given)
    config = config_for(source)
    if config.dataset_kind != "minari":
        raise ConfigError(f"{source} does not record its environment: set --env-id.")
    dataset = open_minari(source)
    if dataset.observation_space is None or dataset.action_space is None:
        raise ConfigError(f"{dataset.source} does not record Box or Discrete spaces: set --env-id.")
    return _expectation(dataset, None, f"the metadata of {source}")


def _env_of_run(source: str) -> tuple[str, dict[str, Any]]:
    """Return the environment id of a run that has a replay, and the arguments to create it."""
    config = SavedRun.load(Path(source)).config
    assert config.env_id is not None
    return config.env_id, config.parts.env.make_kwargs


def _expectation(spaces: Any, limit: int | None, name: str) -> Expectation:
    space = spaces.observation_space
    return Expectation(
        spec=read_env_spec(spaces, name),
        obs_low=np.asarray(space.low, dtype=np.float64),
        obs_high=np.asarray(space.high, dtype=np.float64),
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
    size = steps * RowLayout(policy.spec.obs_dim, policy.spec.action_width).width * FLOAT_BYTES
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
        arrays = record(env, choose, steps=steps, seed=seed, progress=progress)
    if out is not None:
        return str(write_arrays(arrays, Path(out)))
    return write_minari(arrays, str(minari_id), env.unwrapped)


def convert_data(
    source: str | Path,
    destination: str | Path,
    *,
    env_id: str | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
) -> str:
    """Convert a dataset or a run's replay to the format of the suffix, or to ``minari:ID``."""
    source, destination = str(source), str(destination)
    name_env(env_id)
    minari_id = destination.removeprefix("minari:")
    if minari_id == destination:
        check_destination(as_path("destination", destination, "a file"))
    dataset = read_raw(source)
    if dataset.odd_flags:  # they would be written as 0 or 1, which hides the problem
        raise ConfigError(f"{source}: {dataset.odd_flags[0]}.")
    arrays = dataset_arrays(dataset)
    if minari_id == destination:
        return str(write_arrays(arrays, Path(destination)))
    given, own = plain_env_kwargs(env_kwargs), dict[str, Any]()
    if env_id is None and Path(source).is_dir():
        env_id, own = _env_of_run(source)
    if env_id is None:
        return write_minari(arrays, minari_id, None)
    name_kwargs(env_id, given)
    with closing(make_env(env_id, own | given)) as env:
        return write_minari(arrays, minari_id, env.unwrapped)

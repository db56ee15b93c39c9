"""Load the dataset of a config, and prepare it for sampling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from rl_training.algorithms.base import Algorithm
from rl_training.algorithms.config import MixingConfig, ValueConfig
from rl_training.data import (
    EpochSampler,
    MixedSampler,
    NormalizedSampler,
    load_transition_dataset,
)
from rl_training.data.dataset_loaders import MAP_FROM, MemoryLimits
from rl_training.data.given_data import GivenData
from rl_training.data.recorded import RecordedData
from rl_training.envs import time_limit
from rl_training.envs.given import GivenEnv
from rl_training.envs.resolving import is_object_label
from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.machine import available_memory, choose_device
from rl_training.experiment.starter_data import record_starter
from rl_training.rewards import RewardTransformConfig
from rl_training.runtime.recording import record_random_columns
from rl_training.runtime.seeding import Stream, derive_seed
from rl_training.types import FIELD_NAMES, EnvSpec, Sampler

STD_FLOOR = 1e-3
"""Added to the standard deviation of each observation entry, since an entry may be constant."""

HELD_OUT_WITHOUT_ENV = 0.05
"""Fraction of the rows that is held out for evaluation without an environment."""


@dataclass(frozen=True)
class RunData:
    """Recorded data of a run: training rows, held-out rows and a record that identifies them."""

    train: RecordedData
    held_out: RecordedData | None
    record: dict[str, Any]
    """Source, number of rows and SHA-256 of all rows, as saved in checkpoints."""

    @property
    def rows_in_memory(self) -> int:
        """Number of all rows, including held-out rows; 0 if they are read from a file."""
        if self.train.on_host:
            return 0
        return len(self.train) + (0 if self.held_out is None else len(self.held_out))


def load_dataset(
    config: TrainConfig,
    spec: EnvSpec | None,
    given: GivenData | None = None,
    *,
    env: str | GivenEnv | None = None,
    raw_rewards: bool = False,
    recorded_limit: int | None = None,
) -> RecordedData:
    """Load and check the dataset of a config, and transform its rewards.

    Args:
        config: The config.
        spec: Sizes and bounds of the environment; None without one.
        given: The data of `dataset_kind: memory`.
        env: The run's environment; by default, the one of the config.
        raw_rewards: Whether to keep the recorded rewards.
        recorded_limit: Time limit of an environment that was passed as an object and is not
            available now.
    """
    parts, env = config.parts, env or config.env_id
    rewards = RewardTransformConfig() if raw_rewards else parts.rewards
    update: dict[str, Any] = {f"reward_{k}": v for k, v in rewards.model_dump().items()}
    if raw_rewards:
        update["return_scaling"] = False
    settings = parts.data.model_copy(update=update)
    columns = [name for name in declared_fields(config) if name not in FIELD_NAMES]
    columns += () if spec is None else spec.mask_fields
    limits = memory_limits(config.device)
    if env is None:
        return load_transition_dataset(settings, columns=columns, given=given, limits=limits)

    def collect(size: int, seed: int) -> Mapping[str, Any]:
        if settings.dataset_kind == "starter":
            return record_starter(config, size, seed)
        masks = spec is not None and spec.action_masks
        return record_random_columns(env, parts.env.make_kwargs, size, seed, action_masks=masks)

    missing = isinstance(env, str) and is_object_label(env)
    limit = recorded_limit if missing else time_limit(env, parts.env.make_kwargs)
    return load_transition_dataset(
        settings,
        spec=spec,
        time_limit=limit,
        collect_random=collect,
        columns=columns,
        given=given,
        limits=limits,
    )


def memory_limits(device: str) -> MemoryLimits:
    """Return how many bytes of data are loaded for a device.

    A GPU draws batches much faster if the data are in its memory.
    """
    host, where = available_memory(torch.device("cpu")), choose_device(device)
    half = min(host, available_memory(where)) // 2
    return MemoryLimits(MAP_FROM if where.type == "cpu" else max(half, MAP_FROM), host)


def declared_fields(config: TrainConfig) -> tuple[str, ...]:
    """Return the fields that batches need in addition to the five standard ones."""
    fields = config.learner_class.declared_fields(config.parts.algorithm)
    return tuple(dict.fromkeys(fields))


def supply_fields(
    algorithm: Algorithm, *sources: Sampler | None, needed: tuple[str, ...] = ()
) -> None:
    """Make each source supply the fields that the algorithm declares.

    ``needed`` are additional fields that the replay uses.
    """
    fields = tuple(dict.fromkeys((*algorithm.fields(), *needed)))
    settings = algorithm.config
    options: dict[str, Any] = {}
    if isinstance(settings, ValueConfig):
        options = {"gamma": settings.gamma, "n_step": settings.n_step}
    elif discounted := {"returns_to_go", "discounts"}.intersection(fields):
        raise ConfigError(
            f"The batch field {min(discounted)!r} requires gamma: derive {type(settings).__name__} "
            "from ValueConfig."
        )
    for source in sources:
        if source is not None:
            source.supply(fields, **options)


def load_run_data(
    config: TrainConfig,
    spec: EnvSpec | None,
    given: GivenData | None = None,
    *,
    env: str | GivenEnv | None = None,
    recorded_limit: int | None = None,
) -> RunData:
    """Load the dataset into host memory, and split it into training and held-out rows.

    The arguments are those of `load_dataset`.
    """
    settings = config.parts.data
    dataset = load_dataset(config, spec, given, env=env, recorded_limit=recorded_limit)
    record = {
        "source": settings.source if given is None else given.source,
        "rows": len(dataset),
        "sha256": dataset.fingerprint(),
        "notes": list(dataset.notes),
    }
    fraction = settings.validation_fraction
    if fraction is None:
        fraction = HELD_OUT_WITHOUT_ENV if config.env_id is None else 0.0
    seed = derive_seed(config.seed, Stream.VALIDATION)
    held_out = dataset.hold_out(fraction, seed) if fraction > 0 else None
    return RunData(dataset, held_out, record)


def prepare_sampler(
    config: TrainConfig, data: RunData, algorithm: Algorithm, device: torch.device | str = "cpu"
) -> Sampler:
    """Normalize the data, move it to the device and return its sampler.

    The mean and standard deviation of the training rows are stored in the learner's tensors, so
    they are part of every checkpoint. `act` applies them, so evaluation and prediction take raw
    observations. If the run also collects data, training rows stay raw and are normalized when
    they are sampled, together with those of the replay (`mix`).
    """
    settings, parts = config.parts.data, [data.train]
    if data.held_out is not None:
        parts.append(data.held_out)
    if settings.normalize_states:
        statistics = data.train.statistics()
        std = statistics.obs_std + STD_FLOOR
        for part in parts[1:] if config.mode == "offline_to_online" else parts:
            part.normalize_observations(statistics.obs_mean, std)
        algorithm.set_normalization(torch.from_numpy(statistics.obs_mean), torch.from_numpy(std))
    if algorithm.has_running_statistics:
        observe_rows(algorithm, data.train)
    for part in parts:
        part.to(device)
    return EpochSampler(data.train) if settings.sampling == "epochs" else data.train


def mix(config: TrainConfig, offline: Sampler, replay: Sampler, algorithm: Algorithm) -> Sampler:
    """Return a sampler that mixes both sources, normalized with the learner's statistics."""
    parts = config.parts
    assert isinstance(parts.algorithm, MixingConfig)
    if parts.data.normalize_states or algorithm.has_running_statistics:
        tensors = algorithm.normalization
        offline, replay = (NormalizedSampler(source, *tensors) for source in (offline, replay))
    ratio, updates = parts.algorithm.offline_batch_ratio, parts.algorithm.offline_pretrain_updates
    return MixedSampler(offline, replay, ratio, pretraining=updates > 0)


def normalized(replay: Sampler, algorithm: Algorithm) -> Sampler:
    """Return the replay, normalized if the learner has running statistics."""
    if not algorithm.has_running_statistics:
        return replay
    return NormalizedSampler(replay, *algorithm.normalization)


def observe_rows(algorithm: Algorithm, dataset: RecordedData) -> None:
    """Initialize running statistics with recorded rows, which the first batch already contains."""
    device = algorithm.obs_shift.device
    returns, start = dataset.running_returns(discount(algorithm)), 0
    for vectors in dataset.vectors():
        chunk = vectors, returns[start : start + len(vectors)]
        algorithm.observe_vectors(*(torch.from_numpy(values).to(device) for values in chunk))
        start += len(vectors)


def discount(algorithm: Algorithm) -> float:
    """Return the discount factor of the learner, or 1 if it has none."""
    return algorithm.config.gamma if isinstance(algorithm.config, ValueConfig) else 1.0

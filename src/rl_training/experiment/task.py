"""Check the config, environment and data of a run before anything is written."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rl_training.algorithms.config import CollectionConfig, MixingConfig, ValueConfig
from rl_training.algorithms.finetuning_config import FinetuningConfig
from rl_training.algorithms.her import HindsightConfig
from rl_training.algorithms.registry import HindsightEntry, get_algorithm
from rl_training.data import DataConfig
from rl_training.envs import examine_env, read_goal_task
from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.dataset_source import RunData, declared_fields, load_run_data
from rl_training.experiment.machine import choose_device
from rl_training.experiment.memory import check_memory
from rl_training.types import EnvSpec


@dataclass(frozen=True)
class Task:
    """A checked config with its environment and data; the budget is in steps."""

    config: TrainConfig
    spec: EnvSpec
    data: RunData | None = None
    notes: tuple[str, ...] = ()
    """Notes about the environment for the user."""


def check_config(config: TrainConfig, *, starts: bool = True) -> Task:
    """Check everything about a config that can be checked before anything is written.

    ``starts`` is whether the run or its learning-rate schedule starts here. A schedule that an
    earlier version started is not checked again.
    """
    device = choose_device(config.device)
    parts = config.parts
    if parts.controls.engine == "cuda_graph" and device.type != "cuda":
        raise ConfigError(
            "engine = cuda_graph requires a CUDA device: use engine=auto or engine=compiled."
        )
    _check_sources(config)
    _check_normalization(config)
    _check_fields(config)
    spec: EnvSpec | None = None
    notes: tuple[str, ...] = ()
    if config.env_id is not None:
        plays = config.eval_episodes > 0
        spec, notes = examine_env(config.env_id, parts.env, evaluated=plays)
        _check_spec(config, spec)
        recorded = parts.data.dataset_size if parts.data.dataset_kind == "random" else 0
        check_memory(config, spec, device, rows=recorded)
    data = load_run_data(config, spec) if parts.data.dataset_kind is not None else None
    if spec is None:
        assert data is not None
        assert data.train.spec is not None
        spec = data.train.spec
        _check_spec(config, spec)
    if data is not None:
        check_memory(config, spec, device, rows=data.num_rows)
    _check_rows(config, data)
    _check_stopping(config, data)
    settings, envs = parts.algorithm, config.num_envs
    if isinstance(settings, CollectionConfig) and settings.buffer_capacity < envs:
        raise ConfigError(
            f"buffer_capacity = {settings.buffer_capacity}: should be at least num_envs, which is "
            f"{envs}."
        )
    config = _with_budget(config, data)
    if starts:
        _check_schedule(config)
    return Task(config, spec, data, notes)


def _check_sources(config: TrainConfig) -> None:
    """Check that the run has the data its algorithm needs, and no settings without effect."""
    parts, algo, mode = config.parts, config.algo, config.mode
    data = parts.data
    if mode == "online":
        _check_online(data, algo)
    if mode != "online" and data.dataset_kind is None and not config.finetunes:
        raise ConfigError(
            f"{algo} learns from recorded data: set dataset_kind and dataset_path "
            "(docs/datasets.md)."
        )
    if isinstance(parts.algorithm, MixingConfig):
        _check_mixing(data, parts.algorithm)
    if mode == "offline" and config.num_envs > 1:
        raise ConfigError(
            f"num_envs = {config.num_envs}: {algo} learns from recorded data and has no training "
            "environments, so leave it out."
        )
    if mode == "offline" and not parts.env.wrappers.reward.is_identity:
        raise ConfigError(
            f"env_kwargs.wrappers.reward applies to training environments, but {algo} has none: "
            "use the reward_* keys."
        )
    if mode != "offline" and data.num_epochs is not None:
        raise ConfigError(
            f"num_epochs = {data.num_epochs} is for recorded data, but {algo} collects data: set "
            "total_timesteps instead."
        )
    if config.env_id is None and data.action_low is None:
        raise ConfigError(
            "Without an environment, the action bounds are unknown: set action_low and "
            "action_high, or env_id."
        )
    if config.env_id is not None and data.action_low is not None:
        raise ConfigError(
            f"action_low and action_high are for data without an environment: {config.env_id} "
            "has its own action bounds, so leave them out."
        )


def _check_fields(config: TrainConfig) -> None:
    """Check that the algorithm supports n_step and the replay supplies its fields."""
    settings = config.parts.algorithm
    n_step = settings.n_step if isinstance(settings, ValueConfig) else 1
    if n_step > 1 and not config.learner_class.supports_n_step:
        raise ConfigError(
            f"n_step = {n_step}: {config.algo} supports one-step targets only, so leave it out."
        )
    if isinstance(settings, CollectionConfig):
        config.replay_class.check_fields(declared_fields(config), n_step)


def _check_normalization(config: TrainConfig) -> None:
    """Check that running statistics are supported, and not combined with fixed ones."""
    settings = config.parts.algorithm
    if not isinstance(settings, CollectionConfig):
        return
    if settings.normalize_observations and config.parts.data.normalize_states:
        raise ConfigError(
            "normalize_observations and normalize_states both standardize observations: set only "
            "one of them."
        )
    if settings.normalize_rewards and isinstance(settings, HindsightConfig):
        raise ConfigError(
            "normalize_rewards = true does not work with relabeled rewards: leave it out."
        )
    if settings.normalize_rewards and not isinstance(settings, ValueConfig):
        raise ConfigError(
            f"normalize_rewards = true requires gamma, which {config.algo} does not have: leave "
            "it out."
        )


def _check_online(data: DataConfig, algo: str) -> None:
    """Reject settings that apply to recorded data only."""
    for key in ("dataset_kind", "normalize_states", "return_scaling", "sampling"):
        value = getattr(data, key)
        if value != DataConfig.model_fields[key].default:
            raise ConfigError(
                f"{key} = {value} is for recorded data, but {algo} learns online: leave it out."
            )


def _check_mixing(data: DataConfig, settings: MixingConfig) -> None:
    """Check the settings of a run that combines a dataset with collected data."""
    for key in ("offline_batch_ratio", "offline_pretrain_updates"):
        value = getattr(settings, key)
        if data.dataset_kind is None and value > 0:
            raise ConfigError(
                f"{key} = {value} requires a dataset: set dataset_kind, or set {key} to 0."
            )
    if data.return_scaling:
        raise ConfigError(
            "return_scaling applies to recorded rewards only, but this run also collects data: "
            "use reward_scale, which applies to both (rl-training data inspect shows the returns)."
        )
    if isinstance(settings, FinetuningConfig) and data.validation_fraction:
        raise ConfigError("validation_fraction is not supported in fine-tuning: leave it out.")


def _check_rows(config: TrainConfig, data: RunData | None) -> None:
    """Check that a dataset has at least one batch, if it is sampled by epoch or mixed."""
    parts = config.parts
    settings, in_order = parts.algorithm, parts.data.sampling == "epochs"
    if data is None or not (in_order or isinstance(settings, MixingConfig)):
        return
    if len(data.train) < settings.batch_size:
        raise ConfigError(
            f"batch_size = {settings.batch_size}: {data.record['source']} has only "
            f"{len(data.train)} training rows. Use more data or smaller batches."
        )


def _check_spec(config: TrainConfig, spec: EnvSpec) -> None:
    """Check that the algorithm supports the spaces of the environment."""
    algo, env_id, settings = config.algo, config.env_id, config.parts.algorithm
    goals = get_algorithm(algo).goals
    if spec.goal_dim and not goals:
        base = f" with base_algo: {algo}" if algo in HindsightEntry.bases() else ""
        raise ConfigError(
            f"{env_id} has the observation space Dict(achieved_goal, desired_goal, observation), "
            f"which {algo} does not support: use algo: her{base}."
        )
    if isinstance(settings, HindsightConfig) and not spec.goal_dim:
        raise ConfigError(
            f"{env_id} has the observation space Box({spec.obs_dim}), but {algo} needs a Dict of "
            "observation, achieved_goal and desired_goal, each a flat Box: use algo: "
            f"{settings.base_algo} on this environment."
        )
    config.learner_class.check_spec(spec)
    if goals and env_id is not None:
        read_goal_task(env_id, config.parts.env)


def _check_stopping(config: TrainConfig, data: RunData | None) -> None:
    """Check that the metric of early stopping will be available."""
    stopping = config.parts.controls.early_stopping
    held_out = data is not None and data.held_out is not None
    if stopping is None:
        return
    if stopping.metric == "eval_loss" and not held_out:
        raise ConfigError(
            "early_stopping.metric = eval_loss requires held-out rows: set validation_fraction "
            "above 0."
        )
    if stopping.metric != "eval_loss" and config.env_id is None:
        raise ConfigError(
            f"early_stopping.metric = {stopping.metric} requires an environment: set env_id, or "
            "use metric eval_loss with mode min."
        )


def _check_schedule(config: TrainConfig) -> None:
    """Check that the warm-up ends before the schedule does."""
    schedule = config.parts.controls.schedule(config.last_step)
    if schedule.warmup > schedule.horizon:
        raise ConfigError(
            f"learning_rate_warmup = {schedule.warmup}: should be at most the schedule's horizon, "
            f"which is {schedule.horizon} steps. Use a shorter warm-up, or set schedule_horizon."
        )


def _with_budget(config: TrainConfig, data: RunData | None) -> TrainConfig:
    """Convert `num_epochs` to a number of updates, rounded up."""
    parts = config.parts
    epochs, given = parts.data.num_epochs, config.total_timesteps
    if epochs is None or data is None:
        return config
    rows, size = len(data.train), parts.algorithm.batch_size
    updates = math.ceil(epochs * rows / size)
    if given not in (None, updates):
        raise ConfigError(
            f"num_epochs = {epochs} with {rows} rows and batches of {size} is {updates} "
            f"updates, but total_timesteps is {given}: set only one of them."
        )
    return config.model_copy(update={"total_timesteps": updates}).resolved()

"""Check the config, environment and data of a run before anything is written."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from rl_training.algorithms.config import (
    CollectionConfig,
    MixingConfig,
    NetworkedConfig,
    ValueConfig,
)
from rl_training.algorithms.finetuning_config import FinetuningConfig
from rl_training.algorithms.her import HindsightConfig
from rl_training.algorithms.registry import HindsightEntry, get_algorithm
from rl_training.config_model import Trait, keys_with
from rl_training.data import DataConfig
from rl_training.data.advice import Advice, DataSettings, advise
from rl_training.data.given_data import GivenData
from rl_training.envs import read_goal_task
from rl_training.envs.factory import Inspection, check_num_envs, inspect_env
from rl_training.envs.given import EnvRecord, GivenEnv
from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.dataset_source import RunData, declared_fields, load_run_data
from rl_training.experiment.machine import choose_device
from rl_training.experiment.memory import check_memory
from rl_training.experiment.run_envs import (
    Evaluation,
    EvaluationEnv,
    PassedEnvs,
    choose_evaluation,
    with_record,
)
from rl_training.runtime.loggers.config import check_logging
from rl_training.text import shown
from rl_training.types import EnvSpec


@dataclass(frozen=True)
class Task:
    """A checked config with its environment and data; the budget is in steps."""

    config: TrainConfig
    spec: EnvSpec
    data: RunData | None = None
    notes: tuple[str, ...] = ()
    """Notes about the environment for the user."""
    advice: tuple[Advice, ...] = ()
    """Advice about the data for the user."""
    env: str | GivenEnv | None = None
    """The environment: an id, or an object of the user."""
    env_record: EnvRecord | None = None
    """Description of the environment if it is an object."""
    evaluation: EvaluationEnv | None = None
    """The environment to evaluate in."""
    skipped_evaluation: str | None = None
    """Warning that there is no environment to evaluate in."""


def check_config(
    config: TrainConfig,
    passed: PassedEnvs | None = None,
    *,
    given: GivenData | None = None,
    starts: bool = True,
    use_masks: bool = True,
) -> Task:
    """Check everything about a config that can be checked before anything is written.

    Args:
        config: The config, with all defaults.
        passed: Environments that the user passed as objects.
        given: The data of `dataset_kind: memory`.
        starts: Whether the run or its learning-rate schedule starts here. A schedule that an
            earlier version started is not checked again.
        use_masks: Whether to use the environment's action masks, unless the config says otherwise.
            A run continues as it started.
    """
    if config.seeds is not None:
        raise ConfigError(
            f"seeds = {shown([*config.seeds])}: this trains a single run. Use train_seeds() or "
            "rl-training train for several seeds, or set seed."
        )
    passed = passed or PassedEnvs()
    device = choose_device(config.device)
    parts = config.parts
    check_logging(config.logging)
    if parts.controls.engine == "cuda_graph" and device.type != "cuda":
        raise ConfigError(
            "engine = cuda_graph requires a CUDA device: use engine=auto or engine=compiled."
        )
    _check_sources(config)
    _check_normalization(config)
    _check_fields(config)
    found = _inspect_env(config, passed, use_masks=use_masks)
    env, spec, env_spec = None, None, None
    if found is not None:
        config, env_spec = with_record(config, found.record), found.spec
        spec = config.parts.narrowed(env_spec)
        env = passed.training_env(config)
        _check_spec(config, spec, env)
        recorded = parts.data.dataset_size if parts.data.dataset_kind == "random" else 0
        check_memory(config, spec, device, rows=recorded)
    data = None
    if parts.data.dataset_kind is not None:
        data = load_run_data(config, spec, given, env=env)
    if spec is None or parts.data.action_range == "data":
        assert data is not None
        assert data.train.spec is not None
        config, spec = _with_action_range(config, data.train.spec), data.train.spec
        _check_spec(config, spec, env)
    if data is not None:
        check_memory(config, spec, device, rows=data.rows_in_memory)
    evaluation = choose_evaluation(config, passed, env, env_spec or spec)
    _check_rows(config, data)
    _check_stopping(config, data, evaluation)
    _check_capacity(config)
    config = _with_budget(config, data)
    if starts:
        _check_schedule(config)
    return Task(
        config,
        spec,
        data,
        notes=(*(found.notes if found else ()), *evaluation.notes, *_unused_keys(config, spec)),
        advice=tuple(_advise(config, data, spec)) if data and starts else (),
        env=env,
        env_record=found.record if found else None,
        evaluation=evaluation.env,
        skipped_evaluation=evaluation.skipped,
    )


def _inspect_env(config: TrainConfig, passed: PassedEnvs, *, use_masks: bool) -> Inspection | None:
    """Check the environment of a run with one reset and one step; None if it has none."""
    env, settings = passed.training_env(config), config.parts.env
    if env is None:
        return None
    check_num_envs(env, settings, config.num_envs)
    plays = config.eval_episodes > 0 and passed.eval_env is None
    if isinstance(env, GivenEnv) and config.mode != "offline":
        plays = plays and env.another() is not None
    if not use_masks:
        settings = settings.model_copy(update={"action_masks": False})
    found = inspect_env(env, settings, evaluated=plays)
    spec, ignored = _supported_masks(config, found.spec)
    return found._replace(spec=spec, notes=(*found.notes, *ignored))


def _advise(config: TrainConfig, data: RunData, spec: EnvSpec) -> list[Advice]:
    """Return advice about the data of a run, whose actions are already mapped to [-1, 1]."""
    parts = config.parts
    running = (
        isinstance(parts.algorithm, CollectionConfig) and parts.algorithm.normalize_observations
    )
    settings = DataSettings(
        normalizes=parts.data.normalize_states or running,
        limits_actions=parts.data.action_range != "environment",
    )
    ones = (1.0,) * spec.action_dim
    mapped = replace(spec, action_low=tuple(-x for x in ones), action_high=ones)
    return advise(data.train, None if spec.discrete else mapped, settings)


def _with_action_range(config: TrainConfig, spec: EnvSpec) -> TrainConfig:
    """Return the config with the range of the data's actions, so that a run does not need them."""
    if config.parts.data.action_range != "data":
        return config
    found = [list(spec.action_low), list(spec.action_high)]
    kwargs = {**config.algo_kwargs, "action_range": found}
    return config.model_copy(update={"algo_kwargs": kwargs})


def _check_capacity(config: TrainConfig) -> None:
    """Check that the replay has a row for every environment."""
    settings, envs = config.parts.algorithm, config.num_envs
    if isinstance(settings, CollectionConfig) and settings.buffer_capacity < envs:
        raise ConfigError(
            f"buffer_capacity = {settings.buffer_capacity}: should be at least num_envs, which is "
            f"{envs}."
        )


def _check_sources(config: TrainConfig) -> None:
    """Check that the run has the data its algorithm needs, and no settings without effect."""
    parts, algo, mode = config.parts, config.algo, config.mode
    data = parts.data
    if mode == "online":
        _check_online(data, algo)
    if mode != "online" and data.dataset_kind is None and not config.finetunes:
        raise ConfigError(
            f"{algo} learns from recorded data: set dataset_path, or pass dataset=… in Python "
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
    if config.env_id is None and data.action_low is None and data.action_range == "environment":
        raise ConfigError(
            "Without an environment, the action bounds are unknown: set action_low and "
            "action_high, or action_range=data, or env_id."
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
            "normalize_rewards = true does not work with relabeled rewards: set it to false."
        )
    if settings.normalize_rewards and not isinstance(settings, ValueConfig):
        raise ConfigError(
            f"normalize_rewards = true requires gamma, which {config.algo} does not have: leave "
            "it out."
        )


def _check_online(data: DataConfig, algo: str) -> None:
    """Reject settings that apply to recorded data only."""
    keys = ("dataset_path", "dataset_id", "dataset_kind")
    for key in (*keys, "normalize_states", "return_scaling", "sampling", "action_range"):
        value = getattr(data, key)
        if value != DataConfig.model_fields[key].default:
            raise ConfigError(
                f"{key} = {value} is for recorded data, but {algo} learns online: leave it out, or "
                "use an algorithm that learns from recorded data."
            )


def _check_mixing(data: DataConfig, settings: MixingConfig) -> None:
    """Check the settings of a run that combines a dataset with collected data."""
    for key in ("offline_batch_ratio", "offline_pretrain_updates"):
        value = getattr(settings, key)
        if data.dataset_kind is None and value > 0:
            raise ConfigError(
                f"{key} = {value} requires a dataset: set dataset_path, or set {key} to 0."
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


def _check_spec(config: TrainConfig, spec: EnvSpec, env: str | GivenEnv | None) -> None:
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
        space = ", ".join(map(str, spec.entries)) or f"Box({spec.obs_dim})"
        raise ConfigError(
            f"{env_id} has the observation space {space}, but {algo} needs a Dict of observation, "
            "achieved_goal and desired_goal, each a flat Box, with goals of the same size: use "
            f"algo: {settings.base_algo} on this environment."
        )
    if goals and spec.discrete:
        raise ConfigError(
            f"{algo} needs a bounded Box action space, but {env_id} has the action space "
            f"Discrete({spec.action_dim}): use an environment with continuous actions."
        )
    config.learner_class.for_spec(spec).check_spec(spec)
    _check_images(config, spec)
    if goals and env is not None:
        read_goal_task(env, config.parts.env)


def _unused_keys(config: TrainConfig, spec: EnvSpec) -> Iterator[str]:
    """Yield a note for each option that was changed but does not apply to the actions."""
    settings = config.parts.algorithm
    trait, kind = (
        (Trait.CONTINUOUS, "discrete") if spec.discrete else (Trait.DISCRETE, "continuous")
    )
    for key in keys_with(trait, type(settings)):
        value = getattr(settings, key)
        if value != type(settings).model_fields[key].get_default():
            yield f"{key} = {shown(value)} has no effect with {kind} actions."


def _check_images(config: TrainConfig, spec: EnvSpec) -> None:
    """Reject settings for images without images, and those for vectors without vectors."""
    settings, data = config.parts.algorithm, config.parts.data
    kinds = {entry.kind for entry in spec.entries}
    shifts = isinstance(settings, NetworkedConfig) and settings.augmentation != "none"
    if shifts and "image" not in kinds:
        raise ConfigError(
            "augmentation = random_shift shifts images, but the observations have none: leave it "
            "out."
        )
    normalized = {"normalize_states": data.normalize_states}
    if isinstance(settings, CollectionConfig):
        normalized["normalize_observations"] = settings.normalize_observations
    for key, is_set in normalized.items():
        if is_set and kinds == {"image"}:
            raise ConfigError(
                f"{key} = true has no effect on images, whose pixels the network scales: leave it "
                "out."
            )


def _supported_masks(config: TrainConfig, spec: EnvSpec) -> tuple[EnvSpec, tuple[str, ...]]:
    """Return the environment as the learner sees it: without masks if it does not support them."""
    learner = config.learner_class.for_spec(spec)
    if not spec.action_masks or (learner.mask_fields and not spec.goal_dim):
        return spec, ()
    note = (
        f"{config.env_id} provides action masks, but {config.algo} does not support them and may "
        "choose illegal actions."
    )
    return replace(spec, action_masks=False), (note,)


def _check_stopping(config: TrainConfig, data: RunData | None, evaluation: Evaluation) -> None:
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
    if stopping.metric != "eval_loss" and evaluation.env is None:
        choice = "set env_id" if config.env_id is None else "pass eval_env"
        raise ConfigError(
            f"early_stopping.metric = {stopping.metric} requires an environment to evaluate in: "
            f"{choice}, or use metric eval_loss with mode min."
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

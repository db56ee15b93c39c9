"""Fine-tuning: continue a checkpoint's learner in an environment, in a new run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from rl_training.algorithms.finetuning_config import FinetuningConfig
from rl_training.algorithms.registry import get_algorithm
from rl_training.api.arguments import as_path, check_callbacks, one_env
from rl_training.api.progress import progress_display
from rl_training.api.training import raise_signal, start_training, warn
from rl_training.config_model import Trait, keys_with
from rl_training.data import DataConfig
from rl_training.data.given_data import DATASET_KEYS, DatasetLike, GivenData, select_dataset
from rl_training.envs import EnvConfig, EnvLike, name_env
from rl_training.envs.given import GivenEnv
from rl_training.errors import CheckpointError, ConfigError
from rl_training.experiment.build import build_algorithm
from rl_training.experiment.config import TrainConfig, apply_overrides, make_config, name_overrides
from rl_training.experiment.dataset_source import load_run_data
from rl_training.experiment.run_envs import PassedEnvs, with_env
from rl_training.experiment.saved_run import SavedRun
from rl_training.experiment.task import Task, check_config
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.checkpointing import MODEL, OPTIMIZERS, load_tensors
from rl_training.runtime.control_config import ControlsConfig
from rl_training.runtime.training_loop import TrainResult

DEFAULT_STEPS = 25_000
"""Default number of environment steps."""

LEARNING_STARTS_DIVISOR = 5
"""Fine-tuning starts learning after total_timesteps divided by this, if the default would be later.

If half of every batch comes from a replay of one or two episodes, a converged policy collapses.
"""

REWARD_KEYS = keys_with(Trait.REWARD, DataConfig)
FRESH_KEYS = keys_with(Trait.FRESH, FinetuningConfig, ControlsConfig, DataConfig)


def finetune(
    path: str | Path,
    env: EnvLike | None = None,
    overrides: Sequence[str] = (),
    *,
    env_id: str | None = None,
    eval_env: EnvLike | None = None,
    dataset: DatasetLike | None = None,
    best: bool = False,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    on_warning: Callable[[str], None] = warn,
) -> TrainResult:
    """Continue the learner of a run or checkpoint in an environment, in a new run folder.

    Networks, targets, optimizers, temperature and normalization are kept, and the metrics of the
    source are copied. Signals have the same effect as in `train`.

    Args:
        path: The source, a run or a checkpoint.
        env: The environment: an id, a `gymnasium.Env`, a class or a function that makes one, or a
            Gymnasium vector environment; by default, the one of the source.
        overrides: ``key=value`` strings.
        env_id: The same as ``env``, for an id.
        eval_env: The environment to evaluate in; by default, a new one like ``env``.
        dataset: Data that replaces the data of the source, as in `train`. `offline_batch_ratio` is
            the share of each batch that comes from the data; 0 drops the data.
        best: Start from the best checkpoint of the run instead of the last one.
        callbacks: Callbacks of the new run.
        progress: Whether to show a live display; by default, in a terminal or a notebook only.
        on_warning: Called with each warning.
    """
    passed = PassedEnvs.of(one_env(env, env_id), eval_env)
    callbacks = check_callbacks(callbacks)
    with progress_display(progress) as display:
        result = start_finetuning(
            path,
            passed,
            overrides,
            [*display, *callbacks],
            dataset=dataset,
            best=best,
            on_warning=on_warning,
        )
    return raise_signal(result)


def start_finetuning(
    path: str | Path,
    passed: PassedEnvs,
    overrides: Sequence[str],
    callbacks: Sequence[Callback],
    *,
    dataset: DatasetLike | None = None,
    best: bool = False,
    on_warning: Callable[[str], None] = warn,
) -> TrainResult:
    """Fine-tune like `finetune`; the result says whether a signal ended the run."""
    checkpoint = SavedRun.load(as_path("path", path), best=best)
    keys, given = ({}, None) if dataset is None else select_dataset(dataset)
    config = make_finetuning_config(checkpoint, passed.env, overrides, keys, given)
    task = check_config(config.resolved(), passed, given=given)
    _check_compatible(checkpoint, task, other_data=dataset is not None)
    return start_training(task, callbacks, source=checkpoint, on_warning=on_warning)


def make_finetuning_config(
    checkpoint: SavedRun,
    env: str | GivenEnv | None,
    overrides: Sequence[str] = (),
    dataset: Mapping[str, Any] = MappingProxyType({}),
    given: GivenData | None = None,
) -> TrainConfig:
    """Return the config of a run that fine-tunes ``checkpoint``.

    ``dataset`` has the keys of another dataset, and ``given`` is its data if it is an object.
    """
    source = checkpoint.config
    _check_algorithm(source)
    data = source.to_dict()
    if isinstance(env, GivenEnv) and (env.belongs_to_user or env.label != source.env_id):
        # The arguments of the source's environment are not those of another object.
        own = {k: v for k, v in source.env_kwargs.items() if k in EnvConfig.model_fields}
        data |= {"env_kwargs": own} | ({"num_envs": 1} if env.belongs_to_user else {})
    if env is not None:
        data = with_env(data, env)
        name_env(data["env_id"])
    if data["env_id"] is None:
        raise ConfigError(f"{checkpoint.path} was trained without an environment: set env_id.")
    data["total_timesteps"] = DEFAULT_STEPS
    kwargs = {k: v for k, v in data["algo_kwargs"].items() if k not in FRESH_KEYS}
    kwargs["finetuned_step"] = checkpoint.step
    _fix_return_scale(checkpoint, source, kwargs, dataset, given)
    data["algo_kwargs"] = kwargs
    kwargs |= dataset
    apply_overrides(data, overrides)
    if kwargs["finetuned_step"] != checkpoint.step:
        raise ConfigError(
            f"finetuned_step is {checkpoint.step}, the step of the checkpoint: leave it out."
        )
    starts: int = FinetuningConfig.model_fields["learning_starts"].default
    if isinstance(data["total_timesteps"], int):
        starts = min(starts, data["total_timesteps"] // LEARNING_STARTS_DIVISOR)
    kwargs.setdefault("learning_starts", starts)
    kwargs.setdefault("offline_batch_ratio", 0.5 if kwargs.get("dataset_kind") else 0.0)
    used = kwargs["offline_batch_ratio"], kwargs.get("offline_pretrain_updates", 0)
    if used == (0, 0):
        kwargs |= {key: DataConfig.model_fields[key].default for key in DATASET_KEYS}
    config = make_config(data)
    name_overrides(config, overrides)
    return config


def _check_algorithm(source: TrainConfig) -> None:
    entry = get_algorithm(source.algo)
    if entry.goals:
        raise ConfigError(
            f"{source.algo} relabels goals and cannot be fine-tuned: resume the run instead."
        )
    if not entry.learner_class().learns_from_rewards:
        raise ConfigError(
            f"{source.algo} does not learn from rewards, so it cannot be fine-tuned: train iql or "
            "awac on the same data instead, and fine-tune that run."
        )


def _fix_return_scale(
    checkpoint: SavedRun,
    source: TrainConfig,
    kwargs: dict[str, Any],
    dataset: Mapping[str, Any],
    given: GivenData | None,
) -> None:
    """Replace `return_scaling` with its factor for the source's data, to scale new rewards too.

    If that data was moved or is not stored, ``dataset`` and ``given`` may be the same data.
    """
    if not source.parts.data.return_scaling:
        return
    try:
        scale = _return_scale(checkpoint, source)
    except ConfigError:
        if not dataset:
            raise
        moved = {**source.algo_kwargs, **dataset}
        scale = _return_scale(checkpoint, source.model_copy(update={"algo_kwargs": moved}), given)
    kwargs["return_scaling"] = False
    kwargs["reward_scale"] = scale * kwargs["reward_scale"]


def _return_scale(
    checkpoint: SavedRun, source: TrainConfig, given: GivenData | None = None
) -> float:
    spec = checkpoint.spec if source.env_id else None
    data = load_run_data(source, spec, given, recorded_limit=checkpoint.recorded_limit)
    advice = "pass the original data with --dataset FILE, since return_scaling depends on it"
    checkpoint.check_data(data, advice)
    return data.train.return_scale


def _check_compatible(checkpoint: SavedRun, task: Task, *, other_data: bool) -> None:
    """Check data, environment and learner against the checkpoint, unless changed explicitly."""
    old, new = checkpoint.config, task.config
    for key in ("normalize_observations", "normalize_rewards"):
        before, now = (config.algo_kwargs.get(key, False) for config in (old, new))
        if before != now:
            raise ConfigError(
                f"{key} = {str(now).lower()}: the checkpoint was trained "
                f"{'with' if before else 'without'} it, so leave it out."
            )
    shared = old.algo_kwargs.keys() & new.algo_kwargs.keys()
    changed = {key for key in shared if old.algo_kwargs[key] != new.algo_kwargs[key]}
    if task.data is not None and not other_data and not changed & {*DATASET_KEYS, *REWARD_KEYS}:
        advice = "pass the original data, or choose other data, with --dataset FILE"
        checkpoint.check_data(task.data, advice)
    checkpoint.check_env(task.spec, chosen=new.env_id if new.env_id != old.env_id else None)
    try:
        checkpoint.check_learner(new, task.spec)
        learner = build_algorithm(new, task.spec, torch.device("cpu"))
        load_tensors(learner, checkpoint, MODEL, OPTIMIZERS)
    except CheckpointError as error:
        causes = sorted(changed - {*FRESH_KEYS, *DATASET_KEYS, *REWARD_KEYS})
        if not causes:
            raise
        changes = f"{' and '.join(causes)} differ{'s' if len(causes) == 1 else ''}"
        raise ConfigError(f"{error}: {changes} from the checkpoint.") from None

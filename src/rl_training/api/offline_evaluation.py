"""Fitted Q evaluation of a checkpoint on the dataset of its run or on another dataset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rl_training.algorithms.fqe import FQEConfig
from rl_training.config_model import validated
from rl_training.data import DataConfig, load_transition_dataset
from rl_training.data.given_data import DatasetLike, select_dataset
from rl_training.envs import time_limit
from rl_training.envs.resolving import is_object_label
from rl_training.errors import ConfigError
from rl_training.experiment.dataset_source import load_dataset, load_run_data
from rl_training.experiment.machine import choose_threads, keep_freed_memory, restore_threads
from rl_training.experiment.saved_run import SavedRun
from rl_training.runtime.evaluation import Policy
from rl_training.runtime.off_policy_evaluation import (
    DEFAULT_GAMMA,
    DEFAULT_UPDATES,
    fitted_q_evaluation,
)


@restore_threads()
def estimate(
    checkpoint: SavedRun,
    policy: Policy,
    *,
    updates: int | None = None,
    dataset: DatasetLike | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Estimate the value and its spread at the first observations of recorded episodes."""
    config = checkpoint.config
    env_id, parts, spec = config.env_id, config.parts, policy.spec
    limit = checkpoint.recorded_limit
    if dataset is not None:
        keys, given = select_dataset(dataset)
        settings = validated(DataConfig, keys)
        source = settings.source if given is None else given.source
        if env_id is not None and not is_object_label(env_id):
            limit = time_limit(env_id, parts.env.make_kwargs)
        data = load_transition_dataset(
            settings, spec=spec, time_limit=limit, given=given, columns=spec.mask_fields
        )
    elif parts.data.dataset_kind is not None:
        source = parts.data.source
        advice = "pass the original or other data with --dataset PATH (in Python, dataset=PATH)"
        checkpoint.check_data(load_run_data(config, spec, recorded_limit=limit), advice)
        data = load_dataset(config, spec, raw_rewards=True, recorded_limit=limit)
    else:
        raise ConfigError(
            f"{checkpoint.path} was trained online and has no dataset: set --dataset PATH "
            "(in Python, dataset=PATH)."
        )
    torch.set_num_threads(choose_threads(parts.controls.num_threads))
    keep_freed_memory()
    gamma = float(getattr(parts.algorithm, "gamma", DEFAULT_GAMMA))
    values = fitted_q_evaluation(
        policy.algorithm,
        data,
        config=FQEConfig(gamma=gamma),
        updates=DEFAULT_UPDATES if updates is None else updates,
        seed=seed,
        progress=progress,
    )
    return {
        "checkpoint_path": str(checkpoint.path),
        "step": checkpoint.step,
        "env_id": env_id,
        "dataset": source,
        "gamma": gamma,
        "seed": seed,
        **values,
    }

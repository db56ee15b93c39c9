"""Fitted Q evaluation of a checkpoint on the dataset of its run or on another dataset."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from rl_training.algorithms.fqe import FQEConfig
from rl_training.api.arguments import as_path
from rl_training.data import load_transition_dataset
from rl_training.data.dataset_loaders import config_for
from rl_training.envs import time_limit
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
    dataset: str | Path | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Estimate the value and its spread at the first observations of recorded episodes."""
    config = checkpoint.config
    env_id, parts, spec = config.env_id, config.parts, policy.spec
    if dataset is not None:
        source = str(as_path("dataset", dataset, "a file"))
        limit = None if env_id is None else time_limit(env_id, parts.env.make_kwargs)
        data = load_transition_dataset(config_for(source), spec=spec, time_limit=limit)
    elif parts.data.dataset_kind is not None:
        source = parts.data.source
        advice = "pass the original or other data with --dataset PATH (in Python, dataset=PATH)"
        checkpoint.check_data(load_run_data(config, spec), advice)
        data = load_dataset(config, spec, raw_rewards=True)
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

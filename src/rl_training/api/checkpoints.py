"""Evaluation and prediction from a checkpoint."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.api.arguments import as_output, as_path, whole_number
from rl_training.api.offline_evaluation import estimate
from rl_training.api.video import record
from rl_training.boundary.npy import read_npy
from rl_training.boundary.writing import write_output
from rl_training.config_model import validated
from rl_training.envs import GOAL_KEYS, EnvConfig, describe_env, name_env, name_kwargs
from rl_training.errors import ConfigError
from rl_training.experiment.build import build_validation
from rl_training.experiment.config import plain_env_kwargs
from rl_training.experiment.dataset_source import load_run_data, prepare_sampler, supply_fields
from rl_training.experiment.saved_run import SavedRun
from rl_training.runtime.evaluation import Evaluator, Policy
from rl_training.types import ActionArray, EnvSpec, FloatArray

EPISODES = 10
"""Default number of evaluation episodes."""


def evaluate_checkpoint(
    path: str | Path,
    *,
    episodes: int | None = None,
    env_id: str | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    seed: int = 0,
    best: bool = False,
    device: str = "cpu",
    video: str | Path | None = None,
    fqe: bool = False,
    fqe_updates: int | None = None,
    dataset: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Evaluate the deterministic policy of a run or checkpoint on seeded episodes.

    Runs without an environment are evaluated by their losses on the held-out rows. docs/metrics.md
    describes the returned values.

    Args:
        path: A run or a checkpoint.
        episodes: Number of episodes, 10 by default. Episode i starts from ``seed + i``.
        env_id: Another environment with the same spaces; the run's own by default.
        env_kwargs: Arguments of ``env_id``, or changes to the arguments of the run's environment.
        seed: Seed of the first episode, or of fitted Q evaluation.
        best: Use the best checkpoint of the run instead of the last one.
        device: Device on which the policy runs.
        video: A .mp4 or .gif file to write.
        fqe: Estimate the value of the policy from recorded data by fitted Q evaluation, instead
            of playing episodes (docs/evaluation.md).
        fqe_updates: Number of updates of fitted Q evaluation.
        dataset: Data for fitted Q evaluation; the run's own by default.
        progress: Called with the finished and the total number of updates of fitted Q evaluation.
    """
    plays = (episodes, video, env_id, env_kwargs or None)
    if fqe and any(given is not None for given in plays):
        raise ConfigError(
            "fqe does not play episodes: leave out episodes, video, env_id and env_kwargs."
        )
    episodes = EPISODES if episodes is None else whole_number("episodes", episodes, least=1)
    seed = whole_number("seed", seed, least=0)
    if fqe_updates is not None:
        fqe_updates = whole_number("fqe_updates", fqe_updates)
    if not fqe and (fqe_updates is not None or dataset is not None):
        raise ConfigError("fqe_updates and dataset require fitted Q evaluation: set fqe as well.")
    checkpoint = SavedRun.load(as_path("path", path), best=best)
    config = checkpoint.config
    own = env_id in (None, config.env_id)
    place = config.env_id if own else env_id
    given = plain_env_kwargs(env_kwargs)
    if place is None and given:
        raise ConfigError(
            f"{checkpoint.path} was trained without an environment: set env_id as well."
        )
    name_env(env_id)
    name_kwargs(place, given)
    if place is None and video is not None:
        raise ConfigError(
            f"{checkpoint.path} was trained without an environment, so no video can be recorded."
        )
    policy = checkpoint.load_policy(device)
    if fqe:
        return estimate(
            checkpoint, policy, updates=fqe_updates, dataset=dataset, seed=seed, progress=progress
        )
    if place is None:
        return _evaluate_held_out(checkpoint, policy)
    env = validated(EnvConfig, (config.env_kwargs if own else {}) | given)
    chosen = place if env_id is not None or given else None
    checkpoint.check_env(describe_env(place, env), chosen=chosen)
    evaluator = Evaluator(place, env.make_kwargs, seed=seed, render=video is not None)
    with closing(evaluator):
        if video is not None:
            result = record(evaluator, policy, episodes, video)
        else:
            result = evaluator.evaluate(policy, episodes)
    return {
        "checkpoint_path": str(checkpoint.path),
        "step": checkpoint.step,
        "env_id": place,
        "seed": seed,
        **result.summary(),
    }


def _evaluate_held_out(checkpoint: SavedRun, policy: Policy) -> dict[str, Any]:
    config = checkpoint.config
    data = load_run_data(config, None)
    checkpoint.check_data(
        data, advice="use --fqe to estimate the value of the policy on other data"
    )
    validation = build_validation(data, config.seed)
    if data.held_out is None or validation is None:
        raise ConfigError(
            f"{checkpoint.path} was trained without an environment, and no rows were held out: "
            "use --fqe (fqe=True) to estimate the value of the policy."
        )
    prepare_sampler(config, data, policy.algorithm, policy.device)
    supply_fields(policy.algorithm, data.held_out)
    return {
        "checkpoint_path": str(checkpoint.path),
        "step": checkpoint.step,
        "env_id": None,
        "eval_rows": len(data.held_out),
        **validation.evaluate(policy.algorithm),
    }


def predict_checkpoint(
    path: str | Path,
    obs: FloatArray | Mapping[str, FloatArray],
    *,
    best: bool = False,
    device: str = "cpu",
) -> ActionArray:
    """Return deterministic actions in the units of the environment for an observation or a batch.

    An observation of a goal environment is its Dict, or ``observation`` and ``desired_goal``
    concatenated.
    """
    checkpoint = SavedRun.load(as_path("path", path), best=best)
    policy = checkpoint.load_policy(device)
    return policy(check_obs(obs, policy.spec))


def predict_file(
    path: str | Path,
    obs: str | Path,
    out: str | Path | None = None,
    *,
    best: bool = False,
    device: str = "cpu",
) -> ActionArray:
    """Return actions for the observations in a ``.npy`` file, and write them to ``out``."""
    source = as_path("obs", obs, "a .npy file")
    if not source.is_file():
        raise ConfigError(f"The file {str(obs)!r} does not exist.")
    destination = None if out is None else as_output("out", out)
    actions = predict_checkpoint(
        path, read_npy(source, follow_links=True), best=best, device=device
    )
    if destination is not None:
        data = io.BytesIO()
        np.save(data, actions, allow_pickle=False)
        write_output(destination, data.getvalue())
    return actions


def check_obs(obs: FloatArray | Mapping[str, FloatArray], spec: EnvSpec) -> FloatArray:
    """Return observations as float32; raise for a wrong shape or a value that is not finite."""
    needed = f"shape [{spec.obs_dim}] or [batch, {spec.obs_dim}] is expected"
    if spec.goal_dim:
        needed += (
            f": first the {spec.obs_dim - spec.goal_dim} values of observation, then the "
            f"{spec.goal_dim} of desired_goal"
        )
    if isinstance(obs, Mapping):
        keys = GOAL_KEYS[:2]
        if not spec.goal_dim or not set(keys) <= set(obs):
            raise ConfigError(
                f"Observations have the keys {', '.join(sorted(obs))}, but an array of {needed}."
            )
        parts = [np.asarray(obs[key]) for key in keys]
        if len({part.shape[:-1] for part in parts}) > 1:
            shapes = " and ".join(f"{k} {part.shape}" for k, part in zip(keys, parts, strict=True))
            raise ConfigError(
                f"Observations have the shapes {shapes}, but all parts of a batch need the same "
                "number of rows."
            )
        obs = np.concatenate(parts, axis=-1)
    array = np.asarray(obs)
    if array.dtype.kind not in "biuf":
        raise ConfigError(f"Observations should be numbers, but have the type {array.dtype}.")
    if array.ndim not in (1, 2) or array.shape[-1] != spec.obs_dim:
        raise ConfigError(f"Observations have shape {array.shape}, but {needed}.")
    with np.errstate(over="ignore"):  # values too large for float32 are found below
        held = array.astype(np.float32)
    if not np.isfinite(held).all():
        raise ConfigError("Observations contain values that are not finite in float32.")
    return held

"""Evaluation and prediction from a checkpoint."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rl_training.api.arguments import (
    as_output,
    as_path,
    one_env,
    whole_number,
    with_objects,
)
from rl_training.api.offline_evaluation import estimate
from rl_training.api.video import record
from rl_training.boundary.npy import open_npz, read_npy
from rl_training.boundary.writing import write_output
from rl_training.config_model import validated
from rl_training.data.given_data import DatasetLike
from rl_training.envs import EnvConfig, EnvLike, name_env, name_kwargs, read_env_spec
from rl_training.envs.factory import own_env
from rl_training.envs.given import GivenEnv, as_given
from rl_training.errors import ConfigError
from rl_training.experiment.build import build_validation
from rl_training.experiment.config import plain_env_kwargs
from rl_training.experiment.dataset_source import load_run_data, prepare_sampler, supply_fields
from rl_training.experiment.run_envs import EvaluationEnv, check_no_arguments
from rl_training.experiment.saved_run import SavedRun
from rl_training.observations import ObservationError, flatten_observation, is_structured
from rl_training.runtime.evaluation import Evaluator, Policy
from rl_training.types import ActionArray, BoolArray, EnvSpec, FloatArray

EPISODES = 10
"""Default number of evaluation episodes."""


def evaluate_checkpoint(
    path: str | Path,
    *,
    episodes: int | None = None,
    env: EnvLike | None = None,
    env_id: str | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    seed: int = 0,
    best: bool = False,
    device: str = "cpu",
    video: str | Path | None = None,
    fqe: bool = False,
    fqe_updates: int | None = None,
    dataset: DatasetLike | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Evaluate the deterministic policy of a run or checkpoint on seeded episodes.

    Runs without an environment are evaluated by their losses on the held-out rows. docs/metrics.md
    describes the returned values.

    Args:
        path: A run or a checkpoint.
        episodes: Number of episodes, 10 by default. Episode i starts from ``seed + i``.
        env: Another environment with the same spaces, or the run's own if it was passed as an
            object: an id, a `gymnasium.Env`, or a class or a function that makes one. An instance
            is not closed. By default, the environment of the run.
        env_id: The same as ``env``, for an id.
        env_kwargs: Arguments of ``env``, or changes to the arguments of the run's environment.
        seed: Seed of the first episode, or of fitted Q evaluation.
        best: Use the best checkpoint of the run instead of the last one.
        device: Device on which the policy runs.
        video: A .mp4 or .gif file to write.
        fqe: Estimate the value of the policy from recorded data by fitted Q evaluation, instead
            of playing episodes (docs/evaluation.md).
        fqe_updates: Number of updates of fitted Q evaluation.
        dataset: Data for fitted Q evaluation, as in `train`; the run's own by default. A run
            without an environment needs it if its data was passed as an object.
        progress: Called with the finished and the total number of updates of fitted Q evaluation.
    """
    chosen = one_env(env, env_id)
    plays = (episodes, video, chosen, env_kwargs or None)
    if fqe and any(given is not None for given in plays):
        raise ConfigError(
            "fqe does not play episodes: leave out episodes, video, env, env_id and env_kwargs."
        )
    episodes = EPISODES if episodes is None else whole_number("episodes", episodes, least=1)
    seed = whole_number("seed", seed, least=0)
    if fqe_updates is not None:
        fqe_updates = whole_number("fqe_updates", fqe_updates)
    checkpoint = SavedRun.load(as_path("path", path), best=best)
    place = None if fqe else choose_env(checkpoint, chosen, env_kwargs)
    if not fqe and (fqe_updates is not None or (dataset is not None and place is not None)):
        raise ConfigError("fqe_updates and dataset require fitted Q evaluation: set fqe as well.")
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
        return _evaluate_held_out(checkpoint, policy, dataset)
    evaluator = Evaluator(
        place.env,
        place.kwargs,
        seed=seed,
        action_masks=checkpoint.spec.action_masks,
        render=video is not None,
    )
    with closing(evaluator):
        own = chosen is None and not env_kwargs
        spec = read_env_spec(evaluator.env, evaluator.env.name)
        checkpoint.check_env(spec, chosen=None if own else evaluator.env.name)
        played = place.env
        if isinstance(played, GivenEnv):
            played = played.record(own_env(evaluator.env)).env_id
        if video is not None:
            result = record(evaluator, policy, episodes, video)
        else:
            result = evaluator.evaluate(policy, episodes)
    return {
        "checkpoint_path": str(checkpoint.path),
        "step": checkpoint.step,
        "env_id": played,
        "seed": seed,
        **result.summary(),
    }


def choose_env(
    checkpoint: SavedRun, env: EnvLike | None, env_kwargs: Mapping[str, Any] | None = None
) -> EvaluationEnv | None:
    """Return the environment in which to play a policy: ``env``, or the one of its run.

    ``env_kwargs`` change the run's own arguments, or are the arguments of another environment.
    """
    config, given = checkpoint.config, plain_env_kwargs(env_kwargs)
    chosen = config.env_id if env is None else as_given(env)
    if chosen is None:
        if given:
            raise ConfigError(
                f"{checkpoint.path} was trained without an environment: set env_id as well."
            )
        return None
    label = chosen if isinstance(chosen, str) else chosen.label
    if isinstance(env, str):
        name_env(env)
    if isinstance(chosen, GivenEnv) and chosen.belongs_to_user:
        check_no_arguments(chosen, given)
    name_kwargs(label, given)
    recorded = config.env_kwargs if label == config.env_id else {}
    settings = validated(EnvConfig, recorded | given)
    return EvaluationEnv(chosen, settings.make_kwargs)


def _evaluate_held_out(
    checkpoint: SavedRun, policy: Policy, dataset: DatasetLike | None
) -> dict[str, Any]:
    config, given = with_objects(checkpoint.config, dataset=dataset)
    data = load_run_data(config, None, given)
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
    obs: Any,
    *,
    action_mask: npt.ArrayLike | None = None,
    best: bool = False,
    device: str = "cpu",
) -> ActionArray:
    """Return deterministic actions in the units of the environment for an observation or a batch.

    An observation is what the environment returns, or its flat vector (docs/observations.md). In a
    batch, every array has one more axis, the first. For a goal environment, ``achieved_goal`` is
    not needed, and the flat vector is ``observation`` and ``desired_goal`` concatenated.
    ``action_mask`` is 1 for each legal discrete action and 0 for the others.
    """
    checkpoint = SavedRun.load(as_path("path", path), best=best)
    return predict_actions(checkpoint.load_policy(device), obs, action_mask)


def predict_file(
    path: str | Path,
    obs: str | Path,
    out: str | Path | None = None,
    *,
    action_masks: str | Path | None = None,
    best: bool = False,
    device: str = "cpu",
) -> ActionArray:
    """Return actions for the observations in a file, and write them to ``out``.

    The file is a ``.npy`` file with one array, or a ``.npz`` file with an array for each entry of
    a Dict observation, under its name. ``action_masks`` is a ``.npy`` file with the legal actions
    of each observation.
    """
    inputs = _read_observations(_existing("obs", obs, "a .npy or .npz file"))
    masks = None
    if action_masks is not None:
        file = _existing("action_masks", action_masks, "a .npy file")
        masks = read_npy(file, follow_links=True)
    destination = None if out is None else as_output("out", out)
    actions = predict_checkpoint(path, inputs, action_mask=masks, best=best, device=device)
    if destination is not None:
        data = io.BytesIO()
        np.save(data, actions, allow_pickle=False)
        write_output(destination, data.getvalue())
    return actions


def _existing(name: str, path: str | Path, kind: str) -> Path:
    source = as_path(name, path, kind)
    if not source.is_file():
        raise ConfigError(f"The file {str(path)!r} does not exist.")
    return source


def _read_observations(source: Path) -> Any:
    """Read one array, or the arrays of an npz file by name."""
    if source.suffix.lower() != ".npz":
        return read_npy(source, follow_links=True)
    with open_npz(source) as columns:
        return {name: column.read_whole() for name, column in columns.items()}


def predict_actions(
    policy: Policy,
    obs: Any,
    action_mask: npt.ArrayLike | None = None,
) -> ActionArray:
    """Check the observations and the mask, and return the actions of a policy."""
    checked = check_obs(obs, policy.spec)
    if action_mask is None:
        return policy(checked)
    return policy(checked, check_mask(action_mask, policy, checked.shape[:-1]))


def check_mask(mask: npt.ArrayLike, policy: Policy, lead: tuple[int, ...]) -> BoolArray:
    """Return an action mask as booleans; ``lead`` is the batch axis of the observations, if any."""
    single = policy.spec.discrete and not policy.spec.action_choices
    if not policy.algorithm.mask_fields or not single:
        raise ConfigError(
            f"{policy.algorithm.name} does not support action masks here: leave out action_mask."
        )
    array, wanted = np.asarray(mask), (*lead, policy.spec.action_dim)
    if array.dtype.kind not in "biu" or array.shape != wanted:
        raise ConfigError(
            f"action_mask has shape {array.shape} and type {array.dtype}, but booleans or integers "
            f"of shape {wanted} are expected, one value for each action."
        )
    if not np.isin(array, (0, 1)).all():
        raise ConfigError("action_mask has values other than 0 and 1.")
    if not array.any(axis=-1).all():
        raise ConfigError("action_mask has no legal action for one of the observations.")
    return array.astype(bool)


def check_obs(obs: Any, spec: EnvSpec) -> FloatArray:
    """Return observations as float32 rows; raise for a wrong shape or a value that is not finite.

    ``obs`` is an observation of the environment or a batch of them (every array has one more axis,
    the first), or their flat vectors, ``[obs_dim]`` or ``[batch, obs_dim]``.
    """
    if isinstance(obs, Mapping | tuple) and not spec.parts:
        found = f"the keys {', '.join(map(str, obs))}" if isinstance(obs, Mapping) else "a tuple"
        raise ConfigError(f"Observations have {found}, but {_expected(spec)}.")
    if spec.parts and is_structured(obs, spec.parts):
        try:
            array: Any = flatten_observation(obs, spec.parts)
        except ObservationError as error:
            raise ConfigError(f"The observation is invalid: {error}.") from None
    else:
        array = np.asarray(obs)
    if array.dtype.kind not in "biuf":
        raise ConfigError(f"Observations should be numbers, but have the type {array.dtype}.")
    if array.ndim not in (1, 2) or array.shape[-1] != spec.obs_dim:
        raise ConfigError(f"Observations have shape {array.shape}, but {_expected(spec)}.")
    with np.errstate(over="ignore"):  # values too large for float32 are found below
        held: FloatArray = array.astype(np.float32)
    if not np.isfinite(held).all():
        raise ConfigError("Observations contain values that are not finite in float32.")
    return held


def _expected(spec: EnvSpec) -> str:
    """Describe the observations that a policy accepts."""
    flat = f"an array of shape [{spec.obs_dim}] or [batch, {spec.obs_dim}]"
    if not spec.parts:
        return f"{flat} is expected"
    parts = ", ".join(map(str, spec.parts))
    return f"an observation of the environment ({parts}), or {flat} in this order, is expected"

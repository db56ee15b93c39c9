"""Compare an exported policy with the original one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from rl_training.api.checkpoints import predict_actions
from rl_training.envs import make_env, read_env_spec
from rl_training.errors import RLTrainingError, TrainingError
from rl_training.experiment.saved_run import SavedRun
from rl_training.runtime.checkpointing import OPTIMIZER_PREFIX
from rl_training.runtime.evaluation import Policy
from rl_training.runtime.policy_ports import unflatten
from rl_training.text import shown
from rl_training.types import ActionArray, BoolArray, EnvSpec, FloatArray

TOLERANCE = 1e-5
"""Largest difference between continuous actions, relative to their range."""

RANDOM_OBSERVATIONS = 1_000
MAX_STEPS = 10_000
"""Number of observations of an episode that are compared at most."""

SINGLE_OBSERVATIONS = 20
"""Number of observations that are also passed one by one."""

WEIGHT_CHANGES = 16
RELATIVE_CHANGE = 2.0**-20
"""Number and relative size of the weight changes that distinguish rounding from errors."""

Act = Callable[..., ActionArray]
"""Returns actions for an observation of the environment or a batch, and for its action mask."""


class ParityError(TrainingError):
    """An exported policy differs from the original one."""


@dataclass(frozen=True)
class Observations:
    """Observations to compare policies on."""

    rows: FloatArray
    """Flat observations ``[B, obs_dim]``: random ones, then those of an episode."""
    masks: BoolArray | None = None
    """Legal actions ``[B, actions]``, if the policy uses action masks."""
    from_episode: int = 0
    """Number of observations of an episode."""
    note: str = ""
    """Why there is no episode."""

    def arguments(self, spec: EnvSpec, row: int | None = None) -> tuple[Any, ...]:
        """Return the arguments of a policy, in the form of the environment: all, or one row."""
        which: Any = slice(None) if row is None else row
        arrays = {name: values[which] for name, values in unflatten(self.rows, spec).items()}
        obs = arrays.get("", arrays)
        return (obs,) if self.masks is None else (obs, self.masks[which])

    def take(self, which: Any) -> Observations:
        """Return some of the observations."""
        return replace(
            self, rows=self.rows[which], masks=None if self.masks is None else self.masks[which]
        )


@dataclass(frozen=True)
class Parity:
    """Result of a successful comparison."""

    random_observations: int
    episode_observations: int
    largest_difference: float
    """Relative to the range of actions. Discrete actions differ by 0 or 1."""
    decided_by_rounding: int
    """Observations with a larger difference that rounding explains."""
    note: str = ""


def collect_observations(checkpoint: SavedRun, policy: Policy) -> Observations:
    """Return random observations, and those of an episode if the environment can be created."""
    random = random_observations(policy, RANDOM_OBSERVATIONS)
    try:
        played = _episode(checkpoint, policy)
    except RLTrainingError as error:
        return replace(random, note=str(error))
    return Observations(
        rows=np.concatenate([random.rows, played.rows]),
        masks=None
        if random.masks is None or played.masks is None
        else np.concatenate([random.masks, played.masks]),
        from_episode=len(played.rows),
    )


def random_observations(policy: Policy, count: int) -> Observations:
    """Return observations, small to large in the units in which the policy normalizes them."""
    rng, spec = np.random.default_rng(0), policy.spec
    shift = policy.algorithm.obs_shift.cpu().numpy()
    scale = policy.algorithm.obs_scale.cpu().numpy()
    spread = 10.0 ** rng.uniform(-1.0, 1.0, (count, 1))
    rows: FloatArray = shift + rng.normal(size=(count, spec.obs_dim)) * spread / scale
    for entry in spec.parts:
        if entry.choices:
            values = rng.integers(entry.choices, size=(count, len(entry.choices))) + entry.starts
            rows[:, entry.place] = entry.flatten(values.reshape(count, *entry.shape))
        elif entry.kind == "multi_binary":
            rows[:, entry.place] = rng.integers(2, size=(count, entry.width))
        elif entry.kind == "image":
            rows[:, entry.place] = rng.integers(entry.high + 1, size=(count, entry.width))
    masks = None
    if spec.action_masks:
        masks = rng.random((count, spec.mask_width)) < 0.5
        masks[np.arange(count), rng.integers(spec.mask_width, size=count)] = True
    return Observations(rows.astype(np.float32), masks)


def _episode(checkpoint: SavedRun, policy: Policy) -> Observations:
    """Return the finite observations of an episode."""
    config, use_masks = checkpoint.config, policy.spec.action_masks
    if config.env_id is None:
        raise RLTrainingError("the run has no environment")
    rows: list[FloatArray] = []
    masks: list[BoolArray] = []
    ended = False
    with closing(make_env(config.env_id, config.parts.env.make_kwargs)) as env:
        checkpoint.check_env(read_env_spec(env, config.env_id))
        obs, info = env.reset(seed=0)
        while not ended and np.isfinite(obs).all() and len(rows) < MAX_STEPS:
            legal = [env.action_mask(info, "step" if rows else "reset")] if use_masks else []
            rows.append(obs)
            masks += legal
            obs, _, terminated, truncated, info = env.step(policy(obs, *legal))
            ended = terminated or truncated
    stacked = np.asarray(rows, dtype=np.float32)
    return Observations(stacked, np.asarray(masks) if use_masks else None, len(rows))


def compare(policy: Policy, exported: Act, observations: Observations) -> Parity:
    """Compare the actions of two policies, for batches and for single observations.

    Continuous actions may differ by `TOLERANCE` of their range; discrete ones must be equal. An
    observation with a larger difference is accepted only if rounding explains it: the original
    policy must give the exported action, or actions on both sides of it, when its weights change by
    one part in a million. This happens at a tie between two discrete actions.

    Raises:
        ParityError: The policies differ.
    """
    spec, count = policy.spec, len(observations.rows)
    singles = np.linspace(0, count - 1, SINGLE_OBSERVATIONS).astype(int)
    one_by_one = [exported(*observations.arguments(spec, row)) for row in singles]
    found = np.concatenate([exported(*observations.arguments(spec)), np.stack(one_by_one)])
    compared = observations.take([*range(count), *singles])
    expected = predict_actions(policy, *compared.arguments(spec))
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        raise ParityError(
            f"The exported policy returns {found.dtype} actions of shape {found.shape[1:]}, but "
            f"predict returns {expected.dtype} of shape {expected.shape[1:]}. Nothing was written."
        )
    difference = _difference(expected, found, spec)
    far = ~(difference <= TOLERANCE)  # also true for NaN
    if far.any():
        wrong = np.flatnonzero(far)[~_explained_by_rounding(policy, compared.take(far), found[far])]
        if len(wrong):
            arrays = (compared.rows, found, expected)
            at, given, right = (shown(x[wrong[0]].tolist()) for x in arrays)
            raise ParityError(
                f"The exported policy differs from predict at {len(wrong):,} of {len(found):,} "
                f"observations; at {at} it gives {given} instead of {right}. Nothing was written."
            )
    return Parity(
        random_observations=count - observations.from_episode,
        episode_observations=observations.from_episode,
        largest_difference=float(difference[~far].max(initial=0.0)),
        decided_by_rounding=int(far.sum()),
        note=observations.note,
    )


def _difference(expected: ActionArray, found: ActionArray, spec: EnvSpec) -> FloatArray:
    """Return the largest difference of each row, relative to the range of actions; ``[B]``."""
    if spec.discrete:
        differs = np.asarray(expected != found).reshape(len(expected), -1).any(axis=-1)
        return np.asarray(differs, dtype=np.float64)
    difference: FloatArray = np.abs(expected - found) / _ranges(spec)
    largest: FloatArray = difference.max(axis=-1)
    return largest


def _ranges(spec: EnvSpec) -> FloatArray:
    return np.subtract(spec.action_high, spec.action_low)


def _explained_by_rounding(
    policy: Policy, observations: Observations, found: ActionArray
) -> BoolArray:
    """Return which actions the policy also gives after tiny changes of its weights; ``[B]``."""
    rows, masks = observations.rows, observations.masks
    nearby = [policy(rows, masks)]
    generator = torch.Generator().manual_seed(0)
    for _ in range(WEIGHT_CHANGES):
        with _changed_weights(policy, generator):
            nearby.append(policy(rows, masks))
    if policy.spec.discrete:
        given = np.logical_or.reduce([actions == found for actions in nearby])
        same: BoolArray = given.reshape(len(given), -1).all(axis=-1)
        return same
    slack = TOLERANCE * _ranges(policy.spec)
    low, high = np.min(nearby, axis=0) - slack, np.max(nearby, axis=0) + slack
    inside: BoolArray = ((low <= found) & (found <= high)).all(axis=-1)
    return inside


@contextmanager
def _changed_weights(policy: Policy, generator: torch.Generator) -> Iterator[None]:
    """Change every weight by a random relative amount of up to `RELATIVE_CHANGE`."""
    weights = [
        tensor
        for name, tensor in policy.algorithm.state_dict().items()
        if tensor.is_floating_point() and not name.startswith(OPTIMIZER_PREFIX)
    ]
    saved = [tensor.clone() for tensor in weights]
    try:
        for tensor in weights:
            uniform = torch.rand(tensor.shape, generator=generator, dtype=tensor.dtype)
            tensor.mul_(1.0 + RELATIVE_CHANGE * (2.0 * uniform - 1.0))
        yield
    finally:
        for tensor, before in zip(weights, saved, strict=True):
            tensor.copy_(before)

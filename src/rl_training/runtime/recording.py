"""Record transitions with a policy or with uniform random actions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.boundary.columns import Chunks, Column
from rl_training.data.column_names import OBSERVATIONS
from rl_training.data.dataset_writers import Arrays, as_arrays
from rl_training.envs import ActionScaler, EnvLike, GuardedEnv, make_env, read_env_spec
from rl_training.envs.observations import own_entries
from rl_training.errors import ConfigError, EnvError, TrainingError
from rl_training.observations import Entry
from rl_training.runtime.evaluation import Policy
from rl_training.runtime.seeding import Stream, derive_seed
from rl_training.types import ActionArray, BoolArray, EnvSpec, FloatArray

MASK_COLUMNS = ("action_masks", "next_action_masks")
COLUMN_TYPES = {
    "observations": np.float32,
    "actions": np.float32,
    "rewards": np.float32,
    "next_observations": np.float32,
    "terminals": bool,
    "timeouts": bool,
    **dict.fromkeys(MASK_COLUMNS, bool),
}
"""Columns of recorded data, in D4RL's layout; discrete actions are integers."""


def record_columns(
    env: GuardedEnv,
    choose: Callable[..., Any],
    *,
    steps: int,
    seed: int,
    action_masks: bool = False,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Column]:
    """Record ``steps`` transitions; the seeds differ from those of an evaluation.

    Actions are in the units of the environment. If the last episode has not ended, it is marked as
    truncated. ``choose`` receives an observation and, with ``action_masks``, the legal actions.
    Observations with images are an array for each entry, in its own shape and as bytes.
    """
    columns: dict[str, list[Any]] = {name: [] for name in COLUMN_TYPES}
    entries = own_entries(env)
    images = _ImageRecorder(entries) if any(e.kind == "image" for e in entries) else None
    start = derive_seed(seed, Stream.RECORDING)
    obs, info = env.reset(seed=start)
    legal = env.action_mask(info, "reset") if action_masks else None
    kept = obs if images is None else images.split(obs)
    for step in range(steps):
        action = _copy(choose(obs) if legal is None else choose(obs, legal))
        try:
            next_obs, reward, terminated, truncated, info = env.step(_copy(action))
            next_legal = env.action_mask(info, "step", terminated) if action_masks else None
        except EnvError as error:
            raise EnvError(f"at step {step + 1}, {error}") from error
        if not (math.isfinite(reward) and np.isfinite(next_obs).all()):
            raise TrainingError(
                f"the environment returned a reward or an observation that is not finite at step "
                f"{step + 1} (reward {reward}). No data was saved."
            )
        kept_next = next_obs if images is None else images.split(next_obs)
        columns["observations"].append(kept)
        columns["actions"].append(action)
        columns["rewards"].append(float(reward))
        columns["next_observations"].append(kept_next)
        columns["terminals"].append(terminated)
        columns["timeouts"].append(truncated or (step == steps - 1 and not terminated))
        columns["action_masks"].append(legal)
        columns["next_action_masks"].append(next_legal)
        obs, legal, kept = next_obs, next_legal, kept_next
        if terminated or truncated:
            start += 1
            obs, info = env.reset(seed=start)
            kept = obs if images is None else images.split(obs)
            legal = env.action_mask(info, "reset") if action_masks else None
        if progress is not None:
            progress(step + 1)
    kinds: dict[str, Any] = dict(COLUMN_TYPES)
    if isinstance(env.action_space, gym.spaces.Discrete | gym.spaces.MultiDiscrete):
        kinds["actions"] = np.int64
    if not action_masks:
        kinds = {name: kind for name, kind in kinds.items() if name not in MASK_COLUMNS}
    found: dict[str, Column] = {}
    for name, kind in kinds.items():
        if name in OBSERVATIONS and images is not None:
            found |= images.columns(name, columns[name])
        else:
            found[name] = Column.of(np.asarray(columns[name], dtype=kind))
    return found


def record(env: GuardedEnv, choose: Callable[..., Any], **options: Any) -> Arrays:
    """Record transitions like `record_columns`, as arrays."""
    return as_arrays(record_columns(env, choose, **options))


class _ImageRecorder:
    """Splits flat observations with images into their entries, of which images are bytes."""

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        self._entries = entries

    def split(self, obs: FloatArray) -> dict[str, np.ndarray[Any, Any]]:
        """Return the entries of one observation; discrete numbers are one-hot."""
        return {
            entry.name: obs[entry.place].astype(self._dtype(entry)).reshape(self._shape(entry))
            for entry in self._entries
        }

    def columns(self, field: str, rows: list[dict[str, np.ndarray[Any, Any]]]) -> dict[str, Column]:
        """Return the entries of many observations, which are joined when they are read."""
        return {
            f"{field}/{entry.name}" if entry.name else field: Column(
                (len(rows), *self._shape(entry)),
                self._dtype(entry),
                partial(_joined_rows, [row[entry.name] for row in rows]),
            )
            for entry in self._entries
        }

    @staticmethod
    def _shape(entry: Entry) -> tuple[int, ...]:
        return (entry.width,) if entry.choices else entry.shape

    @staticmethod
    def _dtype(entry: Entry) -> np.dtype[Any]:
        return np.dtype(entry.dtype if entry.kind == "image" else np.float32)


def _joined_rows(rows: list[np.ndarray[Any, Any]], count: int) -> Chunks:
    for start in range(0, len(rows), count):
        yield np.stack(rows[start : start + count])


def _copy(value: Any) -> Any:
    """Copy an action, since an environment or a policy may reuse its array."""
    return np.array(value) if isinstance(value, np.ndarray) else value


def noisy_policy(policy: Policy, noise: float, seed: int) -> Callable[..., ActionArray]:
    """Return the policy with seeded noise.

    ``noise`` is the standard deviation of Gaussian noise on actions in [-1, 1], or the probability
    of a uniformly random action if actions are discrete.
    """
    generator = np.random.default_rng(derive_seed(seed, Stream.EXPLORATION))
    if policy.spec.discrete:
        if noise > 1.0:
            raise ConfigError(
                f"noise = {noise}: for discrete actions it is a probability, from 0 to 1."
            )
        uniform = uniform_policy(policy.spec, seed)
        return lambda obs, legal=None: (
            uniform(obs, legal) if generator.random() < noise else policy(obs, legal)
        )

    if noise == 0.0:
        return policy
    scaler = ActionScaler(policy.spec)

    def choose(obs: FloatArray) -> ActionArray:
        action = scaler.to_model(policy(obs))
        noisy = action + noise * generator.standard_normal(action.shape).astype(np.float32)
        return scaler.to_env(np.clip(noisy, -1.0, 1.0).astype(np.float32))

    return choose


def record_random(
    env: EnvLike,
    env_kwargs: Mapping[str, Any],
    size: int,
    seed: int,
    *,
    action_masks: bool = False,
) -> Arrays:
    """Record transitions with uniformly random actions; with masks, legal ones only."""
    return as_arrays(record_random_columns(env, env_kwargs, size, seed, action_masks=action_masks))


def record_random_columns(
    env: EnvLike,
    env_kwargs: Mapping[str, Any],
    size: int,
    seed: int,
    *,
    action_masks: bool = False,
) -> dict[str, Column]:
    """Record transitions like `record_random`, as columns."""
    with closing(make_env(env, env_kwargs)) as made:
        choose = uniform_policy(read_env_spec(made, made.name), seed)
        return record_columns(made, choose, steps=size, seed=seed, action_masks=action_masks)


def uniform_policy(spec: EnvSpec, seed: int) -> Callable[..., Any]:
    """Return a policy with uniformly random legal actions, in the units of the environment."""
    generator = np.random.default_rng(derive_seed(seed, Stream.EXPLORATION, 1))

    def choose(_obs: FloatArray, legal: BoolArray | None = None) -> int:
        if legal is None:
            return spec.action_start + int(generator.integers(spec.action_dim))
        return spec.action_start + int(generator.choice(np.flatnonzero(legal)))

    if spec.action_choices:
        first, last = spec.first_actions, spec.last_actions
        return lambda _obs: generator.integers(first, last, endpoint=True)
    if spec.discrete:
        return choose
    scaler = ActionScaler(spec)
    return lambda _obs: scaler.to_env(
        generator.uniform(-1.0, 1.0, spec.action_dim).astype(np.float32)
    )

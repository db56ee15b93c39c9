"""Record transitions with a policy or with uniform random actions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.envs import ActionScaler, make_env, read_env_spec
from rl_training.errors import ConfigError, EnvError, TrainingError
from rl_training.runtime.evaluation import Policy
from rl_training.runtime.seeding import Stream, derive_seed
from rl_training.types import ActionArray, EnvSpec, FloatArray


def record(
    env: gym.Env[Any, Any],
    choose: Callable[[FloatArray], Any],
    *,
    steps: int,
    seed: int,
    progress: Callable[[int], None] | None = None,
) -> dict[str, np.ndarray[Any, Any]]:
    """Record ``steps`` transitions; the seeds differ from those of an evaluation.

    Actions are in the units of the environment. If the last episode has not ended, it is marked as
    truncated.
    """
    observations, actions, rewards, next_observations, terminals, timeouts = [], [], [], [], [], []
    discrete = isinstance(env.action_space, gym.spaces.Discrete)
    start = derive_seed(seed, Stream.RECORDING)
    obs = _copy(env.reset(seed=start)[0])
    for step in range(steps):
        action = _copy(choose(obs))
        try:
            given, reward, terminated, truncated, _ = env.step(_copy(action))
        except EnvError as error:
            raise EnvError(f"at step {step + 1}, {error}") from error
        next_obs = _copy(given)
        if not (math.isfinite(reward) and np.isfinite(next_obs).all()):
            raise TrainingError(
                f"the environment returned a reward or an observation that is not finite at step "
                f"{step + 1} (reward {reward}). No data was saved."
            )
        observations.append(obs)
        actions.append(action)
        rewards.append(float(reward))
        next_observations.append(next_obs)
        terminals.append(terminated)
        timeouts.append(truncated or (step == steps - 1 and not terminated))
        obs = next_obs
        if terminated or truncated:
            start += 1
            obs = _copy(env.reset(seed=start)[0])
        if progress is not None:
            progress(step + 1)
    return {
        "observations": np.asarray(observations, dtype=np.float32),
        "actions": np.asarray(actions, dtype=np.int64 if discrete else np.float32),
        "rewards": np.asarray(rewards, dtype=np.float32),
        "next_observations": np.asarray(next_observations, dtype=np.float32),
        "terminals": np.asarray(terminals, dtype=bool),
        "timeouts": np.asarray(timeouts, dtype=bool),
    }


def _copy(value: Any) -> Any:
    """Copy an array, since an environment or a policy may reuse it."""
    return np.array(value) if isinstance(value, np.ndarray) else value


def noisy_policy(policy: Policy, noise: float, seed: int) -> Callable[[FloatArray], ActionArray]:
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
        return lambda obs: uniform(obs) if generator.random() < noise else policy(obs)

    if noise == 0.0:
        return policy
    scaler = ActionScaler(policy.spec)

    def choose(obs: FloatArray) -> ActionArray:
        action = scaler.to_model(policy(obs))
        noisy = action + noise * generator.standard_normal(action.shape).astype(np.float32)
        return scaler.to_env(np.clip(noisy, -1.0, 1.0).astype(np.float32))

    return choose


def record_random(
    env_id: str, env_kwargs: Mapping[str, Any], size: int, seed: int
) -> dict[str, np.ndarray[Any, Any]]:
    """Record transitions with uniformly random actions."""
    env = make_env(env_id, env_kwargs)
    try:
        spec = read_env_spec(env, env_id)
        return record(env, uniform_policy(spec, seed), steps=size, seed=seed)
    finally:
        env.close()


def uniform_policy(spec: EnvSpec, seed: int) -> Callable[[FloatArray], Any]:
    """Return a policy with uniformly random actions, in the units of the environment."""
    generator = np.random.default_rng(derive_seed(seed, Stream.EXPLORATION, 1))
    if spec.discrete:
        return lambda _obs: spec.action_start + int(generator.integers(spec.action_dim))
    scaler = ActionScaler(spec)
    return lambda _obs: scaler.to_env(
        generator.uniform(-1.0, 1.0, spec.action_dim).astype(np.float32)
    )

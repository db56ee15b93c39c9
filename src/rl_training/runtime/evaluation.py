"""Evaluation on seeded episodes, or by losses on held-out rows.

Episodes use a separate environment, deterministic actions and untransformed rewards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from rl_training.algorithms.base import Algorithm, draw_noise
from rl_training.data.recorded import RecordedData
from rl_training.envs import ActionScaler, EnvLike, GuardedEnv, is_numeric, make_env
from rl_training.envs.contract import SUCCESS_KEYS
from rl_training.errors import EnvError, TrainingError
from rl_training.statistics import mean_interval
from rl_training.types import ActionArray, BoolArray, EnvSpec, FloatArray

MAX_EPISODE_STEPS = 1_000_000
"""Number of steps after which an episode is considered endless."""
FLOAT32_MAX = np.float64(np.finfo(np.float32).max)


class Policy:
    """Deterministic policy of a learner, with actions in the units of the environment."""

    def __init__(
        self, algorithm: Algorithm, spec: EnvSpec, device: torch.device | str = "cpu"
    ) -> None:
        self.algorithm = algorithm
        self.spec = spec
        self._scaler = ActionScaler(spec)
        self.device = torch.device(device)

    def __call__(self, obs: FloatArray, action_mask: BoolArray | None = None) -> ActionArray:
        """Return actions for one observation ``[obs_dim]`` or a batch ``[B, obs_dim]``.

        An action is a vector ``[action_dim]``, or an integer in a Discrete space. ``action_mask``
        is true for each legal action, ``[actions]`` or ``[B, actions]``.
        """
        batch = np.atleast_2d(np.asarray(obs, dtype=np.float32))
        tensor = torch.from_numpy(batch).to(self.device)
        legal = None
        if action_mask is not None:
            mask = np.atleast_2d(np.asarray(action_mask, dtype=np.float32))
            legal = torch.from_numpy(mask).to(self.device)
        actions = self.algorithm.act(tensor, deterministic=True, legal=legal).cpu().numpy()
        scaled = self._scaler.to_env(actions)
        return scaled if np.ndim(obs) > 1 else scaled[0]


@dataclass(frozen=True)
class EvaluationResult:
    """Returns and lengths of evaluation episodes."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    successes: tuple[bool | None, ...] = ()
    """Whether each episode was successful; None if the environment does not report it."""

    def metrics(self) -> dict[str, float]:
        """Return the metrics for logging and early stopping."""
        metrics = {
            "eval_return_mean": float(np.mean(self.returns)),
            "eval_return_std": float(np.std(self.returns)),
            "eval_length_mean": float(np.mean(self.lengths)),
        }
        known = [success for success in self.successes if success is not None]
        if known:
            metrics["eval_success_rate"] = float(np.mean(known))
        return metrics

    def summary(self) -> dict[str, Any]:
        """Return the metrics, the return of each episode, and the interval of the mean."""
        several = len(self.returns) > 1  # a single episode has no interval
        mean = mean_interval(self.returns)
        return self.metrics() | {
            "eval_return_ci95": [mean.low, mean.high] if several else None,
            "eval_returns": list(self.returns),
            "eval_episodes": len(self.returns),
        }


class _Episode(NamedTuple):
    total: float
    length: int
    success: bool | None


class Camera(Protocol):
    """Renders the states of evaluation episodes."""

    episodes: int
    """Number of episodes to film."""

    def capture(self, env: GuardedEnv) -> None:
        """Render the current state."""


class SharedEvaluation(Protocol):
    """Plays the episodes of several evaluators together."""

    def evaluate(self, row: int, policy: Policy, episodes: int) -> EvaluationResult | None:
        """Return the result of an evaluator; None if it has to play alone."""


class Evaluator:
    """Plays whole episodes; episode ``i`` always starts from seed ``seed + i``.

    With ``action_masks``, it passes the environment's legal actions to the policy.
    """

    def __init__(
        self,
        env: EnvLike,
        env_kwargs: Mapping[str, Any],
        *,
        seed: int,
        action_masks: bool = False,
        render: bool = False,
    ) -> None:
        self.env_like, self.env_kwargs, self.seed = env, env_kwargs, seed
        self._shared: SharedEvaluation | None = None
        self._row = 0
        self._action_masks = action_masks
        self._make: Callable[[], GuardedEnv] = lambda: make_env(env, env_kwargs, render=render)
        self._env: GuardedEnv | None = None

    def join(self, shared: SharedEvaluation, row: int) -> None:
        """Let ``shared`` play the episodes, unless they are filmed."""
        self._shared, self._row = shared, row

    @property
    def env(self) -> GuardedEnv:
        """Evaluation environment, created on first use."""
        if self._env is None:
            self._env = self._make()
        return self._env

    def evaluate(
        self, policy: Policy, episodes: int, camera: Camera | None = None
    ) -> EvaluationResult:
        """Play ``episodes`` episodes; ``camera`` films the first ones."""
        if self._shared is not None and camera is None:
            shared = self._shared.evaluate(self._row, policy, episodes)
            if shared is not None:
                return shared
        seeds = range(self.seed, self.seed + episodes)
        filmed = camera.episodes if camera is not None else 0
        played = [
            self._play(policy, seed, camera if index < filmed else None)
            for index, seed in enumerate(seeds)
        ]
        return EvaluationResult(
            returns=tuple(episode.total for episode in played),
            lengths=tuple(episode.length for episode in played),
            successes=tuple(episode.success for episode in played),
        )

    def _play(self, policy: Policy, seed: int, camera: Camera | None) -> _Episode:
        env, total, length, ended = self.env, 0.0, 0, False
        legal: BoolArray | None = None
        try:
            obs, info = env.reset(seed=seed)
            if self._action_masks:
                legal = env.action_mask(info, "reset")
            while True:
                check_observation(obs, length)
                if camera is not None:
                    camera.capture(env)
                if ended:
                    break
                check_length(length)
                action = policy(obs) if legal is None else policy(obs, legal)
                obs, reward, terminated, truncated, info = env.step(action)
                total += reward
                length += 1
                ended = terminated or truncated  # the episode ends in both cases
                if self._action_masks:
                    legal = env.action_mask(info, "step", terminated=ended)
        except EnvError as error:
            raise EnvError(f"after {length} steps of an evaluation episode, {error}") from error
        if not math.isfinite(total):
            raise TrainingError(f"an evaluation episode returned {total} after {length} steps")
        return _Episode(float(total), length, is_success(info))

    def close(self) -> None:
        """Close the environment if it was created."""
        if self._env is not None:
            self._env.close()


def check_length(length: int) -> None:
    """Reject an evaluation episode that does not end."""
    if length >= MAX_EPISODE_STEPS:
        raise TrainingError(
            f"an evaluation episode did not end within {length:,} steps: set a time limit "
            "(env_kwargs.max_episode_steps=N, or a TimeLimit wrapper around an environment "
            "object), or disable evaluation (eval_episodes=0)"
        )


def check_observation(obs: FloatArray, length: int) -> None:
    """Reject an observation that is not finite in float32, the precision of policies."""
    held = np.abs(obs) <= FLOAT32_MAX  # False for NaN
    if not held.all():
        entry = int(np.argmin(held))
        raise TrainingError(
            f"entry {entry} of the observation is {obs[entry]} after {length} steps of an "
            "evaluation episode"
        )


def is_success(info: dict[str, Any]) -> bool | None:
    """Return whether an episode succeeded; None if its last info has neither of the usual keys."""
    for name in SUCCESS_KEYS:
        if name in info and is_numeric(info[name]) and np.size(info[name]) == 1:
            return bool(np.asarray(info[name]).item())
    return None


class Validation:
    """Losses on held-out rows, with the batch size of the updates.

    Every evaluation uses the same seed for its noise, so differences come only from the learner.
    """

    def __init__(self, dataset: RecordedData, *, seed: int) -> None:
        self.dataset = dataset
        self._seed = seed

    def evaluate(self, algorithm: Algorithm) -> dict[str, float]:
        """Return `eval_loss_<term>` for each loss of the algorithm, and their sum `eval_loss`.

        Losses that are part of another loss are not added twice.
        """
        rows, device = len(self.dataset), self.dataset.device
        generator = torch.Generator(device).manual_seed(self._seed)
        sums: dict[str, float] = {}
        for start in range(0, rows, algorithm.config.batch_size):
            stop = min(start + algorithm.config.batch_size, rows)
            batch = self.dataset.batch(torch.arange(start, stop, device=device))
            if algorithm.has_running_statistics:  # fixed statistics are already applied to the rows
                batch = algorithm.normalization.batch(batch)
            noise = draw_noise(algorithm.noise(stop - start), generator)
            for name, loss in algorithm.held_out_losses(batch, noise).items():
                sums[name] = sums.get(name, 0.0) + float(loss) * (stop - start) / rows
        terms = {name.replace("loss/", "eval_loss_"): value for name, value in sums.items()}
        for name, value in terms.items():
            if not math.isfinite(value):
                raise TrainingError(f"{name} is {value}")
        whole = sum(value for name, value in sums.items() if name not in algorithm.loss_parts)
        return {"eval_loss": whole, **terms}

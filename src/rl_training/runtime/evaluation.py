"""Evaluation: episodes on seeded environments of its own, or losses on rows held out.

Episodes are played deterministically and report the environment's reward.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from rl_training.algorithms.base import Algorithm, draw_noise
from rl_training.data import TransitionDataset
from rl_training.envs import ActionScaler, GuardedEnv, is_numeric, make_env
from rl_training.errors import EnvError, TrainingError
from rl_training.types import ActionArray, EnvSpec, FloatArray

BOOTSTRAP_SAMPLES = 10_000
MAX_EPISODE_STEPS = 1_000_000
"""Steps after which an episode counts as one that never ends."""
FLOAT32_MAX = np.float64(np.finfo(np.float32).max)


class Policy:
    """A learner's deterministic actions as the environment takes them."""

    def __init__(
        self, algorithm: Algorithm, spec: EnvSpec, device: torch.device | str = "cpu"
    ) -> None:
        self.algorithm = algorithm
        self.spec = spec
        self._scaler = ActionScaler(spec)
        self.device = torch.device(device)

    def __call__(self, obs: FloatArray) -> ActionArray:
        """Actions for one observation ``[obs_dim]`` or a batch ``[B, obs_dim]``.

        They are floats ``[action_dim]`` each, or one integer each in a Discrete space.
        """
        batch = np.atleast_2d(np.asarray(obs, dtype=np.float32))
        tensor = torch.from_numpy(batch).to(self.device)
        actions = self.algorithm.act(tensor, deterministic=True).cpu().numpy()
        scaled = self._scaler.to_env(actions)
        return scaled if np.ndim(obs) > 1 else scaled[0]


@dataclass(frozen=True)
class EvaluationResult:
    """Returns and lengths of the evaluation's episodes."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    successes: tuple[bool | None, ...] = ()
    """Whether each episode ended in success, where the environment says so."""

    def metrics(self) -> dict[str, float]:
        """The numbers for logs and early stopping."""
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
        """The metrics with each episode's return and, of several, the bootstrap interval."""
        several = len(self.returns) > 1  # one episode says nothing about the spread
        return self.metrics() | {
            "eval_return_ci95": list(bootstrap_interval(self.returns)) if several else None,
            "eval_returns": list(self.returns),
            "eval_episodes": len(self.returns),
        }


def bootstrap_interval(values: tuple[float, ...], seed: int = 0) -> tuple[float, float]:
    """95 % percentile-bootstrap interval of the mean."""
    array = np.asarray(values)
    draws = np.random.default_rng(seed).integers(len(array), size=(BOOTSTRAP_SAMPLES, len(array)))
    low, high = np.percentile(array[draws].mean(axis=1), [2.5, 97.5])
    return float(low), float(high)


class _Episode(NamedTuple):
    total: float
    length: int
    success: bool | None


class Evaluator:
    """Plays whole episodes; episode ``i`` always starts from seed ``seed + i``."""

    def __init__(
        self, env_id: str, env_kwargs: dict[str, Any], *, seed: int, render: bool = False
    ) -> None:
        self._make: Callable[[], GuardedEnv] = lambda: make_env(env_id, env_kwargs, render=render)
        self._env: GuardedEnv | None = None
        self._seed = seed

    @property
    def env(self) -> GuardedEnv:
        """The evaluation environment, made on first use."""
        if self._env is None:
            self._env = self._make()
        return self._env

    def evaluate(
        self, policy: Policy, episodes: int, on_frame: Callable[[Any], None] | None = None
    ) -> EvaluationResult:
        """Play ``episodes`` episodes; ``on_frame`` gets a picture of each step."""
        seeds = range(self._seed, self._seed + episodes)
        played = [self._play(policy, seed, on_frame) for seed in seeds]
        return EvaluationResult(
            returns=tuple(episode.total for episode in played),
            lengths=tuple(episode.length for episode in played),
            successes=tuple(episode.success for episode in played),
        )

    def _play(self, policy: Policy, seed: int, on_frame: Callable[[Any], None] | None) -> _Episode:
        env, total, length, ended = self.env, 0.0, 0, False
        info: dict[str, Any] = {}
        try:
            obs, _ = env.reset(seed=seed)
            while True:
                _check_finite(obs, length)
                if on_frame is not None:
                    on_frame(env.render())
                if ended:
                    break
                if length >= MAX_EPISODE_STEPS:
                    raise TrainingError(
                        "give the environment a time limit (env_kwargs.max_episode_steps=N), or "
                        "play no episodes (eval_episodes=0): one of the evaluation's had not "
                        f"ended after {length:,} steps"
                    )
                obs, reward, terminated, truncated, info = env.step(policy(obs))
                total += reward
                length += 1
                ended = terminated or truncated  # an episode's end, not a bootstrap
        except EnvError as error:
            raise EnvError(f"after {length} steps of an evaluation episode, {error}") from error
        if not math.isfinite(total):
            raise TrainingError(f"an evaluation episode returned {total} after {length} steps")
        return _Episode(total, length, _is_success(info))

    def close(self) -> None:
        """Close the environment if it was made."""
        if self._env is not None:
            self._env.close()


def _check_finite(obs: FloatArray, length: int) -> None:
    """Refuse an observation that does not fit into float32, the precision of policies."""
    held = np.abs(obs) <= FLOAT32_MAX  # which NaN is not
    if not held.all():
        entry = int(np.argmin(held))
        raise TrainingError(
            f"the observation of an evaluation episode, entry {entry} is {obs[entry]} after "
            f"{length} steps"
        )


def _is_success(info: dict[str, Any]) -> bool | None:
    """Whether an episode succeeded, if its last info has either of the usual keys."""
    for name in ("is_success", "success"):
        if name in info and is_numeric(info[name]) and np.size(info[name]) == 1:
            return bool(np.asarray(info[name]).item())
    return None


class Validation:
    """The losses on rows that no update sees, at the size of batch that updates have.

    Noise is drawn from the same seed in every evaluation: two of them differ by the learner alone.
    """

    def __init__(self, dataset: TransitionDataset, *, seed: int) -> None:
        self.dataset = dataset
        self._seed = seed

    def evaluate(self, algorithm: Algorithm) -> dict[str, float]:
        """`eval_loss_<term>` for each loss of the algorithm, and their sum `eval_loss`.

        A loss that is a part of another is not added again.
        """
        rows, device = len(self.dataset), self.dataset.rows.device
        generator = torch.Generator(device).manual_seed(self._seed)
        sums: dict[str, float] = {}
        for start in range(0, rows, algorithm.config.batch_size):
            stop = min(start + algorithm.config.batch_size, rows)
            batch = self.dataset.batch(torch.arange(start, stop, device=device))
            if algorithm.has_running_statistics:  # fixed ones are applied to the rows beforehand
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

"""Evaluating all members of a population at once, in worker processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from rl_training.envs import ActionScaler
from rl_training.envs.contract import SUCCESS_KEYS
from rl_training.envs.factory import evaluation_maker
from rl_training.envs.pool import PooledEnvs, WorkerPool
from rl_training.errors import EnvError, RLTrainingError, TrainingError
from rl_training.runtime.evaluation import (
    FLOAT32_MAX,
    EvaluationResult,
    Evaluator,
    Policy,
    check_length,
    check_observation,
    is_success,
)
from rl_training.types import ActionArray, EnvSpec, FloatArray

SharedPolicy = Callable[[FloatArray], FloatArray]
"""Returns the actions of all members, ``[S, n, action_dim]``, for ``[S, n, obs_dim]``."""


class PopulationEvaluation:
    """Plays the evaluation episodes of all members that evaluate after the same step.

    The first member that asks for its episodes lets those of the others be played as well.
    """

    def __init__(
        self,
        evaluators: Sequence[Evaluator],
        spec: EnvSpec,
        episodes: int,
        pool: WorkerPool,
        make_policy: Callable[[int], SharedPolicy],
    ) -> None:
        """Let the evaluators play together.

        Args:
            evaluators: The evaluators of the members.
            spec: Sizes of their environments.
            episodes: Episodes of each evaluation.
            pool: Processes for the environments, which are created on first use.
            make_policy: Returns the policy of all members, for a number of observations of each.
        """
        self._evaluators = list(evaluators)
        self._episodes = episodes
        self._pool = pool
        self._scaler = ActionScaler(spec)
        self._make_policy = make_policy
        self._envs: PooledEnvs | None = None
        self._policy: SharedPolicy | None = None
        self._due: list[int] = []
        self._results: dict[int, EvaluationResult | RLTrainingError] = {}
        for row, evaluator in enumerate(evaluators):
            evaluator.join(self, row)

    def begin(self, due: Iterable[int]) -> None:
        """Set which members evaluate now; their learners do not change until the next call."""
        self._due, self._results = list(due), {}

    def evaluate(self, row: int, policy: Policy, episodes: int) -> EvaluationResult | None:
        """Return the result of a member; None if it has to play alone."""
        if row not in self._due or episodes != self._episodes:
            return None
        if row not in self._results:
            self._results = self._play()
        result = self._results.pop(row)
        if isinstance(result, RLTrainingError):
            raise result
        return result

    def _create(self) -> tuple[PooledEnvs, SharedPolicy]:
        """Return the environments and the policy, which are created on first use.

        If a process has ended, the environments are created again in the others, since its
        environments may belong to members that it does not otherwise affect.
        """
        if self._envs is not None and self._envs.has_lost_process:
            self._envs.close()
            self._envs = None
        if self._envs is None:
            each = [one for one in self._evaluators for _ in range(self._episodes)]
            makers = [evaluation_maker(one.env_like, one.env_kwargs) for one in each]
            names = [str(one.env_like) for one in each]
            self._envs = self._pool.envs(makers, names, autoreset=False)
        if self._policy is None:
            self._policy = self._make_policy(self._episodes)
        return self._envs, self._policy

    def _play(self) -> dict[int, EvaluationResult | RLTrainingError]:
        """Play the episodes of the members that evaluate now."""
        envs, policy = self._create()
        episodes = _Episodes(envs, self._episodes)
        for row in self._due:
            episodes.start(row, self._evaluators[row].seed)
        shape = len(self._evaluators), self._episodes, -1
        while episodes.is_playing:
            actions = policy(envs.observations.astype(np.float32).reshape(shape))
            episodes.step(self._scaler.to_env(actions.reshape(envs.num_envs, -1)))
        return episodes.results()


class _Episodes:
    """Episodes of several members that are played at the same time, ``each`` of every member."""

    def __init__(self, envs: PooledEnvs, each: int) -> None:
        self._envs, self._each = envs, each
        self._parts: dict[int, PooledEnvs] = {}
        self._errors: dict[int, RLTrainingError] = {}
        self._playing = np.zeros(envs.num_envs, dtype=bool)
        self._totals = np.zeros(envs.num_envs)
        self._lengths = np.zeros(envs.num_envs, dtype=np.int64)
        self._successes: list[bool | None] = [None] * envs.num_envs
        self._step = 0

    def _places(self, row: int) -> slice:
        return slice(row * self._each, (row + 1) * self._each)

    @property
    def is_playing(self) -> bool:
        """Whether any episode has not ended."""
        return bool(self._playing.any())

    def _check(self, row: int, check: Callable[[], object]) -> None:
        """End the episodes of a member if a check fails."""
        try:
            check()
        except EnvError as error:
            text = f"after {self._step} steps of an evaluation episode, {error}"
            self._errors[row] = EnvError(text)
        except TrainingError as error:
            self._errors[row] = error
        if row in self._errors:
            self._playing[self._places(row)] = False

    def start(self, row: int, seed: int) -> None:
        """Start the episodes of a member."""
        places = self._places(row)
        part = self._parts[row] = self._envs.part(places.start, places.stop)
        self._playing[places] = True
        self._check(row, lambda: part.reset(seed=seed))
        self._check_observations()

    def step(self, actions: ActionArray) -> None:
        """Take a step in the episodes that have not ended."""
        for row in self._rows():
            self._check(row, lambda: check_length(self._step))
        envs, playing = self._envs, self._playing
        envs.step_async(actions, None if playing.all() else playing)
        if envs.wait():
            for row in self._rows():
                self._check(row, self._parts[row].step_wait)
        self._step += 1
        self._totals[playing] += envs.rewards[playing]
        self._lengths[playing] += 1
        self._check_observations()
        ended = playing & (envs.terminations | envs.truncations)
        for index in np.flatnonzero(ended).tolist():
            self._successes[index] = _read_success(envs.part(index, index + 1))
        self._playing &= ~ended

    def _rows(self) -> list[int]:
        """Return the members with an episode that has not ended."""
        return [row for row in self._parts if self._playing[self._places(row)].any()]

    def _check_observations(self) -> None:
        observations = self._envs.observations
        if (np.abs(observations[self._playing]) <= FLOAT32_MAX).all():
            return
        for row in self._rows():
            for index in np.flatnonzero(self._playing[self._places(row)]).tolist():
                obs = self._parts[row].observations[index].astype(np.float64)
                self._check(row, partial(check_observation, obs, self._step))

    def results(self) -> dict[int, EvaluationResult | RLTrainingError]:
        """Return the result of each member, or the error that has ended its episodes."""
        return {
            row: self._errors.get(row) or self._result(self._places(row)) for row in self._parts
        }

    def _result(self, places: slice) -> EvaluationResult | RLTrainingError:
        returns, lengths = self._totals[places].tolist(), self._lengths[places].tolist()
        for total, length in zip(returns, lengths, strict=True):
            if not np.isfinite(total):
                return TrainingError(f"an evaluation episode returned {total} after {length} steps")
        return EvaluationResult(tuple(returns), tuple(lengths), tuple(self._successes[places]))


def _read_success(env: PooledEnvs) -> bool | None:
    """Return whether the episode of an environment that ended succeeded."""
    final = env.step_wait()[-1].get("final_info", {})
    return is_success({key: final[key][0] for key in SUCCESS_KEYS if key in final})

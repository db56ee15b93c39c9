"""Collecting for all members of a population at once.

The environments of all members step in worker processes, while the GPU updates. Actions, checks and
transitions are computed for all members together, and each `Collector` keeps its part of the
arrays: it saves and restores its own state, and counts its own episodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rl_training.envs import ActionScaler, CaptureError
from rl_training.envs.contract import AnyEnv
from rl_training.envs.pool import PooledEnvs, WorkerPool
from rl_training.envs.vector import LocalEnvs
from rl_training.errors import EnvError, RLTrainingError
from rl_training.runtime.acting import Explorer
from rl_training.runtime.collector import Collector, SharedStep
from rl_training.runtime.population.engine import PopulationEngine
from rl_training.runtime.population.policies import PopulationExplorer
from rl_training.types import BoolArray, FloatArray


class NotShareable(Exception):  # noqa: N818
    """The members cannot collect together; the text is the end of a sentence."""


class PopulationCollection:
    """Steps the environments of all members.

    Between two calls of `collect`, every member finishes its step with `Collector.finish_step`,
    and requests its next actions.
    """

    def __init__(
        self,
        collectors: Sequence[Collector],
        pool: WorkerPool,
        engine: PopulationEngine,
        *,
        fast: bool,
    ) -> None:
        """Move the running environments into the processes of ``pool``.

        Args:
            collectors: The collectors of the members of ``engine``.
            pool: Processes for the environments.
            engine: The engine, whose replays may be stacked.
            fast: Whether to choose actions with a CUDA graph.

        Raises:
            NotShareable: The members cannot collect together.
        """
        check_shareable(collectors)
        first = collectors[0]
        self._collectors = list(collectors)
        self._each = first.num_envs
        self._replays = engine.replays
        self._rows_of = engine.rows_of_members
        self._scaler = ActionScaler(first.spec)
        self.envs = move_environments(collectors, pool)
        count = self.envs.num_envs
        self._obs = np.empty((count, first.spec.obs_dim), dtype=np.float32)
        self._actions = np.zeros((count, first.spec.action_width), dtype=np.float32)
        self._errors: dict[int, RLTrainingError] = {}
        self._steps: dict[int, SharedStep] = {}
        self._random: dict[int, bool] = {}
        """Requests for actions that were not chosen yet: whether they are random."""
        self._parts: list[PooledEnvs] = []
        explorers: list[Explorer | None] = [None] * len(engine.learners)
        for row, collector in zip(self._rows_of, collectors, strict=True):
            explorers[row] = collector.explorer
        self._explorer = PopulationExplorer(
            explorers, engine.learners, engine.state, self._each, fast=fast
        )
        shape = len(explorers), self._each, first.spec.obs_dim
        self._all_obs = np.zeros(shape, dtype=np.float32)
        for row, collector in enumerate(collectors):
            places = self._places(row)
            part = self.envs.part(places.start, places.stop)
            collector.join(self, row, part, self._obs[places])
            self._parts.append(part)

    def _places(self, row: int) -> slice:
        return slice(row * self._each, (row + 1) * self._each)

    # --- Called by the members ----------------------------------------------------------

    def request_actions(self, row: int, *, random: bool) -> None:
        """Note that a member needs actions for its next step."""
        self._random[row] = random

    def has_requested(self, row: int) -> bool:
        """Whether a member has requested actions that it has not received yet."""
        return row in self._random or self._rows_of[row] in self._explorer.pending

    def deliver_actions(self) -> None:
        """Give every member the actions that were chosen for it."""
        self._explorer.collect()

    def take_step(self, row: int) -> SharedStep:
        """Return the latest step of a member.

        Raises:
            RLTrainingError: The step of this member failed.
        """
        if row in self._errors:
            raise self._errors.pop(row)
        return self._steps.pop(row)

    # --- Called by the coordinator ------------------------------------------------------

    def choose_actions(self) -> None:
        """Start choosing the actions that were requested."""
        requested, self._random = self._random, {}
        policy = [row for row, random in requested.items() if not random]
        for row, random in requested.items():
            if random:
                explorer = self._collectors[row].explorer
                Explorer.request_actions(explorer, self._obs[self._places(row)], random=True)
        if policy:
            self._all_obs[self._rows_of] = self._obs.reshape(len(self._rows_of), self._each, -1)
            self._explorer.choose(self._all_obs, [self._rows_of[row] for row in policy])

    def collect(self, rows: Sequence[int]) -> None:
        """Take and store one step in the environments of some members."""
        self.choose_actions()
        self.deliver_actions()
        active = np.zeros(len(self._obs), dtype=bool)
        for row in rows:
            places = self._places(row)
            self._actions[places] = self._collectors[row].explorer.take_actions()
            active[places] = True
        self._check(active, action=self._actions)
        actions = self._scaler.to_env(self._actions)
        self.envs.step_async(actions, None if active.all() else active)
        if self.envs.wait():
            self._note_errors(active)
        self._store(active)

    def _rows(self, active: BoolArray) -> list[int]:
        """Return the members whose environments are active."""
        first: list[int] = np.flatnonzero(active[:: self._each]).tolist()
        return first

    def _fail(self, row: int, error: RLTrainingError, active: BoolArray) -> None:
        """Note the error of a member, which rests from now on."""
        self._errors[row] = error
        active[self._places(row)] = False

    def _check(self, active: BoolArray, **quantities: FloatArray) -> None:
        """Note the error of each active member with a value that is not finite."""
        for name, values in quantities.items():
            chosen = values[active]
            # Fast path: if the sum of squares is finite, all values are.
            if math.isfinite(np.vdot(chosen, chosen)):
                continue
            for row in self._rows(active):
                collector = self._collectors[row]
                try:
                    collector.check_finite(collector.next_step, **{name: values[self._places(row)]})
                except RLTrainingError as error:
                    self._fail(row, error, active)

    def _note_errors(self, active: BoolArray) -> None:
        """Note the errors of active members whose environments or processes failed."""
        for row in self._rows(active):
            try:
                self._parts[row].step_wait()
            except EnvError as error:
                collector = self._collectors[row]
                self._fail(row, collector.failure(error, collector.next_step), active)

    def _store(self, active: BoolArray) -> None:
        """Store the transitions, and keep what the members need to finish their steps."""
        envs = self.envs
        next_obs = envs.observations.astype(np.float32)
        own_rewards, rewards = envs.rewards.copy(), envs.rewards.astype(np.float32)
        terminations, truncations = envs.terminations.copy(), envs.truncations.copy()
        ended = (terminations | truncations) & active
        true_next = next_obs
        if ended.any():  # next_obs is from the next episode there
            true_next = next_obs.copy()
            true_next[ended] = envs.final_observations[ended]
            self._check(active, observation=next_obs)
        self._check(active, observation=true_next, reward=rewards)
        rows = self._rows(active)
        for row in rows:
            places = self._places(row)
            self._collectors[row].observe(rewards[places], ended[places])
        arrays = self._obs, self._actions, rewards, true_next, terminations, truncations
        if self._replays is not None:
            self._replays.add(rows, *arrays)
        for row in rows:
            places, infos = self._places(row), {}
            if self._replays is None:
                own: Any = [array[places] for array in arrays]
                self._collectors[row].buffer.add(*own)
            if ended[places].any():
                infos = self._parts[row].step_wait()[-1]
            self._steps[row] = SharedStep(
                own_rewards[places], terminations[places], truncations[places], infos
            )
        self._obs[active] = next_obs[active]


def check_shareable(collectors: Sequence[Collector]) -> None:
    """Raise `NotShareable` if members cannot collect together."""
    for each in collectors:
        spec = each.spec
        if not isinstance(each.envs, LocalEnvs):
            raise NotShareable("their environments already have processes")
        if spec.action_masks or spec.goal_dim or spec.obs_dtype != np.float32 or each.has_images:
            raise NotShareable("they have action masks, goals or images")
        if each.num_envs != collectors[0].num_envs:
            raise NotShareable("they have different numbers of environments")


def move_environments(collectors: Sequence[Collector], pool: WorkerPool) -> PooledEnvs:
    """Return the running environments of all collectors, in the processes of ``pool``."""
    makers: list[Callable[[], AnyEnv]] = []
    names: list[str] = []
    states: list[list[Any]] = []
    for collector in collectors:
        local = collector.envs
        assert isinstance(local, LocalEnvs)
        captured = list(local.call("capture"))
        failed = [state["error"] for state in captured if "error" in state]
        if failed:
            raise NotShareable(f"an environment cannot be moved ({failed[0]})")
        makers += local.env_fns
        names += [getattr(env, "name", "the environment") for env in local.envs]
        states.append(captured)
    envs = pool.envs(makers, names)
    envs.reset(seed=0)
    for index, (collector, captured) in enumerate(zip(collectors, states, strict=True)):
        first = index * collector.num_envs
        try:
            envs.part(first, first + collector.num_envs).call("restore", captured)
        except CaptureError as error:
            raise NotShareable(f"an environment cannot be moved ({error})") from error
    return envs

"""Hindsight replay (arXiv 1707.01495): stored episodes, sampled with goals that were achieved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rl_training.data.replay_buffer import ReplayBuffer, ReplayPlan
from rl_training.data.rows import RowLayout
from rl_training.errors import ConfigError
from rl_training.precision import widest_float
from rl_training.types import Batch, BoolArray, EnvSpec, FloatArray

if TYPE_CHECKING:
    from typing_extensions import Self

Strategy = Literal["future", "final", "episode"]
Indices = npt.NDArray[np.int64]
RUNNING = -1
"""Stored instead of the index of the last row while the episode has not ended."""


class GoalTask(Protocol):
    """Rewards and terminations for goals ``[B, goal_dim]`` other than the environment's own."""

    def rewards(self, achieved: FloatArray, desired: FloatArray) -> FloatArray:
        """Return the rewards that the learner would have received."""
        ...

    def terminations(self, achieved: FloatArray, desired: FloatArray) -> BoolArray | None:
        """Return whether the task would have ended; None if that does not depend on the goal."""
        ...


class HindsightReplay(ReplayBuffer):
    """A ring of transitions in host memory that keeps track of episodes.

    Stored observations are ``[observation, desired_goal, achieved_goal]``; batches contain the
    first two parts, ``obs_dim`` values. The flags in the rows mark where episodes end.
    """

    on_host: ClassVar[bool] = True

    def __init__(
        self,
        capacity: int,
        obs_dim: int,
        action_dim: int,
        *,
        goal_dim: int,
        num_envs: int,
        task: GoalTask,
        strategy: Strategy = "future",
        ratio: float = 0.8,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(capacity, obs_dim + goal_dim, action_dim, num_envs=num_envs)
        self.strategy = strategy
        self.ratio = ratio
        self._task = task
        self._device = torch.device(device)
        self._rows = self.rows.numpy()  # the same memory
        places = self.layout.slices
        obs, next_obs = places["observations"].start, places["next_observations"].start
        self._goals = [slice(at + obs_dim - goal_dim, at + obs_dim) for at in (obs, next_obs)]
        self._achieved = slice(next_obs + obs_dim, next_obs + obs_dim + goal_dim)
        self._batch_layout = RowLayout(obs_dim, action_dim)
        # One buffer per batch size, since a recorded graph reads the same memory every time.
        self._staged_rows: dict[int, Tensor] = {}
        self._staged_batches: dict[int, Batch] = {}
        self._declared: tuple[str, ...] = ()
        self._gamma = 1.0
        dropped = [*range(obs + obs_dim, obs + obs_dim + goal_dim)]
        dropped += range(self._achieved.start, self._achieved.stop)
        self._columns = np.setdiff1d(np.arange(self.layout.width), dropped)
        self._first: Indices = np.zeros(capacity, dtype=np.int64)
        self._last: Indices = np.full(capacity, RUNNING, dtype=np.int64)
        self._episode_starts: Indices = np.arange(num_envs)
        self._is_indexed = True

    @classmethod
    def build(cls, plan: ReplayPlan, **options: Any) -> Self:
        """Build the replay of a run on a goal environment."""
        assert plan.read_goal_task is not None
        task = plan.read_goal_task()
        return super().build(plan, goal_dim=plan.spec.goal_dim, task=task, **options)

    @classmethod
    def num_bytes(cls, capacity: int, spec: EnvSpec) -> int:
        """Return the memory of rows with achieved goals, and of the episode index."""
        row = RowLayout(spec.obs_dim + spec.goal_dim, spec.action_width)
        return capacity * (row.width * 4 + 16)

    @property
    def oldest(self) -> int:
        """Index of the oldest stored row, counted from the first row of the run."""
        return self.total - len(self)

    def _after_add(self, terminations: BoolArray, truncations: BoolArray) -> None:
        """Index the newest rows, one per environment in order, and the episodes that they end."""
        if len(terminations) != self.num_envs:
            raise ValueError(
                f"add() got {len(terminations)} transitions, but needs one for each of the "
                f"{self.num_envs} environments."
            )
        if not self._is_indexed:
            return  # `_index_episodes` will find all episodes
        fresh = np.arange(self.total - self.num_envs, self.total)
        self._last[fresh % self.capacity] = RUNNING
        for env in np.flatnonzero(terminations | truncations):
            self._finish(int(env), int(fresh[env]))

    def _finish(self, env: int, last: int) -> None:
        """Index an episode that ended with row ``last``, so that its rows may be relabeled."""
        rows = np.arange(self._episode_starts[env], last + 1, self.num_envs)
        rows = rows[rows >= self.oldest]  # a long episode may have overwritten its first rows
        self._first[rows % self.capacity] = rows[0]
        self._last[rows % self.capacity] = last
        self._episode_starts[env] = last + self.num_envs

    def _index_episodes(self) -> None:
        """Find the episodes from the flags in the rows, once after the rows were restored."""
        if self._is_indexed:
            return
        self._is_indexed = True
        self._last[:] = RUNNING
        for env in range(self.num_envs):
            start = self.oldest + (env - self.oldest) % self.num_envs
            rows = np.arange(start, self.total, self.num_envs)
            self._episode_starts[env] = start
            for last in rows[self._rows[rows % self.capacity, -2:].any(axis=1)]:
                self._finish(env, int(last))

    def cut_episodes(self, num_envs: int) -> None:
        """Mark the running episodes as cut off; the next rows start new episodes."""
        super().cut_episodes(num_envs)
        self._is_indexed = False

    # --- Sampling -----------------------------------------------------------------

    @classmethod
    def check_fields(cls, fields: Sequence[str], n_step: int = 1) -> None:
        """Reject fields and settings that are invalid after a goal is replaced."""
        super().check_fields(fields, n_step)
        if n_step > 1:
            raise ConfigError(
                f"n_step = {n_step} cannot be used with HER, which relabels single transitions: "
                "remove it."
            )

    def supply(self, fields: Sequence[str], *, gamma: float = 1.0, n_step: int = 1) -> None:
        """Add ``fields``, computed after relabeling, to every batch."""
        self.check_fields(fields, n_step)
        self._declared, self._gamma = tuple(fields), gamma
        self._staged_batches = {}

    def prepare(self, batch_size: int, generator: torch.Generator, updates: int = 1) -> None:
        """Draw, relabel and stage the rows of the next `gather`; environments run on the host.

        Rows are drawn uniformly. Of those in finished episodes, a share of ``ratio`` is relabeled.
        Three uniform numbers determine the row, whether it is relabeled, and its new goal.
        """
        super().prepare(batch_size, generator, updates)
        self._index_episodes()
        shape = (updates, 3, batch_size)
        device = generator.device
        drawn = torch.rand(shape, dtype=widest_float(device), generator=generator, device=device)
        which, whether, goal = drawn.transpose(0, 1).flatten(1).cpu().double().numpy()
        rows = self.oldest + (which * len(self)).astype(np.int64)
        packed = self._rows[rows % self.capacity]
        ended = packed[:, -2:].any(axis=1)
        finished = self._last[rows % self.capacity] != RUNNING
        chosen = np.flatnonzero((whether < self.ratio) & finished)
        if len(chosen):
            goals = self._rows[self._goal_rows(rows[chosen], goal[chosen]) % self.capacity]
            packed[chosen] = self._relabel(packed[chosen], goals[:, self._achieved])
        fresh = self._extra(rows, packed, ended | (packed[:, -2] > 0)) if self._declared else {}
        if len(rows) not in self._staged_batches:
            place = torch.empty(len(rows), self._batch_layout.width, device=self._device)
            extra = {name: value.to(self._device) for name, value in fresh.items()}
            self._staged_rows[len(rows)] = place
            self._staged_batches[len(rows)] = self._batch_layout.batch(place)._replace(extra=extra)
        self._staged_rows[len(rows)].copy_(torch.from_numpy(packed[:, self._columns]))
        for name, value in fresh.items():
            self._staged_batches[len(rows)].extra[name].copy_(value)

    def gather(self, batch_size: int, generator: torch.Generator, updates: int = 1) -> Batch:
        """Return the rows that `prepare` staged."""
        return self._staged_batches[batch_size * updates]

    def _extra(self, rows: Indices, packed: FloatArray, ended: BoolArray) -> dict[str, Tensor]:
        """Return the declared fields of ``rows``.

        ``ended`` is true if the episode ends for the original goal or for the new one.
        """
        known = ~ended & (rows + self.num_envs < self.total)
        following = self._rows[(rows + self.num_envs) % self.capacity]
        actions = following[:, self.layout.slices["actions"]]
        fields: dict[str, FloatArray | Indices] = {
            "next_actions": np.where(known[:, None], actions, np.float32(0.0)),
            "next_action_mask": known.astype(np.float32),
            "truncations": packed[:, -1].copy(),
            "discounts": np.full(len(rows), self._gamma, dtype=np.float32),
            "indices": rows % self.capacity,
            "weights": np.ones(len(rows), dtype=np.float32),
        }
        return {name: torch.from_numpy(fields[name]) for name in self._declared}

    def _goal_rows(self, rows: Indices, uniform: FloatArray) -> Indices:
        """Choose, for each row, the row whose next achieved goal replaces its goal (section 4.5).

        ``future`` chooses a row from the row itself to the last of its episode, ``final`` the last
        row, and ``episode`` any row of the episode that is still stored.
        """
        last = self._last[rows % self.capacity]
        if self.strategy == "final":
            return last
        start = rows
        if self.strategy == "episode":
            first = self._first[rows % self.capacity]
            start = np.maximum(first, self.oldest + (first - self.oldest) % self.num_envs)
        steps = (last - start) // self.num_envs + 1
        return start + self.num_envs * (uniform * steps).astype(np.int64)

    def _relabel(self, rows: FloatArray, goals: FloatArray) -> FloatArray:
        """Replace the goals; reward and termination follow from the *next* achieved goal."""
        for place in self._goals:  # in the observation and in the next one
            rows[:, place] = goals
        achieved = rows[:, self._achieved]
        rows[:, self.layout.slices["rewards"].start] = self._task.rewards(achieved, goals)
        terminations = self._task.terminations(achieved, goals)
        if terminations is not None:
            rows[:, self.layout.slices["terminations"].start] = terminations
        return rows

    # --- Saving -------------------------------------------------------------------

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the counters; `load_segment` restores the rows."""
        super().load_state_dict(state)
        self._is_indexed = False

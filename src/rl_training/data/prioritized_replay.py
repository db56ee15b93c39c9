"""Prioritized experience replay, proportional (arXiv 1511.05952).

A transition is drawn with probability P(i) = p_i / Σ p, where p_i = (|δ_i| + ε)^α and δ_i is the TD
error that the latest update of the transition reported. Each transition's loss is multiplied by
w_i = (N P(i))^−β / max_j w_j, which corrects for the nonuniform draw; β grows to 1 by the end of
the run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from rl_training.boundary.values import StateError, matching_array, real_number
from rl_training.data.frames import FrameRing
from rl_training.data.replay_buffer import ReplayBuffer, ReplayPlan
from rl_training.errors import ConfigError
from rl_training.precision import widest_float
from rl_training.types import TD_ERROR, Batch, BoolArray, EnvSpec, Metrics

if TYPE_CHECKING:
    from typing_extensions import Self


class PriorityTable:
    """Priorities of the rows of a ring, 0 for empty rows, and draws in proportion to them.

    Only the priorities are stored. Each draw sums groups of them, and groups of groups, which takes
    about 50 µs for a million priorities. Stored sums would have to be saved, and would
    drift due to rounding. All shapes are static, and no operation waits for the host.
    """

    def __init__(self, size: int, *, device: torch.device | str = "cpu") -> None:
        # Three levels with groups of similar sizes: 128 entries for up to two million rows.
        self.group = 2 ** max(3, math.ceil(math.log2(size) / 3))
        groups = -(-size // self.group**2)
        # The last group may extend past the last row; the priorities there stay 0.
        self._leaves = torch.zeros(groups * self.group, self.group, device=device)
        self.values = self._leaves.view(-1)[:size]
        """The priorities, ``[size]``."""
        self.largest = torch.ones((), device=device)
        """The largest priority so far, which new rows get, so that they are drawn soon."""

    def add_rows(self, start: int, stop: int) -> None:
        """Give new rows the largest priority so far."""
        self.values[start:stop] = self.largest

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw rows independently, in proportion to their priorities: ``[count]``."""
        sums = self._leaves.sum(-1).view(-1, self.group)
        device = self._leaves.device
        dtype = widest_float(device)
        # One number for each level, so that no digits are lost on the way down.
        uniform = torch.rand(3, count, dtype=dtype, device=device, generator=generator)
        ends = sums.sum(-1).cumsum(0, dtype=dtype)
        # A number below 1 gives a point below the last end, so a priority of 0 is never drawn.
        row = torch.searchsorted(ends, uniform[0] * ends[-1], right=True)
        for level, numbers in ((sums, uniform[1]), (self._leaves, uniform[2])):
            ends = level.index_select(0, row).cumsum(-1, dtype=dtype)  # [count, group]
            points = (numbers * ends[:, -1]).unsqueeze(-1)
            found = torch.searchsorted(ends, points, right=True).squeeze(-1)
            row = found.add(row, alpha=self.group)
        return row

    def update(self, rows: Tensor, priorities: Tensor) -> None:
        """Set the priorities of ``rows``; if a row occurs twice, the larger one counts."""
        self.values.index_fill_(0, rows, 0.0)
        self.values.scatter_reduce_(0, rows, priorities, "amax")
        torch.maximum(self.largest, priorities.amax(), out=self.largest)


class PrioritizedReplay(ReplayBuffer):
    """A replay buffer that draws transitions by the size of their latest TD error.

    Batches have the fields ``indices`` and ``weights``. Priorities change after each update, so
    batches are drawn for one update at a time.
    """

    needed_fields = ("indices", "weights")

    def __init__(
        self,
        *sizes: int,
        priority_exponent: float = 0.6,
        importance_exponent: float = 0.4,
        priority_epsilon: float = 1e-6,
        horizon: int = 1,
        **options: Any,
    ) -> None:
        """Create an empty replay buffer; β reaches 1 after ``horizon`` transitions.

        ``sizes`` and ``options`` are the arguments of `ReplayBuffer`.
        """
        super().__init__(*sizes, **options)
        device = self.rows.device
        self.priorities = PriorityTable(self.capacity, device=device)
        self._alpha, self._epsilon = priority_exponent, priority_epsilon
        self._first_beta, self._horizon = importance_exponent, horizon
        self._first_kept = 0
        """Number of the oldest row that has not lost its images."""
        self._beta = torch.zeros((), device=device)  # a graph would record a number as a constant
        self.supply(())

    @classmethod
    def build(cls, plan: ReplayPlan, **options: Any) -> Self:
        """Build the replay of a run; β grows over the run's budget."""
        return super().build(plan, horizon=plan.horizon, **options)

    @classmethod
    def num_bytes(cls, capacity: int, spec: EnvSpec) -> int:
        """Return the memory of rows and priorities."""
        return super().num_bytes(capacity, spec) + 4 * capacity

    def _limit_draws(self, frames: FrameRing) -> None:
        """Never draw rows that have lost their images."""
        super()._limit_draws(frames)
        first = max(self._first_kept, self.total - len(self))
        self._first_kept = self.total - frames.usable
        for row in range(first, self._first_kept):
            self.priorities.values[row % self.capacity] = 0.0

    def supply(self, fields: Sequence[str], *, gamma: float = 1.0, n_step: int = 1) -> None:
        """Add ``fields``, and the needed ``indices`` and ``weights``, to every batch."""
        fields = tuple(dict.fromkeys((*fields, *self.needed_fields)))
        super().supply(fields, gamma=gamma, n_step=n_step)

    def _after_add(self, terminations: BoolArray, truncations: BoolArray) -> None:
        """Give the newest rows, one per environment, the largest priority so far."""
        count = len(terminations)
        start = (self.total - count) % self.capacity
        self.priorities.add_rows(start, min(start + count, self.capacity))
        if start + count > self.capacity:  # past the end of the ring
            self.priorities.add_rows(0, start + count - self.capacity)

    @property
    def beta(self) -> float:
        """Current exponent of the importance weights."""
        progress = min(1.0, self.total / self._horizon)
        return self._first_beta + (1.0 - self._first_beta) * progress

    def most_updates(self, batch_size: int) -> int:
        """Return 1, since the next batch depends on the errors of this one."""
        return 1

    def prepare(self, batch_size: int, generator: torch.Generator, updates: int = 1) -> None:
        """Raise an error if the buffer is empty; set β."""
        super().prepare(batch_size, generator, updates)
        self._beta.fill_(self.beta)

    def gather(self, batch_size: int, generator: torch.Generator, updates: int = 1) -> Batch:
        """Draw transitions by their priorities, with replacement.

        Their weights (N P(i))^−β are divided by the largest in the batch, so N and Σ p cancel out.
        """
        rows = self.priorities.draw(batch_size * updates, generator)
        drawn = self.priorities.values.index_select(0, rows).view(updates, batch_size)
        weights = (drawn.amin(-1, keepdim=True) / drawn).pow(self._beta).flatten()
        batch = self.batch(rows)
        return batch._replace(extra={**batch.extra, "weights": weights})

    def feedback(self, batch: Batch, values: Metrics) -> None:
        """Set the priorities of a batch by its TD errors: p = (|δ| + ε)^α."""
        if TD_ERROR not in values:
            raise ConfigError(
                f"replay = prioritized needs the TD error of each transition, but the algorithm's "
                f"update does not return {TD_ERROR!r}. Add it to the metrics, or set "
                "replay=uniform."
            )
        errors = values[TD_ERROR].detach().to(self.priorities.values.dtype)
        if errors.shape != batch.rewards.shape:
            raise ConfigError(
                f"{TD_ERROR!r} has the shape {list(errors.shape)}, but should have one value per "
                f"row, {list(batch.rewards.shape)}."
            )
        self.priorities.update(batch.indices, (errors.abs() + self._epsilon).pow(self._alpha))

    # --- Saving -------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the counters, the priorities of the filled rows and the largest one so far."""
        table = self.priorities
        return super().state_dict() | {
            "priorities": table.values[: len(self)].cpu().numpy(),
            "largest_priority": table.largest.item(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the counters and the priorities; `load_segment` restores the rows."""
        super().load_state_dict(state)
        table = self.priorities
        wanted = np.empty(len(self), dtype=np.float32)
        values = matching_array(state["priorities"], wanted, "priorities")
        largest = real_number(state["largest_priority"], "largest_priority")
        if not (values[self.drawn_rows.numpy()] > 0).all():
            raise StateError(f"priorities contains {values.min()}, but all should be above 0")
        least, most = float(values.max(initial=1.0)), float(np.finfo(np.float32).max)
        if not least <= largest <= most:
            raise StateError(f"largest_priority is {largest}, but should be from {least} to {most}")
        table.values.zero_()
        table.values[: len(self)] = torch.from_numpy(values)
        table.largest.fill_(largest)

"""Replay buffer for online experience: packed rows on the learner's device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from rl_training.boundary.values import StateError, describe_array, whole_number
from rl_training.data.fields import RowFields
from rl_training.data.rows import RowLayout
from rl_training.errors import CheckpointError
from rl_training.precision import widest_float
from rl_training.types import (
    FIELD_NAMES,
    Batch,
    BoolArray,
    EnvSpec,
    FloatArray,
    Sampler,
    refuse_fields,
)

if TYPE_CHECKING:
    from typing_extensions import Self

    from rl_training.data.hindsight import GoalTask

SEGMENT_ROWS = 4096
"""Rows that a checkpoint saves as one immutable file."""

STAGED_ROWS = 1024
"""Rows of page-locked memory through which transitions reach a GPU without waiting for it."""


@dataclass(frozen=True)
class ReplayPlan:
    """Properties of a run that its replay buffer needs."""

    capacity: int
    spec: EnvSpec
    num_envs: int = 1
    horizon: int = 1
    """Environment steps of the run, over which sampling may change."""
    device: torch.device | str = "cpu"
    read_goal_task: Callable[[], GoalTask] | None = None
    """Creates the object that computes rewards for other goals."""


class ReplayBuffer(Sampler):
    """A ring of transitions, each one packed row: obs | action | reward | next_obs | ended | cut.

    A batch is one gather. The rows are divided into fixed segments. `dirty` contains the segments
    written since it was last cleared, so that a checkpoint writes only what is new.

    Rows are numbered from the start of the run. Row ``i`` is stored at ``i % capacity`` and
    belongs to environment ``i % num_envs``; the next row of its episode is ``i + num_envs``.
    """

    fields: ClassVar[tuple[str, ...]] = tuple(n for n in FIELD_NAMES if n != "returns_to_go")
    """Fields it can supply: all except returns to go, since running episodes have none yet."""
    needed_fields: ClassVar[tuple[str, ...]] = ()
    """Fields of all its batches, which a dataset mixed with it must supply as well."""
    on_host: ClassVar[bool] = False
    """Whether its rows stay in host memory, regardless of the learner's device."""

    def __init__(
        self,
        capacity: int,
        obs_dim: int,
        action_dim: int,
        num_envs: int = 1,
        *,
        device: torch.device | str = "cpu",
    ) -> None:
        self.capacity = capacity
        self.num_envs = num_envs
        self.obs_dim = obs_dim
        self.action_dim = action_dim
        self.layout = RowLayout(obs_dim, action_dim)
        self.rows = torch.empty(capacity, self.layout.width, device=device)
        # On the host, rows are written with NumPy, which is much faster than tensor assignment.
        self._host = self.rows.numpy() if self.rows.device.type == "cpu" else None
        self.total = 0
        """Number of transitions ever added; it determines the position in the ring."""
        self.filled = torch.zeros((), dtype=widest_float(self.rows.device), device=device)
        """`len` of the ring as a tensor on its device: a graph would freeze an integer."""
        self._fields: RowFields | None = None
        self._position = torch.zeros((), dtype=torch.long, device=device)
        """`total % capacity`; only updated if fields are declared."""
        self.dirty: set[int] = set()
        self._staged: Tensor | None = None
        if self.rows.is_cuda:
            self._staged = torch.empty(STAGED_ROWS, self.layout.width, pin_memory=True)
        self._next_staged = 0

    @classmethod
    def build(cls, plan: ReplayPlan, **options: Any) -> Self:
        """Build the replay of a run; ``options`` come from the config (`replay_options`)."""
        return cls(
            plan.capacity,
            plan.spec.obs_dim,
            plan.spec.action_width,
            num_envs=plan.num_envs,
            device=plan.device,
            **options,
        )

    @classmethod
    def num_bytes(cls, capacity: int, spec: EnvSpec) -> int:
        """Return the minimum memory it needs, in bytes."""
        return capacity * RowLayout(spec.obs_dim, spec.action_width).width * 4

    def __len__(self) -> int:
        return min(self.total, self.capacity)

    def add(
        self,
        obs: FloatArray,
        actions: FloatArray,
        rewards: FloatArray,
        next_obs: FloatArray,
        terminations: BoolArray,
        truncations: BoolArray,
    ) -> None:
        """Add one transition per environment; the first axis of every array is the environment."""
        count = len(obs)
        if count % self.num_envs:
            raise ValueError(
                f"add() got {count} transitions, but the number should be a multiple of num_envs = "
                f"{self.num_envs}."
            )
        if count > self.capacity:
            raise ValueError(
                f"add() got {count} transitions, but the capacity is {self.capacity} rows."
            )
        position = self.total % self.capacity
        head = min(count, self.capacity - position)
        if self._host is not None and head == count:
            fresh, packed = None, self._host[position : position + count]
        else:
            fresh = self._fresh_rows(count)
            packed = fresh.numpy()
        o, a = self.obs_dim, self.action_dim
        packed[:, :o] = obs
        packed[:, o : o + a] = actions
        packed[:, o + a] = rewards
        packed[:, o + a + 1 : 2 * o + a + 1] = next_obs
        packed[:, -2] = terminations
        packed[:, -1] = truncations
        if fresh is not None:
            overlaps = self.rows.is_cuda
            self.rows[position : position + head].copy_(fresh[:head], non_blocking=overlaps)
            # Rows past the end of the ring go to its start.
            self.rows[: count - head].copy_(fresh[head:], non_blocking=overlaps)
        self._mark(position, head)
        self._mark(0, count - head)
        if self.total < self.capacity:
            self.filled.fill_(min(self.total + count, self.capacity))
        self.total += count
        if self._fields is not None:
            self._position.fill_(self.total % self.capacity)
        self._after_add(terminations, truncations)

    def _after_add(self, terminations: BoolArray, truncations: BoolArray) -> None:
        """Do nothing; called by `add`, for subclasses that index the newest rows."""

    def cut_episodes(self, num_envs: int) -> None:
        """Mark the newest row of each environment as cut off; the next rows start new episodes."""
        for row in range(self.total - min(num_envs, len(self)), self.total):
            place = row % self.capacity
            self.rows[place, -1] = 1.0 - self.rows[place, -2]
            self._mark(place, 1)

    def _fresh_rows(self, count: int) -> Tensor:
        """Return rows to fill; for a GPU, page-locked rows that are reused after it read them."""
        if self._staged is None or count > STAGED_ROWS:
            return torch.empty(count, self.layout.width)
        if self._next_staged + count > STAGED_ROWS:
            torch.cuda.current_stream(self.rows.device).synchronize()
            self._next_staged = 0
        first = self._next_staged
        self._next_staged += count
        return self._staged[first : first + count]

    def _mark(self, start: int, count: int) -> None:
        if count:
            self.dirty.update(range(start // SEGMENT_ROWS, (start + count - 1) // SEGMENT_ROWS + 1))

    @classmethod
    def check_fields(cls, fields: Sequence[str], n_step: int = 1) -> None:
        """Reject fields that the replay cannot supply while experience is collected."""
        refuse_fields(fields, cls.fields, "experience from an environment")

    def supply(self, fields: Sequence[str], *, gamma: float = 1.0, n_step: int = 1) -> None:
        """Add ``fields`` to every batch, and sum rewards over ``n_step`` steps."""
        self.check_fields(fields, n_step)
        self._fields = None
        if fields or n_step > 1:
            self._position.fill_(self.total % self.capacity)
            self._fields = RowFields(
                self.layout,
                fields,
                position=self._position,
                stride=self.num_envs,
                gamma=gamma,
                n_step=n_step,
            )

    def prepare(self, batch_size: int, generator: torch.Generator, updates: int = 1) -> None:
        """Raise an error if the buffer is empty."""
        if self.total == 0:
            raise ValueError("The replay buffer is empty: collect transitions before sampling.")

    def gather(self, batch_size: int, generator: torch.Generator, updates: int = 1) -> Batch:
        """Draw stored rows uniformly with replacement."""
        # float64, because float32 cannot index every row of a large buffer evenly.
        device = self.rows.device
        uniform = torch.rand(
            batch_size * updates, dtype=widest_float(device), device=device, generator=generator
        )
        return self.batch((uniform * self.filled).long())

    def batch(self, places: Tensor) -> Batch:
        """Return the transitions at ``places``: one gather if no fields are declared."""
        if self._fields is not None:
            return self._fields.batch(self.rows, places)
        return self.layout.batch(self.rows.index_select(0, places))

    # --- Saving -------------------------------------------------------------------

    def num_segments(self) -> int:
        """Return the number of segments that contain rows."""
        return -(-len(self) // SEGMENT_ROWS)

    def segment(self, index: int) -> FloatArray:
        """Return the filled rows of one segment, a view if the device is the CPU."""
        start = index * SEGMENT_ROWS
        return self.rows[start : min(start + SEGMENT_ROWS, len(self))].cpu().numpy()

    def load_segment(self, index: int, rows: FloatArray) -> None:
        """Restore a segment; its size must agree with the counters."""
        start = index * SEGMENT_ROWS
        stop = min(start + SEGMENT_ROWS, len(self))
        found, wanted = describe_array(rows), f"float32[{stop - start}, {self.layout.width}]"
        if found != wanted:
            raise CheckpointError(
                f"replay segment {index} contains {found}, but should contain {wanted}"
            )
        flags = rows[:, self.layout.slices["terminations"].start :]
        if not ((flags == 0.0) | (flags == 1.0)).all():
            raise CheckpointError(f"replay segment {index} contains flags other than 0 and 1")
        self.rows[start:stop] = torch.from_numpy(rows)

    def state_dict(self) -> dict[str, Any]:
        """Return the counters as plain data."""
        return {"total": self.total, "capacity": self.capacity}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the counters; `load_segment` restores the rows."""
        if whole_number(state["capacity"], "capacity", least=1) != self.capacity:
            raise CheckpointError(
                f"the saved replay has {state['capacity']} rows, but buffer_capacity is "
                f"{self.capacity}"
            )
        self.total = whole_number(state["total"], "total")
        if self.total % self.num_envs:
            raise StateError(f"total is {self.total}, but {self.num_envs} rows are added at a time")
        self.filled.fill_(len(self))
        self._position.fill_(self.total % self.capacity)
        self.dirty.clear()

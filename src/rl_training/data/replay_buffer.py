"""Replay buffer for online experience: packed rows on the learner's device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from rl_training.boundary.values import StateError, describe_array, whole_number
from rl_training.data.fields import RowFields
from rl_training.data.frames import FrameLayout, FrameRing, num_places
from rl_training.data.rows import PackedRows, RowLayout, mask_columns
from rl_training.data.staging import Staging
from rl_training.errors import CheckpointError
from rl_training.precision import widest_float
from rl_training.types import (
    FIELD_NAMES,
    MASK_FIELDS,
    Batch,
    BoolArray,
    EnvSpec,
    FloatArray,
    ObsArray,
    Sampler,
    refuse_fields,
)

if TYPE_CHECKING:
    from typing_extensions import Self

    from rl_training.data.hindsight import GoalTask

SEGMENT_ROWS = 4096
"""Rows that a checkpoint saves as one immutable file."""


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


class Segmented(Protocol):
    """Storage that checkpoints save in immutable segments, and write again only if they change."""

    dirty: set[int]
    """Segments written since it was last cleared."""

    def num_segments(self) -> int:
        """Return the number of segments with contents."""
        ...

    def segment(self, index: int) -> np.ndarray[Any, Any]:
        """Return the contents of one segment."""
        ...

    def load_segment(self, index: int, contents: Any, /) -> None:
        """Restore a segment, whose type and size must agree with the counters."""
        ...


class ReplayBuffer(Sampler):
    """A ring of transitions, each one packed row: obs | action | reward | next_obs | ended | cut.

    With ``mask_width`` > 0, the legal actions of both observations follow, one value per action.
    Images are stored separately, once (`data/frames.py`). A batch is one gather. The rows are
    divided into fixed segments. `dirty` contains the segments written since it was last cleared,
    so that a checkpoint writes only what is new.

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
        mask_width: int = 0,
        images: FrameLayout | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        """Create an empty buffer; ``images`` describes observations that contain images."""
        self.capacity = capacity
        self.num_envs = num_envs
        self.frames: FrameRing | None = None
        if images is not None:
            self.frames = FrameRing(images, capacity, num_envs, device=device)
        self.obs_dim = obs_dim if images is None else images.stored_dim
        self.action_dim = action_dim
        self.layout = RowLayout(self.obs_dim, action_dim, mask_columns(mask_width))
        self.rows = torch.empty(capacity, self.layout.width, device=device)
        # On the host, rows are written with NumPy, which is much faster than tensor assignment.
        self._host = self.rows.numpy() if self.rows.device.type == "cpu" else None
        self.total = 0
        """Number of transitions ever added; it determines the position in the ring."""
        self.filled = torch.zeros((), dtype=widest_float(self.rows.device), device=device)
        """Number of rows to draw, as a tensor on its device: a graph would freeze an integer."""
        self._fields: RowFields | None = None
        self._position = torch.zeros((), dtype=torch.long, device=device)
        """`total % capacity`; only updated if fields are declared."""
        self._first_drawn = torch.zeros((), dtype=torch.long, device=device)
        """Position of the oldest row to draw, if earlier ones have lost their images; else 0."""
        self._oldest_drawn = 0
        """The value of `_first_drawn`, which is only written when it changes: it costs a kernel."""
        self.dirty: set[int] = set()
        self._staging = Staging(self.rows)

    @classmethod
    def build(cls, plan: ReplayPlan, **options: Any) -> Self:
        """Build the replay of a run; ``options`` come from the config (`replay_options`)."""
        # A subclass need not support these.
        if plan.spec.mask_width:
            options["mask_width"] = plan.spec.mask_width
        images = FrameLayout.of(plan.spec.entries)
        if images is not None:
            options["images"] = images
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
        images = FrameLayout.of(spec.entries)
        pixels = num_places(images, capacity) * images.frame_size if images else 0
        return capacity * RowLayout.of(spec).width * 4 + pixels

    def __len__(self) -> int:
        return min(self.total, self.capacity)

    def add(
        self,
        obs: ObsArray,
        actions: FloatArray,
        rewards: FloatArray,
        next_obs: ObsArray,
        terminations: BoolArray,
        truncations: BoolArray,
        legal_actions: BoolArray | None = None,
        next_legal_actions: BoolArray | None = None,
    ) -> None:
        """Add one transition per environment; the first axis of every array is the environment.

        The last two are the action masks, which a buffer with ``mask_width`` > 0 needs.
        """
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
        if self.frames is not None:
            obs, next_obs = self._store_images(self.frames, obs, next_obs)
        position = self.total % self.capacity
        head = min(count, self.capacity - position)
        if self._host is not None and head == count:
            fresh, packed = None, self._host[position : position + count]
        else:
            fresh = self._staging.take(count)
            packed = fresh.numpy()
        o, a = self.obs_dim, self.action_dim
        packed[:, :o] = obs
        packed[:, o : o + a] = actions
        packed[:, o + a] = rewards
        packed[:, o + a + 1 : 2 * o + a + 1] = next_obs
        packed[:, 2 * o + a + 1] = terminations
        packed[:, 2 * o + a + 2] = truncations
        if legal_actions is not None:
            packed[:, self.layout.slices["legal_actions"]] = legal_actions
            packed[:, self.layout.slices["next_legal_actions"]] = next_legal_actions
        if fresh is not None:
            self._staging.put(position, fresh)
        if self.frames is None and self.total < self.capacity:
            self.filled.fill_(min(self.total + count, self.capacity))
        self.count_added(count)
        if self._fields is not None:
            self._position.fill_(self.total % self.capacity)
        self._after_add(terminations, truncations)
        if self.frames is not None:
            self._limit_draws(self.frames)

    def count_added(self, count: int) -> None:
        """Count new rows, which `add` has written, or the replays of a population as one."""
        position = self.total % self.capacity
        head = min(count, self.capacity - position)
        self._mark(position, head)
        self._mark(0, count - head)
        self.total += count

    def _after_add(self, terminations: BoolArray, truncations: BoolArray) -> None:
        """Do nothing; called by `add`, for subclasses that index the newest rows."""

    @property
    def drawn_rows(self) -> Tensor:
        """Positions of the rows to draw, the oldest first: all, unless some have lost images."""
        count = len(self) if self.frames is None else self.frames.usable
        return torch.arange(self.total - count, self.total) % self.capacity

    def _limit_draws(self, frames: FrameRing) -> None:
        """Draw only rows whose images are stored."""
        self.filled.fill_(frames.usable)
        lost = len(self) - frames.usable
        first = (self.total - frames.usable) % self.capacity if lost else 0
        if first != self._oldest_drawn:
            self._oldest_drawn = first
            self._first_drawn.fill_(first)

    def _store_images(
        self, frames: FrameRing, obs: ObsArray, next_obs: ObsArray
    ) -> tuple[FloatArray, FloatArray]:
        """Store the images of new transitions; return observations that refer to them."""
        if not frames.is_indexed:
            batch = self.layout.batch(self.rows[self.drawn_rows.to(self.rows.device)])
            frames.index(batch.obs.cpu().numpy(), batch.next_obs.cpu().numpy(), self.total)
        return frames.add(obs, next_obs, self.total)

    def cut_episodes(self, num_envs: int) -> None:
        """Mark the newest row of each environment as cut off; the next rows start new episodes."""
        ended, cut = (self.layout.slices[name].start for name in ("terminations", "truncations"))
        for row in range(self.total - min(num_envs, len(self)), self.total):
            place = row % self.capacity
            self.rows[place, cut] = 1.0 - self.rows[place, ended]
            self._mark(place, 1)

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
        without = () if self.layout.columns else MASK_FIELDS
        known = [name for name in self.fields if name not in without]
        refuse_fields(fields, known, "an environment without action masks")
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
        return self.batch(self.places((uniform * self.filled).long()))

    def places(self, index: Tensor) -> Tensor:
        """Return the positions of rows by index, from 0 to `filled` − 1."""
        return index if self.frames is None else (index + self._first_drawn) % self.capacity

    def most_updates(self, batch_size: int) -> int:
        """Return the largest number of updates that one `gather` can serve."""
        if self.frames is not None:
            return self.frames.most_updates(batch_size)
        return super().most_updates(batch_size)

    def batch(self, places: Tensor) -> Batch:
        """Return the transitions at ``places``: one gather if no fields are declared."""
        if self._fields is not None:
            batch = self._fields.batch(PackedRows(self.rows), places)
        else:
            batch = self.layout.batch(self.rows.index_select(0, places))
        return batch if self.frames is None else self.frames.decode_batch(batch)

    @property
    def is_plain(self) -> bool:
        """Whether a batch is a gather of whole rows, without declared fields or images."""
        return self._fields is None and self.frames is None

    def move_to(self, rows: Tensor, filled: Tensor) -> None:
        """Continue in other tensors, which contain the current `rows` and `filled`."""
        self.rows, self.filled = rows, filled
        self._host = rows.numpy() if rows.device.type == "cpu" else None
        self._staging = Staging(rows)

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
        if self.frames is not None:
            for name in ("observations", "next_observations"):
                last = self.layout.slices[name].stop
                self.frames.check_places(rows[:, last - self.frames.layout.stack : last])
        self.rows[start:stop] = torch.from_numpy(rows)

    def segmented(self) -> dict[str, Segmented]:
        """Return what a checkpoint saves in segments, by the name of their list in the manifest."""
        parts: dict[str, Segmented] = {"replay": self}
        return parts if self.frames is None else parts | {"frames": self.frames}

    def state_dict(self) -> dict[str, Any]:
        """Return the counters as plain data."""
        images = {} if self.frames is None else {"images": self.frames.state_dict()}
        return {"total": self.total, "capacity": self.capacity, **images}

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
        if self.frames is not None:
            self.frames.load_state_dict(state["images"], len(self))
            self._limit_draws(self.frames)

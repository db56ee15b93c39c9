"""Images of observations: stored once as uint8, and referred to by the rows of transitions.

A stored observation is its vector entries, followed by the place of each of its frames:

    observation   [camera: 4 frames of 84×84, joints: 7 values]    28,231 values
    stored        [7 values | 4 places]                            in a packed row, float32
    frames        [place, 84·84]                                   uint8

The next observation refers to the frames of the following row, a stack of frames to those of
earlier rows, and a frame that no other observation has is stored for it alone. `Frames.decode`
assembles the observations of a batch on the device of the frames, with static shapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rl_training.boundary.columns import CHUNK_BYTES, Column
from rl_training.boundary.values import StateError, describe_array, whole_number
from rl_training.data.staging import Staging
from rl_training.errors import CheckpointError, ConfigError
from rl_training.observations import Entry
from rl_training.types import Batch, FloatArray, ObsArray

Pixels = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
MAX_FRAMES = 2**24
"""Number of frames that float32 can number, since rows are float32."""
BLOCK_BYTES = 64 << 20
"""Size of the observations that are assembled for a block of updates."""
SEGMENT_BYTES = 16 << 20
"""Size of the frames that a checkpoint saves as one immutable file."""


@dataclass(frozen=True)
class FrameLayout:
    """Where the entries of an observation are stored: in its row, or in its frames."""

    entries: tuple[Entry, ...]

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> FrameLayout | None:
        """Return the layout of observations; None if they have no images."""
        has_images = any(entry.kind == "image" for entry in entries)
        return cls(tuple(entries)) if has_images else None

    @cached_property
    def images(self) -> tuple[Entry, ...]:
        """The entries that are images."""
        return tuple(entry for entry in self.entries if entry.kind == "image")

    @cached_property
    def vectors(self) -> tuple[Entry, ...]:
        """The other entries."""
        return tuple(entry for entry in self.entries if entry.kind != "image")

    @property
    def stack(self) -> int:
        """Number of frames in an observation."""
        return self.images[0].frames

    @cached_property
    def frame_size(self) -> int:
        """Bytes of a frame of every image."""
        return sum(image.width for image in self.images) // self.stack

    @cached_property
    def vector_dim(self) -> int:
        """Number of values that are not pixels."""
        return sum(entry.width for entry in self.vectors)

    @property
    def stored_dim(self) -> int:
        """Number of values of an observation in a row."""
        return self.vector_dim + self.stack

    @cached_property
    def vector_columns(self) -> Numbers:
        """Places of the vector entries in the flat observation."""
        parts = [np.arange(entry.place.start, entry.place.stop) for entry in self.vectors]
        return np.concatenate([np.empty(0, np.int64), *parts])

    @cached_property
    def frame_parts(self) -> dict[str, slice]:
        """Place of each image in a frame, by name."""
        parts, start = {}, 0
        for image in self.images:
            parts[image.name] = slice(start, start + image.width // self.stack)
            start = parts[image.name].stop
        return parts

    def split(self, obs: ObsArray) -> tuple[FloatArray, Pixels]:
        """Return the vectors ``[n, vector_dim]`` and frames ``[n, stack, frame_size]`` of rows."""
        frames = [
            obs[:, image.place].reshape(len(obs), self.stack, -1).astype(np.uint8, copy=False)
            for image in self.images
        ]
        joined = frames[0] if len(frames) == 1 else np.concatenate(frames, axis=-1)
        return obs[:, self.vector_columns].astype(np.float32), joined

    def join(self, vectors: Tensor, frames: Tensor) -> Tensor:
        """Return observations ``[B, obs_dim]`` from what `split` returned."""
        parts, start = [], 0
        for entry in self.entries:
            if entry.kind == "image":
                pixels = frames[:, :, self.frame_parts[entry.name]]
                parts.append(pixels.flatten(1).to(torch.float32))
            else:
                parts.append(vectors[:, start : start + entry.width])
                start += entry.width
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)


class Frames:
    """Stored frames, ``[places, frame_size]``, and the observations that rows refer to."""

    on_host = False
    """Whether frames are read from a file, which a captured graph cannot do."""

    def __init__(self, layout: FrameLayout, pixels: Tensor) -> None:
        self.layout = layout
        self.pixels = pixels

    def __len__(self) -> int:
        return len(self.pixels)

    def take(self, places: Tensor) -> Tensor:
        """Return the frames at ``places``, ``[n, frame_size]``."""
        return self.pixels.index_select(0, places)

    def chunks(self) -> Iterator[Pixels]:
        """Yield all frames in order."""
        for start in range(0, len(self), self._chunk):
            places = torch.arange(start, min(start + self._chunk, len(self)))
            yield self.take(places.to(self.pixels.device)).cpu().numpy()

    @property
    def _chunk(self) -> int:
        return max(1, CHUNK_BYTES // self.layout.frame_size)

    def decode(self, stored: Tensor) -> Tensor:
        """Return observations ``[B, obs_dim]`` for stored ones ``[B, stored_dim]``."""
        sizes = [self.layout.vector_dim, self.layout.stack]
        vectors, places = torch.split_with_sizes(stored, sizes, dim=-1)
        frames = self.take(places.flatten().long())
        return self.layout.join(vectors, frames.view(len(stored), self.layout.stack, -1))

    def part(self, stored: Tensor, entry: Entry) -> Tensor:
        """Return one entry of stored observations, ``[B, width]``; an image is uint8."""
        if entry.kind == "image":
            places = stored[:, self.layout.vector_dim :].flatten().long()
            pixels = self.take(places)[:, self.layout.frame_parts[entry.name]]
            return pixels.reshape(len(stored), entry.width)
        before = sum(other.width for other in self.layout.vectors if other.offset < entry.offset)
        return stored[:, before : before + entry.width]

    def decode_batch(self, batch: Batch) -> Batch:
        """Return a batch with the observations that its stored ones refer to."""
        return batch._replace(obs=self.decode(batch.obs), next_obs=self.decode(batch.next_obs))

    def most_updates(self, batch_size: int) -> int:
        """Return the number of updates whose observations fit into `BLOCK_BYTES`."""
        width = self.layout.stack * self.layout.frame_size + self.layout.vector_dim
        return max(1, BLOCK_BYTES // (8 * width * batch_size))

    def to(self, device: torch.device | str) -> None:
        """Move the frames to a device, for every dataset that refers to them."""
        self.pixels = self.pixels.to(device)


class FrameEncoder:
    """Numbers the frames of consecutive observations, and finds those that are stored already.

    An observation starts with the frames of the one before it in the same environment, and the
    next observation continues it. They are compared pixel by pixel, so the result is exact for
    every environment; if its observations do not continue each other, all frames are new.
    """

    def __init__(self, layout: FrameLayout, num_envs: int = 1) -> None:
        self.written = 0
        """Number of frames so far; the next new one gets this number."""
        self._num_envs = num_envs
        shape = (num_envs, layout.stack, layout.frame_size)
        # The newest observation of each environment.
        self._frames: Pixels = np.zeros(shape, dtype=np.uint8)
        self._numbers: Numbers = np.full(shape[:2], -1, dtype=np.int64)

    def restore(self, numbers: Numbers, frames: Pixels) -> None:
        """Continue after the newest observations: ``[n, stack]`` and ``[n, stack, frame_size]``.

        They are those of the last n environments.
        """
        self._numbers[-len(numbers) :] = numbers
        self._frames[-len(frames) :] = frames

    def encode(self, obs: Pixels, next_obs: Pixels) -> tuple[Numbers, Numbers, Pixels]:
        """Return the numbers of the frames of both observations, and the frames that are new.

        Rows ``[n, stack, frame_size]`` of all environments take turns, and n is a multiple of
        their number. The new frames are in the order of their numbers.
        """
        before = self._frames
        if len(obs) > self._num_envs:
            before = np.concatenate([before, next_obs])[: len(obs)]
        # Whether a frame is that of the previous observation, and that of the frame before it.
        kept, held = _equal(obs, before), _equal(obs[:, 1:], obs[:, :-1])
        continued = _equal(next_obs[:, :-1], obs[:, 1:])
        repeated = _equal(next_obs[:, 1:], next_obs[:, :-1])
        still = _equal(next_obs[:, -1:], obs[:, -1:])[:, 0]
        numbers: Numbers = np.empty((2, *obs.shape[:2]), dtype=np.int64)
        fresh: list[Pixels] = []
        stack = obs.shape[1]
        for row in range(len(obs)):
            env = row % self._num_envs
            last = self._numbers[env]
            first, then = numbers[0, row], numbers[1, row]
            for j in range(stack):
                if kept[row, j] and last[j] >= 0:
                    first[j] = last[j]
                elif j and held[row, j - 1]:
                    first[j] = first[j - 1]
                else:
                    first[j] = self._number(obs[row, j], fresh)
            for j in range(stack):
                if j < stack - 1 and continued[row, j]:
                    then[j] = first[j + 1]
                elif j and repeated[row, j - 1]:
                    then[j] = then[j - 1]
                elif j == stack - 1 and still[row]:
                    then[j] = first[j]
                else:
                    then[j] = self._number(next_obs[row, j], fresh)
            self._numbers[env] = then
        self._frames = np.array(next_obs[-self._num_envs :])
        frames = np.stack(fresh) if fresh else np.empty((0, obs.shape[2]), dtype=np.uint8)
        return numbers[0], numbers[1], frames

    def _number(self, frame: Pixels, fresh: list[Pixels]) -> int:
        fresh.append(frame)
        self.written += 1
        return self.written - 1


def _equal(frames: Pixels, others: Pixels) -> npt.NDArray[np.bool_]:
    """Return which frames ``[n, k, size]`` are equal, ``[n, k]``."""
    return np.asarray((frames == others).all(axis=-1))


class FrameList:
    """Collects the frames of recorded transitions in host memory."""

    def __init__(self, layout: FrameLayout, rows: int, episodes: int) -> None:
        self.layout = layout
        self._encoder = FrameEncoder(layout)
        # Every row of an episode has a new frame, and the first ones of an episode fill a stack.
        # Memory that is not used costs nothing.
        places = min(rows + episodes * layout.stack, 2 * rows * layout.stack)
        self._pixels: Pixels = np.empty((places, layout.frame_size), dtype=np.uint8)

    @property
    def written(self) -> int:
        """Number of frames."""
        return self._encoder.written

    def add(self, obs: Pixels, next_obs: Pixels) -> tuple[Numbers, Numbers]:
        """Store consecutive observations; return the places of the frames of both."""
        places, next_places, fresh = self._encoder.encode(obs, next_obs)
        stop = self._encoder.written
        if stop > len(self._pixels):  # the rows are in no order
            grown = np.empty((stop + stop // 4, self.layout.frame_size), dtype=np.uint8)
            grown[: len(self._pixels)] = self._pixels
            self._pixels = grown
        self._pixels[stop - len(fresh) : stop] = fresh
        return places, next_places

    def frames(self) -> Frames:
        """Return the stored frames."""
        return Frames(self.layout, torch.from_numpy(self._pixels[: self._encoder.written]))


class MappedFrames(Frames):
    """Frames of recorded observations that are read from memory-mapped files when needed."""

    on_host = True

    def __init__(self, layout: FrameLayout, columns: Sequence[Column], places: Numbers) -> None:
        super().__init__(layout, torch.empty(0, layout.frame_size, dtype=torch.uint8))
        self._columns = columns
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    def take(self, places: Tensor) -> Tensor:
        """Return the frames at ``places``, ``[n, frame_size]``."""
        source, rows, positions = self._places[places.numpy()].T
        frames = np.empty((len(rows), self.layout.frame_size), dtype=np.uint8)
        for index, column in enumerate(self._columns):
            from_here = np.flatnonzero(source == index)
            if len(from_here):
                assert column.take is not None
                _, observed = self.layout.split(column.take(rows[from_here]))
                frames[from_here] = observed[np.arange(len(observed)), positions[from_here]]
        return torch.from_numpy(frames)

    def to(self, device: torch.device | str) -> None:
        """Do nothing: the frames stay in their files."""


class FrameSources:
    """Finds the frames of recorded transitions in their columns, without keeping them."""

    def __init__(self, layout: FrameLayout, columns: Sequence[Column]) -> None:
        self.layout = layout
        self._encoder = FrameEncoder(layout)
        self._columns = columns
        self._places: list[Numbers] = []
        self._rows = 0

    @property
    def written(self) -> int:
        """Number of frames."""
        return self._encoder.written

    def add(self, obs: Pixels, next_obs: Pixels) -> tuple[Numbers, Numbers]:
        """Number the frames of consecutive observations; return the numbers of both."""
        before, stack = self.written, self.layout.stack
        numbers, next_numbers, _ = self._encoder.encode(obs, next_obs)
        both = np.concatenate([numbers, next_numbers], axis=1).ravel()
        found, first = np.unique(both, return_index=True)
        row, place = np.divmod(first[found >= before], 2 * stack)
        column, position = np.divmod(place, stack)
        row += self._rows
        if len(self._columns) == 1:  # the next observation is that of the following row, if any
            last = self._columns[0].shape[0] - 1
            row, column = np.minimum(row + column, last), np.zeros_like(column)
        self._places.append(np.stack([column, row, position], axis=1))
        self._rows += len(obs)
        return numbers, next_numbers

    def frames(self) -> MappedFrames:
        """Return the frames, in the order of their numbers."""
        return MappedFrames(self.layout, self._columns, np.concatenate(self._places))


class FrameRing(Frames):
    """The frames of a replay buffer: a ring in which new frames overwrite the oldest ones.

    It has a place for each row, and spare places for the last observations of episodes. If
    episodes are shorter than 16 steps, these do not suffice, and the oldest rows lose their frames
    before they are overwritten: only the `usable` newest rows are drawn.
    """

    def __init__(
        self,
        layout: FrameLayout,
        capacity: int,
        num_envs: int = 1,
        *,
        device: torch.device | str = "cpu",
    ) -> None:
        self.num_places = num_places(layout, capacity, num_envs)
        if self.num_places > MAX_FRAMES:
            raise ConfigError(
                f"buffer_capacity = {capacity}: should be at most {MAX_FRAMES * 15 // 16:,} with "
                "images."
            )
        shape = (self.num_places, layout.frame_size)
        super().__init__(layout, torch.empty(shape, dtype=torch.uint8, device=device))
        self.usable = 0
        """Number of newest rows whose frames are all stored."""
        self.dirty: set[int] = set()
        """Segments written since it was last cleared, as in a replay buffer."""
        self._segment_frames = max(1, SEGMENT_BYTES // layout.frame_size)
        self._capacity = capacity
        self._num_envs = num_envs
        self._encoder = FrameEncoder(layout, num_envs)
        self._staging = Staging(self.pixels)
        self._oldest: Numbers = np.zeros(capacity, dtype=np.int64)
        """Number of the oldest frame of each row."""
        self.is_indexed = True
        """Whether it knows the frames of the rows, which `index` finds after they were restored."""

    @property
    def written(self) -> int:
        """Number of frames so far."""
        return self._encoder.written

    def add(self, obs: ObsArray, next_obs: ObsArray, total: int) -> tuple[FloatArray, FloatArray]:
        """Store the frames of new transitions; return both observations as rows store them.

        ``total`` is the number of earlier transitions.
        """
        vectors, frames = self.layout.split(obs)
        next_vectors, next_frames = self.layout.split(next_obs)
        numbers, next_numbers, fresh = self._encoder.encode(frames, next_frames)
        self._write(fresh)
        self._track(np.concatenate([numbers, next_numbers], axis=1), total)
        return (
            np.concatenate([vectors, numbers % self.num_places], axis=1, dtype=np.float32),
            np.concatenate(
                [next_vectors, next_numbers % self.num_places], axis=1, dtype=np.float32
            ),
        )

    def _write(self, fresh: Pixels) -> None:
        """Write the newest frames, of which those that do not fit are overwritten already."""
        fresh = fresh[-self.num_places :]
        if not len(fresh):
            return
        start = (self.written - len(fresh)) % self.num_places
        self._staging.write(start, fresh)
        for place in range(start, start + len(fresh)):
            self.dirty.add(place % self.num_places // self._segment_frames)

    def _track(self, numbers: Numbers, total: int) -> None:
        """Record the frames of new rows ``[n, …]``, and find the rows that are still usable."""
        rows = np.arange(total, total + len(numbers)) % self._capacity
        self._oldest[rows] = numbers.min(axis=1)
        total += len(numbers)
        self.usable = min(self.usable + len(numbers), self._capacity)
        overwritten = self.written - self.num_places
        if overwritten <= 0:
            return
        # If a row is usable, so are those after the steps whose stacks contain its frames.
        reach = (self.layout.stack + 2) * self._num_envs
        while True:
            first = total - self.usable
            nearby = np.arange(first, min(first + reach, total)) % self._capacity
            lost = np.flatnonzero(self._oldest[nearby] < overwritten)
            if not len(lost):
                return
            self.usable -= int(lost[-1]) + 1

    # --- Saving -------------------------------------------------------------------

    def num_segments(self) -> int:
        """Return the number of segments that contain frames."""
        return -(-min(self.written, self.num_places) // self._segment_frames)

    def _segment_place(self, index: int) -> slice:
        start = index * self._segment_frames
        stop = min(start + self._segment_frames, self.written, self.num_places)
        return slice(start, stop)

    def segment(self, index: int) -> Pixels:
        """Return the frames of one segment, a view if the device is the CPU."""
        return np.asarray(self.pixels[self._segment_place(index)].cpu().numpy())

    def load_segment(self, index: int, frames: Pixels) -> None:
        """Restore a segment; its size must agree with the counters."""
        place = self._segment_place(index)
        found = describe_array(frames)
        wanted = f"uint8[{place.stop - place.start}, {self.layout.frame_size}]"
        if found != wanted:
            raise CheckpointError(
                f"frame segment {index} contains {found}, but should contain {wanted}"
            )
        self.pixels[place] = torch.from_numpy(frames)

    def state_dict(self) -> dict[str, Any]:
        """Return the counters as plain data."""
        return {"frames": self.written, "usable": self.usable}

    def load_state_dict(self, state: dict[str, Any], stored_rows: int) -> None:
        """Restore the counters; `load_segment` restores the frames."""
        self._encoder = FrameEncoder(self.layout, self._num_envs)
        self._encoder.written = whole_number(state["frames"], "frames")
        self.usable = whole_number(state["usable"], "usable", most=stored_rows)
        if stored_rows and not (self.written and self.usable):
            raise StateError(f"the replay has {stored_rows} rows, but no frames for them")
        self.is_indexed = False
        self.dirty.clear()

    def check_places(self, places: FloatArray) -> None:
        """Reject rows that refer to frames outside the ring."""
        most = min(self.written, self.num_places) - 1
        if not ((places >= 0) & (places <= most) & (places == np.floor(places))).all():
            raise CheckpointError(
                f"the replay refers to frames other than 0 to {most}, which it does not have"
            )

    def index(self, obs: FloatArray, next_obs: FloatArray, total: int) -> None:
        """Number the frames of the usable rows, in order, once after they were restored."""
        self.is_indexed = True
        if not total:
            return
        last, rows = self.written - 1, np.arange(total - self.usable, total)
        stored = np.concatenate(
            [x[:, self.layout.vector_dim :] for x in (obs, next_obs)], axis=1
        ).astype(np.int64)
        numbers = last - (last - stored) % self.num_places
        self._oldest[rows % self._capacity] = numbers.min(axis=1)
        newest = slice(-self._num_envs, None), slice(self.layout.stack, None)
        places = torch.from_numpy(stored[newest]).to(self.pixels.device)
        self._encoder.restore(numbers[newest], self.pixels[places].cpu().numpy())


def num_places(layout: FrameLayout, capacity: int, num_envs: int = 1) -> int:
    """Return the number of frames of a replay buffer with ``capacity`` rows."""
    return capacity + capacity // 16 + (layout.stack + 2) * num_envs

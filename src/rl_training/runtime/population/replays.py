"""The replays of all members as one tensor, to which transitions are added together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from rl_training.data import ReplayBuffer
from rl_training.types import BoolArray, FloatArray

SLOTS = 64
"""Steps whose transitions may be on their way to a GPU."""


class StackedReplays:
    """Replays of equal form, whose rows are one tensor ``[S, capacity, width]``.

    Each replay continues with its part, and counts and saves its own rows.
    """

    def __init__(self, buffers: Sequence[ReplayBuffer]) -> None:
        """Move the rows of the replays into one tensor."""
        first = buffers[0]
        self.buffers = list(buffers)
        self.layout = first.layout
        self.rows = torch.stack([buffer.rows for buffer in buffers])
        self.filled = torch.stack([buffer.filled for buffer in buffers])
        for buffer, rows, filled in zip(buffers, self.rows, self.filled, strict=True):
            buffer.move_to(rows, filled)
        device, count = self.rows.device, len(buffers) * first.num_envs
        pinned = device.type == "cuda"
        self._staged = torch.empty(SLOTS, count, first.layout.width, pin_memory=pinned)
        self._places = torch.empty(SLOTS, count, dtype=torch.int64, pin_memory=pinned)
        self._sizes = torch.empty(SLOTS, len(buffers), dtype=self.filled.dtype, pin_memory=pinned)
        self._slot = 0

    def add(
        self,
        members: Sequence[int],
        obs: FloatArray,
        actions: FloatArray,
        rewards: FloatArray,
        next_obs: FloatArray,
        terminations: BoolArray,
        truncations: BoolArray,
    ) -> None:
        """Add one transition of every environment of some members.

        The first axis of the arrays has the environments of all members.
        """
        each = self.buffers[0].num_envs
        chosen = (np.asarray(members, dtype=np.int64)[:, None] * each + np.arange(each)).ravel()
        count, slot = len(chosen), self._next_slot()
        packed = self._staged[slot, :count].numpy()
        slices = self.layout.slices
        packed[:, slices["observations"]] = obs[chosen]
        packed[:, slices["actions"]] = actions[chosen]
        packed[:, slices["rewards"].start] = rewards[chosen]
        packed[:, slices["next_observations"]] = next_obs[chosen]
        packed[:, slices["terminations"].start] = terminations[chosen]
        packed[:, slices["truncations"].start] = truncations[chosen]
        self._write(self._staged[slot, :count], self._reserve(members, slot))

    def _next_slot(self) -> int:
        if self._slot == SLOTS:
            if self.rows.is_cuda:
                torch.cuda.current_stream(self.rows.device).synchronize()
            self._slot = 0
        self._slot += 1
        return self._slot - 1

    def _reserve(self, members: Sequence[int], slot: int) -> Tensor:
        """Count a new row of each environment; return the places of the rows in `rows`."""
        capacity, each = self.rows.shape[1], self.buffers[0].num_envs
        places = self._places[slot, : len(members) * each].numpy().reshape(-1, each)
        grows = False
        for index, member in enumerate(members):
            buffer = self.buffers[member]
            grows |= buffer.total < capacity
            places[index] = member * capacity + (buffer.total + np.arange(each)) % capacity
            buffer.count_added(each)
        if grows:
            self._sizes[slot].numpy()[:] = [len(buffer) for buffer in self.buffers]
            self.filled.copy_(self._sizes[slot], non_blocking=True)
        return self._places[slot, : len(members) * each]

    def _write(self, rows: Tensor, places: Tensor) -> None:
        device = self.rows.device
        index = places.to(device, non_blocking=True)
        flat = self.rows.view(-1, self.rows.shape[-1])
        flat.index_copy_(0, index, rows.to(device, non_blocking=True))

"""Write rows from the host into a ring on any device."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

STAGED_BYTES = 4 << 20
"""Page-locked memory through which rows reach a GPU without waiting for it."""


class Staging:
    """Host memory for new rows of a ring; for a GPU, page-locked rows that are reused."""

    def __init__(self, ring: Tensor) -> None:
        self._ring = ring
        self._host = ring.numpy() if ring.device.type == "cpu" else None
        self._staged: Tensor | None = None
        self._next = 0
        if ring.is_cuda:
            rows = max(16, STAGED_BYTES // (ring.shape[1] * ring.element_size()))
            shape = (rows, ring.shape[1])
            self._staged = torch.empty(shape, dtype=ring.dtype, pin_memory=True)

    def take(self, count: int) -> Tensor:
        """Return rows to fill; those of a GPU are reused after it has read them."""
        if self._staged is None or count > len(self._staged):
            return torch.empty(count, self._ring.shape[1], dtype=self._ring.dtype)
        if self._next + count > len(self._staged):
            torch.cuda.current_stream(self._ring.device).synchronize()
            self._next = 0
        first = self._next
        self._next += count
        return self._staged[first : first + count]

    def write(self, start: int, rows: np.ndarray[Any, Any]) -> None:
        """Copy rows of the host to position ``start`` and the following ones, like `put`."""
        if self._host is None:
            staged = self.take(len(rows))
            staged.numpy()[:] = rows
            self.put(start, staged)
            return
        head = len(self._host) - start
        self._host[start : start + len(rows)] = rows[:head]
        if head < len(rows):
            self._host[: len(rows) - head] = rows[head:]

    def put(self, start: int, rows: Tensor) -> None:
        """Copy rows to position ``start`` and the following ones, past the end to the first."""
        overlaps, head = self._ring.is_cuda, len(self._ring) - start
        self._ring[start : start + len(rows)].copy_(rows[:head], non_blocking=overlaps)
        if head < len(rows):
            self._ring[: len(rows) - head].copy_(rows[head:], non_blocking=overlaps)

"""Dropout with counter-based masks, which resume exactly and work in captured graphs."""

from __future__ import annotations

import torch
from torch import Tensor

_LOW = 0xFFFFFFFF
_FACTOR = 0x45D9F3B
"""The product with a 32-bit number stays below 2^63 and cannot overflow."""


def first_counters(lead: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
    """Draw a random counter per member of a stack ``[N, 1, 1]``, or for one network ``[1]``."""
    shape = (*lead, 1, 1) if lead else (1,)
    return torch.empty(shape, dtype=torch.int64).random_(0, 2**31, generator=generator)


def mixed(numbers: Tensor) -> Tensor:
    """Hash the lowest 32 bits of integers to integers below 2^32."""
    numbers = numbers & _LOW
    for _ in range(2):
        numbers = ((numbers >> 16) ^ numbers) * _FACTOR & _LOW
    return (numbers >> 16) ^ numbers


def dropout(x: Tensor, probability: float, counters: Tensor, layer: int) -> Tensor:
    """Zero entries of ``x`` with ``probability`` and scale up the others.

    The mask depends on the counters, the layer and the position of an entry in ``[B, width]``.
    """
    rows, width = x.shape[-2:]
    positions = torch.arange(rows * width, device=x.device).view(rows, width)
    key = mixed(mixed(counters) + layer)
    bits = mixed(mixed(positions ^ key) + counters)
    kept = bits >= int(probability * 2**32)
    return torch.where(kept, x / (1.0 - probability), 0.0)

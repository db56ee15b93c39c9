"""Dropout whose masks follow from a counter: exact on resume, and allowed in a captured graph."""

from __future__ import annotations

import torch
from torch import Tensor

_LOW = 0xFFFFFFFF
_FACTOR = 0x45D9F3B
"""A 32-bit number times this stays below 2^63: no product overflows."""


def first_counters(lead: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
    """A random counter for each member of a stack ``[N, 1, 1]``, or for one network ``[1]``."""
    shape = (*lead, 1, 1) if lead else (1,)
    return torch.empty(shape, dtype=torch.int64).random_(0, 2**31, generator=generator)


def mixed(numbers: Tensor) -> Tensor:
    """A hash of the lowest 32 bits of integers, as integers below 2^32."""
    numbers = numbers & _LOW
    for _ in range(2):
        numbers = ((numbers >> 16) ^ numbers) * _FACTOR & _LOW
    return (numbers >> 16) ^ numbers


def dropout(x: Tensor, probability: float, counters: Tensor, layer: int) -> Tensor:
    """``x`` with entries zeroed with ``probability`` and the others scaled up.

    The mask is a function of the counters, the layer and an entry's place in ``[B, width]``.
    """
    rows, width = x.shape[-2:]
    places = torch.arange(rows * width, device=x.device).view(rows, width)
    key = mixed(mixed(counters) + layer)
    bits = mixed(mixed(places ^ key) + counters)
    kept = bits >= int(probability * 2**32)
    return torch.where(kept, x / (1.0 - probability), 0.0)

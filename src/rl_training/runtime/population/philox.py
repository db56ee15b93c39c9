"""The random numbers of a CUDA generator, computed for many generators at once.

PyTorch draws one kernel per generator and tensor. A population has a generator for each member, so
drawing would take longer than the update. These functions compute the same numbers with ordinary
operations, which a compiler fuses: Philox4x32-10 (Salmon et al., SC 2011), with the counters and
the transforms of PyTorch's kernels. `matches_generators` compares them on the device.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from rl_training.types import NoiseField

MASK = 0xFFFF_FFFF
MULTIPLIERS = 0xD251_1F53, 0xCD9E_8D57
KEY_STEPS = 0x9E37_79B9, 0xBB67_AE85
ROUNDS = 10
OFFSET = 4
"""Steps by which a draw advances a generator's offset, if every thread draws once."""
BLOCK_SIZE = 256
"""Threads per block in PyTorch's kernels."""


class Words(NamedTuple):
    """Four random words of 32 bits, as int64 tensors of equal shape."""

    x: Tensor
    y: Tensor
    z: Tensor
    w: Tensor


def philox(seeds: Tensor, offsets: Tensor, index: Tensor) -> Words:
    """Return the words of thread ``index`` of generators with these seeds and offsets.

    The arguments are int64 tensors that broadcast. Offsets are multiples of 4.
    """
    blocks = offsets // OFFSET
    c0, c1 = blocks & MASK, (blocks >> 32) & MASK
    c2, c3 = index & MASK, (index >> 32) & MASK
    k0, k1 = seeds & MASK, (seeds >> 32) & MASK
    for _ in range(ROUNDS):
        first, second = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            ((second >> 32) & MASK) ^ c1 ^ k0,
            second & MASK,
            ((first >> 32) & MASK) ^ c3 ^ k1,
            first & MASK,
        )
        k0, k1 = (k0 + KEY_STEPS[0]) & MASK, (k1 + KEY_STEPS[1]) & MASK
    return Words(c0, c1, c2, c3)


def draw(
    field: NoiseField,
    seeds: Tensor,
    offsets: Tensor,
    dtype: torch.dtype,
    lead: tuple[int, ...] = (),
) -> Tensor:
    """Return what `torch.rand` or `torch.randn` draws from each generator, ``[S, *lead, *shape]``.

    Args:
        field: The distribution and the shape.
        seeds: Seeds of the generators, ``[S]``.
        offsets: Their offsets before the draw, ``[S]``, which the caller advances by `OFFSET`.
        dtype: float32 or float64.
        lead: Axes before the shape.
    """
    shape = *lead, *field.shape
    index = torch.arange(math.prod(shape), device=seeds.device)
    words = philox(seeds.unsqueeze(1), offsets.unsqueeze(1), index)
    transform = _normal if field.kind == "normal" else _uniform
    return transform(words, dtype).view(len(seeds), *shape)


def _uniform(words: Words, dtype: torch.dtype) -> Tensor:
    values = _share(words.x, words.y) if dtype == torch.float64 else _share32(words.x)
    return torch.where(values == 1.0, 0.0, values)


def _normal(words: Words, dtype: torch.dtype) -> Tensor:
    """Transform uniform numbers by Box and Muller's method."""
    if dtype == torch.float64:
        angle = math.pi * (_bits(words.z, words.w).double() * 2.0**-52 + 2.0**-53)
        return (-2.0 * _share(words.x, words.y).log()).sqrt() * angle.sin()
    angle = words.y.float() * (2.0**-31 * math.pi) + 2.0**-32 * math.pi
    return (-2.0 * _share32(words.x).log()).sqrt() * angle.sin()


def _bits(low: Tensor, high: Tensor) -> Tensor:
    """Return 53 random bits."""
    return low ^ (high << 21)


def _share(low: Tensor, high: Tensor) -> Tensor:
    """Return numbers in (0, 1] from 53 bits."""
    return _bits(low, high).double() * 2.0**-53 + 2.0**-54


def _share32(word: Tensor) -> Tensor:
    """Return numbers in (0, 1] from 32 bits."""
    return word.float() * 2.0**-32 + 2.0**-33


def most_numbers(device: torch.device) -> int:
    """Return the largest draw in which PyTorch gives each number a thread of its own."""
    facts = torch.cuda.get_device_properties(device)
    blocks = facts.max_threads_per_multi_processor // BLOCK_SIZE
    return BLOCK_SIZE * blocks * facts.multi_processor_count


def matches_generators(device: torch.device) -> bool:
    """Return whether PyTorch's generators on a CUDA device draw the numbers of this module."""
    generator = torch.Generator(device).manual_seed(0x1234_5678_9ABC)
    generator.set_offset(2**34 + 8)
    seeds = torch.tensor([generator.initial_seed()], device=device)
    draws = {"uniform": torch.rand, "normal": torch.randn}
    for kind, own in draws.items():
        for dtype in (torch.float32, torch.float64):
            for count in (5, 3000):
                before = generator.get_offset()
                expected = own(count, generator=generator, device=device, dtype=dtype)
                field = NoiseField(kind, (count,))  # type: ignore[arg-type]
                found = draw(field, seeds, torch.tensor([before], device=device), dtype)[0]
                close = 1e-12 if dtype == torch.float64 else 1e-5
                if generator.get_offset() != before + OFFSET:
                    return False
                if not torch.allclose(found, expected, rtol=close, atol=close):
                    return False
    return True

"""Hand-written CPU kernels, and the one question that decides whether they run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

_depth = 0


def use_kernels(x: Tensor) -> bool:
    """Whether hand-written kernels may work on ``x``: on the CPU, outside `plain_operations`.

    They are eager and differentiable once. On a GPU, where compiled updates are what is run, eager
    updates are their reference and use the same operations.
    """
    return x.device.type == "cpu" and _depth == 0


@contextmanager
def plain_operations() -> Iterator[None]:
    """Inside, only operations that a compiler can see through, differentiable any number of times.

    Updates are traced inside it.
    """
    global _depth
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1

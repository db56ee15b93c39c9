"""Hand-written CPU kernels, and the function that decides whether to use them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

_depth = 0


def use_kernels(x: Tensor) -> bool:
    """Return whether to use hand-written kernels: on the CPU, outside `plain_operations`.

    The kernels run eagerly and can be differentiated only once. Runs on a GPU use compiled
    updates; eager updates on a GPU serve as a reference for them and use the same operations.
    """
    return x.device.type == "cpu" and _depth == 0


@contextmanager
def plain_operations() -> Iterator[None]:
    """Use only operations that can be compiled and differentiated any number of times.

    Updates are traced inside this context.
    """
    global _depth
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1

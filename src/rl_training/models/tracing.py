"""Whether an update is being traced for a compiler, which wants plain operations everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_depth = 0


def is_tracing() -> bool:
    """Whether hand-written kernels should step aside."""
    return _depth > 0


@contextmanager
def tracing() -> Iterator[None]:
    """Inside, networks and optimizers use operations that a compiler can see through."""
    global _depth
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1

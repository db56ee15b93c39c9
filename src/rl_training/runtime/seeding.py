"""Independent random streams derived from one seed."""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Stream(IntEnum):
    """Sources of randomness; each has an independent stream."""

    NETWORKS = 0
    ENVIRONMENT = 1
    EXPLORATION = 2
    SAMPLING = 3
    EVALUATION = 4
    VALIDATION = 5
    RECORDING = 6


def derive_seed(seed: int, stream: Stream, *extra: int) -> int:
    """Return a 32-bit seed for one stream of a run."""
    return int(np.random.SeedSequence([seed, int(stream), *extra]).generate_state(1)[0])

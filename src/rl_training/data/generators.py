"""Random generators as plain data."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import torch


def generator_state(generator: torch.Generator) -> np.ndarray[Any, Any]:
    """A generator's state as an array of bytes."""
    return generator.get_state().numpy()


def restore_generator(generator: torch.Generator, state: np.ndarray[Any, Any]) -> None:
    """Put a generator back into a saved state; one of another device gives a new seed."""
    if state.shape == generator_state(generator).shape:
        generator.set_state(torch.from_numpy(np.asarray(state, dtype=np.uint8)))
    else:
        generator.manual_seed(zlib.crc32(state.tobytes()))

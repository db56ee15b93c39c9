"""Random generators as plain data."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import torch

from rl_training.boundary.text import first_line
from rl_training.boundary.values import StateError, describe_array


def generator_state(generator: torch.Generator) -> np.ndarray[Any, Any]:
    """A generator's state as an array of bytes."""
    return generator.get_state().numpy()


STATE_BYTES = {"cpu": 5056, "cuda": 16}
"""The size of a generator's state on each kind of device."""


def restore_generator(generator: torch.Generator, state: Any) -> None:
    """Put a generator back into a saved state; one of another kind of device gives a new seed.

    Raises:
        StateError: It is no generator's state; a guess would continue with other numbers.
    """
    if (
        not isinstance(state, np.ndarray)
        or state.dtype != np.uint8
        or state.shape not in [(size,) for size in STATE_BYTES.values()]
    ):
        raise StateError(
            f"a generator's state is {describe_array(state)}, but uint8[5056] (CPU) or uint8[16] "
            "(CUDA) is needed"
        )
    if state.size != STATE_BYTES[generator.device.type]:
        generator.manual_seed(zlib.crc32(state.tobytes()))
        return
    try:
        generator.set_state(torch.from_numpy(state))
    except RuntimeError as error:
        raise StateError(f"a generator's state is damaged ({first_line(error)})") from None

"""Random generators as plain data."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import torch

from rl_training.boundary.values import StateError, describe_array
from rl_training.text import first_line


def generator_state(generator: torch.Generator) -> np.ndarray[Any, Any]:
    """A generator's state as an array of bytes."""
    return generator.get_state().numpy()


STATE_BYTES = {"cpu": 5056, "cuda": 16}
"""The size of a generator's state on the CPU and on CUDA devices."""


def restore_generator(generator: torch.Generator, state: Any) -> None:
    """Put a generator back into a saved state; one of another kind of device gives a new seed.

    Raises:
        StateError: It is no generator's state; a guess would continue with other numbers.
    """
    found, (cpu, cuda) = describe_array(state), (f"uint8[{n}]" for n in STATE_BYTES.values())
    own = generator.get_state().numel()
    known = (cpu, cuda, f"uint8[{own}]")
    if found not in known:
        raise StateError(
            f"a generator's state is {found}, but {cpu} (CPU) or {cuda} (CUDA) is needed"
        )
    if state.size != own:
        generator.manual_seed(zlib.crc32(state.tobytes()))
        return
    try:
        generator.set_state(torch.from_numpy(state))
    except RuntimeError as error:
        raise StateError(f"a generator's state is damaged ({first_line(error)})") from None

"""Save and restore random generators as plain data."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import torch

from rl_training.boundary.values import StateError, describe_array
from rl_training.text import first_line


def generator_state(generator: torch.Generator) -> np.ndarray[Any, Any]:
    """Return a generator's state as an array of bytes."""
    return generator.get_state().numpy()


STATE_BYTES = {"cpu": 5056, "cuda": 16}
"""The size of a generator's state on the CPU and on CUDA devices."""


def restore_generator(generator: torch.Generator, state: Any) -> None:
    """Restore a saved state; the state of another kind of device is used as a seed.

    Raises:
        StateError: The state is invalid.
    """
    found, (cpu, cuda) = describe_array(state), (f"uint8[{n}]" for n in STATE_BYTES.values())
    own = generator.get_state().numel()
    known = (cpu, cuda, f"uint8[{own}]")
    if found not in known:
        raise StateError(
            f"the state of a random generator is {found}, but should be {cpu} (CPU) or {cuda} "
            "(CUDA)"
        )
    if state.size != own:
        generator.manual_seed(zlib.crc32(state.tobytes()))
        return
    try:
        generator.set_state(torch.from_numpy(state))
    except RuntimeError as error:
        raise StateError(
            f"the state of a random generator is damaged ({first_line(error)})"
        ) from None

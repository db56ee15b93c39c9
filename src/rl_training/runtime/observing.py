"""Update running statistics of the learner with collected transitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rl_training.algorithms.base import Algorithm
from rl_training.boundary.values import matching_array
from rl_training.types import BoolArray, FloatArray, ObsArray


class Observer:
    """Passes observations and discounted returns to the running statistics of the learner."""

    def __init__(self, algorithm: Algorithm, num_envs: int, *, gamma: float) -> None:
        self._algorithm = algorithm
        self._gamma = gamma
        self._returns = np.zeros(num_envs)

    def observe(self, obs: ObsArray, rewards: FloatArray, ended: BoolArray) -> None:
        """Add one transition of every environment; ``obs`` are the observations before the step."""
        device = self._algorithm.obs_shift.device
        returns = self._gamma * self._returns + rewards
        arrays = (torch.from_numpy(array) for array in (obs, returns))
        # A copy from pageable memory to a CUDA device does not wait for queued kernels.
        overlaps = device.type == "cuda"
        self._algorithm.observe(*(array.to(device, non_blocking=overlaps) for array in arrays))
        self._returns = np.where(ended, 0.0, returns)

    def reset(self) -> None:
        """Reset the returns at the start of new episodes."""
        self._returns[:] = 0.0

    def state_dict(self) -> dict[str, Any]:
        """Return the discounted returns; the statistics are tensors of the learner."""
        return {"discounted_returns": self._returns}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the discounted returns."""
        found = state["discounted_returns"]
        self._returns = matching_array(found, self._returns, "discounted_returns")

"""Convert actions between model space ([-1, 1] or an index) and the environment's space."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rl_training.types import ActionArray, EnvSpec, FloatArray


def inner_bounds(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the smallest float32 not below ``low`` and the largest not above ``high``.

    Actions are float32, and the float32 nearest to 0.1 is above the 0.1 of a float64 space.
    """
    # Values beyond float32 become infinite, and nextafter turns them into the largest float.
    with np.errstate(over="ignore"):
        first, last = low.astype(np.float32), high.astype(np.float32)
    first = np.where(first < low, np.nextafter(first, np.float32(np.inf)), first)
    last = np.where(last > high, np.nextafter(last, np.float32(-np.inf)), last)
    return first, last


class ActionScaler:
    """Converts actions; the only place where they are scaled."""

    def __init__(self, spec: EnvSpec) -> None:
        self._discrete = spec.discrete
        self._first = spec.first_actions
        self._has_numbers = bool(spec.action_choices)
        low = np.asarray(spec.action_low, dtype=np.float64)
        high = np.asarray(spec.action_high, dtype=np.float64)
        self._low, self._high = inner_bounds(low, high)
        self._center = (0.5 * (low + high)).astype(np.float32)
        self._half_range = (0.5 * (high - low)).astype(np.float32)

    def to_env(self, actions: FloatArray) -> ActionArray:
        """Map model space to the environment's units, never outside its bounds.

        Indices ``[..., 1]`` become the integers ``[...]`` that a Discrete space expects, and
        ``[..., numbers]`` those of a MultiDiscrete space.
        """
        if self._discrete:
            numbers = actions.astype(np.int64) + self._first
            return numbers if self._has_numbers else numbers[..., 0]
        scaled = self._center + self._half_range * actions
        return np.clip(scaled, self._low, self._high)

    def tensors_to_env(self, actions: Tensor) -> Tensor:
        """Do the same as `to_env` with tensors, for exported policies."""
        if self._discrete:
            numbers = actions.long() + torch.as_tensor(self._first)
            return numbers if self._has_numbers else numbers[..., 0]
        low, high = torch.as_tensor(self._low), torch.as_tensor(self._high)
        scaled = torch.as_tensor(self._center) + torch.as_tensor(self._half_range) * actions
        return scaled.clamp(low, high)

    def to_model(self, actions: ActionArray) -> FloatArray:
        """Map the environment's units to model space."""
        if self._discrete:
            numbers = actions if self._has_numbers else np.asarray(actions)[..., None]
            return np.asarray(numbers - self._first, dtype=np.float32)
        return (actions - self._center) / self._half_range

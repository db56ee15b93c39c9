"""Scaling between model space, [-1, 1], and the environment's own action bounds."""

from __future__ import annotations

import numpy as np

from rl_training.types import EnvSpec, FloatArray


class ActionScaler:
    """The only place where actions change their scale."""

    def __init__(self, spec: EnvSpec) -> None:
        self._discrete = spec.discrete
        low = np.asarray(spec.action_low, dtype=np.float64)
        high = np.asarray(spec.action_high, dtype=np.float64)
        self._low = low.astype(np.float32)
        self._high = high.astype(np.float32)
        self._centre = (0.5 * (low + high)).astype(np.float32)
        self._half_range = (0.5 * (high - low)).astype(np.float32)

    def to_env(self, actions: FloatArray) -> FloatArray:
        """Model space to the environment's units, never outside its bounds."""
        if self._discrete:
            return actions
        scaled = self._centre + self._half_range * actions
        return np.clip(scaled, self._low, self._high)

    def to_model(self, actions: FloatArray) -> FloatArray:
        """The environment's units to model space."""
        if self._discrete:
            return actions
        return (actions - self._centre) / self._half_range

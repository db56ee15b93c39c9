"""Learning-rate schedules: a factor on the base rate of every optimizer."""

from __future__ import annotations

import math
from typing import Literal

from rl_training.config_model import ConfigModel

ScheduleKind = Literal["constant", "linear", "cosine"]


class Schedule(ConfigModel):
    """Linear warm-up from 0, then constant, or a linear or cosine decay to ``final``."""

    kind: ScheduleKind = "constant"
    warmup: int = 0
    final: float = 0.0
    horizon: int = 1

    @property
    def is_constant(self) -> bool:
        """Whether the factor is always 1."""
        return self.kind == "constant" and self.warmup == 0

    @property
    def zero_from(self) -> int | None:
        """Step from which the factor is 0; None if it never reaches 0."""
        if self.kind == "constant" or self.final > 0:
            return None
        return max(self.horizon, self.warmup + 1)

    def factor(self, step: int) -> float:
        """Return the factor at a step; it is constant after the horizon."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        if self.kind == "constant":
            return 1.0
        progress = min(1.0, (step - self.warmup) / max(1, self.horizon - self.warmup))
        shape = (
            1.0 - progress if self.kind == "linear" else 0.5 * (1 + math.cos(math.pi * progress))
        )
        return self.final + (1.0 - self.final) * shape

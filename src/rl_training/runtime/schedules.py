"""Learning-rate schedules: a factor on every optimizer's base rate."""

from __future__ import annotations

import math
from typing import Literal

from rl_training.config_model import ConfigModel

ScheduleKind = Literal["constant", "linear", "cosine"]


class Schedule(ConfigModel):
    """Warm up linearly from 0, then hold, fall linearly or by a half cosine to ``final``."""

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
        """The step from which the factor is 0; None where it never ends there."""
        if self.kind == "constant" or self.final > 0:
            return None
        return max(self.horizon, self.warmup + 1)

    def factor(self, step: int) -> float:
        """The factor at a step; past the horizon it stays where it ended."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        if self.kind == "constant":
            return 1.0
        progress = min(1.0, (step - self.warmup) / max(1, self.horizon - self.warmup))
        shape = (
            1.0 - progress if self.kind == "linear" else 0.5 * (1 + math.cos(math.pi * progress))
        )
        return self.final + (1.0 - self.final) * shape

"""The reward transform of datasets and environments: scale, then shift, then clip."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from pydantic import model_validator

from rl_training.config_model import ConfigModel

if TYPE_CHECKING:
    from typing_extensions import Self


class RewardTransformConfig(ConfigModel):
    """Transform of a reward before a learner receives it."""

    scale: float = 1.0
    """Factor by which rewards are multiplied."""
    shift: float = 0.0
    """Constant added to rewards after scaling."""
    clip_min: float | None = None
    """Smallest reward after scaling and shifting."""
    clip_max: float | None = None
    """Largest reward after scaling and shifting."""

    @model_validator(mode="after")
    def _bounds_are_ordered(self) -> Self:
        low, high = self.clip_min, self.clip_max
        if low is not None and high is not None and low >= high:
            raise ValueError(f"clip_min = {low} must be below clip_max = {high}")
        return self

    @property
    def is_identity(self) -> bool:
        """Whether rewards are unchanged."""
        return self == RewardTransformConfig()

    def __call__(self, rewards: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Transform rewards in float64; the result does not depend on the size of the array."""
        changed = np.asarray(rewards, dtype=np.float64) * self.scale + self.shift
        if self.clip_min is not None or self.clip_max is not None:
            changed = np.clip(changed, self.clip_min, self.clip_max)
        return changed

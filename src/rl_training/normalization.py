"""Normalize observations and rewards, and track their running moments."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rl_training.types import Batch

OBSERVATION_CLIP = 10.0
"""Clip value of observations that are normalized with running statistics."""

MIN_DEVIATION = 1e-6
"""An entry with a smaller standard deviation counts as constant and is not scaled."""


class Normalization(NamedTuple):
    """Normalization statistics, in tensors that the learner updates and restores in place."""

    shift: Tensor  # [obs_dim]
    scale: Tensor  # [obs_dim]
    clip: float | Tensor | None = None
    """Largest normalized value, of all entries or of each, ``[obs_dim]``."""
    reward_scale: Tensor | None = None  # []

    def observations(self, obs: Tensor) -> Tensor:
        """Normalize raw observations for the networks."""
        normalized = (obs - self.shift) * self.scale
        limit: Any = self.clip
        return normalized if limit is None else normalized.clamp(-limit, limit)

    def batch(self, batch: Batch) -> Batch:
        """Normalize a batch of raw rows for an update."""
        batch = batch._replace(
            obs=self.observations(batch.obs), next_obs=self.observations(batch.next_obs)
        )
        if self.reward_scale is None:
            return batch
        extra = dict(batch.extra)
        if "returns_to_go" in extra:
            extra["returns_to_go"] = extra["returns_to_go"] * self.reward_scale
        return batch._replace(rewards=batch.rewards * self.reward_scale, extra=extra)


class RunningMoments(nn.Module):
    """Mean and variance of all values so far, in float64, by Welford's parallel algorithm.

    The buffers are updated in place, without waiting for the device.
    """

    count: Tensor
    mean: Tensor
    squares: Tensor
    """Sum of the squared distances from the mean."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("squares", torch.zeros(size, dtype=torch.float64))

    def update(self, values: Tensor) -> None:
        """Update the moments with the rows of ``values``, ``[n, size]``."""
        rows, values = len(values), values.to(torch.float64)
        mean = values.mean(0)
        distance = mean - self.mean
        self.count.add_(rows)
        share = rows / self.count
        self.mean.addcmul_(distance, share)
        self.squares.addcmul_(distance, distance * (rows - rows * share))
        if rows > 1:  # the squared distance of a single row from its mean is 0
            self.squares.add_((values - mean).square().sum(0))

    def scale(self) -> Tensor:
        """Return 1 over the standard deviation, or 1 for entries that are constant so far."""
        deviation = self.variance().sqrt()
        return torch.where(deviation > MIN_DEVIATION, 1.0 / deviation, 1.0)

    def variance(self) -> Tensor:
        """Return the biased variance."""
        return self.squares / self.count


def bounded_scale(returns: RunningMoments, largest: Tensor, bound: float) -> Tensor:
    """Return the factor of rewards that keeps discounted returns within ± ``bound``.

    It is 1 / max(√(Var G + 1e-8), max |G| / bound), as in FlashSAC; ``largest`` is max |G|.
    """
    deviation = (returns.variance() + 1e-8).sqrt()
    return 1.0 / torch.maximum(deviation, largest / bound)

"""How a learner's observations and rewards are normalized, and running moments of both."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from rl_training.types import Batch

OBSERVATION_CLIP = 10.0
"""Limit of an observation's normalized entries, where the statistics are running ones."""

LEAST_DEVIATION = 1e-6
"""An entry whose standard deviation is smaller counts as constant, and is not scaled."""


class Normalization(NamedTuple):
    """A learner's own tensors, which change in place: what is restored into them holds here too."""

    shift: Tensor  # [obs_dim]
    scale: Tensor  # [obs_dim]
    clip: float | None = None
    reward_scale: Tensor | None = None  # []

    def observations(self, obs: Tensor) -> Tensor:
        """Raw observations as networks take them."""
        normalized = (obs - self.shift) * self.scale
        return normalized if self.clip is None else normalized.clamp(-self.clip, self.clip)

    def batch(self, batch: Batch) -> Batch:
        """A batch of raw rows as updates take it."""
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
    """Mean and variance of all values so far, in float64, by the parallel form of Welford's sums.

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
        """Take in the rows of ``values``, ``[n, size]``."""
        rows, values = len(values), values.to(torch.float64)
        mean = values.mean(0)
        distance = mean - self.mean
        self.count.add_(rows)
        share = rows / self.count
        self.mean.addcmul_(distance, share)
        self.squares.addcmul_(distance, distance * (rows - rows * share))
        if rows > 1:  # a single row is its own mean
            self.squares.add_((values - mean).square().sum(0))

    def scale(self) -> Tensor:
        """1 over the standard deviation; 1 of what is constant so far."""
        deviation = (self.squares / self.count).sqrt()
        return torch.where(deviation > LEAST_DEVIATION, 1.0 / deviation, 1.0)

"""Imitation weighted by advantages, which IQL and AWAC share."""

from __future__ import annotations

import math

from pydantic import Field, field_validator
from torch import Tensor

from rl_training.algorithms.config import ValueConfig
from rl_training.types import Metrics


class AdvantageConfig(ValueConfig):
    """What the learners with an advantage-weighted actor share."""

    weight_clip: float = Field(default=100.0, gt=0, description="Largest weight of a transition.")
    log_std_bounds: tuple[float, float] = Field(
        default=(-5.0, 2.0),
        description="Least and greatest log σ of the Gaussian around a tanh mean.",
    )

    @field_validator("log_std_bounds")
    @classmethod
    def _in_order(cls, bounds: tuple[float, float]) -> tuple[float, float]:
        if bounds[0] >= bounds[1]:
            raise ValueError(f"{list(bounds)}: the first should be less than the second")
        return bounds


def clipped_weights(scores: Tensor, *, clip: float) -> Tensor:
    """Min(exp(score), clip), the minimum taken before the exponential, which cannot overflow."""
    return scores.clamp(max=math.log(clip)).exp()


def softmax_weights(scores: Tensor) -> Tensor:
    """A softmax over the batch, times its size: the weights' mean is 1."""
    return scores.softmax(-1) * scores.shape[-1]


def imitation_loss(log_prob: Tensor, weights: Tensor) -> Tensor:
    """−mean w log π(a|s) at the dataset's actions; both are ``[B]``, the weights constants."""
    return -(weights.detach() * log_prob).mean(-1)


def imitation_metrics(loss: Tensor, advantage: Tensor, weights: Tensor) -> Metrics:
    """What a step of the actor reports."""
    return {
        "loss/actor": loss.detach(),
        "advantage/mean": advantage.mean(-1),
        "advantage/weight": weights.mean(-1),
    }

"""Advantage-weighted imitation, shared by IQL and AWAC."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field, field_validator
from torch import Tensor

from rl_training.algorithms.base import Terms
from rl_training.algorithms.config import ActorCriticConfig
from rl_training.config_model import Trait


class AdvantageConfig(ActorCriticConfig):
    """Options shared by learners with an advantage-weighted actor."""

    weight_clip: float = Field(default=100.0, gt=0)
    """Upper bound on a transition's weight in the actor loss; 100 is common."""
    log_std_bounds: Annotated[tuple[float, float], Trait.CONTINUOUS] = (-5.0, 2.0)
    """Lower and upper bounds of log σ of the Gaussian around a tanh mean."""

    @field_validator("log_std_bounds")
    @classmethod
    def _in_order(cls, bounds: tuple[float, float]) -> tuple[float, float]:
        if bounds[0] >= bounds[1]:
            raise ValueError("the lower bound should be less than the upper bound")
        return bounds


def clipped_weights(scores: Tensor, *, clip: float) -> Tensor:
    """Compute min(exp(score), clip), clamping before the exponential so that it cannot overflow."""
    return scores.clamp(max=math.log(clip)).exp()


def softmax_weights(scores: Tensor) -> Tensor:
    """Compute a softmax over the batch, scaled so that the mean weight is 1."""
    return scores.softmax(-1) * scores.shape[-1]


def imitation_loss(log_prob: Tensor, weights: Tensor) -> Tensor:
    """Return −mean w log π(a|s) at the dataset's actions; the weights ``[B]`` are constants."""
    return -(weights.detach() * log_prob).mean(-1)


def imitation_terms(log_prob: Tensor, advantage: Tensor, weights: Tensor) -> Terms:
    """Compute the actor loss and report advantages and weights; all are ``[B]``."""
    loss = imitation_loss(log_prob, weights)
    extra = {"advantage/mean": advantage.mean(-1), "advantage/weight": weights.mean(-1)}
    return Terms(loss, {"loss/actor": loss} | extra)

"""Policies: networks that give a distribution over actions in [-1, 1]."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rl_training.models.mlp import MLP

LOG_STD_MIN = -20.0
LOG_STD_MAX = 2.0
ACTION_BOUND = 1.0 - 1e-5
"""Dataset actions are clipped here before atanh, where the density of ±1 would be infinite."""


class ActionSample(NamedTuple):
    """Actions with their log-probabilities."""

    actions: Tensor  # [..., B, action_dim]
    log_prob: Tensor  # [..., B]


def gaussian_log_prob(standardised: Tensor, log_std: Tensor) -> Tensor:
    """Log N(u; μ, σ) summed over the action's axis, from (u − μ)/σ and log σ."""
    per_dim = -0.5 * standardised.square() - log_std
    return per_dim.sum(-1) - 0.5 * math.log(2.0 * math.pi) * standardised.shape[-1]


def tanh_log_det(pre_tanh: Tensor) -> Tensor:
    """Log |d tanh(u)/du| summed over the action's axis, stable for large |u|.

    Not log(1 − a² + ε): that loses the tails and biases the entropy.
    """
    return 2.0 * (math.log(2.0) - pre_tanh - F.softplus(-2.0 * pre_tanh)).sum(-1)


class SquashedGaussianActor(MLP):
    """The tanh-Gaussian policy of SAC (arXiv 1812.05905, appendix C)."""

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int],
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(obs_dim, hidden_sizes, 2 * action_dim, generator=generator)

    def distribution(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log σ before the tanh, each ``[B, action_dim]``."""
        mean, log_std = self(obs).chunk(2, dim=-1)
        return mean, log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)

    def sample(self, obs: Tensor, noise: Tensor) -> ActionSample:
        """Reparametrised actions from standard-normal ``noise`` ``[B, action_dim]``."""
        mean, log_std = self.distribution(obs)
        pre_tanh = mean + log_std.exp() * noise
        log_prob = gaussian_log_prob(noise, log_std) - tanh_log_det(pre_tanh)
        return ActionSample(pre_tanh.tanh(), log_prob)

    def mode(self, obs: Tensor) -> Tensor:
        """The deterministic action, tanh of the mean."""
        return self.distribution(obs)[0].tanh()

    def log_prob(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Log-density of given actions in [-1, 1], ``[B]``."""
        mean, log_std = self.distribution(obs)
        pre_tanh = actions.clamp(-ACTION_BOUND, ACTION_BOUND).atanh()
        standardised = (pre_tanh - mean) * (-log_std).exp()
        return gaussian_log_prob(standardised, log_std) - tanh_log_det(pre_tanh)

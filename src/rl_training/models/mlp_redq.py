"""The actor-critic network of the SAC family."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rl_training.models.actors import ActionSample, SquashedGaussianActor
from rl_training.models.critics import EnsembleCritic


class MLPREDQModel(nn.Module):
    """A Gaussian actor, an ensemble of critics and the critics' target vector."""

    target: Tensor

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int] = (256, 256),
        num_critics: int = 10,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.actor = SquashedGaussianActor(obs_dim, action_dim, hidden_sizes, generator=generator)
        self.critic = EnsembleCritic(
            obs_dim, action_dim, hidden_sizes, num_critics, generator=generator
        )
        self.register_buffer("target", self.critic.flat.detach().clone())

    def sample(self, obs: Tensor, noise: Tensor) -> ActionSample:
        """Actions of the current policy from standard-normal noise, with log-probabilities."""
        return self.actor.sample(obs, noise)

    def action_logprobs(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Log-probability of given (dataset) actions in [-1, 1], ``[B]``."""
        return self.actor.log_prob(obs, actions)

    def q_values(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Q-values of all critics, ``[num_critics, B]``."""
        return self.critic.q_values(obs, actions)

    def frozen_q_values(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Q-values whose gradient reaches the actions but not the critics' parameters."""
        return self.critic.q_values(obs, actions, self.critic.flat.detach())

    def target_q_values(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Q-values of the target critics, ``[num_critics, B]``."""
        return self.critic.q_values(obs, actions, self.target)

"""What every actor-critic network has: an actor, stacked critics and the critics' targets."""

from __future__ import annotations

from torch import Tensor, nn

from rl_training.models.actors import Actor
from rl_training.models.critics import EnsembleCritic


class ActorCriticModel(nn.Module):
    """An actor, an ensemble of critics and the critics' target vector."""

    actor: Actor
    target: Tensor

    def __init__(self, actor: Actor, critic: EnsembleCritic) -> None:
        super().__init__()
        self.actor = actor
        self.critic = critic
        self.register_buffer("target", critic.flat.detach().clone())

    def q_values(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Q-values of all critics, ``[num_critics, B]``."""
        return self.critic.q_values(obs, actions)

    def frozen_q_values(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Q-values whose gradient reaches the actions but not the critics' parameters."""
        return self.critic.q_values(obs, actions, self.critic.flat.detach())

    def target_q_values(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Q-values of the target critics, ``[num_critics, B]``."""
        return self.critic.q_values(obs, actions, self.target)

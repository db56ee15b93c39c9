"""The actor-critic network of DDPG and TD3."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rl_training.models.actor_critic import ActorCriticModel
from rl_training.models.actors import DeterministicActor
from rl_training.models.critics import EnsembleCritic


class MLPTD3Model(ActorCriticModel):
    """A deterministic actor, an ensemble of critics and target vectors of both."""

    actor: DeterministicActor
    actor_target: Tensor

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int] = (256, 256),
        num_critics: int = 2,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        sizes = obs_dim, action_dim, hidden_sizes
        actor = DeterministicActor(*sizes, generator=generator)
        super().__init__(actor, EnsembleCritic(*sizes, num_critics, generator=generator))
        self.register_buffer("actor_target", actor.flat.detach().clone())

    def target_actions(self, obs: Tensor) -> Tensor:
        """Actions of the target policy, ``[B, action_dim]``."""
        return self.actor.mode(obs, self.actor_target)

    def policy_q_values(self, obs: Tensor) -> Tensor:
        """Q_1(s, μ(s)), ``[B]``: its gradient reaches the actor alone."""
        return self.critic.first_q_values(obs, self.actor.mode(obs))

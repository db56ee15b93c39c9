"""Networks of the actor-critic algorithms: an actor, stacked critics and target vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from rl_training.errors import ConfigError
from rl_training.models.actors import (
    ActionSample,
    Actor,
    DeterministicActor,
    GaussianActor,
    SquashedGaussianActor,
    TanhMeanGaussianActor,
)
from rl_training.models.critics import EnsembleCritic
from rl_training.models.mlp import MLP

PolicyKind = Literal["squashed", "tanh_mean"]


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


class GaussianActorCritic(ActorCriticModel):
    """A Gaussian actor and an ensemble of critics: the networks of SAC and its relatives.

    The critics have the actor's hidden layers unless ``critic_hidden_sizes`` are given. The actor
    is SAC's squashed Gaussian, or one around a tanh mean, whose log σ stays within
    ``log_std_bounds``.
    """

    actor: GaussianActor

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int] = (256, 256),
        num_critics: int = 10,
        *,
        critic_hidden_sizes: Sequence[int] | None = None,
        num_quantiles: int = 1,
        layer_norm: bool = False,
        last_layer_bound: float | None = None,
        policy: PolicyKind = "squashed",
        log_std_bounds: tuple[float, float] = (-5.0, 2.0),
        generator: torch.Generator | None = None,
    ) -> None:
        if policy not in get_args(PolicyKind):
            raise ConfigError(f"policy = {policy!r}: should be squashed or tanh_mean.")
        sizes = obs_dim, action_dim, hidden_sizes
        actor: GaussianActor = (
            SquashedGaussianActor(*sizes, generator=generator)
            if policy == "squashed"
            else TanhMeanGaussianActor(*sizes, log_std_bounds=log_std_bounds, generator=generator)
        )
        critic = EnsembleCritic(
            obs_dim,
            action_dim,
            critic_hidden_sizes or hidden_sizes,
            num_critics,
            num_quantiles=num_quantiles,
            layer_norm=layer_norm,
            last_layer_bound=last_layer_bound,
            generator=generator,
        )
        super().__init__(actor, critic)

    def sample(self, obs: Tensor, noise: Tensor) -> ActionSample:
        """Actions of the current policy from standard-normal noise, with log-probabilities."""
        return self.actor.sample(obs, noise)

    def action_logprobs(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Log-probability of given (dataset) actions in [-1, 1], ``[B]``."""
        return self.actor.log_prob(obs, actions)


class MLPREDQModel(GaussianActorCritic):
    """A Gaussian actor and N critics, as REDQ (arXiv 2101.05982) and its relatives have them."""


class MLPSACModel(GaussianActorCritic):
    """A Gaussian actor and twin critics (arXiv 1812.05905)."""

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int] = (256, 256),
        **options: Any,
    ) -> None:
        super().__init__(obs_dim, action_dim, hidden_sizes, 2, **options)


class MLPIQLModel(MLPSACModel):
    """A Gaussian actor around a tanh mean, twin critics and V(s) (arXiv 2110.06169)."""

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int] = (256, 256),
        *,
        log_std_bounds: tuple[float, float] = (-5.0, 2.0),
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(
            obs_dim,
            action_dim,
            hidden_sizes,
            policy="tanh_mean",
            log_std_bounds=log_std_bounds,
            generator=generator,
        )
        self.value = MLP(obs_dim, hidden_sizes, 1, generator=generator)

    def values(self, obs: Tensor) -> Tensor:
        """V(s), ``[B]``."""
        values: Tensor = self.value(obs)
        return values.squeeze(-1)

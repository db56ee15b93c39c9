"""The actor-critic network of the SAC family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from rl_training.errors import ConfigError
from rl_training.models.actor_critic import ActorCriticModel
from rl_training.models.actors import ActionSample, GaussianActor, SquashedGaussianActor
from rl_training.models.critics import EnsembleCritic
from rl_training.models.tanh_mean import TanhMeanGaussianActor

PolicyKind = Literal["squashed", "tanh_mean"]


class GaussianActorCritic(ActorCriticModel):
    """A Gaussian actor, an ensemble of critics and the critics' target vector.

    The critics have the actor's hidden layers unless they are given their own, and one value each
    unless they are asked for several quantiles of it; ``layer_norm`` and ``last_layer_bound`` are
    theirs too. The actor is SAC's squashed Gaussian, or one around a tanh mean, whose log σ stays
    within ``log_std_bounds``.
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

"""Models of the actor-critic algorithms: an actor, stacked critics and target vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from rl_training.models.critics import BinnedCritic, Critic, EnsembleCritic, ValueNetwork
from rl_training.models.network import Network
from rl_training.models.network_config import Sizes, TrunkConfig, plain_mlp

PolicyKind = Literal["squashed", "tanh_mean"]
Trunks = Mapping[str, TrunkConfig]
"""Options of networks by name; networks without an entry are ReLU perceptrons."""


class ActorCriticModel(nn.Module):
    """An actor, an ensemble of critics and, if ``target``, a target vector of the critics.

    Target critics share the state of the critics' trunk, such as running statistics.
    """

    actor: Actor
    critic: Critic
    target: Tensor

    def __init__(self, actor: Actor, critic: Critic, *, target: bool = True) -> None:
        super().__init__()
        self.actor = actor
        self.critic = critic
        self.has_target = target
        if target:
            self.register_buffer("target", critic.flat.detach().clone())

    def vectors(self) -> dict[str, Network]:
        """Return the network whose layout each target vector has, by tensor name."""
        return {"target": self.critic} if self.has_target else {}

    def q_values(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Return Q-values of all critics, ``[num_critics, B]``."""
        return self.critic.q_values(obs, actions)

    def frozen_q_values(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Return Q-values with gradients for the actions but not for the critics."""
        return self.critic.q_values(obs, actions, self.critic.flat.detach())

    def target_q_values(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Return Q-values of the target critics, ``[num_critics, B]``."""
        return self.critic.q_values(obs, actions, self.target)


class MLPTD3Model(ActorCriticModel):
    """A deterministic actor, an ensemble of critics and, if ``target``, target vectors of both."""

    actor: DeterministicActor
    critic: EnsembleCritic
    actor_target: Tensor

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int] = (256, 256),
        num_critics: int = 2,
        *,
        trunks: Trunks | None = None,
        target: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        sizes, trunks = (obs_dim, action_dim, hidden_sizes), trunks or {}
        actor = DeterministicActor(*sizes, trunk=trunks.get("actor"), generator=generator)
        critic = EnsembleCritic(
            *sizes, num_critics, trunk=trunks.get("critic"), generator=generator
        )
        super().__init__(actor, critic, target=target)
        if target:
            self.register_buffer("actor_target", actor.flat.detach().clone())

    def vectors(self) -> dict[str, Network]:
        """Return the layouts of the targets of critics and actor."""
        return super().vectors() | ({"actor_target": self.actor} if self.has_target else {})

    def target_actions(self, obs: Tensor) -> Tensor:
        """Return actions of the target policy, ``[B, action_dim]``."""
        return self.actor.mode(obs, self.actor_target)

    def policy_q_values(self, obs: Tensor) -> Tensor:
        """Return Q_1(s, μ(s)), ``[B]``, with gradients for the actor only."""
        return self.critic.first_q_values(obs, self.actor.mode(obs))


class GaussianActorCritic(ActorCriticModel):
    """A Gaussian actor and an ensemble of critics, as in SAC and its variants.

    The critics have the actor's hidden sizes unless ``critic_hidden_sizes`` is given. ``trunks``
    overrides the hidden layers by network name. The actor is SAC's squashed Gaussian, or a Gaussian
    around a tanh mean with log σ within ``log_std_bounds``.
    """

    actor: GaussianActor
    critic: EnsembleCritic

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
        trunks: Trunks | None = None,
        target: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        if policy not in get_args(PolicyKind):
            raise ConfigError(f"policy = {policy!r}: should be 'squashed' or 'tanh_mean'.")
        trunks = trunks or {}
        sizes = obs_dim, action_dim, hidden_sizes
        shared: dict[str, Any] = {"trunk": trunks.get("actor"), "generator": generator}
        actor: GaussianActor = (
            SquashedGaussianActor(*sizes, **shared)
            if policy == "squashed"
            else TanhMeanGaussianActor(*sizes, log_std_bounds=log_std_bounds, **shared)
        )
        critic = EnsembleCritic(
            obs_dim,
            action_dim,
            critic_hidden_sizes or hidden_sizes,
            num_critics,
            num_quantiles=num_quantiles,
            layer_norm=layer_norm,
            last_layer_bound=last_layer_bound,
            trunk=trunks.get("critic"),
            generator=generator,
        )
        super().__init__(actor, critic, target=target)

    def sample(self, obs: Tensor, noise: Tensor) -> ActionSample:
        """Return actions of the policy from standard-normal noise, with log-probabilities."""
        return self.actor.sample(obs, noise)

    def action_logprobs(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Return the log-probability of given (dataset) actions in [-1, 1], ``[B]``."""
        return self.actor.log_prob(obs, actions)


class BinnedActorCritic(GaussianActorCritic):
    """SAC's actor, and critics with categorical distributions, as in FlashSAC.

    With ``soft_log_std_bounds``, a tanh maps the actor's log σ into these bounds.
    """

    actor: SquashedGaussianActor
    critic: BinnedCritic

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int] = (256, 256),
        num_critics: int = 2,
        *,
        num_bins: int = 101,
        bound: float = 5.0,
        soft_log_std_bounds: tuple[float, float] | None = None,
        trunks: Trunks | None = None,
        target: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        sizes, trunks = (obs_dim, action_dim, hidden_sizes), trunks or {}
        actor = SquashedGaussianActor(
            *sizes,
            soft_log_std_bounds=soft_log_std_bounds,
            trunk=trunks.get("actor"),
            generator=generator,
        )
        critic = BinnedCritic(
            *sizes,
            num_critics,
            num_bins=num_bins,
            bound=bound,
            trunk=trunks.get("critic"),
            generator=generator,
        )
        ActorCriticModel.__init__(self, actor, critic, target=target)


class MLPREDQModel(GaussianActorCritic):
    """A Gaussian actor and N critics, as in REDQ (arXiv 2101.05982) and its variants."""


class MLPSACModel(GaussianActorCritic):
    """A Gaussian actor and twin critics (arXiv 1812.05905)."""

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int] = (256, 256),
        num_critics: int = 2,
        **options: Any,
    ) -> None:
        super().__init__(obs_dim, action_dim, hidden_sizes, num_critics, **options)


class MLPIQLModel(MLPSACModel):
    """A Gaussian actor around a tanh mean, twin critics and V(s) (arXiv 2110.06169)."""

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int] = (256, 256),
        num_critics: int = 2,
        *,
        log_std_bounds: tuple[float, float] = (-5.0, 2.0),
        trunks: Trunks | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(
            obs_dim,
            action_dim,
            hidden_sizes,
            num_critics,
            policy="tanh_mean",
            log_std_bounds=log_std_bounds,
            trunks=trunks,
            generator=generator,
        )
        options = (trunks or {}).get("value") or plain_mlp(hidden_sizes)
        self.value = ValueNetwork(options.build(Sizes(obs_dim, 1)), generator)

    def values(self, obs: Tensor) -> Tensor:
        """Return V(s), ``[B]``."""
        return self.value.values(obs)

"""Advantage-Weighted Actor-Critic (arXiv 2006.09359).

The stages of an update, in the paper's order (Algorithm 1): critics, actor, targets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from rl_training.algorithms.advantage import (
    AdvantageConfig,
    clipped_weights,
    imitation_terms,
    softmax_weights,
)
from rl_training.algorithms.base import ActorCritic, Algorithm, Stage, Terms, critic_terms
from rl_training.algorithms.config import AlgorithmConfig, BatchSize, Widths
from rl_training.algorithms.ddpg import clipped_target
from rl_training.config_model import Trait
from rl_training.models import GaussianActorCritic, MLPSACModel
from rl_training.types import Batch, EnvSpec, Metrics, Mode, Noise, NoiseField, NoiseSpec

Weighting = Literal["clip", "softmax"]


class AWACConfig(AdvantageConfig):
    """Hyperparameters of AWAC (docs/algorithms/awac.md)."""

    network_keys: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "critic": {"hidden_sizes": "critic_hidden_sizes"}
    }

    batch_size: BatchSize = 1024
    """Number of transitions in each gradient update."""
    hidden_sizes: Widths = (256, 256, 256, 256)
    """Widths of the actor's hidden layers."""
    critic_hidden_sizes: Widths = (256, 256)
    """Widths of the critics' hidden layers."""
    weight_decay: float = Field(default=1e-4, ge=0)
    """L2 weight decay of the actor, added to its gradient."""
    temperature: float = Field(default=1.0, gt=0)
    """Temperature λ that divides the advantages; lower values imitate more selectively."""
    weighting: Weighting = "clip"
    """Weights of the transitions: exp(A/λ) up to `weight_clip`, or a softmax over the batch."""
    policy: Annotated[Literal["tanh_mean", "squashed"], Trait.CONTINUOUS] = "tanh_mean"
    """Actor: a Gaussian around a tanh mean, or SAC's squashed Gaussian."""
    log_std_bounds: tuple[float, float] = (-6.0, 0.0)
    """Lower and upper bounds of log σ of `policy: tanh_mean`."""


# --- Losses: pure functions of tensors ----------------------------------------


@torch.no_grad()
def awac_target(model: GaussianActorCritic, batch: Batch, noise: Noise, *, gamma: float) -> Tensor:
    """Return y = r + γ (1 − d) min_i Q̄_i(s', a') with a' from the *current* policy; ``[B]``."""
    next_actions = model.actor.explore(batch.next_obs, noise["next_action"])
    return clipped_target(model, batch, next_actions, gamma=gamma)


@torch.no_grad()
def advantages(model: GaussianActorCritic, batch: Batch, own_actions: Tensor) -> Tensor:
    """Return min_i Q_i(s, a) − min_i Q_i(s, ã), for dataset actions a and policy actions ã."""
    obs = torch.cat((batch.obs, batch.obs), dim=-2)
    q = model.q_values(obs, torch.cat((batch.actions, own_actions), dim=-2))  # [N, 2B]
    taken, own = q.amin(-2).chunk(2, dim=-1)
    return taken - own


def advantage_weights(scores: Tensor, weighting: Weighting, *, clip: float) -> Tensor:
    """Return the weights of the transitions from A/λ ``[B]``."""
    return clipped_weights(scores, clip=clip) if weighting == "clip" else softmax_weights(scores)


def policy_terms(
    model: GaussianActorCritic,
    batch: Batch,
    noise: Noise,
    *,
    temperature: float,
    weighting: Weighting,
    weight_clip: float,
) -> Terms:
    """Compute the actor loss: imitate the dataset, weighted by the advantage over the policy.

    One pass of the actor gives both its own action and the density of the dataset's action.
    """
    mean, log_std = model.actor.distribution(batch.obs)
    own_actions = model.actor.to_actions(mean.detach(), log_std.detach(), noise["action"])
    advantage = advantages(model, batch, own_actions)
    weights = advantage_weights(advantage / temperature, weighting, clip=weight_clip)
    log_prob = model.actor.log_density(mean, log_std, batch.actions)
    return imitation_terms(log_prob, advantage, weights)


def awac_loss(
    model: GaussianActorCritic,
    batch: Batch,
    noise: Noise,
    *,
    gamma: float = 0.99,
    temperature: float = 1.0,
    weighting: Weighting = "clip",
    weight_clip: float = 100.0,
) -> Metrics:
    """Compute AWAC's losses at the model's current parameters, from the same terms as `update`."""
    target = awac_target(model, batch, noise, gamma=gamma)
    policy = policy_terms(
        model,
        batch,
        noise,
        temperature=temperature,
        weighting=weighting,
        weight_clip=weight_clip,
    )
    return critic_terms(model, batch, target).losses | policy.losses


# --- Learner ------------------------------------------------------------------


class AWACAlgorithm(ActorCritic):
    """Advantage-Weighted Actor-Critic."""

    name: ClassVar[str] = "awac"
    title: ClassVar[str] = "Advantage-Weighted Actor-Critic"
    paper: ClassVar[str] = "arXiv 2006.09359"
    mode: ClassVar[Mode] = "offline"
    summary: ClassVar[str] = "Twin critics and advantage-weighted imitation of the dataset."
    config_class: ClassVar[type[AlgorithmConfig]] = AWACConfig
    config: AWACConfig
    model: GaussianActorCritic

    def __init__(self, spec: EnvSpec, config: AWACConfig, generator: torch.Generator) -> None:
        super().__init__(spec, config, generator)
        self.model = self.build_model(generator)
        self.add_optimizer("actor", self.model.actor.flat, weight_decay=config.weight_decay)
        self.add_optimizer("critic", self.model.critic.flat)

    def build_model(self, generator: torch.Generator) -> GaussianActorCritic:
        """Build the networks; override this to use others."""
        config = self.config
        return MLPSACModel(
            self.spec.obs_dim,
            self.spec.action_dim,
            num_critics=config.num_critics,
            policy=config.policy,
            log_std_bounds=config.log_std_bounds,
            trunks=config.trunks(self.spec),
            generator=generator,
        )

    @classmethod
    def discrete_variant(cls) -> type[Algorithm]:
        """Return AWAC for discrete actions."""
        from rl_training.algorithms.discrete_awac import DiscreteAWACAlgorithm

        return DiscreteAWACAlgorithm

    def noise(self, batch_size: int) -> NoiseSpec:
        """Declare policy noise for the target's action and for the action that estimates V(s)."""
        field = NoiseField("normal", (batch_size, self.spec.action_dim))
        return {"next_action": field, "action": field}

    def critic_target(self, batch: Batch, noise: Noise) -> Tensor:
        """Return the critics' regression target."""
        return awac_target(self.model, batch, noise, gamma=self.config.gamma)

    def policy_stage(self, batch: Batch, noise: Noise) -> Stage:
        """Update the actor with advantages from the critics updated just before."""
        terms = policy_terms(
            self.model,
            batch,
            noise,
            temperature=self.config.temperature,
            weighting=self.config.weighting,
            weight_clip=self.config.weight_clip,
        )
        return Stage(terms, {"actor": self.model.actor.flat})

"""Deep Deterministic Policy Gradient (arXiv 1509.02971).

The stages of an update, in the paper's order (Algorithm 1): critic, actor, targets of both.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from rl_training.algorithms.base import (
    ActorCritic,
    Due,
    Stage,
    Terms,
    bootstrap_discount,
    critic_terms,
    polyak_update,
    td_target,
)
from rl_training.algorithms.config import (
    ActorCriticConfig,
    AlgorithmConfig,
    EnsembleSize,
    OffPolicyConfig,
)
from rl_training.models import ActorCriticModel, MLPTD3Model
from rl_training.types import Batch, EnvSpec, Metrics, Mode, Noise, NoiseSpec


class DeterministicConfig(ActorCriticConfig):
    """Options shared by learners with a deterministic policy, online and offline."""

    exploration_noise: float = Field(default=0.1, ge=0)
    """Standard deviation of the Gaussian noise on collected actions, which are in [−1, 1]."""


class DDPGConfig(DeterministicConfig, OffPolicyConfig):
    """Hyperparameters of DDPG (docs/algorithms/ddpg.md)."""

    num_critics: EnsembleSize = 1
    """Number of critics; the target uses their minimum, the actor only the first."""


# --- Losses: pure functions of tensors ----------------------------------------


def actor_loss(q: Tensor) -> Tensor:
    """Return −mean Q_1(s, μ(s)), whose gradient is eq. 6; ``q`` is ``[B]``."""
    return -q.mean(-1)


@torch.no_grad()
def clipped_target(
    model: ActorCriticModel, batch: Batch, next_actions: Tensor, *, gamma: float
) -> Tensor:
    """Return y = r + γ (1 − d) min_i Q̄_i(s', a'): DDPG with one critic, TD3 with two; ``[B]``."""
    next_q = model.target_q_values(batch.next_obs, next_actions)  # [N, B]
    discount = bootstrap_discount(batch, gamma)
    return td_target(batch.rewards, batch.terminations, next_q.amin(-2), gamma=discount)


@torch.no_grad()
def ddpg_target(model: MLPTD3Model, batch: Batch, *, gamma: float) -> Tensor:
    """Return the critic's target, at the action of the *target* actor; ``[B]``."""
    return clipped_target(model, batch, model.target_actions(batch.next_obs), gamma=gamma)


def policy_terms(model: MLPTD3Model, batch: Batch) -> Terms:
    """Compute the actor loss with the first critic alone."""
    loss = actor_loss(model.policy_q_values(batch.obs))
    return Terms(loss, {"loss/actor": loss})


def ddpg_loss(model: MLPTD3Model, batch: Batch, *, gamma: float = 0.99) -> Metrics:
    """Compute DDPG's losses at the model's current parameters, from the same terms as `update`."""
    critics = critic_terms(model, batch, ddpg_target(model, batch, gamma=gamma))
    return critics.losses | policy_terms(model, batch).losses


# --- Learner ------------------------------------------------------------------


class DDPGAlgorithm(ActorCritic):
    """Deep Deterministic Policy Gradient."""

    name: ClassVar[str] = "ddpg"
    title: ClassVar[str] = "Deep Deterministic Policy Gradient"
    paper: ClassVar[str] = "arXiv 1509.02971"
    mode: ClassVar[Mode] = "online"
    summary: ClassVar[str] = "Deterministic actor-critic with Gaussian exploration."
    config_class: ClassVar[type[AlgorithmConfig]] = DDPGConfig
    config: DeterministicConfig
    model: MLPTD3Model

    def __init__(
        self, spec: EnvSpec, config: DeterministicConfig, generator: torch.Generator
    ) -> None:
        super().__init__(spec, config, generator)
        self.model = self.build_model(generator)
        self.add_optimizer("actor", self.model.actor.flat)
        self.add_optimizer("critic", self.model.critic.flat)

    def build_model(self, generator: torch.Generator) -> MLPTD3Model:
        """Build the networks; override this to use others."""
        config, sizes = self.config, (self.spec.obs_dim, self.spec.action_dim)
        return MLPTD3Model(
            *sizes,
            num_critics=config.num_critics,
            trunks=config.trunks(self.spec),
            generator=generator,
        )

    def explore(self, obs: Tensor, noise: Tensor) -> Tensor:
        """Return actions with Gaussian noise, in model space."""
        return self.model.actor.explore(obs, noise * self.config.exploration_noise)

    def noise(self, batch_size: int) -> NoiseSpec:
        """Declare no noise: an update depends only on its batch."""
        return {}

    def critic_target(self, batch: Batch, noise: Noise) -> Tensor:
        """Return the critics' regression target."""
        return ddpg_target(self.model, batch, gamma=self.config.gamma)

    def policy_stage(self, batch: Batch, noise: Noise) -> Stage:
        """Update the actor to increase the first critic's value."""
        return Stage(policy_terms(self.model, batch), {"actor": self.model.actor.flat})

    def move_targets(self, due: Due) -> None:
        """Update both targets if the actor was updated (`policy_delay`)."""
        if "actor" in due:
            super().move_targets(due)
            if self.model.has_target:
                polyak_update(self.model.actor_target, self.model.actor.flat, self.config.tau)

"""Advantage-Weighted Actor-Critic for discrete actions (arXiv 2006.09359).

The stages of an update are AWAC's: critics, actor, targets. The policy is categorical, so the
values of states are sums over the actions, and an update draws no random numbers.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from rl_training.algorithms.action_masks import legal_actions, next_legal_actions
from rl_training.algorithms.advantage import imitation_terms
from rl_training.algorithms.awac import AWACAlgorithm, Weighting, advantage_weights
from rl_training.algorithms.base import Stage, Terms, bootstrap_discount, critic_terms, td_target
from rl_training.algorithms.categorical import categorical_model, expectation
from rl_training.models import CategoricalActorCritic
from rl_training.models.categorical import at_index
from rl_training.types import ActionKind, Batch, Metrics, Noise, NoiseSpec

# --- Losses: pure functions of tensors ----------------------------------------


@torch.no_grad()
def policy_target(model: CategoricalActorCritic, batch: Batch, *, gamma: float) -> Tensor:
    """Return y = r + γ (1 − d) Σ_a' π(a'|s') min_i Q̄_i(s', a'), ``[B]``; π is the current policy.

    For continuous actions, one sample of the policy estimates the sum.
    """
    log_probs = model.actor.log_probs(batch.next_obs, next_legal_actions(batch))  # [B, A]
    next_q = model.critic.all_q_values(batch.next_obs, model.target).amin(-3)  # [B, A]
    discount, value = bootstrap_discount(batch, gamma), expectation(log_probs, next_q)
    return td_target(batch.rewards, batch.terminations, value, gamma=discount)


@torch.no_grad()
def advantages(model: CategoricalActorCritic, batch: Batch, log_probs: Tensor) -> Tensor:
    """Return min_i Q_i(s, a) − Σ_ã π(ã|s) min_i Q_i(s, ã), ``[B]``; ``log_probs`` is ``[B, A]``."""
    values = model.critic.all_q_values(batch.obs).amin(-3)  # [B, A]
    return at_index(values, batch.actions) - expectation(log_probs, values)


def policy_terms(
    model: CategoricalActorCritic,
    batch: Batch,
    *,
    temperature: float,
    weighting: Weighting,
    weight_clip: float,
) -> Terms:
    """Compute the actor loss: imitate the dataset, weighted by the advantage over the policy."""
    log_probs = model.actor.log_probs(batch.obs, legal_actions(batch))  # [B, A]
    advantage = advantages(model, batch, log_probs)
    weights = advantage_weights(advantage / temperature, weighting, clip=weight_clip)
    return imitation_terms(at_index(log_probs, batch.actions), advantage, weights)


def discrete_awac_loss(
    model: CategoricalActorCritic,
    batch: Batch,
    *,
    temperature: float = 1.0,
    weighting: Weighting = "clip",
    weight_clip: float = 100.0,
    gamma: float = 0.99,
) -> Metrics:
    """Compute the losses at the model's current parameters, from the same terms as `update`."""
    critics = critic_terms(model, batch, policy_target(model, batch, gamma=gamma))
    options = {"temperature": temperature, "weight_clip": weight_clip}
    return critics.losses | policy_terms(model, batch, weighting=weighting, **options).losses


# --- Learner ------------------------------------------------------------------


class DiscreteAWACAlgorithm(AWACAlgorithm):
    """Advantage-Weighted Actor-Critic for discrete actions."""

    actions: ClassVar[ActionKind] = "discrete"
    mask_fields: ClassVar[tuple[str, ...]] = ("legal_actions", "next_legal_actions")
    model: CategoricalActorCritic  # type: ignore[assignment]

    def build_model(self, generator: torch.Generator) -> CategoricalActorCritic:  # type: ignore[override]
        """Build the networks; override this to use others."""
        return categorical_model(self.spec, self.config, generator)

    def noise(self, batch_size: int) -> NoiseSpec:
        """Declare no noise: expectations over actions are sums."""
        return {}

    def critic_target(self, batch: Batch, noise: Noise) -> Tensor:
        """Return the critics' regression target."""
        return policy_target(self.model, batch, gamma=self.config.gamma)

    def policy_stage(self, batch: Batch, noise: Noise) -> Stage:
        """Update the actor with advantages from the critics updated just before."""
        config = self.config
        options = {"temperature": config.temperature, "weight_clip": config.weight_clip}
        terms = policy_terms(self.model, batch, weighting=config.weighting, **options)
        return Stage(terms, {"actor": self.model.actor.flat})

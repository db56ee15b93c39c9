"""Soft Actor-Critic for discrete actions (arXiv 1910.07207).

The stages of an update are SAC's: critics, actor, temperature, targets. The policy is categorical,
so every expectation over actions is a sum, and an update draws no random numbers.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from rl_training.algorithms.action_masks import legal_actions, next_legal_actions
from rl_training.algorithms.base import Stage, Terms, bootstrap_discount, critic_terms, td_target
from rl_training.algorithms.categorical import categorical_model, expectation
from rl_training.algorithms.config import AlgorithmConfig
from rl_training.algorithms.sac import SACAlgorithm, SACConfig, Temperature, temperature_loss
from rl_training.models import CategoricalActorCritic
from rl_training.types import ActionKind, Batch, Metrics, Noise, NoiseSpec

# --- Losses: pure functions of tensors ----------------------------------------


@torch.no_grad()
def soft_target(
    model: CategoricalActorCritic, batch: Batch, *, alpha: Tensor, gamma: float
) -> Tensor:
    """Return y = r + γ (1 − d) Σ_a' π(a'|s') (min_i Q̄_i(s', a') − α log π(a'|s')), eq. 4 and 10.

    The policy is the *current* one; the result is ``[B]``.
    """
    log_probs = model.actor.log_probs(batch.next_obs, next_legal_actions(batch))  # [B, A]
    next_q = model.critic.all_q_values(batch.next_obs, model.target).amin(-3)  # [B, A]
    value = expectation(log_probs, next_q - alpha * log_probs)
    discount = bootstrap_discount(batch, gamma)
    return td_target(batch.rewards, batch.terminations, value, gamma=discount)


def actor_loss(q: Tensor, log_probs: Tensor, *, alpha: Tensor) -> Tensor:
    """Return the mean of Σ_a π(a|s) (α log π(a|s) − min_i Q_i(s, a)), eq. 12.

    ``q`` is ``[N, B, A]`` and gets no gradient; ``log_probs`` is ``[B, A]``.
    """
    return expectation(log_probs, alpha * log_probs - q.detach().amin(-3)).mean(-1)


def target_entropies(batch: Batch, num_actions: int, *, fraction: float) -> Tensor:
    """Return the fraction of the largest entropy, log |A| for |A| legal actions, ``[B]``."""
    legal = legal_actions(batch)
    if legal is None:
        return torch.full_like(batch.rewards, fraction * math.log(num_actions))
    return fraction * legal.sum(-1).log()


def policy_terms(
    model: CategoricalActorCritic,
    batch: Batch,
    temperature: Temperature,
    *,
    entropy_fraction: float | None,
) -> Terms:
    """Compute the losses of the actor and of a learned temperature.

    With an ``entropy_fraction``, it determines the target entropy.
    """
    alpha, log_alpha, target = temperature
    log_probs = model.actor.log_probs(batch.obs, legal_actions(batch))  # [B, A]
    loss = actor_loss(model.critic.all_q_values(batch.obs), log_probs, alpha=alpha)
    losses = {"loss/actor": loss}
    mean_log_prob = expectation(log_probs, log_probs).detach()  # [B], the negative entropy
    if log_alpha is not None:
        wanted: float | Tensor = target
        if entropy_fraction is not None:
            wanted = target_entropies(batch, log_probs.shape[-1], fraction=entropy_fraction)
        learned = temperature_loss(log_alpha, mean_log_prob, target_entropy=wanted)
        losses["loss/temperature"] = learned
        loss = loss + learned  # they have gradients for separate parameters
    reported = {"policy/entropy": -mean_log_prob.mean(-1), "policy/alpha": alpha}
    return Terms(loss, losses | reported)


def discrete_sac_loss(
    model: CategoricalActorCritic,
    batch: Batch,
    *,
    alpha: Tensor,
    gamma: float = 0.99,
    log_alpha: Tensor | None = None,
    target_entropy: float = 0.0,
    entropy_fraction: float | None = None,
) -> Metrics:
    """Compute the losses at the model's current parameters, from the same terms as `update`."""
    target = soft_target(model, batch, alpha=alpha, gamma=gamma)
    temperature = Temperature(alpha, log_alpha, target_entropy)
    policy = policy_terms(model, batch, temperature, entropy_fraction=entropy_fraction)
    return critic_terms(model, batch, target).losses | policy.losses


# --- Learner ------------------------------------------------------------------


class DiscreteSACAlgorithm(SACAlgorithm):
    """Soft Actor-Critic for discrete actions."""

    actions: ClassVar[ActionKind] = "discrete"
    mask_fields: ClassVar[tuple[str, ...]] = ("legal_actions", "next_legal_actions")
    config_class: ClassVar[type[AlgorithmConfig]] = SACConfig
    config: SACConfig
    model: CategoricalActorCritic  # type: ignore[assignment]

    def build_model(self, generator: torch.Generator) -> CategoricalActorCritic:  # type: ignore[override]
        """Build the networks; override this to use others."""
        return categorical_model(self.spec, self.config, generator)

    @property
    def entropy_fraction(self) -> float | None:
        """The fraction that determines the target entropy; None if the config sets a number."""
        automatic = self.config.target_entropy == "auto"
        return self.config.entropy_fraction if automatic else None

    def noise(self, batch_size: int) -> NoiseSpec:
        """Declare no noise: expectations over actions are sums."""
        return {}

    def critic_target(self, batch: Batch, noise: Noise) -> Tensor:
        """Return the soft target."""
        return soft_target(self.model, batch, alpha=self.alpha, gamma=self.config.gamma)

    def policy_stage(self, batch: Batch, noise: Noise) -> Stage:
        """Update the actor, and the temperature from the same probabilities."""
        temperature = Temperature(self.alpha, self.log_alpha, self.target_entropy)
        fraction = self.entropy_fraction
        terms = policy_terms(self.model, batch, temperature, entropy_fraction=fraction)
        learned = {} if self.log_alpha is None else {"temperature": self.log_alpha}
        return Stage(terms, {"actor": self.model.actor.flat, **learned})

"""Ensemble-Diversified Actor-Critic (arXiv 2110.01548): SAC with many critics kept apart.

Stages of an update are SAC's: critics, actor, temperature, targets. With ``eta: 0`` it is SAC-N.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from rl_training.algorithms import sac
from rl_training.algorithms.base import critic_loss, critic_metrics
from rl_training.algorithms.config import AlgorithmConfig, EnsembleSize
from rl_training.algorithms.sac import SACAlgorithm, SoftConfig
from rl_training.models import MLPREDQModel
from rl_training.types import Batch, Metrics, Mode, Noise

NORM_EPS = 1e-10
LAST_LAYER_BOUND = 3e-3
"""The critics begin near 0, as in the authors' code."""


class EDACConfig(SoftConfig):
    """EDAC's hyper-parameters (docs/algorithms/edac.md)."""

    num_critics: EnsembleSize = Field(default=10, ge=2, description="Critics in the ensemble, N.")
    eta: float = Field(default=1.0, ge=0, description="Weight η of the diversity term; 0 is SAC-N.")


# --- Losses: pure functions of tensors ----------------------------------------


def critic_diversity_loss(gradients: Tensor) -> Tensor:
    """Mean of Σ_{i≠j} cos(∂Q_i/∂a, ∂Q_j/∂a) / (N − 1), eq. 7; ``gradients`` are ``[N, B, A]``.

    N for N aligned gradients, 0 for orthogonal ones, −2 for two opposed ones.
    """
    norms: Tensor = torch.linalg.vector_norm(gradients, dim=-1, keepdim=True)
    units = gradients / (norms + NORM_EPS)
    # Σ_{i≠j} ⟨u_i, u_j⟩ = |Σ_i u_i|² − Σ_i |u_i|²: no table of pairs.
    pairs = units.sum(-3).square().sum(-1) - units.square().sum((-3, -1))
    return pairs.mean(-1) / (gradients.shape[-3] - 1)


def diversified_losses(
    model: MLPREDQModel, batch: Batch, target: Tensor, *, eta: float
) -> tuple[Metrics, Tensor]:
    """The critics' loss and its diversity part, and the Q-values ``[N, B]``.

    Σ_i mean (Q_i(s, a) − y)² + η diversity, at the dataset's actions. Without η no gradient by the
    action is made.
    """
    if eta == 0:
        q = model.q_values(batch.obs, batch.actions)
        return {"loss/critic": critic_loss(q, target)}, q
    q, gradients = model.critic.action_gradients(batch.obs, batch.actions)
    diversity = critic_diversity_loss(gradients)
    loss = critic_loss(q, target) + eta * diversity
    return {"loss/critic": loss, "loss/diversity": diversity}, q


def edac_loss(
    model: MLPREDQModel,
    batch: Batch,
    noise: Noise,
    *,
    alpha: Tensor,
    eta: float = 1.0,
    gamma: float = 0.99,
    log_alpha: Tensor | None = None,
    target_entropy: float = 0.0,
) -> Metrics:
    """All of EDAC's losses at the model's present parameters, by the terms that `update` uses."""
    target = sac.sac_target(model, batch, noise, alpha=alpha, gamma=gamma)
    losses, _ = diversified_losses(model, batch, target, eta=eta)
    rest = alpha, log_alpha, target_entropy
    return losses | sac.policy_losses(model, batch, noise, sac.actor_loss, *rest)[0]


# --- Learner ------------------------------------------------------------------


class EDACAlgorithm(SACAlgorithm):
    """Ensemble-Diversified Actor-Critic."""

    name: ClassVar[str] = "edac"
    title: ClassVar[str] = "Ensemble-Diversified Actor-Critic"
    paper: ClassVar[str] = "arXiv 2110.01548"
    mode: ClassVar[Mode] = "offline"
    summary: ClassVar[str] = "SAC with the minimum over many critics that are kept diverse."
    exports: ClassVar[tuple[str, ...]] = ("critic_diversity_loss",)
    config_class: ClassVar[type[AlgorithmConfig]] = EDACConfig
    loss_parts: ClassVar[frozenset[str]] = frozenset({"loss/diversity"})
    config: EDACConfig

    def build_model(self, generator: torch.Generator) -> MLPREDQModel:
        """SAC's networks with N critics, whose last layers begin small."""
        return MLPREDQModel(
            *(self.spec.obs_dim, self.spec.action_dim),
            *(self.config.hidden_sizes, self.config.num_critics),
            last_layer_bound=LAST_LAYER_BOUND,
            generator=generator,
        )

    def critic_step(self, batch: Batch, noise: Noise) -> Metrics:
        """Move every critic towards the target and away from the others."""
        target = self.critic_target(batch, noise)
        losses, q = diversified_losses(self.model, batch, target, eta=self.config.eta)
        self.minimize(losses["loss/critic"], critic=self.model.critic.flat)
        metrics = {name: loss.detach() for name, loss in losses.items()}
        return metrics | critic_metrics(losses["loss/critic"], q, target)

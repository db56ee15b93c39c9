"""Ensemble-Diversified Actor-Critic (arXiv 2110.01548): SAC with many, diverse critics.

The stages of an update are SAC's: critics, actor, temperature, targets. ``eta: 0`` gives SAC-N.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from rl_training.algorithms.base import (
    Stage,
    Terms,
    critic_loss,
    critic_metrics,
    critic_terms,
    importance_weights,
    td_errors,
)
from rl_training.algorithms.config import AlgorithmConfig, EnsembleSize
from rl_training.algorithms.sac import (
    SACAlgorithm,
    SoftConfig,
    Temperature,
    actor_loss,
    policy_terms,
    sac_target,
)
from rl_training.errors import ConfigError
from rl_training.models import GaussianActorCritic, MLPREDQModel
from rl_training.types import Batch, Metrics, Mode, Noise

NORM_EPS = 1e-10
LAST_LAYER_BOUND = 3e-3
"""Initial range of the critics' last layers, as in the authors' code: values start near 0."""


class EDACConfig(SoftConfig):
    """Hyperparameters of EDAC (docs/algorithms/edac.md)."""

    num_critics: EnsembleSize = Field(default=10, ge=2)
    """Number N of critics; the paper uses 10 to 50."""
    eta: float = Field(default=1.0, ge=0)
    """Weight η of the diversity term; 0 gives SAC-N."""


# --- Losses: pure functions of tensors ----------------------------------------


def critic_diversity_loss(gradients: Tensor, *, num_critics: int | None = None) -> Tensor:
    """Return the mean of Σ_{i≠j} cos(∂Q_i/∂a, ∂Q_j/∂a) / (N − 1), eq. 7.

    ``gradients`` are ``[N, B, A]``.

    The value is N for N aligned gradients, 0 for orthogonal ones and −2 for two opposed ones.
    ``num_critics``, if given, is checked against N.

    Raises:
        ConfigError: If there are fewer than two critics, or the axes are in the wrong order.
    """
    critics = gradients.shape[-3] if gradients.dim() > 2 else 0
    if critics < 2 or num_critics not in (None, critics):
        raise ConfigError(
            f"The action gradients have the shape {list(gradients.shape)}: critic_diversity_loss "
            f"expects [critics, batch, action] with {num_critics or '2 or more'} critics."
        )
    norms: Tensor = torch.linalg.vector_norm(gradients, dim=-1, keepdim=True)
    units = gradients / (norms + NORM_EPS)
    # Σ_{i≠j} ⟨u_i, u_j⟩ = |Σ_i u_i|² − Σ_i |u_i|² avoids computing all pairs.
    pairs = units.sum(-3).square().sum(-1) - units.square().sum((-3, -1))
    return pairs.mean(-1) / (critics - 1)


def diversified_terms(
    model: GaussianActorCritic, batch: Batch, target: Tensor, *, eta: float
) -> Terms:
    """Compute Σ_i mean (Q_i(s, a) − y)² + η diversity, at the dataset's actions.

    With η = 0, no gradient with respect to the action is computed.
    """
    if eta == 0:
        return critic_terms(model, batch, target)
    q, gradients = model.critic.action_gradients(batch.obs, batch.actions)
    diversity = critic_diversity_loss(gradients, num_critics=len(q))
    loss = critic_loss(q, target, importance_weights(batch)) + eta * diversity
    metrics = {"loss/diversity": diversity} | critic_metrics(loss, q, target)
    return Terms(loss, metrics | td_errors(q, target, batch))


def edac_loss(
    model: GaussianActorCritic,
    batch: Batch,
    noise: Noise,
    *,
    alpha: Tensor,
    eta: float = 1.0,
    gamma: float = 0.99,
    log_alpha: Tensor | None = None,
    target_entropy: float = 0.0,
) -> Metrics:
    """Compute EDAC's losses at the model's current parameters, from the same terms as `update`."""
    target = sac_target(model, batch, noise, alpha=alpha, gamma=gamma)
    temperature = Temperature(alpha, log_alpha, target_entropy)
    policy = policy_terms(model, batch, noise, actor_loss, temperature)
    return diversified_terms(model, batch, target, eta=eta).losses | policy.losses


# --- Learner ------------------------------------------------------------------


class EDACAlgorithm(SACAlgorithm):
    """Ensemble-Diversified Actor-Critic."""

    name: ClassVar[str] = "edac"
    title: ClassVar[str] = "Ensemble-Diversified Actor-Critic"
    paper: ClassVar[str] = "arXiv 2110.01548"
    mode: ClassVar[Mode] = "offline"
    summary: ClassVar[str] = "SAC with the minimum over a large, diversified ensemble of critics."
    exports: ClassVar[tuple[str, ...]] = ("critic_diversity_loss",)
    config_class: ClassVar[type[AlgorithmConfig]] = EDACConfig
    loss_parts: ClassVar[frozenset[str]] = frozenset({"loss/diversity"})
    config: EDACConfig

    def build_model(self, generator: torch.Generator) -> GaussianActorCritic:
        """Build SAC's networks with N critics and small initial last layers."""
        return MLPREDQModel(
            self.spec.obs_dim,
            self.spec.action_dim,
            num_critics=self.config.num_critics,
            last_layer_bound=LAST_LAYER_BOUND,
            trunks=self.config.trunks(self.spec),
            generator=generator,
        )

    def critic_stage(self, batch: Batch, noise: Noise) -> Stage:
        """Update every critic toward the target, with the diversity term."""
        target = self.critic_target(batch, noise)
        terms = diversified_terms(self.model, batch, target, eta=self.config.eta)
        return Stage(terms, {"critic": self.model.critic.flat})

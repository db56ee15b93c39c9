"""TD3+BC (arXiv 2106.06860): TD3 whose actor also imitates the dataset.

The stages of an update are TD3's: critics, then actor and targets in every d-th update.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from torch import Tensor

from rl_training.algorithms.base import Stage, Terms, critic_terms
from rl_training.algorithms.bc import squared_error
from rl_training.algorithms.config import AlgorithmConfig
from rl_training.algorithms.td3 import SmoothedConfig, TD3Algorithm, td3_target
from rl_training.models import MLPTD3Model
from rl_training.types import Batch, Metrics, Mode, Noise


class TD3BCConfig(SmoothedConfig):
    """Hyperparameters of TD3+BC (docs/algorithms/td3_bc.md)."""

    alpha: float = Field(default=2.5, gt=0)
    """Weight α of the value term relative to imitation; higher values trust the critics more."""


# --- Losses: pure functions of tensors ----------------------------------------


def value_weight(q: Tensor, *, alpha: float) -> Tensor:
    """Return λ = α / mean |Q_1(s, μ(s))|, a scale without gradient."""
    return alpha / q.detach().abs().mean(-1)


def actor_terms(q: Tensor, actions: Tensor, dataset_actions: Tensor, *, alpha: float) -> Terms:
    """Compute −λ mean Q_1(s, μ(s)) + mean (μ(s) − a)²; ``q`` is ``[B]``.

    The imitation term is averaged over rows and action dimensions.
    """
    weight = value_weight(q, alpha=alpha)
    imitation = squared_error(actions, dataset_actions)
    loss = imitation - weight * q.mean(-1)
    losses = {"loss/actor": loss, "loss/imitation": imitation}
    return Terms(loss, losses | {"policy/value_weight": weight})


def policy_terms(model: MLPTD3Model, batch: Batch, *, alpha: float) -> Terms:
    """Compute the actor loss with the first critic only."""
    actions = model.actor.mode(batch.obs)
    q = model.critic.first_q_values(batch.obs, actions)
    return actor_terms(q, actions, batch.actions, alpha=alpha)


def td3_bc_loss(
    model: MLPTD3Model,
    batch: Batch,
    noise: Noise,
    *,
    alpha: float = 2.5,
    gamma: float = 0.99,
    target_noise: float = 0.2,
    target_noise_clip: float = 0.5,
) -> Metrics:
    """Compute TD3+BC's losses at the current parameters, from the same terms as `update`."""
    smoothing = {"target_noise": target_noise, "target_noise_clip": target_noise_clip}
    target = td3_target(model, batch, noise, gamma=gamma, **smoothing)
    policy = policy_terms(model, batch, alpha=alpha)
    return critic_terms(model, batch, target).losses | policy.losses


# --- Learner ------------------------------------------------------------------


class TD3BCAlgorithm(TD3Algorithm):
    """TD3 with behavior cloning."""

    name: ClassVar[str] = "td3_bc"
    title: ClassVar[str] = "TD3 with Behavior Cloning"
    paper: ClassVar[str] = "arXiv 2106.06860"
    mode: ClassVar[Mode] = "offline"
    summary: ClassVar[str] = "TD3 with an imitation term in the actor loss."
    config_class: ClassVar[type[AlgorithmConfig]] = TD3BCConfig
    loss_parts: ClassVar[frozenset[str]] = frozenset({"loss/imitation"})
    config: TD3BCConfig

    def policy_stage(self, batch: Batch, noise: Noise) -> Stage:
        """Update the actor to increase the first critic's value and to imitate the dataset."""
        terms = policy_terms(self.model, batch, alpha=self.config.alpha)
        return Stage(terms, {"actor": self.model.actor.flat})

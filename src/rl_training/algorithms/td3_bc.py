"""TD3+BC (arXiv 2106.06860): TD3 whose actor also imitates the dataset.

Stages of an update are TD3's: critics; every d-th time actor and targets.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from torch import Tensor

from rl_training.algorithms.base import critic_loss
from rl_training.algorithms.bc import squared_error
from rl_training.algorithms.config import AlgorithmConfig
from rl_training.algorithms.td3 import SmoothedConfig, TD3Algorithm, td3_target
from rl_training.models import MLPTD3Model
from rl_training.types import Batch, Metrics, Mode, Noise


class TD3BCConfig(SmoothedConfig):
    """TD3+BC's hyper-parameters (docs/algorithms/td3_bc.md)."""

    alpha: float = Field(
        default=2.5, gt=0, description="Weight α of the value against the imitation."
    )


# --- Losses: pure functions of tensors ----------------------------------------


def value_weight(q: Tensor, *, alpha: float) -> Tensor:
    """Λ = α / mean |Q_1(s, μ(s))|: a scale, which no gradient goes through."""
    return alpha / q.detach().abs().mean(-1)


def actor_loss(
    q: Tensor, actions: Tensor, dataset_actions: Tensor, *, alpha: float
) -> tuple[Tensor, Tensor, Tensor]:
    """−λ mean Q_1(s, μ(s)) + mean (μ(s) − a)², and its parts λ and the imitation's loss.

    ``q`` is ``[B]``; the imitation's mean is over rows and action axes.
    """
    weight = value_weight(q, alpha=alpha)
    imitation = squared_error(actions, dataset_actions)
    return imitation - weight * q.mean(-1), weight, imitation


def policy_terms(
    model: MLPTD3Model, batch: Batch, *, alpha: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The actor's loss by the first critic alone, λ and the imitation's loss."""
    actions = model.actor.mode(batch.obs)
    q = model.critic.first_q_values(batch.obs, actions)
    return actor_loss(q, actions, batch.actions, alpha=alpha)


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
    """TD3+BC's losses at the model's present parameters, by the terms that `update` uses."""
    smoothing = {"target_noise": target_noise, "target_noise_clip": target_noise_clip}
    target = td3_target(model, batch, noise, gamma=gamma, **smoothing)
    loss, _, imitation = policy_terms(model, batch, alpha=alpha)
    return {
        "loss/critic": critic_loss(model.q_values(batch.obs, batch.actions), target),
        "loss/actor": loss,
        "loss/imitation": imitation,
    }


# --- Learner ------------------------------------------------------------------


class TD3BCAlgorithm(TD3Algorithm):
    """TD3 with behavior cloning."""

    name: ClassVar[str] = "td3_bc"
    title: ClassVar[str] = "TD3 with Behavior Cloning"
    paper: ClassVar[str] = "arXiv 2106.06860"
    mode: ClassVar[Mode] = "offline"
    summary: ClassVar[str] = "TD3 whose actor also imitates the dataset."
    config_class: ClassVar[type[AlgorithmConfig]] = TD3BCConfig
    loss_parts: ClassVar[frozenset[str]] = frozenset({"loss/imitation"})
    config: TD3BCConfig

    def policy_step(self, batch: Batch) -> Metrics:
        """Move the actor up the first critic and towards the dataset's actions."""
        loss, weight, imitation = policy_terms(self.model, batch, alpha=self.config.alpha)
        self.minimize(loss, actor=self.model.actor.flat)
        return {
            "loss/actor": loss.detach(),
            "loss/imitation": imitation.detach(),
            "policy/value_weight": weight,
        }

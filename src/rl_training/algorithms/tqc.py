"""Truncated Quantile Critics (arXiv 2005.04269): SAC with distributional critics.

The stages of an update are SAC's: critics, actor, temperature, targets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import torch
from pydantic import Field, model_validator
from torch import Tensor

from rl_training.algorithms.base import (
    Stage,
    Terms,
    bootstrap_discount,
    critic_metrics,
    importance_weights,
    td_errors,
    td_target,
)
from rl_training.algorithms.config import AlgorithmConfig, EnsembleSize, Width, Widths
from rl_training.algorithms.quantiles import quantile_loss
from rl_training.algorithms.redq import mean_actor_loss
from rl_training.algorithms.sac import SACAlgorithm, SACConfig, Temperature, policy_terms
from rl_training.models import GaussianActorCritic, MLPREDQModel
from rl_training.types import Batch, Metrics, Mode, Noise

if TYPE_CHECKING:
    from typing_extensions import Self


class TQCConfig(SACConfig):
    """Hyperparameters of TQC (docs/algorithms/tqc.md)."""

    network_keys: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "critic": {"hidden_sizes": "critic_hidden_sizes"}
    }

    num_critics: EnsembleSize = 5
    """Number N of critics."""
    num_quantiles: Width = 25
    """Number M of quantiles per critic."""
    top_quantiles_to_drop_per_net: int = Field(default=2, ge=0)
    """Number of largest target quantiles to drop per critic; less than `num_quantiles`."""
    critic_hidden_sizes: Widths = (512, 512, 512)
    """Widths of the critics' hidden layers."""

    @model_validator(mode="after")
    def _check_kept_quantiles(self) -> Self:
        if self.top_quantiles_to_drop_per_net >= self.num_quantiles:
            raise ValueError(
                f"top_quantiles_to_drop_per_net = {self.top_quantiles_to_drop_per_net}: "
                f"should be less than num_quantiles, which is {self.num_quantiles}"
            )
        return self


# --- Losses: pure functions of tensors ----------------------------------------


def truncated_quantiles(quantiles: Tensor, drop_per_net: int) -> Tensor:
    """Pool and sort the quantiles of all critics and drop the largest; ``[B, N·(M − d)]``.

    ``quantiles`` is ``[N, B, M]``. Sorting each critic separately would drop d of every critic.
    """
    pooled = quantiles.movedim(-3, -2).flatten(-2)  # [B, N·M]
    keep = pooled.shape[-1] - drop_per_net * quantiles.shape[-3]
    return pooled.sort(-1).values[..., :keep]


@torch.no_grad()
def tqc_target(
    model: GaussianActorCritic,
    batch: Batch,
    noise: Noise,
    *,
    alpha: Tensor,
    drop_per_net: int,
    gamma: float,
) -> Tensor:
    """Return y_k = r + γ (1 − d) (z_(k)(s', a') − α log π(a'|s')) for the kept quantiles.

    The result is ``[B, K]``.
    """
    following = model.sample(batch.next_obs, noise["next_action"])
    quantiles = model.critic.quantiles(batch.next_obs, following.actions, model.target)
    kept = truncated_quantiles(quantiles, drop_per_net)
    soft_values = kept - (alpha * following.log_prob).unsqueeze(-1)
    rewards, terminations = batch.rewards.unsqueeze(-1), batch.terminations.unsqueeze(-1)
    return td_target(rewards, terminations, soft_values, gamma=bootstrap_discount(batch, gamma))


def quantile_terms(model: GaussianActorCritic, batch: Batch, target: Tensor) -> Terms:
    """Compute the quantile loss and report the means of quantiles and target."""
    quantiles = model.critic.quantiles(batch.obs, batch.actions)  # [N, B, M]
    loss = quantile_loss(quantiles, target, importance_weights(batch))
    means = quantiles.detach().mean(-1), target.mean(-1)  # [N, B] and [B]
    return Terms(loss, critic_metrics(loss, *means) | td_errors(*means, batch))


def tqc_loss(
    model: GaussianActorCritic,
    batch: Batch,
    noise: Noise,
    *,
    alpha: Tensor,
    drop_per_net: int = 2,
    gamma: float = 0.99,
    log_alpha: Tensor | None = None,
    target_entropy: float = 0.0,
) -> Metrics:
    """Compute TQC's losses at the model's current parameters, from the same terms as `update`."""
    target = tqc_target(model, batch, noise, alpha=alpha, drop_per_net=drop_per_net, gamma=gamma)
    temperature = Temperature(alpha, log_alpha, target_entropy)
    policy = policy_terms(model, batch, noise, mean_actor_loss, temperature)
    return quantile_terms(model, batch, target).losses | policy.losses


# --- Learner ------------------------------------------------------------------


class TQCAlgorithm(SACAlgorithm):
    """Truncated Quantile Critics."""

    name: ClassVar[str] = "tqc"
    title: ClassVar[str] = "Truncated Quantile Critics"
    paper: ClassVar[str] = "arXiv 2005.04269"
    mode: ClassVar[Mode] = "online"
    summary: ClassVar[str] = "SAC with distributional critics, dropping the largest quantiles."
    config_class: ClassVar[type[AlgorithmConfig]] = TQCConfig
    config: TQCConfig

    def build_model(self, generator: torch.Generator) -> GaussianActorCritic:
        """Build SAC's actor, and critics with M outputs each."""
        config = self.config
        return MLPREDQModel(
            self.spec.obs_dim,
            self.spec.action_dim,
            num_critics=config.num_critics,
            num_quantiles=config.num_quantiles,
            trunks=config.trunks(self.spec),
            generator=generator,
        )

    def critic_target(self, batch: Batch, noise: Noise) -> Tensor:
        """Return the truncated soft target, ``[B, K]``."""
        return tqc_target(
            self.model,
            batch,
            noise,
            alpha=self.alpha,
            drop_per_net=self.config.top_quantiles_to_drop_per_net,
            gamma=self.config.gamma,
        )

    def critic_stage(self, batch: Batch, noise: Noise) -> Stage:
        """Update every critic's quantiles toward the target's."""
        terms = quantile_terms(self.model, batch, self.critic_target(batch, noise))
        return Stage(terms, {"critic": self.model.critic.flat})

    def actor_loss(self, q: Tensor, log_prob: Tensor, *, alpha: Tensor) -> Tensor:
        """Compute the actor loss with the mean of all quantiles of all critics."""
        return mean_actor_loss(q, log_prob, alpha=alpha)

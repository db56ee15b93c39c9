"""Randomized Ensembled Double Q-learning (arXiv 2101.05982): SAC with many critics and updates.

A block of G updates (Algorithm 1) updates the critics and targets G times, then the actor and the
temperature once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from pydantic import Field, model_validator
from torch import Tensor

from rl_training.algorithms.base import critic_terms
from rl_training.algorithms.config import AlgorithmConfig, EnsembleSize
from rl_training.algorithms.sac import (
    SACAlgorithm,
    SACConfig,
    Temperature,
    entropy_weight,
    policy_terms,
    soft_batch_target,
)
from rl_training.models import GaussianActorCritic
from rl_training.types import Batch, EnvSpec, Metrics, Mode, Noise, NoiseField, NoiseSpec

if TYPE_CHECKING:
    from typing_extensions import Self


class REDQConfig(SACConfig):
    """Hyperparameters of REDQ (docs/algorithms/redq.md)."""

    gradient_updates_per_step: int = Field(default=20, gt=0)
    """Number G of updates in each round; the last one also updates actor and temperature."""
    num_critics: EnsembleSize = 10
    """Number N of critics."""
    subset_size: int = Field(default=2, gt=0)
    """Number M ≤ N of target critics whose minimum is used, drawn at random in each update."""

    @model_validator(mode="after")
    def _subset_fits(self) -> Self:
        if self.subset_size > self.num_critics:
            raise ValueError(
                f"subset_size = {self.subset_size}: should be at most num_critics, "
                f"which is {self.num_critics}"
            )
        return self


# --- Losses: pure functions of tensors ----------------------------------------


def mean_actor_loss(q: Tensor, log_prob: Tensor, *, alpha: Tensor) -> Tensor:
    """Return the mean of α log π(ã|s) − (1/N) Σ_i Q_i(s, ã) for ``q`` ``[N, B]``."""
    return (alpha * log_prob - q.mean(-2)).mean(-1)


def random_subset(uniform: Tensor, size: int) -> Tensor:
    """Return the indices of the ``size`` smallest of N uniform numbers, a random subset."""
    return uniform.topk(size, largest=False, sorted=False).indices


@torch.no_grad()
def redq_target(
    model: GaussianActorCritic,
    batch: Batch,
    noise: Noise,
    *,
    alpha: Tensor,
    subset_size: int,
    gamma: float,
) -> Tensor:
    """Return SAC's target from the minimum over a random subset of target critics; ``[B]``."""
    following = model.sample(batch.next_obs, noise["next_action"])
    members = random_subset(noise["subset"], subset_size)
    obs, actions = batch.next_obs, following.actions
    next_q = model.critic.subset_q_values(obs, actions, model.target, members)  # [M, B]
    return soft_batch_target(batch, next_q, following.log_prob, alpha=alpha, gamma=gamma)


def redq_loss(
    model: GaussianActorCritic,
    batch: Batch,
    noise: Noise,
    *,
    alpha: Tensor,
    subset_size: int = 2,
    gamma: float = 0.99,
    log_alpha: Tensor | None = None,
    target_entropy: float = 0.0,
    backup_entropy: bool = True,
) -> Metrics:
    """Compute REDQ's losses at the model's current parameters, from the same terms as `update`.

    RLPD's losses are the same on a mixed batch, optionally without entropy in the target.
    """
    backup_alpha = entropy_weight(alpha, backup_entropy)
    target = redq_target(
        model, batch, noise, alpha=backup_alpha, subset_size=subset_size, gamma=gamma
    )
    temperature = Temperature(alpha, log_alpha, target_entropy)
    policy = policy_terms(model, batch, noise, mean_actor_loss, temperature)
    return critic_terms(model, batch, target).losses | policy.losses


# --- Learner ------------------------------------------------------------------


class REDQAlgorithm(SACAlgorithm):
    """Randomized Ensembled Double Q-learning."""

    name: ClassVar[str] = "redq"
    title: ClassVar[str] = "Randomized Ensembled Double Q-learning"
    paper: ClassVar[str] = "arXiv 2101.05982"
    mode: ClassVar[Mode] = "online"
    summary: ClassVar[str] = "SAC with many critics, random target subsets and many updates."
    config_class: ClassVar[type[AlgorithmConfig]] = REDQConfig
    config: REDQConfig

    def __init__(self, spec: EnvSpec, config: REDQConfig, generator: torch.Generator) -> None:
        super().__init__(spec, config, generator)
        self.intervals = {"actor": config.gradient_updates_per_step}

    def noise(self, batch_size: int) -> NoiseSpec:
        """Declare SAC's noise and a uniform number per critic, which determines the subset."""
        return {
            **super().noise(batch_size),
            "subset": NoiseField("uniform", (self.config.num_critics,)),
        }

    def critic_target(self, batch: Batch, noise: Noise) -> Tensor:
        """Return the soft target of this update's subset."""
        return redq_target(
            self.model,
            batch,
            noise,
            alpha=self.backup_alpha,
            subset_size=self.config.subset_size,
            gamma=self.config.gamma,
        )

    def actor_loss(self, q: Tensor, log_prob: Tensor, *, alpha: Tensor) -> Tensor:
        """Compute the actor loss with the mean of all critics instead of their minimum."""
        return mean_actor_loss(q, log_prob, alpha=alpha)

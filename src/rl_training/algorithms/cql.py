"""Conservative Q-Learning, CQL(H) (arXiv 2006.04779): SAC with conservative critics.

The stages of an update are SAC's: critics (and the multiplier, if it is learned), actor,
temperature, targets.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from rl_training.algorithms.base import (
    Algorithm,
    Stage,
    Terms,
    critic_loss,
    importance_weights,
    td_errors,
    value_metrics,
)
from rl_training.algorithms.config import AlgorithmConfig, LearningRate, SampleCount
from rl_training.algorithms.sac import (
    SACAlgorithm,
    SoftConfig,
    Temperature,
    actor_loss,
    entropy_weight,
    policy_terms,
    sac_target,
)
from rl_training.config_model import Trait
from rl_training.models import GaussianActorCritic
from rl_training.models.actors import ActionSample
from rl_training.types import Batch, EnvSpec, Metrics, Mode, Noise, NoiseField, NoiseSpec

MULTIPLIER_MAX = 1e6


class CQLConfig(SoftConfig):
    """Hyperparameters of CQL (docs/algorithms/cql.md)."""

    policy_learning_rate: Annotated[LearningRate, Trait.CONTINUOUS] = 1e-4
    """Learning rate of the actor and the temperature; the critics use `learning_rate`."""
    conservative_weight: float = Field(default=5.0, ge=0)
    """Weight of the conservative term relative to the squared error; the authors use 5 and 10."""
    num_sampled_actions: Annotated[SampleCount, Trait.CONTINUOUS] = 10
    """Number K of sampled actions of each of the three kinds in the log-sum-exp."""
    conservative_temperature: float = Field(default=1.0, gt=0)
    """Temperature T of the log-sum-exp."""
    lagrange_threshold: float | None = Field(default=None, ge=0)
    """Threshold of the weighted gap for a learned multiplier; null uses a fixed weight."""
    backup_entropy: Annotated[bool, Trait.CONTINUOUS] = False
    """Include the entropy term −α log π in the critics' target."""
    epsilon: Annotated[float, Trait.DISCRETE] = Field(default=0.05, ge=0, le=1)
    """Probability of a random action while fine-tuning with discrete actions."""

    def penalty(self, log_multiplier: Tensor | None) -> Penalty:
        """Return the options of the conservative term."""
        weight, temperature = self.conservative_weight, self.conservative_temperature
        return Penalty(weight, temperature, self.lagrange_threshold, log_multiplier)


# --- Losses: pure functions of tensors ----------------------------------------


@torch.no_grad()
def sampled_actions(model: GaussianActorCritic, batch: Batch, noise: Noise) -> ActionSample:
    """Return the 3K actions per state for the log-sum-exp, and their log-densities.

    One third are uniform actions, with density 0.5^|A|. The others are actions of the policy at s
    and at s'. All are evaluated at s, and are constants for the critics.
    """
    here = model.sample(batch.obs, noise["current_actions"])
    following = model.sample(batch.next_obs, noise["next_actions"])
    uniform = 2.0 * noise["random_actions"] - 1.0
    density = torch.full_like(here.log_prob, math.log(0.5) * uniform.shape[-1])
    return ActionSample(
        torch.cat((uniform, here.actions, following.actions)),
        torch.cat((density, here.log_prob, following.log_prob)),
    )


def conservative_gaps(
    q: Tensor, sampled: Tensor, log_density: Tensor, *, temperature: float
) -> Tensor:
    """Return the mean of T log Σ_k exp((Q_i(s, a_k) − log μ(a_k)) / T) − Q_i(s, a), eq. 4.

    The result is ``[N]``. ``q`` is ``[N, B]``, ``sampled`` ``[N, S, B]``, ``log_density``
    ``[S, B]``. The samples are summed, not averaged: the difference is a constant.
    """
    soft_maximum = temperature * ((sampled - log_density) / temperature).logsumexp(-2)
    return (soft_maximum - q).mean(-1)


def multiplier_loss(log_multiplier: Tensor, excess: Tensor) -> Tensor:
    """Return −α' mean_i(excess_i), eq. 30: α' grows while the gaps exceed the threshold."""
    return -bounded_multiplier(log_multiplier) * excess.detach().mean(-1)


def bounded_multiplier(log_multiplier: Tensor) -> Tensor:
    """Return α' = min(exp(log α'), 1e6)."""
    return log_multiplier.exp().clamp(max=MULTIPLIER_MAX)


class Penalty(NamedTuple):
    """Options of the conservative term."""

    weight: float
    temperature: float
    threshold: float | None = None
    log_multiplier: Tensor | None = None


def penalized_terms(bellman: Tensor, gaps: Tensor, penalty: Penalty) -> Terms:
    """Add Σ_i w gap_i to the critics' loss; the gaps are ``[N]``.

    With a threshold τ', add Σ_i α' (w gap_i − τ') instead, and the loss of the multiplier α'.
    """
    weight, _, threshold, log_multiplier = penalty
    penalties = weight * gaps
    metrics = {"loss/bellman": bellman, "q/gap": gaps.mean(-1)}
    if threshold is None or log_multiplier is None:
        loss = bellman + penalties.sum(-1)
        return Terms(loss, metrics | {"loss/critic": loss})
    excess, multiplier = penalties - threshold, bounded_multiplier(log_multiplier.detach())
    loss = bellman + (multiplier * excess).sum(-1)
    learned = multiplier_loss(log_multiplier, excess)
    metrics |= {"loss/multiplier": learned, "q/multiplier": multiplier, "loss/critic": loss}
    return Terms(loss + learned, metrics)


def conservative_terms(
    model: GaussianActorCritic,
    batch: Batch,
    noise: Noise,
    target: Tensor,
    penalty: Penalty,
) -> Terms:
    """Compute the losses of the critics and of a learned multiplier.

    Σ_i mean (Q_i(s, a) − y)² + w gap_i; with a threshold τ' the last term is α' (w gap_i − τ').
    """
    samples = sampled_actions(model, batch, noise)
    actions = torch.cat((batch.actions.unsqueeze(0), samples.actions))
    values = model.critic.sampled_q_values(batch.obs, actions)  # [N, 1 + 3K, B]
    q, sampled = values[..., 0, :], values[..., 1:, :]
    gaps = conservative_gaps(q, sampled, samples.log_prob, temperature=penalty.temperature)
    bellman = critic_loss(q, target, importance_weights(batch))
    loss, metrics = penalized_terms(bellman, gaps, penalty)
    return Terms(loss, value_metrics(q, target) | metrics | td_errors(q, target, batch))


def cql_loss(
    model: GaussianActorCritic,
    batch: Batch,
    noise: Noise,
    *,
    alpha: Tensor,
    conservative_weight: float = 5.0,
    conservative_temperature: float = 1.0,
    lagrange_threshold: float | None = None,
    log_multiplier: Tensor | None = None,
    backup_entropy: bool = False,
    gamma: float = 0.99,
    log_alpha: Tensor | None = None,
    target_entropy: float = 0.0,
) -> Metrics:
    """Compute CQL's losses at the model's current parameters, from the same terms as `update`."""
    backup_alpha = entropy_weight(alpha, backup_entropy)
    target = sac_target(model, batch, noise, alpha=backup_alpha, gamma=gamma)
    penalty = Penalty(
        conservative_weight, conservative_temperature, lagrange_threshold, log_multiplier
    )
    critics = conservative_terms(model, batch, noise, target, penalty)
    temperature = Temperature(alpha, log_alpha, target_entropy)
    return critics.losses | policy_terms(model, batch, noise, actor_loss, temperature).losses


# --- Learner ------------------------------------------------------------------


class CQLAlgorithm(SACAlgorithm):
    """Conservative Q-Learning."""

    name: ClassVar[str] = "cql"
    title: ClassVar[str] = "Conservative Q-Learning"
    paper: ClassVar[str] = "arXiv 2006.04779"
    mode: ClassVar[Mode] = "offline"
    summary: ClassVar[str] = "SAC with critics pushed down on actions outside the dataset."
    config_class: ClassVar[type[AlgorithmConfig]] = CQLConfig
    loss_parts: ClassVar[frozenset[str]] = frozenset({"loss/bellman"})
    config: CQLConfig

    def __init__(self, spec: EnvSpec, config: CQLConfig, generator: torch.Generator) -> None:
        super().__init__(spec, config, generator)
        rate = config.policy_learning_rate
        self.add_optimizer("actor", self.model.actor.flat, learning_rate=rate)
        if self.log_alpha is not None:
            self.add_optimizer("temperature", self.log_alpha, learning_rate=rate)
        learned = config.lagrange_threshold is not None
        self.log_multiplier = nn.Parameter(torch.zeros(())) if learned else None
        if self.log_multiplier is not None:
            self.add_optimizer("multiplier", self.log_multiplier)

    @classmethod
    def discrete_variant(cls) -> type[Algorithm]:
        """Return CQL for discrete actions, which has no actor."""
        from rl_training.algorithms.discrete_cql import DiscreteCQLAlgorithm

        return DiscreteCQLAlgorithm

    def noise(self, batch_size: int) -> NoiseSpec:
        """Declare SAC's noise and the noise of the three kinds of sampled actions."""
        shape = (self.config.num_sampled_actions, batch_size, self.spec.action_dim)
        return {
            **super().noise(batch_size),
            "random_actions": NoiseField("uniform", shape),
            "current_actions": NoiseField("normal", shape),
            "next_actions": NoiseField("normal", shape),
        }

    @property
    def backup_alpha(self) -> Tensor:
        """α in the critics' target; 0 without `backup_entropy`."""
        return entropy_weight(self.alpha, self.config.backup_entropy)

    def critic_stage(self, batch: Batch, noise: Noise) -> Stage:
        """Update every critic, and the multiplier with the gaps before that step."""
        target, penalty = self.critic_target(batch, noise), self.config.penalty(self.log_multiplier)
        terms = conservative_terms(self.model, batch, noise, target, penalty)
        learned = {} if self.log_multiplier is None else {"multiplier": self.log_multiplier}
        return Stage(terms, {"critic": self.model.critic.flat, **learned})

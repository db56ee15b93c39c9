"""Soft Actor-Critic with automatic temperature (arXiv 1812.05905).

The stages of an update, in the paper's order (Algorithm 1): critics, actor, temperature, targets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from rl_training.algorithms.base import (
    ActorCritic,
    Algorithm,
    Stage,
    Terms,
    bootstrap_discount,
    critic_terms,
    td_target,
)
from rl_training.algorithms.config import ActorCriticConfig, AlgorithmConfig, OffPolicyConfig
from rl_training.config_model import Trait
from rl_training.models import GaussianActorCritic, MLPSACModel
from rl_training.types import Batch, EnvSpec, Metrics, Mode, Noise, NoiseField, NoiseSpec


class SoftConfig(ActorCriticConfig):
    """Options shared by SAC and its variants, online and offline."""

    alpha: Annotated[float, Field(ge=0)] | Literal["auto"] = "auto"
    """Entropy temperature α: a fixed number, or `auto` to learn it."""
    initial_alpha: float = Field(default=1.0, gt=0)
    """Initial value of a learned α."""
    target_entropy: float | Literal["auto"] = "auto"
    """Target entropy of a learned α; `auto` is −|A| for |A| continuous action values."""


class SACConfig(SoftConfig, OffPolicyConfig):
    """Hyperparameters of SAC (docs/algorithms/sac.md)."""

    entropy_fraction: Annotated[float, Trait.DISCRETE] = Field(default=0.5, ge=0, le=1)
    """Target entropy of discrete actions with `target_entropy: auto`, as a fraction of log |A|."""


# --- Losses: pure functions of tensors ----------------------------------------


def soft_target(
    rewards: Tensor,
    terminations: Tensor,
    next_q: Tensor,
    next_log_prob: Tensor,
    *,
    alpha: Tensor,
    gamma: float | Tensor,
) -> Tensor:
    """Return y = r + γ (1 − d) (min_i Q̄_i(s', a') − α log π(a'|s')), eq. 3 and 5; ``[B]``.

    ``next_q`` is ``[N, B]``.
    """
    soft_value = next_q.amin(-2) - alpha * next_log_prob
    return td_target(rewards, terminations, soft_value, gamma=gamma)


def actor_loss(q: Tensor, log_prob: Tensor, *, alpha: Tensor) -> Tensor:
    """Return the mean of α log π(ã|s) − min_i Q_i(s, ã), eq. 9; ``q`` is ``[N, B]``."""
    return (alpha * log_prob - q.amin(-2)).mean(-1)


def temperature_loss(
    log_alpha: Tensor, log_prob: Tensor, *, target_entropy: float | Tensor
) -> Tensor:
    """Return −log α · mean(log π + H̄): eq. 18 with log α for α, as in the authors' code."""
    return -log_alpha * (log_prob.detach() + target_entropy).mean(-1)


def entropy_weight(alpha: Tensor, backup_entropy: bool) -> Tensor:
    """Return α for the critics' target: 0 if the target has no entropy term."""
    return alpha if backup_entropy else 0.0 * alpha


@torch.no_grad()
def sac_target(
    model: GaussianActorCritic, batch: Batch, noise: Noise, *, alpha: Tensor, gamma: float
) -> Tensor:
    """Return the critics' target, with an action drawn from the *current* policy; ``[B]``."""
    following = model.sample(batch.next_obs, noise["next_action"])
    next_q = model.target_q_values(batch.next_obs, following.actions)  # [N, B]
    return soft_batch_target(batch, next_q, following.log_prob, alpha=alpha, gamma=gamma)


def soft_batch_target(
    batch: Batch, next_q: Tensor, next_log_prob: Tensor, *, alpha: Tensor, gamma: float
) -> Tensor:
    """Return the `soft_target` of a batch, which may have n-step rewards."""
    discount, ended = bootstrap_discount(batch, gamma), batch.terminations
    return soft_target(batch.rewards, ended, next_q, next_log_prob, alpha=alpha, gamma=discount)


class Temperature(NamedTuple):
    """α and, if it is learned, its parameter and target entropy."""

    alpha: Tensor
    log_alpha: Tensor | None
    target_entropy: float


def policy_terms(
    model: GaussianActorCritic,
    batch: Batch,
    noise: Noise,
    actor_loss: Callable[..., Tensor],
    temperature: Temperature,
) -> Terms:
    """Compute the losses of the actor and of a learned temperature."""
    alpha, log_alpha, target_entropy = temperature
    policy = model.sample(batch.obs, noise["action"])
    q = model.frozen_q_values(batch.obs, policy.actions)  # [N, B]
    loss = actor_loss(q, policy.log_prob, alpha=alpha)
    losses = {"loss/actor": loss}
    if log_alpha is not None:
        learned = temperature_loss(log_alpha, policy.log_prob, target_entropy=target_entropy)
        losses["loss/temperature"] = learned
        # The losses have gradients for separate parameters, so one backward pass is enough.
        loss = loss + learned
    entropy = -policy.log_prob.detach().mean(-1)
    return Terms(loss, losses | {"policy/entropy": entropy, "policy/alpha": alpha})


def sac_loss(
    model: GaussianActorCritic,
    batch: Batch,
    noise: Noise,
    *,
    alpha: Tensor,
    gamma: float = 0.99,
    log_alpha: Tensor | None = None,
    target_entropy: float = 0.0,
) -> Metrics:
    """Compute SAC's losses at the model's current parameters, from the same terms as `update`."""
    target = sac_target(model, batch, noise, alpha=alpha, gamma=gamma)
    temperature = Temperature(alpha, log_alpha, target_entropy)
    policy = policy_terms(model, batch, noise, actor_loss, temperature)
    return critic_terms(model, batch, target).losses | policy.losses


# --- Learner ------------------------------------------------------------------


class SACAlgorithm(ActorCritic):
    """Soft Actor-Critic."""

    name: ClassVar[str] = "sac"
    title: ClassVar[str] = "Soft Actor-Critic"
    paper: ClassVar[str] = "arXiv 1812.05905"
    mode: ClassVar[Mode] = "online"
    summary: ClassVar[str] = "Entropy-regularized actor-critic with a learned temperature."
    config_class: ClassVar[type[AlgorithmConfig]] = SACConfig
    config: SoftConfig
    model: GaussianActorCritic
    fixed_alpha: Tensor

    def __init__(self, spec: EnvSpec, config: SoftConfig, generator: torch.Generator) -> None:
        super().__init__(spec, config, generator)
        self.model = self.build_model(generator)
        auto, wanted = config.alpha == "auto", config.target_entropy
        # A fixed α is stored directly, since α = 0 has no logarithm.
        self.register_buffer("fixed_alpha", torch.tensor(0.0 if auto else float(config.alpha)))
        # On the CPU, since experiment/memory.py builds learners on the meta device.
        first = torch.tensor(config.initial_alpha, device="cpu")
        self.log_alpha = nn.Parameter(first.log()) if auto else None
        self.target_entropy = -float(spec.action_dim) if wanted == "auto" else float(wanted)
        self.add_optimizer("actor", self.model.actor.flat)
        self.add_optimizer("critic", self.model.critic.flat)
        if self.log_alpha is not None:
            self.add_optimizer("temperature", self.log_alpha)

    def build_model(self, generator: torch.Generator) -> GaussianActorCritic:
        """Build the networks; override this to use others."""
        config, sizes = self.config, (self.spec.obs_dim, self.spec.action_dim)
        return MLPSACModel(
            *sizes,
            num_critics=config.num_critics,
            trunks=config.trunks(self.spec),
            generator=generator,
        )

    @property
    def alpha(self) -> Tensor:
        """The temperature α, without gradient."""
        return self.fixed_alpha if self.log_alpha is None else self.log_alpha.detach().exp()

    @property
    def backup_alpha(self) -> Tensor:
        """α in the critics' target; variants without entropy there override this."""
        return self.alpha

    @classmethod
    def discrete_variant(cls) -> type[Algorithm]:
        """Return SAC for discrete actions."""
        from rl_training.algorithms.discrete_sac import DiscreteSACAlgorithm

        return DiscreteSACAlgorithm

    def noise(self, batch_size: int) -> NoiseSpec:
        """Declare policy noise for the target's action and for the actor's action."""
        shape = (batch_size, self.spec.action_dim)
        return {"next_action": NoiseField("normal", shape), "action": NoiseField("normal", shape)}

    def critic_target(self, batch: Batch, noise: Noise) -> Tensor:
        """Return the soft target."""
        gamma = self.config.gamma
        return sac_target(self.model, batch, noise, alpha=self.backup_alpha, gamma=gamma)

    def actor_loss(self, q: Tensor, log_prob: Tensor, *, alpha: Tensor) -> Tensor:
        """Compute eq. 9; variants with a different actor objective override this."""
        return actor_loss(q, log_prob, alpha=alpha)

    def policy_stage(self, batch: Batch, noise: Noise) -> Stage:
        """Update the actor, and the temperature from the same log-probabilities."""
        temperature = Temperature(self.alpha, self.log_alpha, self.target_entropy)
        terms = policy_terms(self.model, batch, noise, self.actor_loss, temperature)
        learned = {} if self.log_alpha is None else {"temperature": self.log_alpha}
        return Stage(terms, {"actor": self.model.actor.flat, **learned})

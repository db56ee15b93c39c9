"""Soft Actor-Critic with automatic temperature (arXiv 1812.05905).

Stages of an update, in the paper's order (Algorithm 1): critics, actor, temperature, targets.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from rl_training.algorithms.base import Algorithm, polyak_update
from rl_training.algorithms.config import OffPolicyConfig
from rl_training.models import MLPREDQModel, MLPSACModel
from rl_training.types import Batch, EnvSpec, Metrics, Noise, NoiseField, NoiseSpec


class SACConfig(OffPolicyConfig):
    """SAC's hyper-parameters (docs/algorithms/sac.md)."""

    alpha: Annotated[float, Field(ge=0)] | Literal["auto"] = Field(
        "auto", description="Temperature α: a fixed number, or `auto` to learn it."
    )
    initial_alpha: float = Field(1.0, gt=0, description="Where a learned α begins.")
    target_entropy: float | Literal["auto"] = Field(
        "auto", description="Entropy that a learned α aims for; `auto` is −|A|."
    )


# --- Losses: pure functions of tensors ----------------------------------------


def soft_target(
    rewards: Tensor,
    terminations: Tensor,
    next_q: Tensor,
    next_log_prob: Tensor,
    *,
    alpha: Tensor,
    gamma: float,
) -> Tensor:
    """Y = r + γ (1 − d) (min_i Q̄_i(s', a') − α log π(a'|s')), eq. 3 and 5; ``[B]``.

    ``next_q`` is ``[N, B]``. d is termination alone: a time limit bootstraps.
    """
    soft_value = next_q.amin(-2) - alpha * next_log_prob
    return torch.addcmul(rewards, 1.0 - terminations, soft_value, value=gamma)


def critic_loss(q: Tensor, target: Tensor) -> Tensor:
    """Σ_i mean (Q_i(s, a) − y)², eq. 5 without its ½; ``q`` is ``[N, B]``."""
    return (q - target.unsqueeze(-2)).square().mean(-1).sum(-1)


def actor_loss(q: Tensor, log_prob: Tensor, *, alpha: Tensor) -> Tensor:
    """Mean of α log π(ã|s) − min_i Q_i(s, ã), eq. 9; ``q`` is ``[N, B]``."""
    return (alpha * log_prob - q.amin(-2)).mean(-1)


def temperature_loss(log_alpha: Tensor, log_prob: Tensor, *, target_entropy: float) -> Tensor:
    """−log α · mean(log π + H̄), eq. 18 with log α in place of α, as the authors' code has it."""
    return -log_alpha * (log_prob.detach() + target_entropy).mean(-1)


@torch.no_grad()
def sac_target(
    model: MLPREDQModel, batch: Batch, noise: Noise, *, alpha: Tensor, gamma: float
) -> Tensor:
    """The critics' target, its action drawn from the *current* policy; ``[B]``."""
    following = model.sample(batch.next_obs, noise["next_action"])
    next_q = model.target_q_values(batch.next_obs, following.actions)  # [N, B]
    return soft_target(
        batch.rewards, batch.terminations, next_q, following.log_prob, alpha=alpha, gamma=gamma
    )


def sac_loss(
    model: MLPREDQModel,
    batch: Batch,
    noise: Noise,
    *,
    alpha: Tensor,
    gamma: float = 0.99,
    log_alpha: Tensor | None = None,
    target_entropy: float = 0.0,
) -> Metrics:
    """All of SAC's losses at the model's present parameters, by the terms that `update` uses.

    The temperature's loss is there when ``log_alpha`` is given.
    """
    target = sac_target(model, batch, noise, alpha=alpha, gamma=gamma)
    policy = model.sample(batch.obs, noise["action"])
    policy_q = model.frozen_q_values(batch.obs, policy.actions)
    losses = {
        "loss/critic": critic_loss(model.q_values(batch.obs, batch.actions), target),
        "loss/actor": actor_loss(policy_q, policy.log_prob, alpha=alpha),
    }
    if log_alpha is not None:
        losses["loss/temperature"] = temperature_loss(
            log_alpha, policy.log_prob, target_entropy=target_entropy
        )
    return losses


# --- Learner ------------------------------------------------------------------


class SACAlgorithm(Algorithm):
    """Soft Actor-Critic."""

    name: ClassVar[str] = "sac"
    config_class = SACConfig
    config: SACConfig
    fixed_alpha: Tensor

    def __init__(self, spec: EnvSpec, config: SACConfig, generator: torch.Generator) -> None:
        super().__init__(spec, config, generator)
        self.model = self.build_model(generator)
        auto = config.alpha == "auto"
        # A fixed α is kept as it is: α = 0 has no logarithm.
        self.register_buffer("fixed_alpha", torch.tensor(0.0 if auto else float(config.alpha)))
        self.log_alpha = nn.Parameter(torch.tensor(config.initial_alpha).log()) if auto else None
        wanted = config.target_entropy
        self.target_entropy = -float(spec.action_dim) if wanted == "auto" else float(wanted)
        self.add_optimizer("actor", self.model.actor.flat)
        self.add_optimizer("critic", self.model.critic.flat)
        if self.log_alpha is not None:
            self.add_optimizer("temperature", self.log_alpha)

    def build_model(self, generator: torch.Generator) -> MLPREDQModel:
        """The networks; a family member with another ensemble overrides this."""
        sizes = self.spec.obs_dim, self.spec.action_dim, self.config.hidden_sizes
        return MLPSACModel(*sizes, generator=generator)

    @property
    def alpha(self) -> Tensor:
        """The temperature α, without gradient."""
        return self.fixed_alpha if self.log_alpha is None else self.log_alpha.detach().exp()

    def act_noise(self, batch_size: int) -> NoiseSpec:
        """Standard-normal noise for the policy's sample."""
        return {"action": NoiseField("normal", (batch_size, self.spec.action_dim))}

    def choose_actions(self, obs: Tensor, *, deterministic: bool, noise: Noise | None) -> Tensor:
        """Tanh of the mean, or a sample of the policy."""
        if deterministic:
            return self.model.actor.mode(obs)
        assert noise is not None, "an exploring act needs the noise that act_noise declares"
        return self.model.actor.explore(obs, noise["action"])

    def noise(self, batch_size: int) -> NoiseSpec:
        """Policy noise for the target's action and for the actor's."""
        shape = (batch_size, self.spec.action_dim)
        return {"next_action": NoiseField("normal", shape), "action": NoiseField("normal", shape)}

    def update(self, batch: Batch, noise: Noise, *, phase: int = 0) -> Metrics:
        """Critics, actor, temperature, targets."""
        metrics = self.critic_step(batch, noise) | self.policy_step(batch, noise)
        polyak_update(self.model.target, self.model.critic.flat, self.config.tau)
        return metrics

    def critic_step(self, batch: Batch, noise: Noise) -> Metrics:
        """Move every critic towards the soft target."""
        target = sac_target(self.model, batch, noise, alpha=self.alpha, gamma=self.config.gamma)
        q = self.model.q_values(batch.obs, batch.actions)  # [N, B]
        loss = critic_loss(q, target)
        self.minimise(loss, critic=self.model.critic.flat)
        return {
            "loss/critic": loss.detach(),
            "q/mean": q.detach().mean((-2, -1)),
            "q/target": target.mean(-1),
        }

    def policy_step(self, batch: Batch, noise: Noise) -> Metrics:
        """Move the actor, then the temperature by the log-probabilities of the actor's step."""
        alpha = self.alpha
        policy = self.model.sample(batch.obs, noise["action"])
        q = self.model.frozen_q_values(batch.obs, policy.actions)  # [N, B]
        loss = actor_loss(q, policy.log_prob, alpha=alpha)
        metrics = {
            "loss/actor": loss.detach(),
            "policy/entropy": -policy.log_prob.detach().mean(-1),
            "policy/alpha": alpha,
        }
        if self.log_alpha is None:
            self.minimise(loss, actor=self.model.actor.flat)
            return metrics
        temperature = temperature_loss(
            self.log_alpha, policy.log_prob, target_entropy=self.target_entropy
        )
        # Neither loss has a gradient for the other's parameter: one backward serves both.
        self.minimise(loss + temperature, actor=self.model.actor.flat, temperature=self.log_alpha)
        return metrics | {"loss/temperature": temperature.detach()}

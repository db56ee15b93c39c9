"""FlashSAC (arXiv 2604.04539): SAC with categorical critics and normalized networks.

The stages of an update, in the authors' order: actor and temperature, if they are due, critics,
targets.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from rl_training.algorithms.base import (
    Due,
    Stage,
    Terms,
    bootstrap_discount,
    critic_metrics,
    importance_weights,
    td_errors,
    td_target,
)
from rl_training.algorithms.config import AlgorithmConfig, BatchSize, Widths
from rl_training.algorithms.crossq import JointBatch, joint_batch
from rl_training.algorithms.return_bins import (
    categorical_loss,
    lower_distribution,
    project_onto_bins,
)
from rl_training.algorithms.sac import SACAlgorithm, SACConfig, Temperature, actor_loss
from rl_training.models import BinnedActorCritic
from rl_training.types import ActionKind, Batch, EnvSpec, Metrics, Mode, Noise

LOG_STD_BOUNDS = (-10.0, 2.0)
"""A tanh maps the actor's log σ into these bounds."""


class FlashSACConfig(SACConfig):
    """Hyperparameters of FlashSAC (docs/algorithms/flash_sac.md)."""

    network_defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {"all": {"trunk": "flash"}}
    network_keys: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "critic": {"hidden_sizes": "critic_hidden_sizes"}
    }

    batch_size: BatchSize = 512
    """Number of transitions in each gradient update."""
    hidden_sizes: Widths = (128, 128)
    """Width of each residual block of the actor; all are equal."""
    critic_hidden_sizes: Widths = (256, 256)
    """Width of each residual block of the critics; all are equal."""
    tau: float = Field(default=0.01, gt=0, le=1)
    """Polyak rate τ of the target networks: target ← (1 − τ) target + τ online."""
    learning_starts: int = Field(default=10_000, ge=0)
    """Environment steps with uniform random actions before the first update."""
    exploration_hold: int = Field(default=16, gt=0, le=1_000)
    """Longest time that exploration keeps its noise, in steps; 1 draws new noise in each step."""
    normalize_rewards: bool = True
    """Divide rewards by the running standard deviation of the discounted return."""
    return_bound: float = Field(default=5.0, gt=0)
    """The critics' bins span ± this, and normalized rewards keep discounted returns within it."""
    num_bins: int = Field(default=101, ge=2, le=65_536)
    """Number of bins of the critics' distributions."""
    policy_delay: int = Field(default=2, gt=0)
    """Number of critic updates per update of the actor and the temperature."""
    initial_alpha: float = Field(default=0.01, gt=0)
    """Initial value of a learned α."""
    target_deviation: float = Field(default=0.15, gt=0)
    """With `target_entropy: auto`: the target is the entropy of a Gaussian with this deviation."""
    decay_steps: int = Field(default=1_000_000, gt=0)
    """Steps of an optimizer over which its learning rate decays, with a cosine."""
    decay_final: float = Field(default=0.5, gt=0, le=1)
    """Fraction of the learning rate after the decay."""

    def _network_options(self, name: str, has_images: bool) -> dict[str, Any]:
        """Set width and number of the residual blocks from the widths in the config."""
        options = super()._network_options(name, has_images)
        if options["trunk"] not in ("flash", "residual"):
            return options
        widths = getattr(self, self._keys_of(name)["hidden_sizes"])
        if len(set(widths)) > 1 and "width" not in options:
            raise ValueError(
                f"{self._keys_of(name)['hidden_sizes']} = {list(widths)}: should contain equal "
                "widths, one for each residual block"
            )
        return {"width": widths[0], "blocks": len(widths)} | options

    def _uses(self, key: str) -> bool:
        names = (n for n in self.network_names if self._keys_of(n)["hidden_sizes"] == key)
        return any(self._network_options(name, False)["trunk"] == "flash" for name in names)


# --- Losses: pure functions of tensors ----------------------------------------


def alpha_loss(alpha: Tensor, log_prob: Tensor, *, target_entropy: float) -> Tensor:
    """Return −α · mean(log π + H̄), eq. 18 of SAC's paper."""
    return -alpha * (log_prob.detach() + target_entropy).mean(-1)


@torch.no_grad()
def flash_sac_target(
    model: BinnedActorCritic,
    batch: Batch,
    joint: JointBatch,
    *,
    alpha: Tensor,
    gamma: float,
    training: bool,
) -> Tensor:
    """Return the critics' target distribution, ``[B, M]``.

    It is the whole distribution that the target critic with the lower mean has at s'. Its atoms
    become r + γ (1 − d) (z_m − α log π(a'|s')) and are projected back onto the bins z_m. In
    training mode, target critics normalize with the joint statistics of both states.
    """
    critic = model.critic
    probs = critic.target_probs(joint.obs, joint.actions, model.target, training=training)
    next_probs = probs.chunk(2, dim=-2)[1]  # [N, B, M]
    chosen = lower_distribution(next_probs, critic.mean(next_probs))
    soft_values = critic.bins - (alpha * joint.next_log_prob).unsqueeze(-1)
    rewards, terminations = batch.rewards.unsqueeze(-1), batch.terminations.unsqueeze(-1)
    discount = bootstrap_discount(batch, gamma)
    atoms = td_target(rewards, terminations, soft_values, gamma=discount)
    return project_onto_bins(chosen, atoms, critic.bins)


def categorical_terms(
    model: BinnedActorCritic, batch: Batch, noise: Noise, *, alpha: Tensor, gamma: float
) -> Terms:
    """Compute every critic's cross-entropy at (s, a), from a pass over (s, a) and (s', a')."""
    joint, critic = joint_batch(model, batch, noise), model.critic
    training = critic.is_training(critic.flat)
    target = flash_sac_target(model, batch, joint, alpha=alpha, gamma=gamma, training=training)
    log_probs = critic.log_probs(joint.obs, joint.actions).chunk(2, dim=-2)[0]  # [N, B, M]
    loss = categorical_loss(log_probs, target, importance_weights(batch))
    means = critic.mean(log_probs.detach().exp()), critic.mean(target)  # [N, B] and [B]
    return Terms(loss, critic_metrics(loss, *means) | td_errors(*means, batch))


def policy_terms(
    model: BinnedActorCritic, batch: Batch, noise: Noise, temperature: Temperature
) -> Terms:
    """Compute SAC's losses of the actor and of a learned temperature.

    The actor is evaluated at s and s', whose statistics it shares, but only its actions at s
    count.
    """
    alpha, log_alpha, target_entropy = temperature
    joint = model.actor.distribution(torch.cat((batch.obs, batch.next_obs)))
    mean, log_std = (output.chunk(2, dim=-2)[0] for output in joint)
    policy = model.actor.reparameterize(mean, log_std, noise["action"])
    q = model.frozen_q_values(batch.obs, policy.actions)  # [N, B], in evaluation mode
    loss = actor_loss(q, policy.log_prob, alpha=alpha)
    losses = {"loss/actor": loss}
    if log_alpha is not None:
        learned = alpha_loss(log_alpha.exp(), policy.log_prob, target_entropy=target_entropy)
        losses["loss/temperature"] = learned
        loss = loss + learned  # gradients for separate parameters
    entropy = -policy.log_prob.detach().mean(-1)
    return Terms(loss, losses | {"policy/entropy": entropy, "policy/alpha": alpha})


def flash_sac_loss(
    model: BinnedActorCritic,
    batch: Batch,
    noise: Noise,
    *,
    alpha: Tensor,
    log_alpha: Tensor | None = None,
    target_entropy: float = 0.0,
    gamma: float = 0.99,
) -> Metrics:
    """Compute FlashSAC's losses at the current parameters, from the same terms as `update`.

    Like every pass in training mode, this updates the running statistics of the networks.
    """
    temperature = Temperature(alpha, log_alpha, target_entropy)
    policy = policy_terms(model, batch, noise, temperature)
    critics = categorical_terms(model, batch, noise, alpha=alpha, gamma=gamma)
    return critics.losses | policy.losses


# --- Learner ------------------------------------------------------------------


class FlashSACAlgorithm(SACAlgorithm):
    """FlashSAC."""

    name: ClassVar[str] = "flash_sac"
    title: ClassVar[str] = "FlashSAC"
    paper: ClassVar[str] = "arXiv 2604.04539"
    mode: ClassVar[Mode] = "online"
    actions: ClassVar[ActionKind] = "continuous"
    summary: ClassVar[str] = "SAC with categorical critics, BatchNorm and unit-norm weights."
    config_class: ClassVar[type[AlgorithmConfig]] = FlashSACConfig
    config: FlashSACConfig
    model: BinnedActorCritic

    def __init__(self, spec: EnvSpec, config: FlashSACConfig, generator: torch.Generator) -> None:
        super().__init__(spec, config, generator)
        self.intervals = {"actor": config.policy_delay}
        if config.target_entropy == "auto":
            variance = config.target_deviation**2
            self.target_entropy = 0.5 * spec.action_dim * math.log(2 * math.pi * math.e * variance)

    def build_model(self, generator: torch.Generator) -> BinnedActorCritic:
        """Build the actor, categorical critics and their targets."""
        config = self.config
        return BinnedActorCritic(
            self.spec.obs_dim,
            self.spec.action_dim,
            num_critics=config.num_critics,
            num_bins=config.num_bins,
            bound=config.return_bound,
            soft_log_std_bounds=LOG_STD_BOUNDS,
            trunks=config.trunks(self.spec),
            generator=generator,
        )

    def add_optimizer(self, key: str, parameter: Tensor, **options: Any) -> None:
        """Decay the learning rate with the optimizer's steps, and project `flash` networks."""
        config = self.config
        defaults: dict[str, Any] = {
            "decay_steps": config.decay_steps,
            "decay_final": config.decay_final,
        }
        trunks = config.trunks(self.spec)
        if key in trunks and trunks[key].trunk == "flash":
            defaults["projection"] = "unit_rows_and_norms"
        super().add_optimizer(key, parameter, **(defaults | options))

    def stages(self, batch: Batch, noise: Noise, due: Due) -> Iterator[Stage]:
        """Yield the actor's stage, if it is due, and then the critics', which see its step."""
        if "actor" in due:
            yield self.policy_stage(batch, noise)
        yield self.critic_stage(batch, noise)

    def policy_stage(self, batch: Batch, noise: Noise) -> Stage:
        """Update the actor, and the temperature from the same log-probabilities."""
        temperature = Temperature(self.alpha, self.log_alpha, self.target_entropy)
        terms = policy_terms(self.model, batch, noise, temperature)
        learned = {} if self.log_alpha is None else {"temperature": self.log_alpha}
        return Stage(terms, {"actor": self.model.actor.flat, **learned})

    def critic_target(self, batch: Batch, noise: Noise) -> Tensor:
        """Return the target distribution, ``[B, M]``."""
        critic, joint = self.model.critic, joint_batch(self.model, batch, noise)
        settings: dict[str, Any] = {"alpha": self.alpha, "gamma": self.config.gamma}
        training = critic.is_training(critic.flat)
        return flash_sac_target(self.model, batch, joint, training=training, **settings)

    def critic_stage(self, batch: Batch, noise: Noise) -> Stage:
        """Update every critic's distribution toward the target's."""
        gamma = self.config.gamma
        terms = categorical_terms(self.model, batch, noise, alpha=self.alpha, gamma=gamma)
        return Stage(terms, {"critic": self.model.critic.flat})

"""ReBRAC (arXiv 2305.09836): TD3+BC with separate actor and critic penalties."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from rl_training.algorithms.base import Stage, Terms, bootstrap_discount, critic_terms, td_target
from rl_training.algorithms.config import AlgorithmConfig, BatchSize, LearningRate, Widths
from rl_training.algorithms.td3 import SmoothedConfig, TD3Algorithm, smoothed_actions
from rl_training.algorithms.td3_bc import value_weight
from rl_training.models import MLPTD3Model
from rl_training.types import Batch, Metrics, Mode, Noise


class ReBRACConfig(SmoothedConfig):
    """Hyperparameters of ReBRAC (docs/algorithms/rebrac.md)."""

    network_defaults: ClassVar[dict[str, Any]] = {"critic": {"layer_norm": "after"}}

    batch_size: BatchSize = 1_024
    """Number of transitions in each gradient update."""
    learning_rate: LearningRate = 1e-3
    """Learning rate of Adam, for every network; a schedule scales it."""
    hidden_sizes: Widths = (256, 256, 256)
    """Widths of the hidden layers."""
    actor_penalty: float = Field(default=0.01, ge=0)
    """Weight β₁ of the squared distance to the dataset's action in the actor loss."""
    critic_penalty: float = Field(default=0.01, ge=0)
    """Weight β₂ of the squared distance to the dataset's next action in the critics' target."""


def squared_distance(actions: Tensor, dataset_actions: Tensor) -> Tensor:
    """Return ‖a − â‖², summed over the action dimensions; ``[B]``."""
    return (actions - dataset_actions).square().sum(-1)


@torch.no_grad()
def rebrac_target(model: MLPTD3Model, batch: Batch, noise: Noise, config: ReBRACConfig) -> Tensor:
    """Return y = r + γ (1 − d) (min_i Q̄_i(s', a') − β₂ m ‖a' − â'‖²); ``[B]``.

    a' is TD3's smoothed target action, â' the dataset's action at s'; m is 0 if there is none.
    """
    scale, clip = config.target_noise, config.target_noise_clip
    target_actions = model.target_actions(batch.next_obs)
    actions = smoothed_actions(target_actions, noise["smoothing"], scale=scale, clip=clip)
    penalty = config.critic_penalty * squared_distance(actions, batch.next_actions)
    next_q = model.target_q_values(batch.next_obs, actions).amin(-2)  # [B]
    value = next_q - batch.next_action_mask * penalty
    discount = bootstrap_discount(batch, config.gamma)
    return td_target(batch.rewards, batch.terminations, value, gamma=discount)


def policy_terms(model: MLPTD3Model, batch: Batch, config: ReBRACConfig) -> Terms:
    """Compute β₁ mean ‖μ(s) − a‖² − λ mean q, with q = min_i Q_i(s, μ(s)) and λ = 1 / mean |q|."""
    actions = model.actor.mode(batch.obs)
    q = model.frozen_q_values(batch.obs, actions).amin(-2)  # [B]
    weight = value_weight(q, alpha=1.0)
    imitation = squared_distance(actions, batch.actions).mean(-1)
    loss = config.actor_penalty * imitation - weight * q.mean(-1)
    metrics = {"loss/actor": loss, "loss/imitation": imitation, "policy/value_weight": weight}
    return Terms(loss, metrics)


def rebrac_loss(model: MLPTD3Model, batch: Batch, noise: Noise, **settings: Any) -> Metrics:
    """Compute ReBRAC's losses at the current parameters; settings are keys of `ReBRACConfig`."""
    config = ReBRACConfig(**settings)
    critics = critic_terms(model, batch, rebrac_target(model, batch, noise, config))
    return critics.losses | policy_terms(model, batch, config).losses


class ReBRACAlgorithm(TD3Algorithm):
    """Revisited behavior-regularized actor-critic."""

    name: ClassVar[str] = "rebrac"
    title: ClassVar[str] = "Revisited Behavior-Regularized Actor-Critic"
    paper: ClassVar[str] = "arXiv 2305.09836"
    mode: ClassVar[Mode] = "offline"
    summary: ClassVar[str] = "TD3+BC with separate penalties for the actor and the critics."
    config_class: ClassVar[type[AlgorithmConfig]] = ReBRACConfig
    loss_parts: ClassVar[frozenset[str]] = frozenset({"loss/imitation"})
    config: ReBRACConfig

    def fields(self) -> tuple[str, ...]:
        """Declare the dataset's next actions, for the critics' penalty."""
        return "next_actions", "next_action_mask"

    def critic_target(self, batch: Batch, noise: Noise) -> Tensor:
        """Return the critics' regression target."""
        return rebrac_target(self.model, batch, noise, self.config)

    def policy_stage(self, batch: Batch, noise: Noise) -> Stage:
        """Update the actor with the minimum of the critics and the actor penalty."""
        terms = policy_terms(self.model, batch, self.config)
        return Stage(terms, {"actor": self.model.actor.flat})

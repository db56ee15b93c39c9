"""Twin Delayed DDPG (arXiv 1802.09477): twin critics, smoothed targets and a delayed policy.

The stages of an update, in the paper's order (Algorithm 1): critics, then actor and targets in
every d-th update.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from rl_training.algorithms.base import critic_terms
from rl_training.algorithms.config import AlgorithmConfig, EnsembleSize
from rl_training.algorithms.ddpg import (
    DDPGAlgorithm,
    DDPGConfig,
    DeterministicConfig,
    clipped_target,
    policy_terms,
)
from rl_training.models import MLPTD3Model
from rl_training.types import Batch, EnvSpec, Metrics, Mode, Noise, NoiseField, NoiseSpec


class SmoothedConfig(DeterministicConfig):
    """Options that TD3 adds to DDPG, online and offline."""

    num_critics: EnsembleSize = 2
    """Number of critics; the target uses their minimum."""

    policy_delay: int = Field(default=2, gt=0)
    """Number of critic updates for each update of the actor and the targets."""
    target_noise: float = Field(default=0.2, ge=0)
    """Standard deviation of the noise on the target's action, which is in [−1, 1]."""
    target_noise_clip: float = Field(default=0.5, ge=0)
    """Clip the noise on the target's action to ± this value."""


class TD3Config(SmoothedConfig, DDPGConfig):
    """Hyperparameters of TD3 (docs/algorithms/td3.md)."""


# --- Losses: pure functions of tensors ----------------------------------------


def smoothed_actions(actions: Tensor, noise: Tensor, *, scale: float, clip: float) -> Tensor:
    """Add clipped Gaussian noise to actions and clip them to [-1, 1] (section 5.3)."""
    return (actions + (noise * scale).clamp(-clip, clip)).clamp(-1.0, 1.0)


@torch.no_grad()
def td3_target(
    model: MLPTD3Model,
    batch: Batch,
    noise: Noise,
    *,
    gamma: float,
    target_noise: float,
    target_noise_clip: float,
) -> Tensor:
    """Return the critics' target (section 4.2) at the target actor's smoothed action; ``[B]``."""
    next_actions = smoothed_actions(
        model.target_actions(batch.next_obs),
        noise["smoothing"],
        scale=target_noise,
        clip=target_noise_clip,
    )
    return clipped_target(model, batch, next_actions, gamma=gamma)


def td3_loss(
    model: MLPTD3Model,
    batch: Batch,
    noise: Noise,
    *,
    gamma: float = 0.99,
    target_noise: float = 0.2,
    target_noise_clip: float = 0.5,
) -> Metrics:
    """Compute TD3's losses at the model's current parameters, from the same terms as `update`."""
    smoothing = {"target_noise": target_noise, "target_noise_clip": target_noise_clip}
    target = td3_target(model, batch, noise, gamma=gamma, **smoothing)
    return critic_terms(model, batch, target).losses | policy_terms(model, batch).losses


# --- Learner ------------------------------------------------------------------


class TD3Algorithm(DDPGAlgorithm):
    """Twin Delayed DDPG."""

    name: ClassVar[str] = "td3"
    title: ClassVar[str] = "Twin Delayed DDPG"
    paper: ClassVar[str] = "arXiv 1802.09477"
    mode: ClassVar[Mode] = "online"
    summary: ClassVar[str] = "Twin critics, smoothed targets and a delayed deterministic policy."
    config_class: ClassVar[type[AlgorithmConfig]] = TD3Config
    config: SmoothedConfig

    def __init__(self, spec: EnvSpec, config: SmoothedConfig, generator: torch.Generator) -> None:
        super().__init__(spec, config, generator)
        self.intervals = {"actor": config.policy_delay}

    def noise(self, batch_size: int) -> NoiseSpec:
        """Declare standard-normal noise for smoothing the target's action."""
        return {"smoothing": NoiseField("normal", (batch_size, self.spec.action_dim))}

    def critic_target(self, batch: Batch, noise: Noise) -> Tensor:
        """Return the critics' regression target."""
        config = self.config
        return td3_target(
            self.model,
            batch,
            noise,
            gamma=config.gamma,
            target_noise=config.target_noise,
            target_noise_clip=config.target_noise_clip,
        )

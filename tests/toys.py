"""Small learners with what SAC lacks: a delay, a random subset of critics, a hard target copy."""

from __future__ import annotations

import torch

from rl_training.algorithms.base import critic_loss, polyak_update
from rl_training.algorithms.sac import SACAlgorithm, SACConfig
from rl_training.models import MLPREDQModel
from rl_training.types import Batch, EnvSpec, Metrics, Noise, NoiseField, NoiseSpec


class DelayedSAC(SACAlgorithm):
    """The policy moves, and the targets follow, on each third update."""

    name = "delayed"
    period = 3

    def form(self, phase: int) -> int:
        return int(phase == 2)

    def update(self, batch: Batch, noise: Noise, *, phase: int = 0) -> Metrics:
        metrics = self.critic_step(batch, noise)
        if self.form(phase):
            metrics |= self.policy_step(batch, noise)
            polyak_update(self.model.target, self.model.critic.flat, 0.05)
        return metrics


class SubsetSAC(SACAlgorithm):
    """Targets from two of five critics, chosen by uniform numbers."""

    name = "subset"

    def build_model(self, generator: torch.Generator) -> MLPREDQModel:
        sizes = self.spec.obs_dim, self.spec.action_dim, self.config.hidden_sizes
        return MLPREDQModel(*sizes, 5, generator=generator)

    def noise(self, batch_size: int) -> NoiseSpec:
        return {**super().noise(batch_size), "subset": NoiseField("uniform", (5,))}

    def critic_step(self, batch: Batch, noise: Noise) -> Metrics:
        with torch.no_grad():
            following = self.model.sample(batch.next_obs, noise["next_action"])
            chosen = noise["subset"].topk(2, largest=False).indices
            next_q = self.model.target_q_values(batch.next_obs, following.actions)
            value = next_q.index_select(0, chosen).amin(0) - self.alpha * following.log_prob
            target = batch.rewards + self.config.gamma * (1 - batch.terminations) * value
        loss = critic_loss(self.model.q_values(batch.obs, batch.actions), target)
        self.minimize(loss, critic=self.model.critic.flat)
        return {"loss/critic": loss.detach()}


class HardCopySAC(SACAlgorithm):
    """The targets are copied on each seventh update."""

    name = "hard_copy"
    period = 7

    def form(self, phase: int) -> int:
        return int(phase == 6)

    @torch.no_grad()
    def update(self, batch: Batch, noise: Noise, *, phase: int = 0) -> Metrics:
        with torch.enable_grad():
            metrics = self.critic_step(batch, noise) | self.policy_step(batch, noise)
        if self.form(phase):
            self.model.target.copy_(self.model.critic.flat)
        return metrics


class PeekingSAC(SACAlgorithm):
    """Looks at a value on the host."""

    name = "peeking"

    def update(self, batch: Batch, noise: Noise, *, phase: int = 0) -> Metrics:
        if batch.rewards.mean().item() > 1e6:
            return {}
        return super().update(batch, noise, phase=phase)


class GamblingSAC(SACAlgorithm):
    """Draws a number of its own."""

    name = "gambling"

    def update(self, batch: Batch, noise: Noise, *, phase: int = 0) -> Metrics:
        rewards = batch.rewards + torch.rand_like(batch.rewards)
        return super().update(batch._replace(rewards=rewards), noise, phase=phase)


class HoardingSAC(SACAlgorithm):
    """Uses a tensor that is no part of its state."""

    name = "hoarding"

    def __init__(self, spec: EnvSpec, config: SACConfig, generator: torch.Generator) -> None:
        super().__init__(spec, config, generator)
        self.hoard = [torch.ones(config.batch_size, dtype=torch.float64)]

    def update(self, batch: Batch, noise: Noise, *, phase: int = 0) -> Metrics:
        rewards = batch.rewards * self.hoard[0]
        return super().update(batch._replace(rewards=rewards), noise, phase=phase)

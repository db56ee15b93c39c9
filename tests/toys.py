"""Learners with features that SAC lacks: delays, random subsets of critics, hard target copies."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from rl_training.algorithms.base import Due, polyak_update
from rl_training.algorithms.sac import SACAlgorithm, SACConfig
from rl_training.models import GaussianActorCritic, MLPREDQModel
from rl_training.types import Batch, EnvSpec, Metrics, Noise, NoiseField, NoiseSpec


class DelayedSAC(SACAlgorithm):
    """Updates the policy and the targets on every third update."""

    name = "delayed"
    intervals: Mapping[str, int] = {"actor": 3}

    def move_targets(self, due: Due) -> None:
        if "actor" in due:
            polyak_update(self.model.target, self.model.critic.flat, 0.05)


class SubsetSAC(SACAlgorithm):
    """Uses two of five critics in the target, chosen by uniform noise."""

    name = "subset"

    def build_model(self, generator: torch.Generator) -> GaussianActorCritic:
        sizes = self.spec.obs_dim, self.spec.action_dim, self.config.hidden_sizes
        return MLPREDQModel(*sizes, 5, generator=generator)

    def noise(self, batch_size: int) -> NoiseSpec:
        return {**super().noise(batch_size), "subset": NoiseField("uniform", (5,))}

    @torch.no_grad()
    def critic_target(self, batch: Batch, noise: Noise) -> Tensor:
        following = self.model.sample(batch.next_obs, noise["next_action"])
        chosen = noise["subset"].topk(2, largest=False).indices
        next_q = self.model.target_q_values(batch.next_obs, following.actions)
        value = next_q.index_select(0, chosen).amin(0) - self.alpha * following.log_prob
        return batch.rewards + self.config.gamma * (1 - batch.terminations) * value


class HardCopySAC(SACAlgorithm):
    """Copies the targets on every seventh update."""

    name = "hard_copy"
    intervals: Mapping[str, int] = {"actor": 1, "target": 7}

    @torch.no_grad()
    def move_targets(self, due: Due) -> None:
        if "target" in due:
            self.model.target.copy_(self.model.critic.flat)


class PeekingSAC(SACAlgorithm):
    """Reads a value on the host during an update."""

    name = "peeking"

    def update(self, batch: Batch, noise: Noise, due: Due | None = None) -> Metrics:
        if batch.rewards.mean().item() > 1e6:
            return {}
        return super().update(batch, noise, due)


class GamblingSAC(SACAlgorithm):
    """Draws a random number outside the declared noise."""

    name = "gambling"

    def update(self, batch: Batch, noise: Noise, due: Due | None = None) -> Metrics:
        rewards = batch.rewards + torch.rand_like(batch.rewards)
        return super().update(batch._replace(rewards=rewards), noise, due)


class HoardingSAC(SACAlgorithm):
    """Uses a tensor that is not part of its state."""

    name = "hoarding"

    def __init__(self, spec: EnvSpec, config: SACConfig, generator: torch.Generator) -> None:
        super().__init__(spec, config, generator)
        self.hoard = [torch.ones(config.batch_size, dtype=torch.float64)]

    def update(self, batch: Batch, noise: Noise, due: Due | None = None) -> Metrics:
        rewards = batch.rewards * self.hoard[0]
        return super().update(batch._replace(rewards=rewards), noise, due)

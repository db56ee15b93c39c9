"""Exploration of learners without an actor: the greedy action, or a random one."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from rl_training.algorithms.action_masks import uniform_actions
from rl_training.algorithms.base import StagedAlgorithm
from rl_training.types import ActionKind, Noise, NoiseField, NoiseSpec


class GreedyLearner(StagedAlgorithm):
    """A learner whose policy is greedy in its Q-values."""

    actions: ClassVar[ActionKind] = "discrete"

    @abstractmethod
    def greedy_actions(self, obs: Tensor, legal: Tensor | None) -> Tensor:
        """Return the legal action with the highest Q-value, ``[B]``."""

    @property
    @abstractmethod
    def random_share(self) -> Tensor | float:
        """Probability ε of a random action."""

    def act_noise(self, batch_size: int) -> NoiseSpec:
        """Declare two numbers per action: whether it is random, and the random action."""
        return {"explore": NoiseField("uniform", (batch_size, 2))}

    def choose_actions(
        self, obs: Tensor, *, deterministic: bool, noise: Noise | None, legal: Tensor | None = None
    ) -> Tensor:
        """Return the greedy action, or a random legal one with probability ε; ``[B, 1]``."""
        greedy = self.greedy_actions(obs, legal).to(obs.dtype)  # [B]
        if deterministic:
            return greedy.unsqueeze(-1)
        assert noise is not None, "exploration needs the noise that act_noise declares"
        coin, uniform = noise["explore"].unbind(-1)  # [B] each, below 1
        random = uniform_actions(uniform, self.spec.action_dim, legal)
        return torch.where(coin < self.random_share, random, greedy).unsqueeze(-1)

    def noise(self, batch_size: int) -> NoiseSpec:
        """Declare no noise: an update depends only on its batch."""
        return {}

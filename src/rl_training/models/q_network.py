"""The network of Q-learning with discrete actions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rl_training.models.mlp import MLP


class QNetwork(MLP):
    """Q(s, a) of every discrete action at once, and the vector of the target network."""

    target: Tensor

    def __init__(
        self,
        obs_dim: int,
        num_actions: int,
        hidden_sizes: Sequence[int],
        *,
        layer_norm: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(
            obs_dim, hidden_sizes, num_actions, layer_norm=layer_norm, generator=generator
        )
        self.register_buffer("target", self.flat.detach().clone())

    def q_values(self, obs: Tensor) -> Tensor:
        """Q(s, ·), ``[B, num_actions]``."""
        values: Tensor = self(obs)
        return values

    def target_q_values(self, obs: Tensor) -> Tensor:
        """Q̄(s, ·) of the target network, ``[B, num_actions]``."""
        values: Tensor = self(obs, self.target)
        return values

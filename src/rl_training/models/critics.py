"""Action-value networks, stacked."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rl_training.models.mlp import MLP


class EnsembleCritic(MLP):
    """``num_critics`` Q-networks as one stack: a batched product a layer, never a Python list."""

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int],
        num_critics: int,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(
            obs_dim + action_dim, hidden_sizes, 1, ensemble=num_critics, generator=generator
        )

    def q_values(self, obs: Tensor, actions: Tensor, flat: Tensor | None = None) -> Tensor:
        """Q_i(s, a) of every critic, ``[num_critics, B]``."""
        values: Tensor = self(actions, flat, prefix=obs)
        return values.squeeze(-1)

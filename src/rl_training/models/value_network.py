"""State-value networks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rl_training.models.mlp import MLP


class ValueNetwork(MLP):
    """V(s)."""

    def __init__(
        self,
        obs_dim: int,
        hidden_sizes: Sequence[int],
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(obs_dim, hidden_sizes, 1, generator=generator)

    def values(self, obs: Tensor) -> Tensor:
        """V(s), ``[B]``."""
        values: Tensor = self(obs)
        return values.squeeze(-1)

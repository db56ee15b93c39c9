"""SAC's network: the family's model with two critics."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rl_training.models.mlp_redq import MLPREDQModel


class MLPSACModel(MLPREDQModel):
    """A Gaussian actor and twin critics (arXiv 1812.05905)."""

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int] = (256, 256),
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(obs_dim, action_dim, hidden_sizes, 2, generator=generator)

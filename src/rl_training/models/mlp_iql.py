"""IQL's network: actor and twin critics as SAC has them, and a state value."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rl_training.models.mlp_sac import MLPSACModel
from rl_training.models.value_network import ValueNetwork


class MLPIQLModel(MLPSACModel):
    """A Gaussian actor around a tanh mean, twin critics and V(s) (arXiv 2110.06169)."""

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int] = (256, 256),
        *,
        log_std_bounds: tuple[float, float] = (-5.0, 2.0),
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(
            *(obs_dim, action_dim, hidden_sizes),
            policy="tanh_mean",
            log_std_bounds=log_std_bounds,
            generator=generator,
        )
        self.value = ValueNetwork(obs_dim, hidden_sizes, generator=generator)

    def values(self, obs: Tensor) -> Tensor:
        """V(s), ``[B]``."""
        return self.value.values(obs)

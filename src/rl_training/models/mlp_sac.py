"""SAC's network: the family's model with two critics."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rl_training.models.mlp_redq import GaussianActorCritic, PolicyKind


class MLPSACModel(GaussianActorCritic):
    """A Gaussian actor and twin critics (arXiv 1812.05905)."""

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int] = (256, 256),
        *,
        critic_hidden_sizes: Sequence[int] | None = None,
        policy: PolicyKind = "squashed",
        log_std_bounds: tuple[float, float] = (-5.0, 2.0),
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(
            *(obs_dim, action_dim, hidden_sizes, 2),
            critic_hidden_sizes=critic_hidden_sizes,
            policy=policy,
            log_std_bounds=log_std_bounds,
            generator=generator,
        )

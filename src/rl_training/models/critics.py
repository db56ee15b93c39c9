"""Action-value networks, stacked."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rl_training.models.mlp import MLP


class EnsembleCritic(MLP):
    """``num_critics`` Q-networks as one stack: a batched product a layer, never a Python list.

    With ``num_quantiles`` above 1 each critic describes the return's distribution by that many
    quantiles, and its Q-value is their mean.
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int],
        num_critics: int,
        *,
        num_quantiles: int = 1,
        generator: torch.Generator | None = None,
    ) -> None:
        sizes = obs_dim + action_dim, hidden_sizes, num_quantiles
        super().__init__(*sizes, ensemble=num_critics, generator=generator)

    def quantiles(self, obs: Tensor, actions: Tensor, flat: Tensor | None = None) -> Tensor:
        """Z_i(s, a) of every critic, ``[num_critics, B, num_quantiles]``."""
        values: Tensor = self(actions, flat, prefix=obs)
        return values

    def q_values(self, obs: Tensor, actions: Tensor, flat: Tensor | None = None) -> Tensor:
        """Q_i(s, a) of every critic, ``[num_critics, B]``."""
        values = self.quantiles(obs, actions, flat)
        return values.squeeze(-1) if values.shape[-1] == 1 else values.mean(-1)

    def first_q_values(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Q_1(s, a) alone, ``[B]``, with no gradient for its parameters."""
        first = [view.select(-3, 0) for view in self.views(self.flat.detach())]
        return self.evaluate(actions, first, obs).squeeze(-1)

    def subset_q_values(
        self, obs: Tensor, actions: Tensor, flat: Tensor, members: Tensor
    ) -> Tensor:
        """Q-values of some critics alone, ``[len(members), B]``, by their indices."""
        chosen = [view.index_select(-3, members) for view in self.views(flat)]
        return self.evaluate(actions, chosen, obs).squeeze(-1)

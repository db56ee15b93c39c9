"""The Q-network for discrete actions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rl_training.models.network import Network
from rl_training.models.network_config import Sizes, TrunkConfig, plain_mlp


class QNetwork(Network):
    """Q-values of all discrete actions, and the target network's parameter vector.

    The network is a ReLU perceptron with ``hidden_sizes`` and ``layer_norm``, unless ``trunk`` is
    given.
    """

    target: Tensor

    def __init__(
        self,
        obs_dim: int,
        num_actions: int,
        hidden_sizes: Sequence[int],
        *,
        layer_norm: bool = False,
        trunk: TrunkConfig | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        options = trunk or plain_mlp(hidden_sizes, layer_norm=layer_norm)
        super().__init__(options.build(Sizes(obs_dim, num_actions)), generator)
        self.register_buffer("target", self.flat.detach().clone())

    def q_values(self, obs: Tensor) -> Tensor:
        """Return Q(s, ·), ``[B, num_actions]``."""
        values: Tensor = self(obs)
        return values

    def target_q_values(self, obs: Tensor) -> Tensor:
        """Return Q̄(s, ·) of the target network, ``[B, num_actions]``."""
        values: Tensor = self(obs, self.target)
        return values

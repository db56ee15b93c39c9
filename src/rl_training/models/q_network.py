"""The Q-network for discrete actions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rl_training.models.dueling import DuelingTrunk
from rl_training.models.network import Network
from rl_training.models.network_config import Sizes, TrunkConfig, plain_mlp


class QNetwork(Network):
    """Q-values of all discrete actions, and the target network's parameter vector.

    With ``num_quantiles`` > 1, the network models the distribution of each action's return with
    that many quantiles, and a Q-value is their mean. With ``dueling``, it has separate streams for
    the value of the state and the advantages of the actions, as wide as the last hidden layer. The
    network is a ReLU perceptron with ``hidden_sizes`` and ``layer_norm``, unless ``trunk`` is
    given.
    """

    target: Tensor

    def __init__(
        self,
        obs_dim: int,
        num_actions: int,
        hidden_sizes: Sequence[int],
        *,
        num_quantiles: int = 1,
        dueling: bool = False,
        layer_norm: bool = False,
        trunk: TrunkConfig | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        options = trunk or plain_mlp(hidden_sizes, layer_norm=layer_norm)
        sizes = Sizes(obs_dim, num_actions * num_quantiles)
        if dueling:
            width = hidden_sizes[-1]
            built = DuelingTrunk(options, sizes, num_actions=num_actions, width=width)
            super().__init__(built, generator)
        else:
            super().__init__(options.build(sizes), generator)
        self.num_quantiles = num_quantiles
        self.register_buffer("target", self.flat.detach().clone())

    def vectors(self) -> dict[str, Network]:
        """Return the layouts of the network's and the target's vector."""
        return super().vectors() | {"target": self}

    def quantiles(self, obs: Tensor, flat: Tensor | None = None) -> Tensor:
        """Return the quantiles of every action's return, ``[B, num_actions, num_quantiles]``."""
        values: Tensor = self(obs, flat)
        return values.view(*values.shape[:-1], -1, self.num_quantiles)

    def q_values(self, obs: Tensor, flat: Tensor | None = None) -> Tensor:
        """Return Q(s, ·), ``[B, num_actions]``."""
        if self.num_quantiles == 1:
            values: Tensor = self(obs, flat)
            return values
        return self.quantiles(obs, flat).mean(-1)

    def target_q_values(self, obs: Tensor) -> Tensor:
        """Return Q̄(s, ·) of the target network, ``[B, num_actions]``."""
        return self.q_values(obs, self.target)

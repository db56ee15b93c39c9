"""SAC with your own network for the actor and the critics.

    python examples/own_network.py

On the command line, in the folder of this file:

    rl-training --import own_network train --config sac/pendulum \
        networks.all.trunk=gated networks.critic.width=128
"""

import torch
from torch import nn

from rl_training import SAC, register_network


class Gated(nn.Module):
    """A gated layer with LayerNorm: ``[B, in_features]`` to ``[B, width]`` features."""

    def __init__(self, in_features: int, width: int = 64) -> None:
        super().__init__()
        self.embed = nn.Linear(in_features, width)
        self.norm = nn.LayerNorm(width)
        self.gate = nn.Linear(width, 2 * width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the features; the package adds the output layer."""
        hidden: torch.Tensor = self.norm(self.embed(x))
        value, gate = self.gate(hidden).chunk(2, dim=-1)
        return torch.addcmul(hidden, value, gate.sigmoid())


register_network("gated", Gated)

if __name__ == "__main__":
    networks = {"all": {"trunk": "gated"}, "critic": {"width": 128}}
    print(SAC("Pendulum-v1", networks=networks).learn(5_000).evaluate())

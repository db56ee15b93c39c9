"""Dueling streams: the value of a state, and the advantages of its actions (arXiv 1511.06581)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rl_training.models.kernels.products import linear
from rl_training.models.mlp import initialize_layers, layer_shapes, named_layer
from rl_training.models.network import State, Trunk
from rl_training.models.network_config import Sizes, TrunkConfig


class DuelingTrunk(Trunk):
    """Q(s, a) = V(s) + A(s, a) − mean over a' of A(s, a') (eq. 9), for every quantile.

    ``trunk`` computes the features that both streams share. Each stream has one hidden layer of
    ``width`` ReLU units and a linear output. The flat vector holds the trunk, whose output layer
    is the hidden layer of both streams, then the outputs of V and of A.
    """

    def __init__(self, trunk: TrunkConfig, sizes: Sizes, *, num_actions: int, width: int) -> None:
        self.inner = trunk.build(sizes._replace(outputs=2 * width))
        self.num_actions = num_actions
        value, _ = layer_shapes([width, sizes.outputs // num_actions], sizes.ensemble)
        advantages, _ = layer_shapes([width, sizes.outputs], sizes.ensemble)
        self.shapes = [*self.inner.shapes, *value, *advantages]
        self.activations = self.inner.activations + math.prod(value[1]) + math.prod(advantages[1])

    def initialize(
        self, params: list[Tensor], generator: torch.Generator | None
    ) -> dict[str, Tensor]:
        """Initialize the trunk, then both outputs like layers of a perceptron."""
        state = self.inner.initialize(params[:-4], generator)
        initialize_layers(params[-4:], generator)
        return state

    def unit_weights(self, params: list[Tensor]) -> list[Tensor]:
        """Return the weights of the trunk and of both outputs, if the trunk supports it."""
        inner = self.inner.unit_weights(params[:-4])
        return [*inner, params[-4], params[-2]] if inner else []

    def norm_parameters(self, params: list[Tensor]) -> list[tuple[Tensor, ...]]:
        """Return the parameters of the trunk's normalizations."""
        return self.inner.norm_parameters(params[:-4])

    def named_tensors(self, params: list[Tensor], state: State) -> dict[str, Tensor]:
        """Name the trunk's layers, then the outputs of both streams."""
        named = self.inner.named_tensors(params[:-4], state)
        return (
            named | named_layer("value", *params[-4:-2]) | named_layer("advantages", *params[-2:])
        )

    def embed(self, x: Tensor, params: list[Tensor]) -> Tensor:
        """Embed the inputs as the trunk does."""
        return self.inner.embed(x, params[:-4])

    def evaluate(self, x: Tensor, params: list[Tensor], state: State, *, training: bool) -> Tensor:
        """Evaluate the trunk, both streams and their sum."""
        *inner, value_weight, value_bias, advantage_weight, advantage_bias = params
        hidden = self.inner.evaluate(x, inner, state, training=training).relu()
        for_value, for_advantages = hidden.chunk(2, dim=-1)  # [B, width] each
        value = linear(for_value, value_weight, value_bias).unsqueeze(-2)  # [B, 1, M]
        outputs = linear(for_advantages, advantage_weight, advantage_bias)
        advantages = outputs.view(*outputs.shape[:-1], self.num_actions, -1)  # [B, A, M]
        return (value + advantages - advantages.mean(-2, keepdim=True)).flatten(-2)

"""Residual networks with normalized blocks: SimBa (arXiv 2410.09754)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from rl_training.models.activations import ACTIVATIONS
from rl_training.models.kernels.products import linear
from rl_training.models.mlp import (
    initialize_layers,
    initialize_norms,
    layer_shapes,
    named_layer,
    named_norm,
    norm_shapes,
    normalized,
)
from rl_training.models.network import State, Trunk
from rl_training.models.network_config import ResidualConfig, Sizes

EXPANSION = 4
"""Width of a block's hidden layer, relative to the width of the network."""


class ResidualTrunk(Trunk):
    """A linear embedding, residual blocks x + W₂ φ(W₁ LayerNorm(x)), and a last LayerNorm.

    The flat vector holds the embedding, then scale, shift and both layers of each block, then the
    last scale and shift and the output layer. Initial weights are orthogonal in the embedding and
    He-normal in the blocks; biases are 0.
    """

    def __init__(self, sizes: Sizes, options: ResidualConfig) -> None:
        width, blocks = options.width, options.blocks
        ends, bias_lead = layer_shapes([sizes.inputs, width, sizes.outputs], sizes.ensemble)
        inner, _ = layer_shapes([width, EXPANSION * width, width], sizes.ensemble)
        norm = norm_shapes([width], bias_lead)
        self.shapes = [*ends[:2], *([*norm, *inner] * blocks), *norm, *ends[2:]]
        per_row = (2 + (EXPANSION + 2) * blocks) * width + sizes.outputs
        self.activations = (sizes.ensemble or 1) * per_row
        self.members = sizes.ensemble
        self.activation = ACTIVATIONS[options.activation]
        self.last_layer_bound = sizes.last_layer_bound

    def initialize(
        self, params: list[Tensor], generator: torch.Generator | None
    ) -> dict[str, Tensor]:
        """Initialize as in the authors' code; the output layer is initialized like an MLP's."""
        for weight in params[0] if params[0].dim() == 3 else params[:1]:
            nn.init.orthogonal_(weight, generator=generator)
        params[1].zero_()
        for i in range(2, len(params) - 4, 6):
            initialize_norms(params[i : i + 2])
            for weight, bias in (params[i + 2 : i + 4], params[i + 4 : i + 6]):
                weight.normal_(0.0, math.sqrt(2.0 / weight.shape[-2]), generator=generator)
                bias.zero_()
        initialize_norms(params[-4:-2])
        initialize_layers(params[-2:], generator, self.last_layer_bound)
        return {}

    def unit_weights(self, params: list[Tensor]) -> list[Tensor]:
        """Return the weights of the embedding, the blocks and the output layer."""
        inner = [p for i in range(2, len(params) - 4, 6) for p in (params[i + 2], params[i + 4])]
        return [params[0], *inner, params[-2]]

    def norm_parameters(self, params: list[Tensor]) -> list[tuple[Tensor, ...]]:
        """Return scale and shift of each LayerNorm."""
        return [(params[i], params[i + 1]) for i in range(2, len(params) - 2, 6)]

    def named_tensors(self, params: list[Tensor], state: State) -> dict[str, Tensor]:
        """Name the embedding, the norm and the two layers of each block, and the output layer."""
        named = named_layer("embedding", *params[:2])
        for i in range(2, len(params) - 4, 6):
            block = f"blocks.{i // 6}"
            named |= named_norm(f"{block}.norm", *params[i : i + 2])
            named |= named_layer(f"{block}.expand", *params[i + 2 : i + 4])
            named |= named_layer(f"{block}.project", *params[i + 4 : i + 6])
        return named | named_norm("norm", *params[-4:-2]) | named_layer("output", *params[-2:])

    def evaluate(self, x: Tensor, params: list[Tensor], state: State, *, training: bool) -> Tensor:
        """Evaluate embedding, blocks, last normalization and output layer."""
        x = linear(x, params[0], params[1])
        for i in range(2, len(params) - 4, 6):
            scale, shift, weight, bias, back, back_bias = params[i : i + 6]
            hidden = linear(normalized(x, scale, shift), weight, bias)
            x = x + linear(self.activation(hidden), back, back_bias)
        scale, shift, weight, bias = params[-4:]
        return linear(normalized(x, scale, shift), weight, bias)

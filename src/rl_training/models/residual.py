"""Residual networks with normalized blocks: SimBa (arXiv 2410.09754)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from rl_training.models.activations import ACTIVATIONS
from rl_training.models.kernels.products import linear
from rl_training.models.mlp import layer_shapes, neutral_norms, norm_shapes, uniform_layers
from rl_training.models.network import State, Trunk
from rl_training.models.network_config import ResidualConfig, Sizes

EXPANSION = 4
"""Width of a block's hidden layer, in widths of the network."""


def normalized(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """LayerNorm with its scale and shift."""
    return torch.addcmul(shift, F.layer_norm(x, x.shape[-1:]), scale)


class ResidualTrunk(Trunk):
    """A linear embedding, ``blocks`` of x + W₂ φ(W₁ LayerNorm(x)), a last LayerNorm.

    The flat vector holds the embedding; for each block scale, shift and both layers; the last scale
    and shift; the output layer. First weights are orthogonal in the embedding and He's normal in
    the blocks, with biases of 0.
    """

    def __init__(self, sizes: Sizes, options: ResidualConfig) -> None:
        width, blocks = options.width, options.blocks
        ends, bias_lead = layer_shapes([sizes.inputs, width, sizes.outputs], sizes.ensemble)
        inner, _ = layer_shapes([width, EXPANSION * width, width], sizes.ensemble)
        norm = norm_shapes([width], bias_lead)
        self.shapes = [*ends[:2], *([*norm, *inner] * blocks), *norm, *ends[2:]]
        per_row = (2 + (EXPANSION + 2) * blocks) * width + sizes.outputs
        self.activations = (sizes.ensemble or 1) * per_row
        self.activation = ACTIVATIONS[options.activation]
        self.last_layer_bound = sizes.last_layer_bound

    def initialize(
        self, params: list[Tensor], generator: torch.Generator | None
    ) -> dict[str, Tensor]:
        """The first weights as in the authors' code; the output layer like that of an MLP."""
        for weight in params[0] if params[0].dim() == 3 else params[:1]:
            nn.init.orthogonal_(weight, generator=generator)
        params[1].zero_()
        for i in range(2, len(params) - 4, 6):
            neutral_norms(params[i : i + 2])
            for weight, bias in (params[i + 2 : i + 4], params[i + 4 : i + 6]):
                weight.normal_(0.0, math.sqrt(2.0 / weight.shape[-2]), generator=generator)
                bias.zero_()
        neutral_norms(params[-4:-2])
        uniform_layers(params[-2:], generator, self.last_layer_bound)
        return {}

    def unit_weights(self, params: list[Tensor]) -> list[Tensor]:
        """The weights of the embedding, of the blocks and of the output layer."""
        inner = [p for i in range(2, len(params) - 4, 6) for p in (params[i + 2], params[i + 4])]
        return [params[0], *inner, params[-2]]

    def evaluate(self, x: Tensor, params: list[Tensor], state: State, *, training: bool) -> Tensor:
        """The embedding, the blocks, the last normalization and the output layer."""
        x = linear(x, params[0], params[1])
        for i in range(2, len(params) - 4, 6):
            scale, shift, weight, bias, back, back_bias = params[i : i + 6]
            hidden = linear(normalized(x, scale, shift), weight, bias)
            x = x + linear(self.activation(hidden), back, back_bias)
        scale, shift, weight, bias = params[-4:]
        return linear(normalized(x, scale, shift), weight, bias)

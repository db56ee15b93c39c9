"""Stacked multi-layer perceptrons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rl_training.errors import ConfigError
from rl_training.models.activations import ACTIVATIONS
from rl_training.models.dropout import dropout, first_counters
from rl_training.models.kernels.products import linear
from rl_training.models.network import Network, State, Trunk


def uniform_layer(
    weight: Tensor, bias: Tensor, generator: torch.Generator | None, bound: float | None = None
) -> None:
    """Uniform in ±1/√fan_in, weights and biases alike, as `torch.nn.Linear` does."""
    bound = 1.0 / math.sqrt(weight.shape[-2]) if bound is None else bound
    weight.uniform_(-bound, bound, generator=generator)
    bias.uniform_(-bound, bound, generator=generator)


def layer_shapes(
    widths: Sequence[int], ensemble: int | None
) -> tuple[list[tuple[int, ...]], tuple[int, ...], tuple[int, ...]]:
    """Weights and biases of linear layers; the axes before those of a weight, and of a bias."""
    if min(*widths, 1 if ensemble is None else ensemble) < 1:
        raise ConfigError(
            f"A network of widths {list(widths)}, ensemble {ensemble}: each should be 1 or more."
        )
    lead: tuple[int, ...] = () if ensemble is None else (ensemble,)
    bias_lead: tuple[int, ...] = () if ensemble is None else (ensemble, 1)
    shapes: list[tuple[int, ...]] = []
    for fan_in, fan_out in pairwise(widths):
        shapes += [(*lead, fan_in, fan_out), (*bias_lead, fan_out)]
    return shapes, lead, bias_lead


class MLPTrunk(Trunk):
    """A perceptron, or a stack of ``ensemble`` of them evaluated by one product a layer.

    With ``layer_norm`` every hidden layer is normalized before its activation (arXiv 1607.06450),
    with a scale and a shift; these stand behind the layers in the flat vector. ``dropout`` zeroes
    outputs of the hidden layers, before the normalization as in DroQ (arXiv 2110.02034).
    ``last_layer_bound`` is the range of the last layer's first weights.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        hidden_sizes: Sequence[int],
        *,
        activation: str = "relu",
        layer_norm: bool = False,
        dropout: float = 0.0,
        ensemble: int | None = None,
        last_layer_bound: float | None = None,
    ) -> None:
        shapes, self.lead, bias_lead = layer_shapes(
            [in_features, *hidden_sizes, out_features], ensemble
        )
        self.activations = sum(map(math.prod, shapes[1::2]))
        if layer_norm:
            for width in hidden_sizes:
                shapes += [(*bias_lead, width)] * 2
        self.shapes = shapes
        self.layer_norm = layer_norm
        self.dropout = dropout
        self.activation = ACTIVATIONS[activation]
        self.num_layers = len(hidden_sizes) + 1
        self.last_layer_bound = last_layer_bound
        self.plain_relu = activation == "relu" and not dropout
        self.fused = self.plain_relu and not layer_norm

    def initialize(
        self, params: list[Tensor], generator: torch.Generator | None
    ) -> dict[str, Tensor]:
        """Layers like those of PyTorch; scales of 1, shifts of 0."""
        layers, norms = params[: 2 * self.num_layers], params[2 * self.num_layers :]
        for index, (weight, bias) in enumerate(zip(layers[0::2], layers[1::2], strict=True)):
            last = index == self.num_layers - 1
            uniform_layer(weight, bias, generator, self.last_layer_bound if last else None)
        for scale, shift in zip(norms[0::2], norms[1::2], strict=True):
            scale.fill_(1.0)
            shift.zero_()
        return {"dropout_counter": first_counters(self.lead, generator)} if self.dropout else {}

    def unit_weights(self, params: list[Tensor]) -> list[Tensor]:
        """The weights of every layer."""
        return params[: 2 * self.num_layers : 2]

    def evaluate(self, x: Tensor, params: list[Tensor], state: State, *, training: bool) -> Tensor:
        """The perceptron itself."""
        return self.evaluate_above(
            linear(x, params[0], params[1]), params, state, training=training
        )

    def evaluate_above(
        self, x: Tensor, params: list[Tensor], state: State, *, training: bool
    ) -> Tensor:
        """What comes after the first layer's product and bias, which are ``x``."""
        norms = params[2 * self.num_layers :]
        drops = training and self.dropout > 0.0
        for i in range(2, 2 * self.num_layers, 2):
            if drops:
                x = dropout(x, self.dropout, state["dropout_counter"], i)
            if norms:
                x = F.layer_norm(x, x.shape[-1:])  # ε = 1e-5
                x = torch.addcmul(norms[i - 1], x, norms[i - 2])
            x = linear(self.activation(x), params[i], params[i + 1])
        if drops:
            state["dropout_counter"].add_(1)
        return x


class MLP(Network):
    """ReLU perceptron, or a stack of ``ensemble`` of them: see `MLPTrunk`."""

    def __init__(
        self,
        in_features: int,
        hidden_sizes: Sequence[int],
        out_features: int,
        *,
        ensemble: int | None = None,
        layer_norm: bool = False,
        last_layer_bound: float | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        trunk = MLPTrunk(
            in_features,
            out_features,
            hidden_sizes,
            layer_norm=layer_norm,
            ensemble=ensemble,
            last_layer_bound=last_layer_bound,
        )
        super().__init__(trunk, generator)

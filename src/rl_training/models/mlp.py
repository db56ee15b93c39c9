"""Stacked multi-layer perceptrons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from rl_training.errors import ConfigError
from rl_training.models.activations import ACTIVATIONS
from rl_training.models.dropout import dropout, first_counters
from rl_training.models.kernels.products import linear
from rl_training.models.network import Network, State, Trunk
from rl_training.models.network_config import MLPConfig, Sizes, plain_mlp

TRUNCATED_DEVIATION = 0.87962566103423978
"""Standard deviation of a standard normal distribution cut off at ±2."""


def initialize_layers(
    layers: list[Tensor], generator: torch.Generator | None, last_bound: float | None = None
) -> None:
    """Draw weights and biases uniformly in ±1/√fan_in, as `torch.nn.Linear` does.

    ``last_bound`` overrides the range of the last layer.
    """
    for i in range(0, len(layers), 2):
        bound = 1.0 / math.sqrt(layers[i].shape[-2])
        if i == len(layers) - 2 and last_bound is not None:
            bound = last_bound
        for tensor in layers[i : i + 2]:
            tensor.uniform_(-bound, bound, generator=generator)


def initialize_truncated(layers: list[Tensor], generator: torch.Generator | None) -> None:
    """Draw weights with deviation 1/√fan_in from a truncated normal, and set biases to 0.

    The normal is cut off at two of its deviations, as in JAX's `lecun_normal`.
    """
    for weight, bias in zip(layers[0::2], layers[1::2], strict=True):
        deviation = 1.0 / (TRUNCATED_DEVIATION * math.sqrt(weight.shape[-2]))
        bias.zero_()
        if not weight.is_meta:
            bounds = -2.0 * deviation, 2.0 * deviation
            nn.init.trunc_normal_(weight, 0.0, deviation, *bounds, generator=generator)


def initialize_norms(norms: list[Tensor]) -> None:
    """Set the alternating scales and shifts to 1 and 0."""
    for scale, shift in norm_pairs(norms):
        scale.fill_(1.0)
        shift.zero_()


def layer_shapes(
    widths: Sequence[int], ensemble: int | None
) -> tuple[list[tuple[int, ...]], tuple[int, ...]]:
    """Return the shapes of weights and biases, and the leading axes of a bias."""
    if min(*widths, 1 if ensemble is None else ensemble) < 1:
        raise ConfigError(
            f"A network has the widths {list(widths)} and the ensemble size {ensemble}, but all "
            "should be at least 1."
        )
    lead: tuple[int, ...] = () if ensemble is None else (ensemble,)
    bias_lead: tuple[int, ...] = () if ensemble is None else (ensemble, 1)
    shapes: list[tuple[int, ...]] = []
    for fan_in, fan_out in pairwise(widths):
        shapes += [(*lead, fan_in, fan_out), (*bias_lead, fan_out)]
    return shapes, bias_lead


def norm_shapes(widths: Sequence[int], bias_lead: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the shapes of a scale and a shift per width."""
    return [(*bias_lead, width) for width in widths for _ in range(2)]


def norm_pairs(norms: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
    """Return alternating scales and shifts as pairs."""
    return list(zip(norms[0::2], norms[1::2], strict=True))


def named_layer(name: str, weight: Tensor, bias: Tensor) -> dict[str, Tensor]:
    """Return a linear layer's tensors by name, with `torch.nn.Linear`'s layout ``[out, in]``."""
    return {f"{name}.weight": weight.mT, f"{name}.bias": bias.flatten()}


def named_norm(name: str, scale: Tensor, shift: Tensor) -> dict[str, Tensor]:
    """Return a normalization's scale and shift under the names of `torch.nn`."""
    return {f"{name}.weight": scale.flatten(), f"{name}.bias": shift.flatten()}


def normalized(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Apply LayerNorm over the last axis, with ε = 1e-5."""
    return torch.addcmul(shift, F.layer_norm(x, x.shape[-1:]), scale)


class MLPTrunk(Trunk):
    """A perceptron, or an ensemble of them with one batched product per layer.

    With ``layer_norm``, every hidden layer is normalized (arXiv 1607.06450), before its activation
    or, with ``"after"``, after it. Scales and shifts follow the layers in the flat vector.
    ``dropout`` zeroes outputs of the hidden layers before the normalization and the activation, as
    in DroQ (arXiv 2110.02034).
    """

    def __init__(self, sizes: Sizes, options: MLPConfig) -> None:
        hidden = options.hidden_sizes
        widths = [sizes.inputs, *hidden, sizes.outputs]
        shapes, bias_lead = layer_shapes(widths, sizes.ensemble)
        self.activations = sum(map(math.prod, shapes[1::2]))
        self.layer_norm = options.layer_norm
        if self.layer_norm:
            shapes += norm_shapes(hidden, bias_lead)
        self.shapes = shapes
        self.members = sizes.ensemble
        self.lead = bias_lead[:1]
        self.dropout = options.dropout
        self.activation = ACTIVATIONS[options.activation]
        self.num_layers = len(hidden) + 1
        self.last_layer_bound = sizes.last_layer_bound
        self.fused = options.activation == "relu" and not self.layer_norm and not self.dropout

    def initialize(
        self, params: list[Tensor], generator: torch.Generator | None
    ) -> dict[str, Tensor]:
        """Initialize layers like PyTorch, scales with 1 and shifts with 0."""
        split = 2 * self.num_layers
        initialize_layers(params[:split], generator, self.last_layer_bound)
        initialize_norms(params[split:])
        return {"dropout_counter": first_counters(self.lead, generator)} if self.dropout else {}

    def unit_weights(self, params: list[Tensor]) -> list[Tensor]:
        """Return the weights of every layer."""
        return params[: 2 * self.num_layers : 2]

    def norm_parameters(self, params: list[Tensor]) -> list[tuple[Tensor, ...]]:
        """Return scale and shift of each LayerNorm."""
        return norm_pairs(params[2 * self.num_layers :])

    def named_tensors(self, params: list[Tensor], state: State) -> dict[str, Tensor]:
        """Name the layers and norms; the counter of dropout is not a weight."""
        named: dict[str, Tensor] = {}
        for i in range(0, 2 * self.num_layers, 2):
            named |= named_layer(f"layers.{i // 2}", *params[i : i + 2])
        norms = params[2 * self.num_layers :]
        for i in range(0, len(norms), 2):
            named |= named_norm(f"norms.{i // 2}", *norms[i : i + 2])
        return named

    def evaluate(self, x: Tensor, params: list[Tensor], state: State, *, training: bool) -> Tensor:
        """Evaluate the perceptron."""
        return self.evaluate_above(
            linear(x, params[0], params[1]), params, state, training=training
        )

    def evaluate_above(
        self, x: Tensor, params: list[Tensor], state: State, *, training: bool
    ) -> Tensor:
        """Evaluate everything after the first linear layer, whose output is ``x``."""
        norms = params[2 * self.num_layers :]
        norm_after = self.layer_norm == "after"
        drops = training and self.dropout > 0.0
        for i in range(2, 2 * self.num_layers, 2):
            if drops:
                x = dropout(x, self.dropout, state["dropout_counter"], i)
            if not norm_after and norms:
                x = normalized(x, norms[i - 2], norms[i - 1])
            x = self.activation(x)
            if norm_after:
                x = normalized(x, norms[i - 2], norms[i - 1])
            x = linear(x, params[i], params[i + 1])
        if drops:
            state["dropout_counter"].add_(1)
        return x


class MLP(Network):
    """A ReLU perceptron, or an ensemble of them (see `MLPTrunk`)."""

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
        sizes = Sizes(in_features, out_features, ensemble, last_layer_bound)
        options = plain_mlp(hidden_sizes, layer_norm=layer_norm)
        super().__init__(MLPTrunk(sizes, options), generator)

"""Residual networks with batch normalization and unit-norm weights, as in FlashSAC."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rl_training.models.activations import ACTIVATIONS
from rl_training.models.kernels.products import linear, stacked_product
from rl_training.models.mlp import (
    initialize_norms,
    layer_shapes,
    named_layer,
    named_norm,
    norm_pairs,
    norm_shapes,
    normalized,
)
from rl_training.models.network import State, Trunk
from rl_training.models.network_config import FlashConfig, Sizes
from rl_training.models.residual import EXPANSION

RMS_EPS = 1e-6


class FlashTrunk(Trunk):
    """The network of FlashSAC (arXiv 2604.04539).

    With N for BatchNorm (arXiv 1502.03167), the embedding is x = W₀ N(inputs). Residual blocks
    x + φ(N(W₂ φ(N(W₁ x)))), with a hidden layer that is four times as wide, are followed by RMSNorm
    (arXiv 1910.07467) and the output layer, the only one with a bias. Training mode normalizes with
    the mean and the biased variance of the batch, and moves the running averages toward the mean
    and the unbiased variance. Evaluation mode normalizes with the running averages.

    Initial weights are orthogonal, with each unit's incoming weights scaled to norm 1, which the
    projection `unit_rows_and_norms` of an optimizer maintains.

    The flat vector holds the weights of all layers, the bias of the output layer, scale and shift
    of each BatchNorm, and the scale of the RMSNorm. The state holds a vector of running means and
    one of variances.
    """

    def __init__(self, sizes: Sizes, options: FlashConfig) -> None:
        width, blocks = options.width, options.blocks
        inner = [width, *([EXPANSION * width, width] * blocks)]
        shapes, self.bias_lead = layer_shapes([sizes.inputs, *inner, sizes.outputs], sizes.ensemble)
        self.num_layers = len(inner) + 1
        self.widths = [sizes.inputs, *inner[1:]] if options.normalization != "none" else []
        norms = norm_shapes(self.widths, self.bias_lead)
        self.shapes = [*shapes[::2], shapes[-1], *norms, (*self.bias_lead, width)]
        per_row = 2 * (sizes.inputs + sum(inner)) + sizes.outputs
        self.activations = (sizes.ensemble or 1) * per_row
        self.members = sizes.ensemble
        self.options = options
        self.activation = ACTIVATIONS[options.activation]

    def initialize(
        self, params: list[Tensor], generator: torch.Generator | None
    ) -> dict[str, Tensor]:
        """Draw orthogonal weights and scale them to unit norms; scales and variances are 1."""
        for weights in self.unit_weights(params):
            # On the meta device, which has no values, these operations would import a compiler.
            if weights.is_meta:
                continue
            for weight in weights if weights.dim() == 3 else [weights]:
                nn.init.orthogonal_(weight, generator=generator)
                weight.div_(weight.square().sum(-2, keepdim=True).sqrt())
        params[self.num_layers].zero_()
        initialize_norms(params[self.num_layers + 1 : -1])
        params[-1].fill_(1.0)
        if self.options.normalization != "batch":
            return {}
        shape = *(self.bias_lead or (1,)), sum(self.widths)
        return {"running_mean": torch.zeros(shape), "running_variance": torch.ones(shape)}

    def unit_weights(self, params: list[Tensor]) -> list[Tensor]:
        """Return the weights of every layer."""
        return params[: self.num_layers]

    def norm_parameters(self, params: list[Tensor]) -> list[tuple[Tensor, ...]]:
        """Return scale and shift of each normalization, and the scale of the RMSNorm."""
        return [*norm_pairs(params[self.num_layers + 1 : -1]), (params[-1],)]

    def named_tensors(self, params: list[Tensor], state: State) -> dict[str, Tensor]:
        """Name the layers, the norms with their running statistics, and the output layer."""
        blocks = range((self.num_layers - 2) // 2)
        inner = [f"blocks.{i}.{layer}" for i in blocks for layer in ("expand", "project")]
        names = ["embedding", *inner]
        named = {f"{name}.weight": weight.mT for name, weight in zip(names, params, strict=False)}
        *norms, (scale,) = self.norm_parameters(params)
        norm_names = ["input_norm", *(f"{name}_norm" for name in inner)]
        for name, norm in zip(norm_names, norms, strict=False):
            named |= named_norm(name, *norm)
        named["norm.weight"] = scale.flatten()
        named |= named_layer("output", *params[self.num_layers - 1 : self.num_layers + 1])
        statistics = {"running_mean": "running_mean", "running_variance": "running_var"}
        for key, torch_name in statistics.items() if state else ():
            for name, part in zip(norm_names, self._of_norms(state[key]), strict=True):
                named[f"{name}.{torch_name}"] = part.flatten()
        return named

    def _of_norms(self, statistics: Tensor) -> tuple[Tensor, ...]:
        """Return the statistics of each normalization as views."""
        return torch.split_with_sizes(statistics, self.widths, dim=-1)

    def evaluate(self, x: Tensor, params: list[Tensor], state: State, *, training: bool) -> Tensor:
        """Evaluate the embedding, the blocks, the RMSNorm and the output layer."""
        *norms, (scale,) = self.norm_parameters(params)
        kind = self.options.normalization
        running: list[tuple[Tensor, ...]] = []
        if kind == "batch":
            means, variances = state["running_mean"], state["running_variance"]
            running = list(zip(self._of_norms(means), self._of_norms(variances), strict=True))

        def norm(x: Tensor, i: int) -> Tensor:
            if kind == "batch":
                return self._normalize(x, *norms[i], *running[i], training=training)
            return normalized(x, *norms[i]) if kind == "layer" else x

        x = _product(norm(x, 0), params[0])
        for i in range(1, self.num_layers - 1, 2):
            hidden = self.activation(norm(_product(x, params[i]), i))
            x = x + self.activation(norm(_product(hidden, params[i + 1]), i + 1))
        x = x * (x.square().mean(-1, keepdim=True) + RMS_EPS).rsqrt() * scale
        return linear(x, params[self.num_layers - 1], params[self.num_layers])

    def _normalize(
        self,
        x: Tensor,
        scale: Tensor,
        shift: Tensor,
        running_mean: Tensor,
        running_variance: Tensor,
        *,
        training: bool,
    ) -> Tensor:
        """Apply a BatchNorm; in training mode, also update its running averages."""
        eps, momentum, rows = self.options.eps, self.options.momentum, x.shape[-2]
        if not training:
            factor = scale * (running_variance + eps).rsqrt()
            return torch.addcmul(shift - running_mean * factor, x, factor)
        mean = x.mean(-2, keepdim=True)
        centered = x - mean
        variance = centered.square().mean(-2, keepdim=True)
        with torch.no_grad():
            running_mean.lerp_(mean, momentum)
            running_variance.lerp_(variance * (rows / max(1, rows - 1)), momentum)
        return torch.addcmul(shift, centered, scale * (variance + eps).rsqrt())


def _product(x: Tensor, weight: Tensor) -> Tensor:
    """Compute ``x @ weight`` for one network or a stack of them."""
    if weight.dim() == 3:
        return stacked_product(x.expand(len(weight), -1, -1), weight)
    return x @ weight

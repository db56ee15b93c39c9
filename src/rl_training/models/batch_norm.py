"""Networks with batch normalization or renormalization, as in CrossQ."""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training.models.activations import ACTIVATIONS
from rl_training.models.kernels.products import linear
from rl_training.models.mlp import (
    initialize_layers,
    initialize_norms,
    initialize_truncated,
    layer_shapes,
    named_layer,
    named_norm,
    norm_pairs,
    norm_shapes,
)
from rl_training.models.network import State, Trunk
from rl_training.models.network_config import BatchNormConfig, Sizes


class BatchNormTrunk(Trunk):
    """A perceptron with batch normalization of inputs and hidden activations.

    Training mode uses the statistics of the batch (arXiv 1502.03167), evaluation mode their running
    averages. With renormalization (arXiv 1702.03275), a batch is corrected toward the running
    averages once ``renorm_warmup`` batches have been seen:
    x̂ = (x − μ) / σ · r + d with r = σ / σ_running and d = (μ − μ_running) / σ_running, both
    clipped and without gradient.

    The flat vector holds the layers, then a scale and a shift for the inputs and for each hidden
    layer. The state holds a vector of running means, one of variances, and the batch count.
    """

    def __init__(self, sizes: Sizes, options: BatchNormConfig) -> None:
        self.widths = [sizes.inputs, *options.hidden_sizes]
        shapes, self.bias_lead = layer_shapes([*self.widths, sizes.outputs], sizes.ensemble)
        self.num_layers = len(self.widths)
        self.shapes = [*shapes, *norm_shapes(self.widths, self.bias_lead)]
        self.activations = (sizes.ensemble or 1) * (2 * sum(self.widths) + sizes.outputs)
        self.members = sizes.ensemble
        self.options = options
        self.activation = ACTIVATIONS[options.activation]
        self.last_layer_bound = sizes.last_layer_bound

    def initialize(
        self, params: list[Tensor], generator: torch.Generator | None
    ) -> dict[str, Tensor]:
        """Draw the weights as in CrossQ's code; scales and variances are 1, the others 0."""
        split = 2 * self.num_layers
        initialize_truncated(params[:split], generator)
        if self.last_layer_bound is not None:
            initialize_layers(params[split - 2 : split], generator, self.last_layer_bound)
        initialize_norms(params[split:])
        lead = self.bias_lead or (1,)
        return {
            "running_mean": torch.zeros(*lead, sum(self.widths)),
            "running_variance": torch.ones(*lead, sum(self.widths)),
            "batches": torch.zeros(*lead, 1),
        }

    def unit_weights(self, params: list[Tensor]) -> list[Tensor]:
        """Return the weights of every layer."""
        return params[: 2 * self.num_layers : 2]

    def norm_parameters(self, params: list[Tensor]) -> list[tuple[Tensor, ...]]:
        """Return scale and shift of each normalization."""
        return norm_pairs(params[2 * self.num_layers :])

    def named_tensors(self, params: list[Tensor], state: State) -> dict[str, Tensor]:
        """Name the layers, and the norms with their running statistics."""
        named: dict[str, Tensor] = {}
        layers, norms = params[: 2 * self.num_layers], params[2 * self.num_layers :]
        for i in range(self.num_layers):
            named |= named_layer(f"layers.{i}", *layers[2 * i : 2 * i + 2])
            named |= named_norm(f"norms.{i}", *norms[2 * i : 2 * i + 2])
        statistics = {"running_mean": "running_mean", "running_variance": "running_var"}
        for name, torch_name in statistics.items() if state else ():
            for i, part in enumerate(torch.split_with_sizes(state[name], self.widths, dim=-1)):
                named[f"norms.{i}.{torch_name}"] = part.flatten()
        return named

    def evaluate(self, x: Tensor, params: list[Tensor], state: State, *, training: bool) -> Tensor:
        """Normalize the inputs, then apply linear layer, activation and normalization in turn."""
        layers, norms = params[: 2 * self.num_layers], params[2 * self.num_layers :]
        means = torch.split_with_sizes(state["running_mean"], self.widths, dim=-1)
        variances = torch.split_with_sizes(state["running_variance"], self.widths, dim=-1)
        for i in range(self.num_layers):
            if i > 0:
                x = self.activation(linear(x, layers[2 * i - 2], layers[2 * i - 1]))
            if training:
                x = self._normalize_batch(x, means[i], variances[i], state["batches"])
            else:
                x = (x - means[i]) * (variances[i] + self.options.eps).rsqrt()
            x = torch.addcmul(norms[2 * i + 1], x, norms[2 * i])
        if training:
            state["batches"].add_(1.0)
        return linear(x, layers[-2], layers[-1])

    def _normalize_batch(
        self, x: Tensor, running_mean: Tensor, running_variance: Tensor, batches: Tensor
    ) -> Tensor:
        """Normalize with the batch's statistics and update the running statistics."""
        options = self.options
        mean = x.mean(-2, keepdim=True)
        centered = x - mean
        variance = centered.square().mean(-2, keepdim=True)
        deviation = (variance + options.eps).sqrt()
        x = centered / deviation
        with torch.no_grad():
            if options.renormalize:
                running = (running_variance + options.eps).sqrt()
                ratio = (deviation / running).clamp(
                    1.0 / options.renorm_r_max, options.renorm_r_max
                )
                offset = (mean - running_mean) / running
                offset = offset.clamp(-options.renorm_d_max, options.renorm_d_max)
                warm = batches >= options.renorm_warmup
                ratio, offset = torch.where(warm, ratio, 1.0), torch.where(warm, offset, 0.0)
            running_mean.lerp_(mean, options.momentum)
            running_variance.lerp_(variance, options.momentum)
        return x * ratio + offset if options.renormalize else x

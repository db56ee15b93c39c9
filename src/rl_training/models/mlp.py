"""Networks whose parameters are one flat vector, and stacked multi-layer perceptrons on top."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from rl_training.errors import ConfigError
from rl_training.models.kernels import use_kernels
from rl_training.models.kernels.products import MLPFunction, linear, split_views

MAX_KEPT_VIEWS = 4


class FlatModule(nn.Module):
    """A network whose parameters are one leaf vector; its layers are views of one `split`.

    The backward of the split is one concatenation, so an optimizer step and a Polyak update are one
    kernel each (docs/decisions/0001-flat-parameters.md).
    """

    def __init__(self, shapes: Sequence[tuple[int, ...]]) -> None:
        super().__init__()
        self.shapes = tuple(shapes)
        self.sizes = [math.prod(shape) for shape in self.shapes]
        self.flat = nn.Parameter(torch.empty(sum(self.sizes)))
        self._kept_views: dict[int, list[Tensor]] = {}

    def views(self, flat: Tensor) -> list[Tensor]:
        """The layers' tensors inside ``flat``; leading axes (a population) are kept."""
        return split_views(flat, self.sizes, self.shapes)

    def kept_views(self, flat: Tensor) -> list[Tensor]:
        """Views of ``flat`` without its gradient, made once for as long as it stays in place.

        They alias the vector, which is only ever written in place, and keep its memory from being
        used for anything else.
        """
        address = flat.data_ptr()
        kept = self._kept_views.get(address)
        if kept is None:
            if len(self._kept_views) >= MAX_KEPT_VIEWS:
                self._kept_views.clear()
            kept = self._kept_views[address] = self.views(flat.detach())
        return kept


class MLP(FlatModule):
    """ReLU perceptron, or a stack of ``ensemble`` of them evaluated by one product a layer.

    Inputs are ``[B, in]``; outputs are ``[B, out]``, or ``[ensemble, B, out]`` for a stack. With
    ``layer_norm`` every hidden layer is normalized before its ReLU (arXiv 1607.06450), with a scale
    and a shift; these stand behind the layers in the flat vector. ``last_layer_bound`` is the range
    of the last layer's first weights.
    """

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
        widths = [in_features, *hidden_sizes, out_features]
        if min(*widths, 1 if ensemble is None else ensemble) < 1:
            raise ConfigError(
                f"A network of widths {widths}, ensemble {ensemble}: each should be 1 or more."
            )
        lead: tuple[int, ...] = () if ensemble is None else (ensemble,)
        bias_lead: tuple[int, ...] = () if ensemble is None else (ensemble, 1)
        shapes: list[tuple[int, ...]] = []
        for fan_in, fan_out in pairwise(widths):
            shapes += [(*lead, fan_in, fan_out), (*bias_lead, fan_out)]
        if layer_norm:
            for width in hidden_sizes:
                shapes += [(*bias_lead, width)] * 2
        super().__init__(shapes)
        self.layer_norm = layer_norm
        self.num_layers = len(widths) - 1
        self.last_layer_bound = last_layer_bound
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Uniform in ±1/√fan_in, weights and biases alike, as `torch.nn.Linear` does."""
        views = self.views(self.flat)
        layers, norms = views[: 2 * self.num_layers], views[2 * self.num_layers :]
        for index, (weight, bias) in enumerate(zip(layers[0::2], layers[1::2], strict=True)):
            bound = 1.0 / math.sqrt(weight.shape[-2])
            if index == self.num_layers - 1 and self.last_layer_bound is not None:
                bound = self.last_layer_bound
            weight.uniform_(-bound, bound, generator=generator)
            bias.uniform_(-bound, bound, generator=generator)
        for scale, shift in zip(norms[0::2], norms[1::2], strict=True):
            scale.fill_(1.0)
            shift.zero_()

    def forward(
        self, x: Tensor, flat: Tensor | None = None, *, prefix: Tensor | None = None
    ) -> Tensor:
        """Evaluate with the module's own parameters, or with those in ``flat``.

        ``prefix`` stands before ``x`` in the inputs and gets no gradient.
        """
        vector = self.flat if flat is None else flat
        if use_kernels(x) and x.dim() == 2 and vector.dim() == 1:
            if torch.is_grad_enabled() and not self.layer_norm:
                params = self.kept_views(vector)
                out: Tensor = MLPFunction.apply(x, prefix, vector, params, self.sizes)  # type: ignore[no-untyped-call]
                return out
            if not torch.is_grad_enabled():
                return self.evaluate(x, self.kept_views(vector), prefix)
        return self.plain_forward(x, flat, prefix=prefix)

    def plain_forward(
        self, x: Tensor, flat: Tensor | None = None, *, prefix: Tensor | None = None
    ) -> Tensor:
        """The same, one operation at a time: for a second derivative, a compiler, a GPU."""
        return self.evaluate(x, self.views(self.flat if flat is None else flat), prefix)

    def evaluate(self, x: Tensor, params: list[Tensor], prefix: Tensor | None = None) -> Tensor:
        """The perceptron itself."""
        if prefix is not None:
            x = torch.cat((prefix, x), dim=-1)
        return self.evaluate_above(linear(x, params[0], params[1]), params)

    def evaluate_above(self, x: Tensor, params: list[Tensor]) -> Tensor:
        """What comes after the first layer's product and bias, which are ``x``."""
        norms = params[2 * self.num_layers :]
        for i in range(2, 2 * self.num_layers, 2):
            if norms:
                x = F.layer_norm(x, x.shape[-1:])  # ε = 1e-5
                x = torch.addcmul(norms[i - 1], x, norms[i - 2])
            x = linear(x.relu_(), params[i], params[i + 1])
        return x

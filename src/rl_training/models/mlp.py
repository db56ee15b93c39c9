"""Networks whose parameters are one flat vector, and stacked multi-layer perceptrons on top."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


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
        self._frozen_views: tuple[int, list[Tensor]] | None = None

    def views(self, flat: Tensor) -> list[Tensor]:
        """The layers' tensors inside ``flat``; leading axes (a population) are kept."""
        lead = flat.shape[:-1]
        parts = torch.split(flat, self.sizes, dim=-1)
        return [part.view(*lead, *shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def parameters_for(self, flat: Tensor | None) -> list[Tensor]:
        """Views to compute with: of ``flat``, or of the module's own vector.

        Without gradients the module's own views are made once: they alias the vector, which is only
        ever written in place.
        """
        if flat is not None:
            return self.views(flat)
        if torch.is_grad_enabled():
            return self.views(self.flat)
        address = self.flat.data_ptr()
        if self._frozen_views is None or self._frozen_views[0] != address:
            self._frozen_views = (address, self.views(self.flat.detach()))
        return self._frozen_views[1]


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """``x @ weight + bias`` with the bias inside the product where the rank allows it.

    A batched product with one column is ten times slower on the CPU than the sum that it is.
    """
    if weight.shape[-1] == 1 and weight.dim() == 3:
        return (x * weight.mT).sum(-1, keepdim=True) + bias
    if weight.dim() == 2 and x.dim() == 2:
        return torch.addmm(bias, x, weight)
    if weight.dim() == 3:
        x = x.expand(weight.shape[0], -1, -1) if x.dim() == 2 else x
        return torch.baddbmm(bias, x, weight)
    return x @ weight + bias


class MLP(FlatModule):
    """ReLU perceptron, or a stack of ``ensemble`` of them evaluated by one product a layer.

    Inputs are ``[B, in]``; outputs are ``[B, out]``, or ``[ensemble, B, out]`` for a stack.
    """

    def __init__(
        self,
        in_features: int,
        hidden_sizes: Sequence[int],
        out_features: int,
        *,
        ensemble: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        widths = [in_features, *hidden_sizes, out_features]
        lead: tuple[int, ...] = () if ensemble is None else (ensemble,)
        bias_lead: tuple[int, ...] = () if ensemble is None else (ensemble, 1)
        shapes: list[tuple[int, ...]] = []
        for fan_in, fan_out in pairwise(widths):
            shapes += [(*lead, fan_in, fan_out), (*bias_lead, fan_out)]
        super().__init__(shapes)
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Uniform in ±1/√fan_in, weights and biases alike, as `torch.nn.Linear` does."""
        views = self.views(self.flat)
        for weight, bias in zip(views[0::2], views[1::2], strict=True):
            bound = 1.0 / math.sqrt(weight.shape[-2])
            weight.uniform_(-bound, bound, generator=generator)
            bias.uniform_(-bound, bound, generator=generator)

    def forward(self, x: Tensor, flat: Tensor | None = None) -> Tensor:
        """Evaluate with the module's own parameters, or with those in ``flat``."""
        params = self.parameters_for(flat)
        last = len(params) - 2
        for i in range(0, last, 2):
            x = linear(x, params[i], params[i + 1]).relu_()
        return linear(x, params[last], params[last + 1])

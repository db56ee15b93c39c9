"""Networks whose parameters are one flat vector, and stacked multi-layer perceptrons on top."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from rl_training.models.mlp_kernel import MLPFunction, linear, split_views


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
        views: list[Tensor] = split_views(flat, self.sizes, self.shapes)
        return views

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


class MLP(FlatModule):
    """ReLU perceptron, or a stack of ``ensemble`` of them evaluated by one product a layer.

    Inputs are ``[B, in]``; outputs are ``[B, out]``, or ``[ensemble, B, out]`` for a stack.
    """

    one_node = True
    """Whether training on the CPU may use `MLPFunction`; the plain path is the reference."""

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
        if torch.is_grad_enabled() and self.one_node and x.device.type == "cpu" and x.dim() == 2:
            vector = self.flat if flat is None else flat
            if vector.dim() == 1:
                out: Tensor = MLPFunction.apply(x, vector, self.sizes, self.shapes)  # type: ignore[no-untyped-call]
                return out
        return self.plain_forward(x, flat)

    def plain_forward(self, x: Tensor, flat: Tensor | None = None) -> Tensor:
        """The same, one operation at a time: for a second derivative, a compiler, a GPU."""
        params = self.parameters_for(flat)
        last = len(params) - 2
        for i in range(0, last, 2):
            x = linear(x, params[i], params[i + 1]).relu_()
        return linear(x, params[last], params[last + 1])

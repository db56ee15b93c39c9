"""The forward and backward pass of a ReLU perceptron as one autograd node, for the CPU.

The products are the same as in the plain path in `mlp.py`. The node avoids the overhead around
them: a node and several views per layer, and the concatenation of the layers' gradients, which are
written directly into the flat vector (docs/decisions/0005-one-node-per-network.md). It has no
second derivative; the plain path is used if one is needed, and on a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rl_training.models.kernels import use_kernels

PIECE = 256
MANY_ROWS = 4_096
"""With at least this many rows, a GPU sums weight gradients over chunks of `PIECE` rows."""


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute ``x @ weight + bias``, fusing the bias into the product if the shapes allow it.

    On the CPU, a batched product with one column is five times slower than the equivalent sum.
    """
    if weight.dim() == 2 and x.dim() == 2:
        return torch.addmm(bias, x, weight)
    if weight.dim() == 3:
        if weight.shape[-1] == 1:
            return (x * weight.mT).sum(-1, keepdim=True) + bias
        x = x.expand(weight.shape[0], -1, -1) if x.dim() == 2 else x
        if use_kernels(x):
            return torch.baddbmm(bias, x, weight)
        # A compiler fuses the bias with the next operation; `baddbmm` would copy it first.
        return stacked_product(x, weight) + bias
    return x @ weight + bias


def split_views(flat: Tensor, sizes: list[int], shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """Return the layers' tensors as views of a flat vector; leading axes are kept."""
    lead = flat.shape[:-1]
    parts = torch.split_with_sizes(flat, sizes, dim=-1)
    return [part.view(*lead, *shape) for part, shape in zip(parts, shapes, strict=True)]


def stacked_product(x: Tensor, weight: Tensor) -> Tensor:
    """Compute ``x @ weight`` for a stack, ``[N, B, in]`` by ``[N, in, out]``."""
    if x.is_cuda and x.shape[-2] >= MANY_ROWS and x.shape[-2] % PIECE == 0:
        product: Tensor = ManyRowsProduct.apply(x, weight)  # type: ignore[no-untyped-call]
        return product
    return torch.bmm(x, weight)


class ManyRowsProduct(torch.autograd.Function):
    """A stacked product whose weight gradient is summed over chunks of the rows.

    As a single product, each of its few results has thousands of terms, which leaves most of a GPU
    idle and takes a fifth of CQL's update or more. Chunks are summed in parallel.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        """Compute the product."""
        ctx.save_for_backward(x, weight)
        return torch.bmm(x, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor]:
        """Return both gradients; the gradient of ``x`` is None if it is not needed."""
        x, weight = ctx.saved_tensors
        grad_x = torch.bmm(grad, weight.mT) if ctx.needs_input_grad[0] else None
        rows, columns = (part.reshape(-1, PIECE, part.shape[-1]) for part in (x, grad))
        pieces = torch.bmm(rows.mT, columns)  # [N · pieces, in, out]
        return grad_x, pieces.view(len(weight), -1, *weight.shape[1:]).sum(1)


class MLPFunction(torch.autograd.Function):
    """A whole network, from inputs and flat parameters to outputs.

    The inputs are ``x`` ``[B, k]``, after an optional ``prefix`` without gradient, such as a
    critic's observation before its action. ``params`` are the layers' views of ``flat``.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, prefix: Tensor | None, flat: Tensor, params: list[Tensor], sizes: Any
    ) -> Tensor:
        """Evaluate, saving each layer's activations."""
        activations = [x if prefix is None else torch.cat((prefix, x), dim=-1)]
        for i in range(0, len(params) - 2, 2):
            activations.append(linear(activations[-1], params[i], params[i + 1]).relu_())
        ctx.save_for_backward(flat, *activations)
        ctx.params, ctx.sizes = params, sizes
        ctx.skipped = 0 if prefix is None else prefix.shape[-1]
        return linear(activations[-1], params[-2], params[-1])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of ``x`` and of the flat vector, None if not needed."""
        flat, *activations = ctx.saved_tensors
        params: list[Tensor] = ctx.params
        grad_flat, targets = None, None
        if ctx.needs_input_grad[2]:
            grad_flat = torch.empty_like(flat)
            targets = split_views(grad_flat, ctx.sizes, [param.shape for param in params])
        for i in range(len(activations) - 1, -1, -1):
            weight, below = params[2 * i], activations[i]
            if targets is not None:
                _weight_gradient(below, grad, targets[2 * i])
                torch.sum(grad, -2, keepdim=weight.dim() == 3, out=targets[2 * i + 1])
            if i > 0:
                grad = _input_gradient(grad, weight)
                torch.ops.aten.threshold_backward.grad_input(grad, below, 0.0, grad_input=grad)
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = _first_input_gradient(grad, params[0][..., ctx.skipped :, :])
        return grad_x, None, grad_flat, None, None


def _weight_gradient(below: Tensor, grad: Tensor, out: Tensor) -> None:
    """Write ``belowᵀ @ grad`` into ``out``."""
    if out.dim() == 2:
        torch.mm(below.mT, grad, out=out)
        return
    below = below.expand(len(out), -1, -1) if below.dim() == 2 else below
    if out.shape[-1] == 1:
        torch.bmm(grad.mT, below, out=out.view(out.shape[0], 1, -1))
    else:
        torch.bmm(below.mT, grad, out=out)


def _input_gradient(grad: Tensor, weight: Tensor) -> Tensor:
    """Compute ``grad @ weightᵀ``."""
    if weight.shape[-1] == 1:
        return grad * weight.mT
    return torch.mm(grad, weight.mT) if weight.dim() == 2 else torch.bmm(grad, weight.mT)


def _first_input_gradient(grad: Tensor, weight: Tensor) -> Tensor:
    """Compute the gradient of the inputs, summed over the ensemble members that share them."""
    gradient = _input_gradient(grad, weight)
    return gradient if weight.dim() == 2 else gradient.sum(0)

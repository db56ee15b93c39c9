"""Q-values and their gradients with respect to the action, for stacked ReLU critics in one pass.

With fixed masks m_i = 1[h_i > 0], a critic is linear. δ_i = ∂Q/∂(h_i W_i + b_i) is computed from
the last layer down, δ_{i-1} = m_i ∘ (δ_i W_iᵀ), and the gradient with respect to the action is δ_0
times the action's rows of W_0, transposed. Masks are piecewise constant and have no gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rl_training.models.kernels.products import linear, split_views


def _forward(inputs: Tensor, params: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Return outputs ``[N, B]`` and each layer's inputs: ``[B, in]``, then ``[N, B, H]``."""
    below = [inputs]
    for i in range(0, len(params) - 2, 2):
        below.append(linear(below[-1], params[i], params[i + 1]).relu_())
    return linear(below[-1], params[-2], params[-1]).squeeze(-1), below


def _slopes(below: list[Tensor], params: list[Tensor]) -> list[Tensor]:
    """Return δ of every layer except the last, whose δ is 1; each ``[N, B, H]``."""
    slopes = [_masked(params[-2].mT.expand_as(below[-1]), below[-1])]
    for i in range(len(below) - 2, 0, -1):
        slopes.insert(0, _masked(torch.bmm(slopes[0], params[2 * i].mT), below[i]))
    return slopes


def _masked(values: Tensor, below: Tensor) -> Tensor:
    """Return ``values`` where a ReLU's output is positive, else 0; the mask is a constant."""
    return torch.ops.aten.threshold_backward(values, below.detach(), 0.0)  # type: ignore[no-any-return]


def action_gradients(
    inputs: Tensor, params: list[Tensor], action_dim: int
) -> tuple[Tensor, Tensor]:
    """Return Q ``[N, B]`` and ∂Q/∂a ``[N, B, A]``; the action is the last part of the inputs."""
    q, below = _forward(inputs, params)
    first = _slopes(below, params)[0]
    return q, torch.bmm(first, params[0][:, -action_dim:].mT)


class ActionGradients(torch.autograd.Function):
    """`action_gradients` as one autograd node with a short backward pass, for the CPU.

    Let c be the gradient of the loss with respect to Q, and v with respect to ∂Q/∂a. The tangents
    t_0 = [0, v], t_{i+1} = m_{i+1} ∘ (t_i W_i) propagate v upward. Since Q is a scalar, a plain
    backward pass would propagate c δ_i downward. So ∂/∂W_i = (c ∘ h_i + t_i)ᵀ δ_i and
    ∂/∂b_i = Σ_b c δ_i, which reuse the δ_i of the forward pass. Inputs get no gradient.
    """

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, flat: Tensor, params: list[Tensor], sizes: Any, action_dim: int
    ) -> tuple[Tensor, Tensor]:
        """Evaluate, saving the activations and the δ_i."""
        q, below = _forward(inputs, params)
        slopes = _slopes(below, params)
        ctx.save_for_backward(flat, *below, *slopes)
        ctx.params, ctx.sizes, ctx.action_dim = params, sizes, action_dim
        return q, torch.bmm(slopes[0], params[0][:, -action_dim:].mT)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_q: Tensor, grad_gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient of the flat vector."""
        flat, *saved = ctx.saved_tensors
        params: list[Tensor] = ctx.params
        depth = len(params) // 2
        below, slopes = saved[:depth], saved[depth:]
        grad_flat = torch.empty_like(flat)
        targets = split_views(grad_flat, ctx.sizes, [param.shape for param in params])
        scale = grad_q.unsqueeze(-1)  # [N, B, 1]
        mixed = scale * below[0]
        mixed[..., -ctx.action_dim :] += grad_gradients
        tangent = torch.bmm(grad_gradients, params[0][:, -ctx.action_dim :])
        for i in range(depth - 1):
            torch.bmm(mixed.mT, slopes[i], out=targets[2 * i])
            torch.bmm(scale.mT, slopes[i], out=targets[2 * i + 1])
            tangent = _masked(tangent, below[i + 1])
            mixed = torch.addcmul(tangent, scale, below[i + 1])
            if i < depth - 2:
                tangent = torch.bmm(tangent, params[2 * i + 2])
        torch.sum(mixed, -2, keepdim=True, out=targets[-2].mT)
        torch.sum(scale, -2, keepdim=True, out=targets[-1])
        return None, grad_flat, None, None, None

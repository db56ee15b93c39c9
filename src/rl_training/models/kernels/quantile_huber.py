"""The quantile Huber loss with its gradient in one pass, for the CPU.

Pairs of quantiles and targets are the largest tensor of a distributional critic's update, and
autograd would keep several of that size. Here they live for one critic at a time, and the gradient
is made beside the loss.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def midpoints(quantiles: Tensor) -> Tensor:
    """The fractions τ_m = (m − ½)/M of M quantiles, ``[M]``."""
    count = quantiles.shape[-1]
    ranks = torch.arange(count, device=quantiles.device, dtype=quantiles.dtype)
    return (ranks + 0.5) / count


class QuantileHuberFunction(torch.autograd.Function):
    """``[N, B, M]`` quantiles and ``[B, K]`` targets to Σ_i mean w |τ − 1[u < 0]| · Huber(u).

    The rows' weights w are ``[B]``, or None for 1.
    With c = clip(u, −1, 1) and its positive part p: Huber(u) = c (u − c/2), its slope is c, and
    the weight is τ on p, 1 − τ on c − p.
    """

    @staticmethod
    def forward(
        ctx: Any, quantiles: Tensor, target: Tensor, weights: Tensor | None = None
    ) -> Tensor:
        """The loss; its gradient is kept."""
        tau = midpoints(quantiles)
        pairs = quantiles[0].numel() * target.shape[-1]
        gradient, losses = torch.empty_like(quantiles), []
        for critic, slopes in zip(quantiles, gradient, strict=True):
            error = target.unsqueeze(-2) - critic.unsqueeze(-1)  # [B, M, K]
            clipped = error.clamp(-1.0, 1.0)
            positive = clipped.clamp(min=0.0)
            inner = error.add_(clipped, alpha=-0.5)
            total, above = clipped.sum(-1), positive.sum(-1)
            torch.add((1.0 - tau) * (total - above), tau * above, out=slopes)
            total, above = torch.linalg.vecdot(clipped, inner), torch.linalg.vecdot(positive, inner)
            values = (1.0 - tau) * (total - above) + tau * above  # [B, M]
            if weights is not None:
                slopes.mul_(weights.unsqueeze(-1))
                values = values * weights.unsqueeze(-1)
            losses.append(values.sum())
        ctx.save_for_backward(gradient.div_(-pairs))
        return torch.stack(losses).sum() / pairs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        """The kept gradient."""
        (gradient,) = ctx.saved_tensors
        return gradient * grad, None, None

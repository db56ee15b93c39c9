"""The quantile Huber loss and its gradient in one pass, for the CPU.

The pairs of quantiles and targets are the largest tensor in a distributional critic's update, and
autograd would store several of that size. Here they exist for one critic at a time, and the
gradient is computed together with the loss.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def midpoints(quantiles: Tensor) -> Tensor:
    """Return the fractions τ_m = (m − ½)/M of M quantiles, ``[M]``."""
    count = quantiles.shape[-1]
    ranks = torch.arange(count, device=quantiles.device, dtype=quantiles.dtype)
    return (ranks + 0.5) / count


class QuantileHuberFunction(torch.autograd.Function):
    """Maps ``[N, B, M]`` quantiles and ``[B, K]`` targets to Σ_i mean w |τ − 1[u < 0]| Huber(u).

    The weights w of the rows are ``[B]``; None means 1.
    With c = clip(u, −1, 1) and its positive part p: Huber(u) = c (u − c/2), its slope is c, and
    the weight is τ on p, 1 − τ on c − p.
    """

    @staticmethod
    def forward(
        ctx: Any, quantiles: Tensor, target: Tensor, weights: Tensor | None = None
    ) -> Tensor:
        """Compute the loss and save its gradient."""
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
        """Return the saved gradient."""
        (gradient,) = ctx.saved_tensors
        return gradient * grad, None, None

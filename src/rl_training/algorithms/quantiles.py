"""Quantile regression of a return's distribution (arXiv 1710.10044), for TQC and DQN."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rl_training.models.kernels import use_kernels
from rl_training.models.kernels.quantile_huber import QuantileHuberFunction, midpoints


def quantile_huber_loss(quantiles: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return Σ_i mean of w |τ_m − 1[u < 0]| · Huber(u) over B, M and K, with u = y_k − z_im.

    ``quantiles`` is ``[N, B, M]``, ``target`` ``[B, K]``; τ_m = (m − ½)/M. ``weights`` are the
    weights w ``[B]`` of the rows, 1 by default.
    """
    error = target.unsqueeze(-2).unsqueeze(-4) - quantiles.unsqueeze(-1)  # [N, B, M, K]
    tau = midpoints(quantiles).unsqueeze(-1)
    weight = torch.where(error < 0, 1.0 - tau, tau)
    huber = F.huber_loss(error, torch.zeros_like(error), reduction="none")
    if weights is not None:
        weight = weight * weights.unsqueeze(-1).unsqueeze(-1)
    return (weight * huber).mean((-3, -2, -1)).sum(-1)


def quantile_loss(quantiles: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
    """Compute `quantile_huber_loss`, on the CPU with one autograd node."""
    if quantiles.dim() == 3 and use_kernels(quantiles):
        inputs = quantiles, target, weights
        loss: Tensor = QuantileHuberFunction.apply(*inputs)  # type: ignore[no-untyped-call]
        return loss
    return quantile_huber_loss(quantiles, target, weights)

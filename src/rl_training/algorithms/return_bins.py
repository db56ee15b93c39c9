"""Categorical distributions of a return on fixed bins (C51, arXiv 1707.06887).

Critics with such outputs are `models.critics.BinnedCritic`. Their loss is the cross-entropy to
a target distribution: atoms that are projected onto the bins. The projection of a single value is a
"two-hot" distribution.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training.algorithms.base import weighted
from rl_training.models.kernels import use_kernels


def project_onto_bins(probs: Tensor, values: Tensor, bins: Tensor) -> Tensor:
    """Return the distribution on ``bins`` of atoms at ``values``, eq. 7; ``[B, M]``.

    The probability of each atom is divided between the two nearest bins in proportion to their
    nearness, which preserves the mean. Atoms beyond the first and the last bin are moved there.

    Args:
        probs: Probabilities of the atoms, ``[B, K]``.
        values: Places of the atoms, ``[B, K]``.
        bins: Evenly spaced, ``[M]``.
    """
    first, last = bins[0], bins[-1]
    width = (last - first) / (len(bins) - 1)
    place = (torch.minimum(torch.maximum(values, first), last) - first) / width  # 0 … M − 1
    if use_kernels(probs):
        return _scatter(probs, place.clamp_max_(len(bins) - 1), len(bins))
    # A sum over all atoms instead of additions in an order that a GPU does not fix.
    index = torch.arange(len(bins), device=bins.device, dtype=bins.dtype)
    share = (1.0 - (place.unsqueeze(-1) - index).abs()).clamp_min(0.0)  # [B, K, M]
    return (probs.unsqueeze(-1) * share).sum(-2)


def _scatter(probs: Tensor, place: Tensor, size: int) -> Tensor:
    """Add the two shares of each atom to their bins, which is faster on the CPU."""
    lower = place.floor()
    upper_share = probs * (place - lower)
    index = lower.long()
    found = torch.zeros(*probs.shape[:-1], size, dtype=probs.dtype)
    found.scatter_add_(-1, index, probs - upper_share)
    return found.scatter_add_(-1, (index + 1).clamp_max_(size - 1), upper_share)


def lower_distribution(probs: Tensor, means: Tensor) -> Tensor:
    """Return each row's distribution of the critic with the lowest mean, ``[B, M]``.

    ``probs`` is ``[N, B, M]``, ``means`` ``[N, B]``.
    """
    chosen = means.argmin(-2, keepdim=True).unsqueeze(-1)  # [1, B, 1]
    return torch.take_along_dim(probs, chosen, dim=-3).squeeze(-3)


def categorical_loss(log_probs: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the cross-entropy Σ_i mean_B w (−Σ_m p_m log p_im).

    ``log_probs`` is ``[N, B, M]``, the target p ``[B, M]``. ``weights`` are the weights w ``[B]``
    of the rows, 1 by default.
    """
    entropy = -(target.unsqueeze(-3) * log_probs).sum(-1)  # [N, B]
    return weighted(entropy, weights).mean(-1).sum(-1)

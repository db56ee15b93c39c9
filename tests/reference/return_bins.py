"""Float64 categorical value distributions (arXiv 1707.06887), one row and one atom at a time."""

import numpy as np

from .nn import Array


def softmax(logits: Array) -> Array:
    """exp(x) / sum exp(x) over the last axis."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def project(probs: Array, values: Array, bins: Array) -> Array:
    """Algorithm 1: divide each atom's probability between its two neighbors in ``bins``."""
    found = np.zeros((len(probs), len(bins)))
    width = (bins[-1] - bins[0]) / (len(bins) - 1)
    for row in range(len(probs)):
        for prob, value in zip(probs[row], values[row], strict=True):
            place = (min(max(value, bins[0]), bins[-1]) - bins[0]) / width
            lower = min(int(np.floor(place)), len(bins) - 2)
            found[row, lower] += prob * (lower + 1 - place)
            found[row, lower + 1] += prob * (place - lower)
    return found


def lower_distribution(probs: Array, bins: Array) -> Array:
    """For probs [N, B, M], the distribution of the critic with the lowest mean, [B, M]."""
    means = probs @ bins
    return np.stack([probs[means[:, row].argmin(), row] for row in range(probs.shape[1])])


def cross_entropy(logits: Array, target: Array) -> tuple[float, Array]:
    """sum_i mean_b of -sum_m p_m log q_im, and its gradient (q - p sum p) / B at the logits."""
    probs = softmax(logits)
    loss = -(target[None] * np.log(probs)).sum(axis=2).mean(axis=1).sum()
    mass = target.sum(axis=1)[None, :, None]
    return float(loss), (probs * mass - target[None]) / logits.shape[1]


def mean_slopes(logits: Array, bins: Array) -> Array:
    """The gradient of the mean sum_m p_m z_m at the logits: p_m (z_m - mean)."""
    probs = softmax(logits)
    return np.asarray(probs * (bins - (probs @ bins)[..., None]))

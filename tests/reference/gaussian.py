"""A Gaussian around a tanh mean with a state-independent deviation, as IQL and AWAC use.

The distribution itself is not squashed: pi(a|s) = N(a; tanh(mlp(s)), sigma), and the actor's
"log_std" [A] is a separate parameter, clipped to bounds.
"""

from typing import NamedTuple, TypeAlias

import numpy as np

from .nn import Array, MlpCache, Network, normal_log_density, tanh_backward, tanh_forward

Bounds: TypeAlias = tuple[float, float]


class LogProb(NamedTuple):
    """log pi(a|s) [B] with what its backward pass needs."""

    log_prob: Array
    mean: Array
    standardized: Array
    std: Array
    unclipped: Array
    cache: MlpCache


def deviation(actor: Network, bounds: Bounds) -> tuple[Array, Array]:
    """The clipped log sigma [A] and the mask (0/1) where the clip's slope is 1."""
    (raw,) = actor["log_std"]
    unclipped = ((raw >= bounds[0]) & (raw <= bounds[1])).astype(np.float64)
    return np.clip(raw, *bounds), unclipped


def sample(actor: Network, observation: Array, noise: Array, bounds: Bounds) -> Array:
    """tanh(mlp(s)) + sigma eps with eps standard normal [B, A]; it may leave [-1, 1]."""
    mean, _ = tanh_forward(actor, observation)
    return mean + np.exp(deviation(actor, bounds)[0]) * noise


def log_prob(actor: Network, observation: Array, action: Array, bounds: Bounds) -> LogProb:
    """Log pi(a|s) = sum_j log N(a_j; mean_j, sigma_j), [B]."""
    mean, cache = tanh_forward(actor, observation)
    log_std, unclipped = deviation(actor, bounds)
    std = np.exp(log_std)
    density = normal_log_density(action, mean, log_std).sum(axis=1)
    return LogProb(density, mean, (action - mean) / std, std, unclipped, cache)


def log_prob_backward(result: LogProb, grad: Array) -> Network:
    """Gradient at the actor's parameters, for the loss gradient [B] at log pi.

    With z = (a - mean) / sigma: d log pi/dmean = z / sigma and d log pi/dlog sigma = z^2 - 1.
    """
    z, column = result.standardized, grad[:, None]
    layers = tanh_backward(result.cache, result.mean, column * z / result.std).network
    log_std = (column * (z * z - 1.0)).sum(axis=0) * result.unclipped
    return layers | {"log_std": [log_std]}


def weighted_imitation(
    actor: Network, observation: Array, action: Array, weights: Array, bounds: Bounds
) -> tuple[float, Network]:
    """-mean_b w log pi(a|s) with constant weights w [B], and its gradient."""
    result = log_prob(actor, observation, action, bounds)
    loss = -float((weights * result.log_prob).mean())
    return loss, log_prob_backward(result, -weights / len(weights))

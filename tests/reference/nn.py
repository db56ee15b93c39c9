"""Float64 ReLU networks, Adam and Polyak averaging with hand-derived gradients."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]


class MlpCache(NamedTuple):
    """What the backward pass needs: each layer's weight matrix and each layer's input."""

    weights: list[Array]
    inputs: list[Array]


class MlpGrads(NamedTuple):
    """Gradients with the shapes of the weights, the biases and the network input."""

    weights: list[Array]
    biases: list[Array]
    inputs: Array


def mlp_forward(
    weights: Sequence[Array], biases: Sequence[Array], x: Array
) -> tuple[Array, MlpCache]:
    """Evaluate h_{i+1} = max(0, h_i W_i + b_i) with h_0 = x and no ReLU on the last layer.

    ``weights[i]`` is [in, out], ``biases[i]`` is [out] and ``x`` is [batch, in].
    """
    h = np.asarray(x, dtype=np.float64)
    cache = MlpCache([], [])
    last = len(weights) - 1
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        matrix = np.asarray(weight, dtype=np.float64)
        cache.weights.append(matrix)
        cache.inputs.append(h)
        h = h @ matrix + np.asarray(bias, dtype=np.float64)
        if i < last:
            h = np.maximum(h, 0.0)
    return h, cache


def mlp_backward(cache: MlpCache, grad_out: Array) -> MlpGrads:
    """Chain rule: dW_i = h_i^T g_i, db_i = sum_b g_i, g_{i-1} = (g_i W_i^T) 1[h_i > 0].

    ``grad_out`` is the loss gradient at the output, [batch, out]; the ReLU slope at 0 is 0.
    """
    grad = np.asarray(grad_out, dtype=np.float64)
    grad_weights: list[Array] = []
    grad_biases: list[Array] = []
    for i in reversed(range(len(cache.weights))):
        grad_weights.append(cache.inputs[i].T @ grad)
        grad_biases.append(grad.sum(axis=0))
        grad = grad @ cache.weights[i].T
        if i > 0:
            grad = grad * (cache.inputs[i] > 0.0)
    return MlpGrads(grad_weights[::-1], grad_biases[::-1], grad)


def adam_step(
    param: Array,
    grad: Array,
    m: Array,
    v: Array,
    t: int,
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
) -> tuple[Array, Array, Array]:
    """Algorithm 1 of arXiv 1412.6980: param - lr m_hat / (sqrt(v_hat) + eps).

    ``t`` is the 1-based step after its increment. Returns the new (param, m, v); the inputs
    are left as they are.
    """
    if t < 1:
        raise ValueError(f"t counts from 1, got {t}")
    new_m = np.asarray(beta1 * m + (1.0 - beta1) * grad, dtype=np.float64)
    new_v = np.asarray(beta2 * v + (1.0 - beta2) * grad * grad, dtype=np.float64)
    m_hat = new_m / (1.0 - beta1**t)
    v_hat = new_v / (1.0 - beta2**t)
    new_param = np.asarray(param - lr * m_hat / (np.sqrt(v_hat) + eps), dtype=np.float64)
    return new_param, new_m, new_v


def polyak(target: Array, online: Array, tau: float) -> Array:
    """Algorithm 1 of arXiv 1812.05905: tau * online + (1 - tau) * target."""
    return np.asarray(tau * online + (1.0 - tau) * target, dtype=np.float64)

"""Float64 networks with batch normalization, with hand-derived gradients, one member at a time.

`flash` is the network of FlashSAC (arXiv 2604.04539), `perceptron` the one of CrossQ. A network is
a mapping from a kind of parameter to its arrays, as in ``nn``; its running statistics are separate.
"""

from collections.abc import Callable
from typing import NamedTuple, TypedDict

import numpy as np

from .nn import Array, Network

RMS_EPS = 1e-6


class Running(TypedDict):
    """Running mean and variance of every normalization, and the number of training batches."""

    means: list[Array]
    variances: list[Array]
    seen: int


class Rules(NamedTuple):
    """Constants of a batch normalization; with ``limits``, it is a renormalization."""

    momentum: float
    eps: float
    unbiased: bool
    """Whether the running variance averages the unbiased variances of the batches."""
    limits: tuple[float, float] | None = None
    """Largest r (the smallest is its inverse) and largest |d| of a renormalization."""
    warmup: int = 0
    """Training batches before a renormalization corrects."""


class Pass(NamedTuple):
    """Outputs of a network, and the function that maps their gradient to all others."""

    output: Array
    backward: Callable[[Array], tuple[Network, Array]]
    """Returns the gradients of the parameters and of the inputs."""


class Normed(NamedTuple):
    """Outputs of a normalization, and its backward pass: to inputs, scale and shift."""

    output: Array
    backward: Callable[[Array], tuple[Array, Array, Array]]


def fresh_running(widths: list[int]) -> Running:
    """Means of 0 and variances of 1."""
    return {
        "means": [np.zeros(width) for width in widths],
        "variances": [np.ones(width) for width in widths],
        "seen": 0,
    }


def copy_running(running: Running) -> Running:
    """A copy that training does not share."""
    return {
        "means": [np.array(x) for x in running["means"]],
        "variances": [np.array(x) for x in running["variances"]],
        "seen": running["seen"],
    }


def batch_norm(
    x: Array,
    scale: Array,
    shift: Array,
    running: Running,
    place: int,
    rules: Rules,
    *,
    training: bool,
) -> Normed:
    """Normalize the columns of x [B, D]: arXiv 1502.03167, and 1702.03275 with limits.

    In training, n = (x - mean) / std with the batch's biased variance, and y = (n r + d) scale +
    shift, where r = std / running std and d = (mean - running mean) / running std are clipped and
    constant; r = 1 and d = 0 without renormalization. The running statistics then move.
    """
    running_mean, running_variance = running["means"][place], running["variances"][place]
    running_std = np.sqrt(running_variance + rules.eps)
    if not training:
        normal = (x - running_mean) / running_std

        def through(grad: Array) -> tuple[Array, Array, Array]:
            return grad * scale / running_std, (grad * normal).sum(axis=0), grad.sum(axis=0)

        return Normed(normal * scale + shift, through)
    rows = len(x)
    mean = x.sum(axis=0) / rows
    variance = ((x - mean) ** 2).sum(axis=0) / rows
    std = np.sqrt(variance + rules.eps)
    normal = (x - mean) / std
    r, d = np.ones_like(std), np.zeros_like(std)
    if rules.limits is not None and running["seen"] >= rules.warmup:
        r = np.clip(std / running_std, 1.0 / rules.limits[0], rules.limits[0])
        d = np.clip((mean - running_mean) / running_std, -rules.limits[1], rules.limits[1])
    corrected = normal * r + d
    averaged = variance * rows / (rows - 1) if rules.unbiased else variance
    running["means"][place] = running_mean + rules.momentum * (mean - running_mean)
    running["variances"][place] = running_variance + rules.momentum * (averaged - running_variance)

    def back(grad: Array) -> tuple[Array, Array, Array]:
        g = grad * scale * r
        through_mean = g.sum(axis=0) / rows
        through_std = normal * (g * normal).sum(axis=0) / rows
        inputs = (g - through_mean - through_std) / std
        return inputs, (grad * corrected).sum(axis=0), grad.sum(axis=0)

    return Normed(corrected * scale + shift, back)


def rms_norm(x: Array, scale: Array) -> tuple[Array, Callable[[Array], tuple[Array, Array]]]:
    """Return y = x / rms(x) * scale over the features of each row (arXiv 1910.07467)."""
    rms = np.sqrt((x * x).mean(axis=1, keepdims=True) + RMS_EPS)
    normal = x / rms

    def back(grad: Array) -> tuple[Array, Array]:
        g = grad * scale
        inputs = (g - normal * (g * normal).mean(axis=1, keepdims=True)) / rms
        return inputs, (grad * normal).sum(axis=0)

    return normal * scale, back


def flash(net: Network, running: Running, x: Array, rules: Rules, *, training: bool) -> Pass:
    """FlashSAC's network: "weights" of all layers, "biases" of the last, "scales", "shifts", "rms".

    x_0 = N(inputs) W_0; a block adds relu(N(relu(N(x W_1)) W_2)); the output is RMSNorm(x) W + b.
    """
    weights, backs = net["weights"], []

    def norm(x: Array, place: int) -> Array:
        pair = net["scales"][place], net["shifts"][place]
        result = batch_norm(x, *pair, running, place, rules, training=training)
        backs.append(result.backward)
        return result.output

    first = norm(x, 0)
    stream = first @ weights[0]
    kept: list[tuple[Array, Array, Array]] = []  # input of a block, its hidden layer, its addition
    for i in range(1, len(weights) - 1, 2):
        hidden = np.maximum(norm(stream @ weights[i], i), 0.0)
        addition = np.maximum(norm(hidden @ weights[i + 1], i + 1), 0.0)
        kept.append((stream, hidden, addition))
        stream = stream + addition
    features, rms_back = rms_norm(stream, net["rms"][0])
    output = features @ weights[-1] + net["biases"][0]
    running["seen"] += training

    def backward(grad: Array) -> tuple[Network, Array]:
        grads: Network = {key: [np.zeros_like(a) for a in arrays] for key, arrays in net.items()}
        grads["weights"][-1] = features.T @ grad
        grads["biases"][0] = grad.sum(axis=0)
        grad, grads["rms"][0] = rms_back(grad @ weights[-1].T)

        def through(grad: Array, place: int) -> Array:
            inputs, grads["scales"][place], grads["shifts"][place] = backs[place](grad)
            return inputs

        for i in range(len(weights) - 3, 0, -2):
            stream, hidden, addition = kept[i // 2]
            inner = through(grad * (addition > 0), i + 1)
            grads["weights"][i + 1] = hidden.T @ inner
            inner = through(inner @ weights[i + 1].T * (hidden > 0), i)
            grads["weights"][i] = stream.T @ inner
            grad = grad + inner @ weights[i].T
        grads["weights"][0] = first.T @ grad
        return grads, through(grad @ weights[0].T, 0)

    return Pass(output, backward)


def perceptron(net: Network, running: Running, x: Array, rules: Rules, *, training: bool) -> Pass:
    """CrossQ's network: N(inputs), then in each hidden layer N(relu(h W + b)), then h W + b."""
    weights, biases = net["weights"], net["biases"]
    inputs: list[Array] = []
    active: list[Array] = []
    backs = []
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        pair = net["scales"][i], net["shifts"][i]
        result = batch_norm(x, *pair, running, i, rules, training=training)
        backs.append(result.backward)
        inputs.append(result.output)
        x = result.output @ weight + bias
        if i < len(weights) - 1:
            x = np.maximum(x, 0.0)
            active.append((x > 0.0).astype(np.float64))
    running["seen"] += training

    def backward(grad: Array) -> tuple[Network, Array]:
        grads: Network = {key: [np.zeros_like(a) for a in arrays] for key, arrays in net.items()}
        for i in reversed(range(len(weights))):
            grads["weights"][i] = inputs[i].T @ grad
            grads["biases"][i] = grad.sum(axis=0)
            grad, grads["scales"][i], grads["shifts"][i] = backs[i](grad @ weights[i].T)
            if i > 0:
                grad = grad * active[i - 1]
        return grads, grad

    return Pass(x, backward)


def project(net: Network) -> Network:
    """Scale incoming weights to norm 1, and (scale, shift) and the RMS scale to norm sqrt(d)."""
    projected = {key: [np.array(a) for a in arrays] for key, arrays in net.items()}
    for weight in projected["weights"]:
        for unit in range(weight.shape[1]):
            weight[:, unit] /= np.sqrt((weight[:, unit] ** 2).sum())
    norms = [*zip(projected["scales"], projected["shifts"], strict=True)]
    for parts in [*norms, *((scale,) for scale in projected.get("rms", []))]:
        total = sum(float((part**2).sum()) for part in parts)
        for part in parts:
            part *= np.sqrt(len(part) / (total + 1e-8))
    return projected

"""Trunks in NumPy, one member and one layer at a time, written from the papers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = Any

erf = np.vectorize(math.erf)
ACTIVATIONS: dict[str, Any] = {
    "relu": lambda x: np.where(x > 0, x, 0.0),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "elu": lambda x: np.where(x > 0, x, np.exp(np.minimum(x, 0)) - 1),
    "gelu": lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "tanh": np.tanh,
}


def layer_norm(x: Array, scale: Array, shift: Array) -> Array:
    """Normalize each row to mean 0 and variance 1 (arXiv 1607.06450)."""
    rows = []
    for row in x:
        rows.append((row - row.mean()) / math.sqrt(row.var() + 1e-5) * scale + shift)
    return np.stack(rows)


def mlp(
    x: Array,
    params: list[Array],
    *,
    layers: int,
    activation: str = "relu",
    norm_after: bool = False,
) -> Array:
    """A perceptron with LayerNorm, if there are scales, before or after the activation."""
    norms = params[2 * layers :]
    for i in range(layers):
        x = x @ params[2 * i] + params[2 * i + 1]
        if i < layers - 1:
            if norms and not norm_after:
                x = layer_norm(x, norms[2 * i], norms[2 * i + 1])
            x = ACTIVATIONS[activation](x)
            if norms and norm_after:
                x = layer_norm(x, norms[2 * i], norms[2 * i + 1])
    return x


def residual(x: Array, params: list[Array], *, blocks: int, activation: str = "relu") -> Array:
    """SimBa (arXiv 2410.09754), figure 3."""
    stream = iter(params)

    def take(count: int) -> list[Array]:
        return [next(stream) for _ in range(count)]

    weight, bias = take(2)
    x = x @ weight + bias
    for _ in range(blocks):
        scale, shift, up, up_bias, down, down_bias = take(6)
        hidden = layer_norm(x, scale, shift) @ up + up_bias
        x = x + ACTIVATIONS[activation](hidden) @ down + down_bias
    scale, shift, weight, bias = take(4)
    return layer_norm(x, scale, shift) @ weight + bias


class BatchNorm:
    """One member of a batch-normalized perceptron, with running statistics of each layer."""

    def __init__(self, widths: list[int], **options: Any) -> None:
        self.means = [np.zeros(width) for width in widths]
        self.variances = [np.ones(width) for width in widths]
        self.seen = 0
        self.options = options

    def normalize(self, x: Array, layer: int, *, training: bool) -> Array:
        o = self.options
        ra_mean, ra_std = self.means[layer], np.sqrt(self.variances[layer] + o["eps"])
        if not training:
            return (x - ra_mean) / ra_std
        mean, variance = x.mean(0), x.var(0)  # of the batch, biased
        std = np.sqrt(variance + o["eps"])
        out = (x - mean) / std
        if o["renormalize"] and self.seen >= o["renorm_warmup"]:  # arXiv 1702.03275, algorithm 1
            r = np.clip(std / ra_std, 1 / o["renorm_r_max"], o["renorm_r_max"])
            d = np.clip((mean - ra_mean) / ra_std, -o["renorm_d_max"], o["renorm_d_max"])
            out = out * r + d
        keep = 1 - o["momentum"]
        self.means[layer] = keep * self.means[layer] + o["momentum"] * mean
        self.variances[layer] = keep * self.variances[layer] + o["momentum"] * variance
        return out

    def __call__(self, x: Array, params: list[Array], *, training: bool) -> Array:
        layers = len(self.means)
        norms = params[2 * layers :]
        for i in range(layers):
            if i > 0:
                x = np.maximum(x @ params[2 * i - 2] + params[2 * i - 1], 0)
            x = self.normalize(x, i, training=training) * norms[2 * i] + norms[2 * i + 1]
        self.seen += training
        return x @ params[2 * layers - 2] + params[2 * layers - 1]


def hashed(number: int) -> int:
    """A well-known 32-bit integer hash."""
    number %= 2**32
    for _ in range(2):
        number = ((number >> 16) ^ number) * 0x45D9F3B % 2**32
    return (number >> 16) ^ number


def dropout_mask(rows: int, width: int, counter: int, layer: int, probability: float) -> Array:
    """Return the kept entries: a hash of the position, keyed by counter and layer."""
    key = hashed(hashed(counter) + layer)
    bits = [hashed(hashed(place ^ key) + counter) for place in range(rows * width)]
    return np.array([b >= int(probability * 2**32) for b in bits]).reshape(rows, width)

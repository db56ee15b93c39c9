"""Convolutional networks and random shifts in NumPy, pixel by pixel."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def convolve(x: Array, weight: Array, bias: Array, *, stride: int = 1, pad: int = 0) -> Array:
    """Convolve ``[B, in, H, W]`` with ``[out, in, k, k]``, one output pixel at a time."""
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    kernel = weight.shape[-1]
    height, width = ((side - kernel) // stride + 1 for side in x.shape[2:])
    out = np.empty((len(x), len(weight), height, width))
    for i in range(height):
        for j in range(width):
            top, left = i * stride, j * stride
            patch = x[:, None, :, top : top + kernel, left : left + kernel]
            out[:, :, i, j] = (patch * weight[None]).sum(axis=(2, 3, 4)) + bias
    return out


def pool(x: Array) -> Array:
    """Return maxima over 3×3 pixels with stride 2 and a border of one pixel."""
    x = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    height, width = ((side - 3) // 2 + 1 for side in x.shape[2:])
    out = np.empty((*x.shape[:2], height, width))
    for i in range(height):
        for j in range(width):
            out[:, :, i, j] = x[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3].max(axis=(2, 3))
    return out


def relu(x: Array) -> Array:
    return np.asarray(np.maximum(x, 0.0))


def layer_norm(x: Array, scale: Array, shift: Array) -> Array:
    centered = x - x.mean(-1, keepdims=True)
    deviation = np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5)
    return np.asarray(centered / deviation * scale + shift)


def plain_maps(x: Array, params: list[Array], strides: list[int]) -> Array:
    """Convolutions without padding, each followed by a ReLU."""
    for i, stride in enumerate(strides):
        x = relu(convolve(x, params[2 * i], params[2 * i + 1], stride=stride))
    return x


def impala_maps(x: Array, params: list[Array]) -> Array:
    """Three blocks with two residual units each (arXiv 1802.01561, figure 3)."""
    layers = [(params[i], params[i + 1]) for i in range(0, len(params), 2)]
    for block in range(3):
        first, *units = layers[5 * block : 5 * block + 5]
        x = pool(convolve(x, *first, pad=1))
        for one, two in ((units[0], units[1]), (units[2], units[3])):
            inner = convolve(relu(x), *one, pad=1)
            x = x + convolve(relu(inner), *two, pad=1)
    return relu(x)


def perceptron(x: Array, params: list[Array]) -> Array:
    """A ReLU perceptron with weights ``[in, out]``."""
    for i in range(0, len(params) - 2, 2):
        x = relu(x @ params[i] + params[i + 1])
    return x @ params[-2] + params[-1]


def planes(
    pixels: Array, *, frames: int, channels: int, height: int, width: int, channels_last: bool
) -> Array:
    """Return flat pixels as ``[B, frames · channels, height, width]``, pixel by pixel."""
    out = np.empty((len(pixels), frames * channels, height, width))
    for f in range(frames):
        for c in range(channels):
            for i in range(height):
                for j in range(width):
                    if channels_last:
                        place = ((f * height + i) * width + j) * channels + c
                    else:
                        place = ((f * channels + c) * height + i) * width + j
                    out[:, f * channels + c, i, j] = pixels[:, place]
    return out


def shift_image(image: Array, down: int, right: int, pad: int) -> Array:
    """Pad a plane ``[height, width]`` by its border pixels and crop it at ``(down, right)``."""
    height, width = image.shape
    padded = np.pad(image, pad, mode="edge")
    return padded[down : down + height, right : right + width]

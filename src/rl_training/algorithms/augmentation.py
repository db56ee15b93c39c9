"""Random shifts of images in the batches of an update (DrQ, arXiv 2004.13649).

An image is padded by repeating the pixels at its border, and cropped to its size at a random
position. All images and stacked frames of an observation are shifted together; the observation and
the next one are shifted independently.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training.observations import Entry
from rl_training.types import Batch, EnvSpec, NoiseField, NoiseSpec

NOISE = "augmentation"
"""Name of the random input."""


def shift_noise(batch_size: int) -> NoiseSpec:
    """Declare two numbers for each observation and each next observation."""
    return {NOISE: NoiseField("uniform", (batch_size, 2, 2))}


def random_shift(pixels: Tensor, image: Entry, uniform: Tensor, *, pad: int) -> Tensor:
    """Shift flat images ``[B, width]`` by up to ``pad`` pixels in each direction.

    ``uniform`` ``[B, 2]`` are numbers in [0, 1) for the vertical and the horizontal shift.
    """
    planes = image.planes
    height, width = planes.height, planes.width
    corner = (uniform * (2 * pad + 1)).floor().long() - pad  # [B, 2], from -pad to pad
    rows, columns = (
        (torch.arange(size, device=pixels.device) + corner[:, i : i + 1]).clamp(0, size - 1)
        for i, size in enumerate((height, width))
    )
    places = rows.unsqueeze(-1) * width + columns.unsqueeze(-2)  # [B, height, width]
    before = planes.frames if planes.channels_last else planes.depth
    shaped = pixels.reshape(len(pixels), before, height * width, -1)
    index = places.flatten(1)[:, None, :, None].expand(shaped.shape)
    return shaped.gather(2, index).flatten(1)


def shifted_observations(obs: Tensor, spec: EnvSpec, uniform: Tensor, *, pad: int) -> Tensor:
    """Shift all images of observations ``[B, obs_dim]``."""
    parts = [
        random_shift(obs[:, entry.place], entry, uniform, pad=pad)
        if entry.kind == "image"
        else obs[:, entry.place]
        for entry in spec.entries
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)


def shifted_batch(batch: Batch, spec: EnvSpec, uniform: Tensor, *, pad: int) -> Batch:
    """Shift the images of a batch; ``uniform`` is the noise that `shift_noise` declares."""
    obs, following = (
        shifted_observations(rows, spec, numbers, pad=pad)
        for rows, numbers in zip((batch.obs, batch.next_obs), uniform.unbind(1), strict=True)
    )
    return batch._replace(obs=obs, next_obs=following)

"""The inputs of a network: named entries of an observation, and what follows them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rl_training.observations import Entry

REST = "actions"
"""Name of the inputs that follow the observation."""


@dataclass(frozen=True)
class InputLayout:
    """Splits the inputs ``[B, in]`` of a network into the entries of an observation.

    A registered network receives one if its factory has the parameter ``observations``.
    """

    entries: tuple[Entry, ...]

    @property
    def obs_dim(self) -> int:
        """Number of inputs that are the observation."""
        return sum(entry.width for entry in self.entries)

    @property
    def images(self) -> tuple[Entry, ...]:
        """The entries that are images."""
        return tuple(entry for entry in self.entries if entry.kind == "image")

    def vector_columns(self) -> Tensor:
        """Return the places of the inputs of an observation that are not pixels, ``[n]``."""
        others = [entry.place for entry in self.entries if entry.kind != "image"]
        places = [torch.arange(place.start, place.stop) for place in others]
        return torch.cat(places) if places else torch.empty(0, dtype=torch.long)

    def split(self, x: Tensor) -> dict[str, Tensor]:
        """Return the inputs by the names of the entries.

        Images are ``[B, channels, height, width]`` with pixels from 0 to 255; the frames of a stack
        are further channels, the newest last. Other entries are ``[B, width]``. The inputs that
        follow the observation, those of a critic, are ``"actions"``.
        """
        parts = {
            entry.name: to_planes(x[..., entry.place], entry)
            if entry.kind == "image"
            else x[..., entry.place]
            for entry in self.entries
        }
        return parts if x.shape[-1] == self.obs_dim else parts | {REST: x[..., self.obs_dim :]}


def to_planes(pixels: Tensor, image: Entry) -> Tensor:
    """Return flat pixels ``[B, width]`` as ``[B, channels, height, width]``."""
    planes = image.planes
    if planes.channels_last:
        shape = (-1, planes.frames, planes.height, planes.width, planes.channels)
        pixels = pixels.reshape(shape).permute(0, 1, 4, 2, 3)
    return pixels.reshape(-1, planes.depth, planes.height, planes.width)


def scaled_planes(pixels: Tensor, image: Entry) -> Tensor:
    """Return flat pixels as planes with values from 0 to 1."""
    return torch.mul(to_planes(pixels, image), 1.0 / image.high)

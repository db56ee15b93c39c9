"""Batches of raw rows, standardized as a learner's `act` standardizes observations."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rl_training.types import Batch, Sampler


class NormalizedSampler(Sampler):
    """A source's batches with observations and next observations standardized.

    ``shift`` and ``scale`` are the learner's own tensors: what is restored in place into them holds
    here too. So a dataset and a replay, both of raw rows, can never be normalized differently.
    """

    def __init__(self, source: Sampler, shift: Tensor, scale: Tensor) -> None:
        self.source = source
        self._shift = shift
        self._scale = scale

    @property
    def is_fixed(self) -> bool:
        """As the source."""
        return self.source.is_fixed

    @property
    def has_place(self) -> bool:
        """As the source."""
        return self.source.has_place

    @property
    def form(self) -> int:
        """As the source."""
        return self.source.form

    def __len__(self) -> int:
        return len(self.source)

    def most_updates(self, batch_size: int) -> int:
        """As the source."""
        return self.source.most_updates(batch_size)

    def prepare(self, batch_size: int, generator: torch.Generator, updates: int = 1) -> None:
        """Prepare the source."""
        self.source.prepare(batch_size, generator, updates)

    def gather(self, batch_size: int, generator: torch.Generator, updates: int = 1) -> Batch:
        """The source's batches, standardized."""
        batch = self.source.gather(batch_size, generator, updates)
        return batch._replace(
            obs=(batch.obs - self._shift) * self._scale,
            next_obs=(batch.next_obs - self._shift) * self._scale,
        )

    def state_dict(self) -> dict[str, Any]:
        """The source's place."""
        return self.source.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to a place."""
        self.source.load_state_dict(state)

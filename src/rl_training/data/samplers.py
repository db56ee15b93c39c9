"""Orders in which a dataset is sampled."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rl_training.data.offline_dataset import TransitionDataset
from rl_training.types import Batch


class EpochSampler:
    """Every row once an epoch, in a fresh random order; a batch may reach into the next epoch.

    The order is drawn from the engine's generator. Its state before the draw and the position are
    all that a resume needs.
    """

    def __init__(self, dataset: TransitionDataset) -> None:
        self.dataset = dataset
        self.epoch = 0
        self.position = 0
        self._order: torch.Tensor | None = None
        self._drawn_from: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.dataset)

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """The next ``batch_size`` rows of the present order."""
        pieces, missing = [], batch_size
        while missing:
            if self._order is None or self.position == len(self):
                self._shuffle(generator)
            assert self._order is not None
            taken = self._order[self.position : self.position + missing]
            pieces.append(taken)
            self.position += len(taken)
            missing -= len(taken)
        return self.dataset.batch(pieces[0] if len(pieces) == 1 else torch.cat(pieces))

    def _shuffle(self, generator: torch.Generator) -> None:
        self._drawn_from = generator.get_state()
        device = self.dataset.rows.device
        self._order = torch.randperm(len(self), generator=generator, device=device)
        self.epoch += 1
        self.position = 0

    def state_dict(self) -> dict[str, Any]:
        """Epoch, position, and the generator's state that the order was drawn from."""
        drawn = self._drawn_from
        return {
            "epoch": self.epoch,
            "position": self.position,
            "drawn_from": None if drawn is None else drawn.numpy(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Draw the same order again and go to the position."""
        self._order = None
        if state["drawn_from"] is not None:
            generator = torch.Generator(self.dataset.rows.device)
            generator.set_state(torch.from_numpy(np.asarray(state["drawn_from"], dtype=np.uint8)))
            self._shuffle(generator)
        self.epoch = int(state["epoch"])
        self.position = int(state["position"])

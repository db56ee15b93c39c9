"""Orders in which a dataset is sampled."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rl_training.boundary.values import StateError, whole_number
from rl_training.data.generators import generator_state, restore_generator
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.errors import ConfigError
from rl_training.types import Batch, Sampler


class EpochSampler(Sampler):
    """Every row once an epoch, in a fresh random order; a batch may reach into the next epoch.

    The order of this epoch and of the next stand in one tensor on the device, and so does the
    position: `gather` has static shapes and no branch, and may be captured in a graph. `prepare`,
    which moves on to the next epoch, is the call between replays. Orders are drawn from the
    engine's generator; its states before the two draws and the position are what a resume needs.
    """

    is_fixed = True  # recorded rows never change

    def __init__(self, dataset: TransitionDataset) -> None:
        device = dataset.rows.device
        self.dataset = dataset
        self.epoch = 0
        self.position = 0
        self._orders = torch.zeros(2 * len(dataset), dtype=torch.long, device=device)
        self._offset = torch.zeros(1, dtype=torch.long, device=device)
        self._steps = torch.arange(len(dataset), device=device)
        self._drawn_from: list[np.ndarray[Any, Any]] = []

    def __len__(self) -> int:
        return len(self.dataset)

    def most_updates(self, batch_size: int) -> int:
        """No block may be longer than an epoch."""
        return max(1, len(self) // batch_size)

    def prepare(self, batch_size: int, generator: torch.Generator, updates: int = 1) -> None:
        """Make sure that the orders reach far enough for the next ``updates`` batches."""
        rows = batch_size * updates
        if rows > len(self):
            raise ConfigError(
                f"batch_size = {batch_size}: {rows} rows at once are more than the dataset's "
                f"{len(self)}."
            )
        while len(self._drawn_from) < 2:  # the first call: this epoch's order and the next one's
            self._draw(len(self._drawn_from), generator)
            self.epoch = 1
        if self.position >= len(self):
            self._orders[: len(self)] = self._orders[len(self) :].clone()
            self._drawn_from.pop(0)
            self._draw(1, generator)
            self.position -= len(self)
            self._offset -= len(self)
            self.epoch += 1
        self.position += rows

    def gather(self, batch_size: int, generator: torch.Generator, updates: int = 1) -> Batch:
        """The rows at the position, which moves on; nothing here waits for the host."""
        rows = batch_size * updates
        indices = self._orders.index_select(0, self._offset + self._steps[:rows])
        self._offset += rows
        return self.dataset.batch(indices)

    def _draw(self, half: int, generator: torch.Generator) -> None:
        self._drawn_from.append(generator_state(generator))
        order = torch.randperm(len(self), generator=generator, device=self._orders.device)
        self._orders[half * len(self) : (half + 1) * len(self)] = order

    def state_dict(self) -> dict[str, Any]:
        """Epoch, position, and the generator's states that the orders were drawn from."""
        return {
            "epoch": self.epoch,
            "position": self.position,
            "drawn_from": list(self._drawn_from),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Draw the same orders again and go to the position."""
        drawn_from = state["drawn_from"]
        if len(drawn_from) not in (0, 2):
            raise StateError(f"drawn_from has {len(drawn_from)} states, not 0 or 2")
        begun = len(drawn_from) > 0
        most = 2 * len(self) - 1 if begun else 0
        self.position = whole_number(state["position"], "position", most=most)
        self.epoch = whole_number(state["epoch"], "epoch", least=int(begun))
        self._drawn_from = []
        for half, drawn in enumerate(drawn_from):
            generator = torch.Generator(self._orders.device)
            restore_generator(generator, drawn)
            self._draw(half, generator)
        self._offset.fill_(self.position)

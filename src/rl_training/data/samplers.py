"""Samplers over other sources: epochs of a dataset, mixtures, and standardized batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.boundary.values import StateError, true_or_false, whole_number
from rl_training.data.generators import generator_state, restore_generator
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.errors import ConfigError
from rl_training.normalization import Normalization
from rl_training.types import Batch, Metrics, Sampler


class EpochSampler(Sampler):
    """Every row once an epoch, in a fresh random order; a batch may reach into the next epoch.

    The orders of this epoch and of the next are in one tensor on the device, and so is the
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

    def supply(self, fields: Sequence[str], *, gamma: float = 1.0, n_step: int = 1) -> None:
        """The dataset's fields."""
        self.dataset.supply(fields, gamma=gamma, n_step=n_step)

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


def offline_share(batch_size: int, ratio: float) -> int:
    """Rows of a batch that come from the dataset: ``ratio * batch_size``, a half rounded up."""
    return math.floor(ratio * batch_size + 0.5)


class MixedSampler(Sampler):
    """Every batch has `offline_share` rows of the dataset, then rows of the replay.

    The share is exact in every batch, not only in a block of them. While ``pretraining`` is true
    every row comes from the dataset; a loop switches it off when it begins to collect. An empty
    source raises where rows of it are needed. `form` tells an engine that records graphs which of
    the two patterns a block has.
    """

    def __init__(
        self, offline: Sampler, online: Sampler, ratio: float, *, pretraining: bool = False
    ) -> None:
        if not 0.0 <= ratio <= 1.0:
            raise ConfigError(f"offline_batch_ratio = {ratio}: should be from 0 to 1.")
        self.offline = offline
        self.online = online
        self.ratio = ratio
        self.pretraining = pretraining
        self.offline_rows = 0
        """Rows of the dataset drawn so far."""
        self.online_rows = 0
        """Rows of the replay drawn so far."""

    @property
    def form(self) -> int:
        """1 while every row comes from the dataset, 0 when batches are mixed."""
        return int(self.pretraining)

    @property
    def is_fixed(self) -> bool:
        """A replay grows; the dataset alone does not."""
        return self.pretraining

    has_place = True  # the dataset's place, the phase and the counts

    def __len__(self) -> int:
        return len(self.offline) + len(self.online)

    def rows(self, batch_size: int) -> tuple[int, int]:
        """Rows of one batch from the dataset and from the replay."""
        share = batch_size if self.pretraining else offline_share(batch_size, self.ratio)
        return share, batch_size - share

    def _sources(self, batch_size: int) -> list[tuple[Sampler, int]]:
        pairs = zip((self.offline, self.online), self.rows(batch_size), strict=True)
        return [(source, rows) for source, rows in pairs if rows]

    def supply(self, fields: Sequence[str], *, gamma: float = 1.0, n_step: int = 1) -> None:
        """The fields of both sources, each of which needs to have them."""
        for source in (self.offline, self.online):
            source.supply(fields, gamma=gamma, n_step=n_step)

    def most_updates(self, batch_size: int) -> int:
        """What both sources can serve."""
        return min(source.most_updates(rows) for source, rows in self._sources(batch_size))

    def prepare(self, batch_size: int, generator: torch.Generator, updates: int = 1) -> None:
        """Prepare the sources that are needed, and count their rows."""
        for source, rows in self._sources(batch_size):
            if len(source) == 0:
                name = "dataset" if source is self.offline else "replay buffer"
                raise ValueError(f"The {name} is empty, but {rows} rows of each batch are its own.")
            source.prepare(rows, generator, updates)
        from_dataset, from_replay = self.rows(batch_size)
        self.offline_rows += from_dataset * updates
        self.online_rows += from_replay * updates

    def gather(self, batch_size: int, generator: torch.Generator, updates: int = 1) -> Batch:
        """The batches in their order, each with its own share of both sources.

        Fields are contiguous in both phases: a compiled update is for one layout alone.
        """
        parts = [
            source.gather(rows, generator, updates) for source, rows in self._sources(batch_size)
        ]
        if len(parts) == 1:
            return parts[0].map(Tensor.contiguous)
        fields = zip(*(part.tensors() for part in parts), strict=True)
        return Batch.of(
            (
                torch.cat([x.unflatten(0, (updates, -1)) for x in field], dim=1).flatten(0, 1)
                for field in fields
            ),
            parts[0].extra,
        )

    def feedback(self, batch: Batch, values: Metrics) -> None:
        """Pass the replay what was reported of its rows; recorded ones need none."""
        from_dataset, from_replay = self.rows(len(batch.rewards))
        if values:
            own = itemgetter(slice(from_dataset, None))
            batch, values = batch.map(own), {key: own(value) for key, value in values.items()}
        if from_replay:
            self.online.feedback(batch, values)

    def state_dict(self) -> dict[str, Any]:
        """The counts, the phase, and the place in the dataset; the replay saves itself."""
        return {
            "offline_rows": self.offline_rows,
            "online_rows": self.online_rows,
            "pretraining": self.pretraining,
            "offline": self.offline.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self.offline_rows = whole_number(state["offline_rows"], "offline_rows")
        self.online_rows = whole_number(state["online_rows"], "online_rows")
        self.pretraining = true_or_false(state["pretraining"], "pretraining")
        self.offline.load_state_dict(state["offline"])


class NormalizedSampler(Sampler):
    """A source's batches with observations and next observations standardized.

    The arguments are those of a `Normalization`, the learner's own tensors: what is restored in
    place into them holds here too. So a dataset and a replay, both of raw rows, can never be
    normalized differently, and running statistics are those at the moment of the draw.
    """

    def __init__(
        self,
        source: Sampler,
        shift: Tensor,
        scale: Tensor,
        clip: float | None = None,
        reward_scale: Tensor | None = None,
    ) -> None:
        self.source = source
        self._normalization = Normalization(shift, scale, clip, reward_scale)

    is_fixed = property(attrgetter("source.is_fixed"))
    has_place = property(attrgetter("source.has_place"))
    form = property(attrgetter("source.form"))

    def __len__(self) -> int:
        return len(self.source)

    def supply(self, fields: Sequence[str], *, gamma: float = 1.0, n_step: int = 1) -> None:
        """The source's fields, as they are."""
        self.source.supply(fields, gamma=gamma, n_step=n_step)

    def most_updates(self, batch_size: int) -> int:
        """As the source."""
        return self.source.most_updates(batch_size)

    def prepare(self, batch_size: int, generator: torch.Generator, updates: int = 1) -> None:
        """Prepare the source."""
        self.source.prepare(batch_size, generator, updates)

    def gather(self, batch_size: int, generator: torch.Generator, updates: int = 1) -> Batch:
        """The source's batches, standardized."""
        return self._normalization.batch(self.source.gather(batch_size, generator, updates))

    def feedback(self, batch: Batch, values: Metrics) -> None:
        """Pass it to the source."""
        self.source.feedback(batch, values)

    def state_dict(self) -> dict[str, Any]:
        """The source's place."""
        return self.source.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to a place."""
        self.source.load_state_dict(state)

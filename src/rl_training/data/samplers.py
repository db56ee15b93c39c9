"""Samplers built on other sources: epochs of a dataset, mixtures, and normalized batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.boundary.values import StateError, boolean, whole_number
from rl_training.data.generators import generator_state, restore_generator
from rl_training.data.recorded import RecordedData
from rl_training.errors import ConfigError
from rl_training.normalization import Normalization
from rl_training.types import Batch, Metrics, Sampler


class EpochSampler(Sampler):
    """Draws every row once per epoch in a random order; a batch may extend into the next epoch.

    The orders of the current and the next epoch are in one tensor on the device, and so is the
    position. Thus `gather` has static shapes and no branch, and can be captured in a graph.
    `prepare` advances to the next epoch between replays of the graph. Orders are drawn from the
    engine's generator; its states before the two draws and the position are saved for a resume.
    """

    is_fixed = True  # recorded rows never change

    on_host = property(attrgetter("dataset.on_host"))

    def __init__(self, dataset: RecordedData) -> None:
        device = dataset.device
        self.dataset = dataset
        self.epoch = 0
        self.position = 0
        self._orders = torch.zeros(2 * len(dataset), dtype=torch.long, device=device)
        self._offset = torch.zeros(1, dtype=torch.long, device=device)
        self._drawn_from: list[np.ndarray[Any, Any]] = []

    def __len__(self) -> int:
        return len(self.dataset)

    def supply(self, fields: Sequence[str], *, gamma: float = 1.0, n_step: int = 1) -> None:
        """Supply the fields of the dataset."""
        self.dataset.supply(fields, gamma=gamma, n_step=n_step)

    def most_updates(self, batch_size: int) -> int:
        """Return the longest possible block, at most the number of updates in one epoch."""
        return max(1, min(len(self) // batch_size, self.dataset.most_updates(batch_size)))

    def prepare(self, batch_size: int, generator: torch.Generator, updates: int = 1) -> None:
        """Draw orders as needed for the next ``updates`` batches."""
        rows = batch_size * updates
        if rows > len(self):
            raise ConfigError(
                f"batch_size = {batch_size}: a block needs {rows} rows, but the dataset has only "
                f"{len(self)}. Use a smaller batch_size, or sampling=replacement."
            )
        while len(self._drawn_from) < 2:  # the first call draws the orders of two epochs
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
        """Return the rows at the position and advance it, without waiting for the host."""
        rows = batch_size * updates
        indices = self._orders.index_select(
            0, self._offset + torch.arange(rows, device=self._offset.device)
        )
        self._offset += rows
        return self.dataset.batch(indices)

    def _draw(self, half: int, generator: torch.Generator) -> None:
        self._drawn_from.append(generator_state(generator))
        order = torch.randperm(len(self), generator=generator, device=self._orders.device)
        self._orders[half * len(self) : (half + 1) * len(self)] = order

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch, the position, and the generator states that gave the orders."""
        return {
            "epoch": self.epoch,
            "position": self.position,
            "drawn_from": list(self._drawn_from),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Draw the same orders again and restore the position."""
        drawn_from = state["drawn_from"]
        if len(drawn_from) not in (0, 2):
            raise StateError(f"drawn_from has {len(drawn_from)} states, but should have 0 or 2")
        started = len(drawn_from) > 0
        most = 2 * len(self) - 1 if started else 0
        self.position = whole_number(state["position"], "position", most=most)
        self.epoch = whole_number(state["epoch"], "epoch", least=int(started))
        self._drawn_from = []
        for half, drawn in enumerate(drawn_from):
            generator = torch.Generator(self._orders.device)
            restore_generator(generator, drawn)
            self._draw(half, generator)
        self._offset.fill_(self.position)


def offline_share(batch_size: int, ratio: float) -> int:
    """Return the number of dataset rows in a batch: ``ratio * batch_size``, rounded half up."""
    return math.floor(ratio * batch_size + 0.5)


class MixedSampler(Sampler):
    """Batches of `offline_share` rows from the dataset, followed by rows from the replay.

    The share is exact in every batch. While ``pretraining`` is true, every row comes from the
    dataset; the training loop sets it to False when collection starts. An empty source raises an
    error when rows are needed from it. `form` identifies which of the two patterns a recorded
    graph is for.
    """

    def __init__(
        self, offline: Sampler, online: Sampler, ratio: float, *, pretraining: bool = False
    ) -> None:
        if not 0.0 <= ratio <= 1.0:
            raise ConfigError(f"offline_batch_ratio = {ratio}: should be between 0 and 1.")
        self.offline = offline
        self.online = online
        self.ratio = ratio
        self.pretraining = pretraining
        self.offline_rows = 0
        """Rows drawn from the dataset so far."""
        self.online_rows = 0
        """Rows drawn from the replay so far."""

    @property
    def form(self) -> int:
        """1 while every row comes from the dataset, 0 if batches are mixed."""
        return int(self.pretraining)

    @property
    def is_fixed(self) -> bool:
        """Whether all rows come from the dataset, which does not grow."""
        return self.pretraining

    has_position = True  # the position in the dataset, the phase and the counts

    @property
    def on_host(self) -> bool:
        """Whether the host reads the dataset from a file."""
        return self.offline.on_host or self.online.on_host

    def __len__(self) -> int:
        return len(self.offline) + len(self.online)

    def rows(self, batch_size: int) -> tuple[int, int]:
        """Return the number of rows per batch from the dataset and from the replay."""
        share = batch_size if self.pretraining else offline_share(batch_size, self.ratio)
        return share, batch_size - share

    def _sources(self, batch_size: int) -> list[tuple[Sampler, int]]:
        pairs = zip((self.offline, self.online), self.rows(batch_size), strict=True)
        return [(source, rows) for source, rows in pairs if rows]

    def supply(self, fields: Sequence[str], *, gamma: float = 1.0, n_step: int = 1) -> None:
        """Supply the fields from both sources."""
        for source in (self.offline, self.online):
            source.supply(fields, gamma=gamma, n_step=n_step)

    def most_updates(self, batch_size: int) -> int:
        """Return the longest block that both sources can serve."""
        return min(source.most_updates(rows) for source, rows in self._sources(batch_size))

    def prepare(self, batch_size: int, generator: torch.Generator, updates: int = 1) -> None:
        """Prepare the needed sources and count their rows."""
        for source, rows in self._sources(batch_size):
            if len(source) == 0:
                name = "dataset" if source is self.offline else "replay buffer"
                raise ValueError(f"The {name} is empty, but each batch needs {rows} rows from it.")
            source.prepare(rows, generator, updates)
        from_dataset, from_replay = self.rows(batch_size)
        self.offline_rows += from_dataset * updates
        self.online_rows += from_replay * updates

    def gather(self, batch_size: int, generator: torch.Generator, updates: int = 1) -> Batch:
        """Return the batches in order, each with its share of both sources.

        Fields are contiguous in both phases, since a compiled update accepts only one layout.
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
        """Pass the values of the replay's rows to the replay; a dataset needs none."""
        from_dataset, from_replay = self.rows(len(batch.rewards))
        if values:
            select = itemgetter(slice(from_dataset, None))
            batch, values = batch.map(select), {key: select(value) for key, value in values.items()}
        if from_replay:
            self.online.feedback(batch, values)

    def state_dict(self) -> dict[str, Any]:
        """Return the counts, the phase and the position in the dataset, without the replay."""
        return {
            "offline_rows": self.offline_rows,
            "online_rows": self.online_rows,
            "pretraining": self.pretraining,
            "offline": self.offline.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.offline_rows = whole_number(state["offline_rows"], "offline_rows")
        self.online_rows = whole_number(state["online_rows"], "online_rows")
        self.pretraining = boolean(state["pretraining"], "pretraining")
        self.offline.load_state_dict(state["offline"])


class NormalizedSampler(Sampler):
    """A source whose batches are normalized.

    The arguments are those of `Normalization`: tensors shared with the learner, so values restored
    in place apply here too. A dataset and a replay, which both store raw rows, are therefore
    always normalized in the same way, with the statistics at the time of the draw.
    """

    def __init__(
        self,
        source: Sampler,
        shift: Tensor,
        scale: Tensor,
        clip: float | Tensor | None = None,
        reward_scale: Tensor | None = None,
    ) -> None:
        self.source = source
        self._normalization = Normalization(shift, scale, clip, reward_scale)

    is_fixed = property(attrgetter("source.is_fixed"))
    has_position = property(attrgetter("source.has_position"))
    form = property(attrgetter("source.form"))
    on_host = property(attrgetter("source.on_host"))

    def __len__(self) -> int:
        return len(self.source)

    def supply(self, fields: Sequence[str], *, gamma: float = 1.0, n_step: int = 1) -> None:
        """Supply the fields of the source, unchanged."""
        self.source.supply(fields, gamma=gamma, n_step=n_step)

    def most_updates(self, batch_size: int) -> int:
        """Return the longest block that the source can serve."""
        return self.source.most_updates(batch_size)

    def prepare(self, batch_size: int, generator: torch.Generator, updates: int = 1) -> None:
        """Prepare the source."""
        self.source.prepare(batch_size, generator, updates)

    def gather(self, batch_size: int, generator: torch.Generator, updates: int = 1) -> Batch:
        """Return normalized batches of the source."""
        return self._normalization.batch(self.source.gather(batch_size, generator, updates))

    def feedback(self, batch: Batch, values: Metrics) -> None:
        """Pass the values to the source."""
        self.source.feedback(batch, values)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the source."""
        return self.source.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of the source."""
        self.source.load_state_dict(state)

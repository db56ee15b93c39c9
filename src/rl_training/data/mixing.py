"""Batches of two sources: a dataset and the run's own experience (arXiv 2302.02948)."""

from __future__ import annotations

import math
from typing import Any

import torch

from rl_training.boundary.values import true_or_false, whole_number
from rl_training.errors import ConfigError
from rl_training.types import Batch, Sampler


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
            return Batch(*(field.contiguous() for field in parts[0]))
        fields = zip(*parts, strict=True)
        return Batch(
            *(
                torch.cat([x.unflatten(0, (updates, -1)) for x in field], dim=1).flatten(0, 1)
                for field in fields
            )
        )

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

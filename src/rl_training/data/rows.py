"""The packed row: where each field of a transition stands."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from rl_training.types import Batch


@dataclass(frozen=True)
class RowLayout:
    """obs | action | reward | next_obs | terminated | truncated, all float32 in one row."""

    obs_dim: int
    action_dim: int

    @cached_property
    def widths(self) -> list[int]:
        """The fields' widths in order."""
        return [self.obs_dim, self.action_dim, 1, self.obs_dim, 1, 1]

    @property
    def width(self) -> int:
        """Values in a row."""
        return sum(self.widths)

    @cached_property
    def slices(self) -> dict[str, slice]:
        """Each field's place."""
        names = (
            "observations",
            "actions",
            "rewards",
            "next_observations",
            "terminations",
            "truncations",
        )
        places, start = {}, 0
        for name, width in zip(names, self.widths, strict=True):
            places[name] = slice(start, start + width)
            start += width
        return places

    def batch(self, rows: torch.Tensor) -> Batch:
        """Views of gathered rows."""
        parts = torch.split_with_sizes(rows, self.widths, dim=-1)
        obs, actions, rewards, next_obs, terminations, _ = parts
        return Batch(obs, actions, rewards.squeeze(-1), next_obs, terminations.squeeze(-1))

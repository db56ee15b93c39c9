"""Layout of a packed row: the position of each field of a transition."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Protocol

import torch

from rl_training.text import counted
from rl_training.types import MASK_FIELDS, Batch, EnvSpec

FIELDS = "observations", "actions", "rewards", "next_observations", "terminations", "truncations"
SCALAR_FIELDS = ("rewards", "terminations", "truncations")
"""Fields with one value per row."""


@dataclass(frozen=True)
class RowLayout:
    """obs | action | reward | next_obs | terminated | truncated, all float32 in one row.

    The legal actions of both observations, if there are action masks, and the columns of a dataset
    that an algorithm declares come after them.
    """

    obs_dim: int
    action_dim: int
    columns: tuple[tuple[str, int], ...] = ()
    """Names and widths of further columns."""

    @classmethod
    def of(cls, spec: EnvSpec) -> RowLayout:
        """Return the layout of an environment's transitions."""
        return cls(spec.stored_dim, spec.action_width, mask_columns(spec.mask_width))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the fields in order."""
        return (*FIELDS, *(name for name, _ in self.columns))

    @cached_property
    def widths(self) -> list[int]:
        """Widths of the fields in order."""
        standard = [self.obs_dim, self.action_dim, 1, self.obs_dim, 1, 1]
        return [*standard, *(width for _, width in self.columns)]

    @property
    def width(self) -> int:
        """Number of values in a row."""
        return sum(self.widths)

    @cached_property
    def slices(self) -> dict[str, slice]:
        """Position of each field."""
        places = zip(self.names, self.widths, accumulate(self.widths), strict=True)
        return {name: slice(stop - width, stop) for name, width, stop in places}

    def batch(self, rows: torch.Tensor) -> Batch:
        """Return gathered rows as a batch of views."""
        parts = torch.split_with_sizes(rows, self.widths, dim=-1)
        obs, actions, rewards, next_obs, terminations = parts[:5]
        return Batch(obs, actions, rewards.squeeze(-1), next_obs, terminations.squeeze(-1))

    def column(self, rows: torch.Tensor, name: str) -> torch.Tensor:
        """Return one field of gathered rows: ``[B, width]``, or ``[B]`` if its width is 1.

        Action masks are always ``[B, actions]``.
        """
        values = rows[:, self.slices[name]]
        is_single = values.shape[-1] == 1 and name not in MASK_FIELDS
        return values.squeeze(-1) if is_single else values

    def mismatch(self, spec: EnvSpec, source: str, env: str = "the environment") -> str | None:
        """Describe how the sizes differ from those of an environment; None if they do not."""
        if (self.obs_dim, self.action_dim) == (spec.stored_dim, spec.action_width):
            return None
        return (
            f"{source} has {counted(self.obs_dim, 'observation value')} and "
            f"{counted(self.action_dim, 'action value')}, but {env} has {spec}: use data from the "
            "same environment."
        )


class RowTable(Protocol):
    """Rows that are gathered by their positions."""

    def __len__(self) -> int: ...

    @property
    def device(self) -> torch.device:
        """The device of the gathered rows."""
        ...

    def take(self, places: torch.Tensor, columns: slice | None = None) -> torch.Tensor:
        """Return the rows at ``places``, ``[B, width]``, or some columns of them."""
        ...


@dataclass(frozen=True)
class PackedRows:
    """Rows in one tensor; gathering them has static shapes and never waits for the host."""

    rows: torch.Tensor

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def device(self) -> torch.device:
        """The device of the tensor."""
        return self.rows.device

    def take(self, places: torch.Tensor, columns: slice | None = None) -> torch.Tensor:
        """Return the rows at ``places``, ``[B, width]``, or some columns of them."""
        rows = self.rows if columns is None else self.rows[:, columns]
        return rows.index_select(0, places)


def mask_columns(width: int) -> tuple[tuple[str, int], ...]:
    """Return the columns of action masks of this width; none if it is 0."""
    return tuple((name, width) for name in MASK_FIELDS) if width else ()

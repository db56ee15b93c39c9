"""Declared fields of a batch, gathered from packed rows and from the rows that follow them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rl_training.data.rows import RowLayout, RowTable
from rl_training.types import Batch


class RowFields:
    """Builds batches with declared fields from a ring of packed rows.

    The next row of the same environment is ``stride`` positions later. ``position`` is where the
    next row will be written, one after the newest, so the rows before and after it belong to
    different episodes. It is a tensor on the rows' device, so that a captured graph sees it
    change. Recorded data is a full ring with position 0.
    """

    def __init__(
        self,
        layout: RowLayout,
        names: Sequence[str],
        *,
        position: Tensor,
        stride: int = 1,
        gamma: float = 1.0,
        n_step: int = 1,
        returns: Tensor | None = None,
    ) -> None:
        self.names = tuple(dict.fromkeys((*names, "discounts") if n_step > 1 else names))
        self._layout = layout
        self._position = position
        self._stride = stride
        self._returns = returns
        self._offsets = stride * torch.arange(n_step, device=position.device)
        powers = gamma ** torch.arange(n_step + 1, dtype=torch.float64)
        self._powers = powers.float().to(position.device)

    def batch(self, rows: RowTable, places: Tensor) -> Batch:
        """Return the transitions at ``places`` ``[B]`` of the ring ``rows``."""
        drawn = rows.take(places)
        batch, last, steps = self._layout.batch(drawn), drawn, torch.ones_like(places)
        ends = places
        if len(self._offsets) > 1:
            rewards, steps, ends = self._windows(rows, places)
            last = rows.take(ends)
            after = self._layout.batch(last)
            batch = batch._replace(
                rewards=rewards, next_obs=after.next_obs, terminations=after.terminations
            )
        extra: dict[str, Tensor] = {}
        for name in self.names:
            if name == "indices":
                extra[name] = places
            elif name == "weights":
                extra[name] = torch.ones_like(batch.rewards)
            elif name == "discounts":
                extra[name] = self._powers.index_select(0, steps)
            elif name == "returns_to_go":
                assert self._returns is not None
                extra[name] = self._returns.index_select(0, places)
            elif name in ("truncations", "next_legal_actions"):
                extra[name] = self._layout.column(last, name)
            elif name in ("next_actions", "next_action_mask"):
                extra |= self._next_actions(rows, ends, last)
            else:
                extra[name] = self._layout.column(drawn, name)
        return batch._replace(extra={name: extra[name] for name in self.names})

    def _newer(self, rows: RowTable, places: Tensor) -> Tensor:
        """Return how many rows, of all environments, were stored after those at ``places``."""
        return (self._position - 1 - places) % len(rows)

    def _ended(self, rows: Tensor) -> Tensor:
        """Return whether an episode ended or was cut off at each row."""
        ended, cut = (self._layout.column(rows, name) for name in ("terminations", "truncations"))
        return ended + cut > 0

    def _next_actions(self, rows: RowTable, places: Tensor, last: Tensor) -> dict[str, Tensor]:
        """Return the actions after the transitions ``last`` at ``places``, and their mask."""
        known = (self._newer(rows, places) >= self._stride) & ~self._ended(last)
        following = (places + self._stride) % len(rows)
        actions = rows.take(following, self._layout.slices["actions"])
        # `where`, not a product: the memory after the newest row may be uninitialized.
        taken = torch.where(known.unsqueeze(-1), actions, 0.0)
        return {"next_actions": taken, "next_action_mask": known.to(actions.dtype)}

    def _windows(self, rows: RowTable, places: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return discounted sums of up to n rewards, their number, and the place of the last one.

        A window ends with its episode or with the newest row.
        """
        windows = (places.unsqueeze(-1) + self._offsets) % len(rows)  # [B, n]
        stored = self._newer(rows, places).unsqueeze(-1) >= self._offsets
        flat, at = windows.flatten(), self._layout.slices
        rewards = rows.take(flat, at["rewards"]).view_as(windows)
        flags = rows.take(flat, slice(at["terminations"].start, at["truncations"].stop))
        ended = (flags.sum(-1) > 0).view_as(windows).long()
        inside = stored & (ended.cumsum(-1) - ended == 0)  # no end in an earlier row
        steps = inside.sum(-1)
        total = torch.where(inside, rewards * self._powers[:-1], 0.0).sum(-1)
        return total, steps, windows.gather(-1, steps.unsqueeze(-1) - 1).squeeze(-1)

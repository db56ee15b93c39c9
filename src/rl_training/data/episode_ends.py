"""Episode ends of recorded data: what the flags of a file mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rl_training.errors import ConfigError
from rl_training.text import counted

Flags = npt.NDArray[Any]
"""One flag per row, ``[N]``."""
Mask = npt.NDArray[np.bool_]


def odd_flags(flags: Mapping[str, Flags]) -> Iterator[str]:
    """Describe flags other than 0 and 1, which would scale the bootstrapped targets.

    ``flags`` are the columns of a file by their names.
    """
    for name, values in flags.items():
        places = np.flatnonzero((values != 0) & (values != 1))
        if len(places):
            yield (
                f"{name!r} has values other than 0 and 1 in {len(places)} "
                f"row{'s' if len(places) > 1 else ''}, first {values[places[0]]:g} in row "
                f"{places[0]}: store only 0 and 1"
            )


def separate_time_limits(
    ended: Flags, cut: Flags, has_cut: bool, time_limit: int | None
) -> list[str]:
    """Separate time limits from terminations in place if one flag may mean either."""
    if has_cut:
        ended[cut > 0] = 0
        return []
    if time_limit is None:
        return []
    ends = np.flatnonzero(ended > 0)
    lengths = np.diff(np.concatenate([[-1], ends]))
    limited = ends[lengths == time_limit]
    ended[limited], cut[limited] = 0, 1
    return [
        f"episode ends at the time limit of {time_limit} steps are read as truncations "
        f"({len(limited)})"
    ]


@dataclass(frozen=True)
class ImpliedNext:
    """How next observations follow from the rows: those of an episode follow each other.

    The last row of an episode that did not terminate has no next observation. It is dropped, and
    the row before it is marked as cut off. After a termination, no next observation is needed.
    """

    ended: Mask
    """Rows that terminate, whose next observation is their own."""
    kept: Mask
    """All rows but those without a next observation."""
    shortened: npt.NDArray[np.int64]
    """Rows that are marked as cut off, because the row after them is dropped."""

    @classmethod
    def of(cls, terminations: Flags, truncations: Flags) -> ImpliedNext:
        """Return what the flags of all rows imply."""
        ended, cut = terminations > 0, truncations > 0
        cut[-1] |= not ended[-1]
        dropped = cut & ~ended
        if dropped.all():
            raise ConfigError(
                "Next observations cannot be derived, because every episode has a single row: "
                "store them as next_observations."
            )
        shortened = np.flatnonzero(dropped[1:] & ~(ended | cut)[:-1])
        return cls(ended, ~dropped, shortened.astype(np.int64))

    @property
    def note(self) -> str:
        """Note for the user about the rows that are dropped."""
        dropped = int(np.count_nonzero(~self.kept))
        return (
            "next observations are taken from the following rows; "
            f"{counted(dropped, 'row')} without one {'is' if dropped == 1 else 'are'} dropped"
        )

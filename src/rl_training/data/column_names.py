"""Map the column names of a dataset file to the fields of a transition."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rl_training.boundary.columns import NUMBERS, Column
from rl_training.data.rows import SCALAR_FIELDS
from rl_training.errors import ConfigError, close_match, nearest
from rl_training.text import printable, shorten, shown
from rl_training.types import FIELD_NAMES

ALIASES: dict[str, tuple[str, ...]] = {
    "observations": ("observations", "obs", "states", "observation", "state"),
    "actions": ("actions", "action"),
    "rewards": ("rewards", "reward"),
    "next_observations": (
        *("next_observations", "next_obs", "next_states", "next_observation", "next_state"),
    ),
    "terminations": (
        *("terminals", "terminations", "terminated", "terminateds", "terminal", "termination"),
        *("dones", "done"),
    ),
    "truncations": (
        *("timeouts", "truncations", "truncated", "truncateds", "timeout", "truncation"),
    ),
}
REQUIRED = ("observations", "actions", "rewards")
AMBIGUOUS = ("dones", "done")
"""Names that some datasets use for any end of an episode, time limits included."""


@dataclass(frozen=True)
class Fields:
    """A dataset's columns under standard names, and the assumptions made when reading them."""

    columns: dict[str, Column]
    names: dict[str, str]
    """The name of each column in the file."""
    notes: tuple[str, ...]
    guesses: tuple[str, ...]
    """Notes on what is missing from the file or has an unknown name."""
    ambiguous_done: bool
    """Whether the termination column may mean any end of an episode."""
    own: tuple[str, ...] = ()
    """Further columns that the algorithm declares, by their names in the file."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.columns["observations"].shape[0]

    def width(self, field: str) -> int:
        """Return the number of values per row of a column."""
        return math.prod(self.columns[field].shape[1:])

    @property
    def integer_actions(self) -> bool:
        """Whether actions are stored as integers, as discrete actions are."""
        return self.columns["actions"].dtype.kind in "biu"


def find_fields(
    available: Mapping[str, Column], source: str, declared: Sequence[str] = ()
) -> Fields:
    """Match names to aliases, and check shapes and types before any row is read.

    ``declared`` contains the names of further columns to read.
    """
    columns: dict[str, Column] = {}
    names: dict[str, str] = {}
    for field, aliases in ALIASES.items():
        present = [alias for alias in aliases if alias in available]
        if len(present) > 1:
            raise ConfigError(
                f"{source} has both {present[0]!r} and {present[1]!r} for {field}: remove one of "
                "them."
            )
        if present:
            columns[field], names[field] = available[present[0]], present[0]
    _check_required(columns, available, source)
    for name in declared:
        _check_declared(name, available, names, source)
        columns[name], names[name] = available[name], name
    _check_columns(columns, names, source)
    ended, cut = names.get("terminations"), names.get("truncations")
    notes, guesses = [], []
    if ended and not cut:
        notes.append(
            f"{ended!r} is the only column for episode ends: it is read as terminations, which do "
            "not bootstrap"
        )
    elif ended in AMBIGUOUS:
        notes.append(f"a row with both {ended!r} and {cut!r} is read as a time limit")
    elif cut and not ended:
        guesses.append(
            f"{cut!r} is the only column for episode ends: it is read as time limits, and no row "
            "terminates"
        )
    elif not ended:
        guesses.append(
            "no column marks the end of an episode: all rows are read as one episode, and no row "
            "terminates"
        )
    guesses += _unused(available, names)
    return Fields(columns, names, tuple(notes), tuple(guesses), ended in AMBIGUOUS, tuple(declared))


def _check_required(
    columns: Mapping[str, Column], available: Mapping[str, Column], source: str
) -> None:
    for field in REQUIRED:
        if field not in columns:
            found = shorten(printable(", ".join(sorted(available)), keep=""), 300) or "none"
            close = [name for name in sorted(available) if close_match(name, ALIASES[field])]
            hint = f" Perhaps rename {shown(close[0])} to {field!r}." if close else ""
            raise ConfigError(
                f"{source} has no column for {field}. It should be named "
                f"{' or '.join(ALIASES[field])}; the file has: {found}.{hint}"
            )


def _check_declared(
    name: str, available: Mapping[str, Column], names: Mapping[str, str], source: str
) -> None:
    """Reject a declared column that is missing, or that is a field of every transition."""
    taken = {held: field for field, held in names.items()}
    if name in taken or name in ALIASES:
        raise ConfigError(
            f"{source}: the algorithm declares the column {name!r}, but it is already part of "
            f"every batch, as {taken.get(name, name)}."
        )
    if name not in available:
        options = available.keys() - taken.keys() | {*FIELD_NAMES}
        raise ConfigError(
            f"{source} has no column {name!r}, which the algorithm declares{nearest(name, options)}"
        )


def _unused(available: Mapping[str, Column], names: Mapping[str, str]) -> list[str]:
    """Return a note on unused columns of full length, since one may be a misspelled name."""
    rows = available[names["observations"]].shape[:1]
    unused = sorted(
        name
        for name, column in available.items()
        if column.shape[:1] == rows and name not in names.values()
    )
    return [f"unused columns: {', '.join(map(repr, unused))}"] if unused else []


def _check_columns(columns: Mapping[str, Column], names: Mapping[str, str], source: str) -> None:
    rows = columns["observations"].shape[0] if columns["observations"].shape else 0
    if rows == 0:
        raise ConfigError(f"{source} has no rows.")
    for field, column in columns.items():
        name = names[field]
        if column.dtype.kind not in NUMBERS:
            raise ConfigError(
                f"{source}: {name!r} has the type {column.dtype}, but should contain numbers."
            )
        found = column.shape[0] if column.shape else 0
        if found != rows:
            raise ConfigError(
                f"{source}: {name!r} has {found} rows, but {names['observations']!r} has {rows}."
            )
        width = math.prod(column.shape[1:])
        if field in SCALAR_FIELDS:
            fits, wanted = width == 1, f"({rows},)"
        else:
            fits, wanted = width > 0 and len(column.shape) <= 2, f"({rows}, size)"
        if not fits:
            raise ConfigError(
                f"{source}: {name!r} has shape {column.shape}, but should have shape {wanted}."
            )
    if "next_observations" in columns:
        ours, theirs = columns["observations"].shape[1:], columns["next_observations"].shape[1:]
        if ours != theirs:
            raise ConfigError(
                f"{source}: next observations have shape {theirs}, but observations have {ours}."
            )

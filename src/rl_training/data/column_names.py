"""Which columns of a dataset file are which fields of a transition, by their names."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rl_training.boundary.columns import NUMBERS, Column
from rl_training.data.rows import SCALAR_FIELDS
from rl_training.errors import ConfigError, nearest
from rl_training.text import printable, shorten
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
"""Names under which some store the end of an episode for whatever reason."""


@dataclass(frozen=True)
class Fields:
    """A dataset's columns under our names, and what was assumed in reading them."""

    columns: dict[str, Column]
    names: dict[str, str]
    """What the file calls each of them."""
    notes: tuple[str, ...]
    guesses: tuple[str, ...]
    """Notes on what the file does not say, or stores under an unknown name."""
    ambiguous_done: bool
    """Whether the termination column may mean any end of an episode."""
    own: tuple[str, ...] = ()
    """Columns that an algorithm declares by the file's name for them."""

    @property
    def rows(self) -> int:
        """How many rows every column has."""
        return self.columns["observations"].shape[0]

    def width(self, field: str) -> int:
        """How many values a row of a column has."""
        return math.prod(self.columns[field].shape[1:])

    @property
    def integer_actions(self) -> bool:
        """Whether actions are stored as integers: a choice, not a quantity."""
        return self.columns["actions"].dtype.kind in "biu"


def find_fields(
    available: Mapping[str, Column], source: str, declared: Sequence[str] = ()
) -> Fields:
    """Match names to aliases and check shapes and types before a row is read.

    ``declared`` are names of further columns to read.
    """
    columns: dict[str, Column] = {}
    names: dict[str, str] = {}
    for field, aliases in ALIASES.items():
        present = [alias for alias in aliases if alias in available]
        if len(present) > 1:
            raise ConfigError(
                f"{source} holds {present[0]!r} and {present[1]!r}, which both mean {field}: "
                "keep one."
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
        notes.append(f"only {ended!r} is there: read as terminations, which do not bootstrap")
    elif ended in AMBIGUOUS:
        notes.append(f"{ended!r} and {cut!r}: a row with both is read as a time limit")
    elif cut and not ended:
        guesses.append(f"only {cut!r} is there: read as time limits; no row terminates")
    elif not ended:
        guesses.append(
            "no flag marks an episode's end: all rows are read as one episode, and no row "
            "terminates"
        )
    guesses += _unused(available, names)
    return Fields(columns, names, tuple(notes), tuple(guesses), ended in AMBIGUOUS, tuple(declared))


def _check_required(
    columns: Mapping[str, Column], available: Mapping[str, Column], source: str
) -> None:
    for field in REQUIRED:
        if field not in columns:
            known = shorten(printable(", ".join(sorted(available)), keep=""), 300) or "nothing"
            raise ConfigError(
                f"{source} has no {field} (any of {', '.join(ALIASES[field])}); it holds {known}."
            )


def _check_declared(
    name: str, available: Mapping[str, Column], names: Mapping[str, str], source: str
) -> None:
    """Refuse a declared column that is not there, or is a field of every transition."""
    taken = {held: field for field, held in names.items()}
    if name in taken or name in ALIASES:
        raise ConfigError(
            f"{source}: the algorithm declares the column {name!r}, which is read as "
            f"{taken.get(name, name)}."
        )
    if name not in available:
        options = available.keys() - taken.keys() | {*FIELD_NAMES}
        raise ConfigError(
            f"{source} has no column {name!r}, which the algorithm declares{nearest(name, options)}"
        )


def _unused(available: Mapping[str, Column], names: Mapping[str, str]) -> list[str]:
    """A note on columns with a value for every row: one may be a known one, misspelled."""
    rows = available[names["observations"]].shape[:1]
    unused = sorted(
        name
        for name, column in available.items()
        if column.shape[:1] == rows and name not in names.values()
    )
    return [f"not used: {', '.join(map(repr, unused))}"] if unused else []


def _check_columns(columns: Mapping[str, Column], names: Mapping[str, str], source: str) -> None:
    rows = columns["observations"].shape[0] if columns["observations"].shape else 0
    if rows == 0:
        raise ConfigError(f"{source} holds no rows.")
    for field, column in columns.items():
        name = names[field]
        if column.dtype.kind not in NUMBERS:
            raise ConfigError(f"{source}: {name!r} holds {column.dtype}, but numbers are needed.")
        found = column.shape[0] if column.shape else 0
        if found != rows:
            raise ConfigError(
                f"{source}: {name!r} has {found} rows, but {names['observations']!r} has {rows}."
            )
        width = math.prod(column.shape[1:])
        if field in SCALAR_FIELDS:
            fits, needed = width == 1, "one value a row is"
        else:
            fits, needed = width > 0 and len(column.shape) <= 2, "flat rows of values are"
        if not fits:
            raise ConfigError(f"{source}: {name!r} has shape {column.shape}, but {needed} needed.")
    if "next_observations" in columns:
        ours, theirs = columns["observations"].shape[1:], columns["next_observations"].shape[1:]
        if ours != theirs:
            raise ConfigError(
                f"{source}: next observations have shape {theirs}, observations {ours}."
            )

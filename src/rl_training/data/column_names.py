"""Map the column names of a dataset file to the fields of a transition."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rl_training.boundary.columns import NUMBERS, Column
from rl_training.data.observation_columns import Parts, flat_column, infer_entries, split_parts
from rl_training.data.rows import SCALAR_FIELDS
from rl_training.errors import ConfigError, close_match, nearest
from rl_training.observations import Entry
from rl_training.text import printable, shorten, shown
from rl_training.types import FIELD_NAMES, EnvSpec

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
MASK_ALIASES = {
    "legal_actions": ("action_masks", "action_mask", "legal_actions"),
    "next_legal_actions": ("next_action_masks", "next_action_mask", "next_legal_actions"),
}
"""Names under which a file has action masks, which are read only if they are declared."""
REQUIRED = ("observations", "actions", "rewards")
OBSERVATIONS = ("observations", "next_observations")
OBSERVATION_NAMES = tuple(alias for field in OBSERVATIONS for alias in ALIASES[field])
"""Names under which a file has observations, as one array or as ``name/entry``."""
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
    parts: Mapping[str, Parts] = dataclasses.field(default_factory=dict)
    """The arrays of the observation columns, as they are in the file."""
    entries: tuple[Entry, ...] = ()
    """Entries of an observation; none for flat vectors."""
    spec: EnvSpec | None = None
    """The spec whose bounds already map the actions to [-1, 1]; None for the original units."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.columns["observations"].shape[0]

    def width(self, field: str) -> int:
        """Return the number of values per row of a column."""
        return math.prod(self.columns[field].shape[1:])

    def as_named(self) -> dict[str, Column]:
        """Return the columns under their own names, with observations as they are in the file."""
        found: dict[str, Column] = {}
        for field, name in self.names.items():
            parts = self.parts.get(field, {"": self.columns[field]})
            found |= {f"{name}/{entry}" if entry else name: part for entry, part in parts.items()}
        return found

    def arranged(self, entries: tuple[Entry, ...], source: str) -> Fields:
        """Return the fields with observations as flat vectors of the environment's entries."""
        found = {name: flat_column(parts, entries, source) for name, parts in self.parts.items()}
        return dataclasses.replace(self, columns=self.columns | found, entries=entries)

    def flags(self, terminations: Any, truncations: Any) -> dict[str, Any]:
        """Return the given flags of all rows, by the names that the data has for them."""
        pairs = {"terminations": terminations, "truncations": truncations}
        return {self.names[name]: flag for name, flag in pairs.items() if name in self.columns}

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
    parts: dict[str, Parts] = {}
    available, grouped = split_parts(available, OBSERVATION_NAMES)
    for field, aliases in ALIASES.items():
        present = [alias for alias in aliases if alias in available or alias in grouped]
        if len(present) > 1:
            raise ConfigError(
                f"{source} has both {present[0]!r} and {present[1]!r} for {field}: remove one of "
                "them."
            )
        if present:
            names[field] = present[0]
            found = grouped.get(present[0]) or {"": available[present[0]]}
            columns[field] = next(iter(found.values()))
            if field in OBSERVATIONS:
                parts[field] = found
    _check_required(columns, available, source)
    for name in declared:
        held = next((x for x in MASK_ALIASES.get(name, ()) if x in available), name)
        _check_declared(held, available, names, source)
        columns[name], names[name] = available[held], held
    _check_columns(columns, names, parts, source)
    entries = infer_entries(parts["observations"])
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
    guesses += _unused(available, names, columns["observations"].shape[0])
    fields = Fields(
        columns,
        names,
        tuple(notes),
        tuple(guesses),
        ambiguous_done=ended in AMBIGUOUS,
        own=tuple(declared),
        parts=parts,
    )
    return fields.arranged(entries, source)


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
    if name in MASK_ALIASES and name not in available:
        raise ConfigError(
            f"{source} has no column {MASK_ALIASES[name][0]!r}, but the environment provides "
            "action masks: record the data with rl-training data collect, or ignore the masks with "
            "env_kwargs.action_masks=false."
        )
    if name not in available:
        options = available.keys() - taken.keys() | {*FIELD_NAMES}
        raise ConfigError(
            f"{source} has no column {name!r}, which the algorithm declares{nearest(name, options)}"
        )


def _unused(available: Mapping[str, Column], names: Mapping[str, str], rows: int) -> list[str]:
    """Return a note on unused columns of full length, since one may be a misspelled name."""
    unused = sorted(
        name
        for name, column in available.items()
        if column.shape[:1] == (rows,) and name not in names.values()
    )
    return [f"unused columns: {', '.join(map(repr, unused))}"] if unused else []


def _check_columns(
    columns: Mapping[str, Column],
    names: Mapping[str, str],
    parts: Mapping[str, Parts],
    source: str,
) -> None:
    first = columns["observations"]
    rows = first.shape[0] if first.shape else 0
    if rows == 0:
        raise ConfigError(f"{source} has no rows.")
    for field, column in columns.items():
        for entry, part in parts.get(field, {"": column}).items():
            name = f"{names[field]}/{entry}" if entry else names[field]
            if part.dtype.kind not in NUMBERS:
                raise ConfigError(
                    f"{source}: {name!r} has the type {part.dtype}, but should contain numbers."
                )
            found = part.shape[0] if part.shape else 0
            if found != rows:
                raise ConfigError(
                    f"{source}: {name!r} has {found} rows, but {names['observations']!r} has "
                    f"{rows}."
                )
            _check_width(field, name, part, source)
    ours = {entry: column.shape[1:] for entry, column in parts["observations"].items()}
    theirs = {entry: c.shape[1:] for entry, c in parts.get("next_observations", {}).items()}
    if theirs and ours != theirs:
        found_shape, wanted = (
            shapes[""] if set(shapes) == {""} else shown(shapes) for shapes in (theirs, ours)
        )
        raise ConfigError(
            f"{source}: next observations have shape {found_shape}, but observations have {wanted}."
        )


def _check_width(field: str, name: str, column: Column, source: str) -> None:
    rows, width = column.shape[0], math.prod(column.shape[1:])
    if field in SCALAR_FIELDS:
        fits, wanted = width == 1, f"({rows},)"
    else:
        nested = len(column.shape) > 2 and field not in OBSERVATIONS
        fits, wanted = width > 0 and not nested, f"({rows}, size)"
    if not fits:
        raise ConfigError(
            f"{source}: {name!r} has shape {column.shape}, but should have shape {wanted}."
        )

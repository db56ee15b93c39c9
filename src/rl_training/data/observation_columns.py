"""Observation columns of a dataset: one array, or an array for each entry of a Dict or Tuple.

A file has the observations as flat vectors under ``observations``, or in the environment's form:
one array, or ``observations/<entry>`` for each entry. Either form becomes rows of flat vectors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from rl_training.boundary.columns import Chunks, Column
from rl_training.errors import ConfigError
from rl_training.observations import MAX_PIXEL, Entry, ObservationError, Planes

Parts = Mapping[str, Column]
"""Columns of observations by the name of their entry; an array without entries has no name."""


def split_parts(
    available: Mapping[str, Column], names: Sequence[str]
) -> tuple[dict[str, Column], dict[str, dict[str, Column]]]:
    """Separate columns ``name/entry`` from the others; the former by name and entry."""
    others: dict[str, Column] = {}
    parts: dict[str, dict[str, Column]] = {}
    for key, column in available.items():
        name, slash, entry = key.partition("/")
        if slash and name in names:
            parts.setdefault(name, {})[entry] = column
        else:
            others[key] = column
    return others, {name: dict(sorted(columns.items())) for name, columns in parts.items()}


def flat_arrays(data: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return arrays under ``name/entry`` for those of nested dicts and tuples under ``names``."""
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping | tuple) and key.partition("/")[0] in names:
            pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
            flat |= flat_arrays({f"{key}/{name}": part for name, part in pairs}, names)
        else:
            flat[key] = value
    return flat


def infer_entries(parts: Parts) -> tuple[Entry, ...]:
    """Return the entries of columns without an environment; none for flat vectors."""
    if set(parts) == {""} and len(parts[""].shape) <= 2:
        return ()
    entries: list[Entry] = []
    offset = 0
    for name, column in parts.items():
        shape, dtype = column.shape[1:], str(column.dtype)
        if dtype in ("uint8", "bool") and len(shape) > 1 and Planes.of(shape):
            high = MAX_PIXEL if dtype == "uint8" else 1
            entries.append(Entry(name, "image", shape, dtype, offset, high=high))
        else:
            entries.append(Entry(name, "vector", shape, dtype, offset))
        offset += entries[-1].width
    return tuple(entries)


def flat_column(parts: Parts, entries: Sequence[Entry], source: str) -> Column:
    """Return one column of flat vectors ``[rows, obs_dim]``, uint8 if all entries are images.

    Raises:
        ConfigError: The columns do not have these entries, or not their shapes.
    """
    plain = parts.get("")
    size = sum(entry.width for entry in entries)
    if plain is not None and (not entries or plain.shape[1:] == (size,)):
        if len(plain.shape) > 2:
            raise ConfigError(
                f"{source}: the observations have the shape {plain.shape}, but the environment has "
                "flat observations: use data from the same environment."
            )
        return _checked_pixels(plain, entries)
    if {entry.name for entry in entries} != set(parts):
        ours, theirs = (
            ", ".join(name or "without a name" for name in names) or "none"
            for names in (list(parts), [entry.name for entry in entries])
        )
        raise ConfigError(
            f"{source} has the observation entries {ours}, but the environment has {theirs}: use "
            "data from the same environment."
        )
    columns = [parts[entry.name] for entry in entries]
    for entry, column in zip(entries, columns, strict=True):
        _check_shape(entry, column, source)
    rows = columns[0].shape[0]
    return Column(
        (rows, size),
        _flat_dtype(entries),
        partial(_read_flat, columns, entries),
        source,
        columns[0].kind,
        take=partial(_take_flat, columns, entries) if all(c.take for c in columns) else None,
        on_disk=all(column.on_disk for column in columns),
    )


def _flat_dtype(entries: Sequence[Entry]) -> np.dtype[Any]:
    return np.dtype(np.uint8 if all(entry.kind == "image" for entry in entries) else np.float32)


def _checked_pixels(column: Column, entries: Sequence[Entry]) -> Column:
    """Return a column of flat vectors whose pixels are checked when they are read."""
    if not any(entry.kind == "image" for entry in entries):
        return column

    def check(rows: Any) -> Any:
        return _joined([_flatten(entry, rows[:, entry.place]) for entry in entries])

    def read(rows: int) -> Chunks:
        yield from map(check, column.chunks(rows))

    take = column.take
    return replace(
        column,
        dtype=_flat_dtype(entries),
        read=read,
        take=None if take is None else lambda places: check(take(places)),
    )


def _check_shape(entry: Entry, column: Column, source: str) -> None:
    shape = column.shape[1:]
    squeezed = math.prod(shape) == math.prod(entry.shape)
    if shape not in (entry.shape, (entry.width,)) and not squeezed:
        raise ConfigError(
            f"{source}: the observations{f' {entry.name!r}' if entry.name else ''} have rows of "
            f"the shape {shape}, but the environment has {entry}: use data from the same "
            "environment."
        )


def _read_flat(columns: Sequence[Column], entries: Sequence[Entry], rows: int) -> Chunks:
    for chunks in zip(*(column.chunks(rows) for column in columns), strict=True):
        pairs = zip(entries, chunks, strict=True)
        yield _joined([_flatten(entry, chunk) for entry, chunk in pairs])


def _take_flat(columns: Sequence[Column], entries: Sequence[Entry], places: Any) -> Any:
    parts = []
    for entry, column in zip(entries, columns, strict=True):
        assert column.take is not None
        parts.append(_flatten(entry, column.take(places)))
    return _joined(parts)


def _joined(parts: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)


def _flatten(entry: Entry, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return flat rows of one entry, from its flat form or from that of the environment."""
    if values.shape[1:] == (entry.width,) != entry.shape and entry.kind != "image":
        return values.astype(np.float32)
    try:
        return entry.flatten(values.reshape(len(values), *entry.shape))
    except ObservationError as error:
        raise ConfigError(f"The observations are invalid: {error}.") from None

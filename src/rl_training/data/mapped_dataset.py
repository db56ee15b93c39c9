"""Recorded transitions that stay in memory-mapped files: data may be larger than memory.

Rows are assembled when they are drawn, in the layout of packed rows. They have the same values as
those of a `TransitionDataset`, bit for bit, so a run may continue with either. Rewards, flags and
the places of the rows in the file are in memory, at most 14 bytes for each row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from rl_training.boundary.columns import Chunks, Column
from rl_training.data.action_units import check_actions, map_actions
from rl_training.data.column_names import OBSERVATIONS, Fields
from rl_training.data.episode_ends import ImpliedNext, odd_flags, separate_time_limits
from rl_training.data.offline_dataset import arrange, check_finite
from rl_training.data.recorded import Doubles, Findings, FloatRows, RecordedData
from rl_training.data.rows import SCALAR_FIELDS, RowLayout
from rl_training.errors import ConfigError
from rl_training.observations import Entry
from rl_training.rewards import RewardTransformConfig
from rl_training.types import Batch, EnvSpec

if TYPE_CHECKING:
    from typing_extensions import Self

Places = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class MappedRows:
    """Rows that are read from their files when they are gathered, on the CPU."""

    layout: RowLayout
    columns: Mapping[str, Column]
    """Columns of the files, which may be read in any order."""
    scalars: Mapping[str, npt.NDArray[Any]]
    """Rewards and flags of each row."""
    places: Places
    """The place of each row in the files."""
    spec: EnvSpec | None = None
    """The spec that maps the actions; None if they are unchanged."""
    shift: FloatRows | None = None
    scale: FloatRows | None = None
    """Mean, and 1 / standard deviation, of the values of an observation; None if unchanged."""
    clip: float | None = None
    """Largest absolute value of a normalized observation."""

    def __len__(self) -> int:
        return len(self.places)

    @property
    def device(self) -> torch.device:
        """The device of the gathered rows."""
        return torch.device("cpu")

    def take(self, places: torch.Tensor, columns: slice | None = None) -> torch.Tensor:
        """Return the rows at ``places``, ``[B, width]``, or some columns of them."""
        return torch.from_numpy(self.read(places.numpy(), columns))

    def read(self, rows: Places, columns: slice | None = None) -> FloatRows:
        """Return rows, or the fields that some columns consist of."""
        first, last = (0, self.layout.width) if columns is None else (columns.start, columns.stop)
        found: FloatRows = np.empty((len(rows), last - first), dtype=np.float32)
        for name, place in self.layout.slices.items():
            if first <= place.start and place.stop <= last:
                self._fill(found[:, place.start - first : place.stop - first], name, rows)
        return found

    def _fill(self, target: FloatRows, name: str, rows: Places) -> None:
        if name in self.scalars:
            target[:, 0] = self.scalars[name][rows]
            return
        places, column = self.places[rows], self.columns.get(name)
        if column is None:  # the next observation is that of the following row
            column = self.columns["observations"]
            places = places + (self.scalars["terminations"][rows] <= 0)
        assert column.take is not None
        target[:] = column.take(places).reshape(target.shape)
        if name == "actions" and self.spec is not None:
            map_actions(target, self.spec)
        if name in OBSERVATIONS and self.shift is not None and self.scale is not None:
            target -= self.shift
            target *= self.scale
            if self.clip is not None:
                np.clip(target, -self.clip, self.clip, out=target)


class MappedDataset(RecordedData):
    """Transitions of flat observations in memory-mapped files, sampled with replacement."""

    on_host = True

    def __init__(
        self, rows: MappedRows, spec: EnvSpec | None = None, findings: Findings | None = None
    ) -> None:
        super().__init__(rows.layout, spec, findings)
        self._rows = rows

    @classmethod
    def from_fields(
        cls,
        fields: Fields,
        *,
        source: str,
        spec: EnvSpec | None,
        entries: tuple[Entry, ...] = (),
        time_limit: int | None = None,
        finite: bool = True,
    ) -> MappedDataset:
        """Check every chunk of the columns, and keep the rewards and flags.

        The arguments are those of `TransitionDataset.from_fields`.
        """
        fields, images, layout, spec = arrange(fields, spec, entries, source)
        assert images is None
        scalars = {name: _read_scalar(fields, name, source, finite) for name in SCALAR_FIELDS}
        columns = {n: column for n, column in fields.columns.items() if n not in SCALAR_FIELDS}
        for name, column in columns.items():
            chunks = _checked(column, name, source, finite)
            if name == "actions" and fields.spec is None and spec is not None:
                check_actions(chunks, spec, source)
            else:
                for _ in chunks:
                    pass
        ended, cut = scalars["terminations"], scalars["truncations"]
        odd = tuple(odd_flags(fields.flags(ended, cut)))
        if finite and odd:
            raise ConfigError(f"{source}: {odd[0]}.")
        notes: list[str] = []
        if fields.ambiguous_done:
            notes += separate_time_limits(ended, cut, "truncations" in fields.columns, time_limit)
        small = fields.rows <= np.iinfo(np.int32).max
        places: Places = np.arange(fields.rows, dtype=np.int32 if small else np.int64)
        if "next_observations" not in fields.columns:
            implied = ImpliedNext.of(ended, cut)
            cut[implied.shortened] = 1
            places = places[implied.kept]
            scalars = {name: values[implied.kept] for name, values in scalars.items()}
            notes.append(implied.note)
        if not odd:
            for name in ("terminations", "truncations"):
                scalars[name] = scalars[name].astype(np.uint8)
        mapping = spec if fields.spec is None else None
        return cls(
            MappedRows(layout, columns, scalars, places, spec=mapping),
            spec,
            Findings.of(fields, notes, odd),
        )

    def observation_parts(self, name: str) -> Mapping[str, Column]:
        """Return observations or next observations as one array, without a name."""
        return {"": self.as_column(name)}

    def as_column(self, name: str | None = None) -> Column:
        """Return one field of all rows, or by default the packed rows."""
        place = self.layout.slices[name] if name else slice(0, self.layout.width)
        width = place.stop - place.start

        def take(rows: Places) -> FloatRows:
            return self._rows.read(rows, place)

        def read(count: int) -> Chunks:
            for start in range(0, len(self), count):
                yield take(np.arange(start, min(start + count, len(self))))

        dtype = np.dtype(np.float32)
        return Column((len(self), width), dtype, read, take=take, on_disk=True)

    # --- The rows -----------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def rows(self) -> torch.Tensor:
        """All rows, ``[N, width]``, in memory."""
        return torch.from_numpy(self._rows.read(np.arange(len(self))))

    @property
    def table(self) -> MappedRows:
        """The rows."""
        return self._rows

    def batch(self, indices: torch.Tensor) -> Batch:
        """Return the transitions at ``indices``."""
        return self._from_host(indices)

    def _gather(self, indices: torch.Tensor) -> Batch:
        if self._fields is not None:
            return self._fields.batch(self._rows, indices)
        return self.layout.batch(self._rows.take(indices))

    def column(self, name: str) -> FloatRows:
        """Return one column of all rows as an array in memory."""
        if name in self._rows.scalars:
            return np.asarray(self._rows.scalars[name], dtype=np.float32)
        return self._rows.read(np.arange(len(self)), self.layout.slices[name])

    @property
    def vector_dim(self) -> int:
        """Number of values of an observation."""
        return self.layout.obs_dim

    def chunks(self) -> Iterator[FloatRows]:
        """Yield all rows in order, in chunks of `chunk_rows`."""
        yield from self.as_column().chunks(self.chunk_rows)

    def vectors(self) -> Iterator[FloatRows]:
        """Yield all observations, in chunks of rows."""
        yield from self.as_column("observations").chunks(self.chunk_rows)

    def fingerprint(self) -> str:
        """Return the SHA-256 of the current rows."""
        digest = hashlib.sha256()
        for chunk in self.chunks():
            digest.update(chunk.data.cast("B"))
        return digest.hexdigest()

    # --- Transforms -------------------------------------------------------------

    def transform_rewards(self, config: RewardTransformConfig) -> None:
        """Transform rewards."""
        if not config.is_identity:
            values = config(self.column("rewards")).astype(np.float32)
            self._rows = replace(self._rows, scalars={**self._rows.scalars, "rewards": values})
            self._supply_again()

    def subset(self, indices: torch.Tensor) -> Self:
        """Return the rows at ``indices`` as another dataset of the same files."""
        other, chosen = copy(self), indices.cpu().numpy()
        other._rows = replace(
            self._rows,
            places=self._rows.places[chosen],
            scalars={name: values[chosen] for name, values in self._rows.scalars.items()},
        )
        other._supply_again()
        return other

    def hold_out(self, fraction: float, seed: int) -> Self:
        """Move whole episodes, chosen by ``seed``, from this dataset into another one."""
        held = torch.from_numpy(self._rows_to_hold_out(fraction, seed))
        other = self.subset(held)
        self._rows = self.subset(~held)._rows
        self._supply_again()
        return other

    def normalize_observations(
        self, mean: Doubles, std: Doubles, clip: float | None = None
    ) -> None:
        """Standardize observations and next observations when they are read."""
        assert self._rows.shift is None
        shift, scale = mean.astype(np.float32), (1.0 / std).astype(np.float32)
        self._rows = replace(self._rows, shift=shift, scale=scale, clip=clip)


def _read_scalar(fields: Fields, name: str, source: str, finite: bool) -> npt.NDArray[Any]:
    """Return the rewards, or the flags of all rows; zeros if there is no such column."""
    values: npt.NDArray[np.float32] = np.zeros(fields.rows, dtype=np.float32)
    if name in fields.columns:
        start = 0
        for chunk in _checked(fields.columns[name], name, source, finite):
            values[start : start + len(chunk)] = chunk[:, 0]
            start += len(chunk)
    return values


def _checked(column: Column, name: str, source: str, finite: bool) -> Iterator[FloatRows]:
    """Yield a column as float32 in chunks; reject values that are not finite, with their row."""
    start = 0
    for chunk in column.chunks():
        with np.errstate(over="ignore", invalid="ignore"):
            values = chunk.reshape(len(chunk), -1).astype(np.float32, copy=False)
        if finite:
            check_finite(values, start, name, source)
        yield values
        start += len(values)
    if start != column.shape[0]:
        raise ConfigError(f"{source}: {name} has only {start} of {column.shape[0]} rows.")

"""Recorded transitions in episode order: what packed rows and mapped files have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rl_training.boundary.columns import CHUNK_BYTES, CHUNK_ROWS, Column
from rl_training.data.column_names import OBSERVATIONS, Fields
from rl_training.data.fields import RowFields
from rl_training.data.frames import Frames
from rl_training.data.observation_columns import flat_column
from rl_training.data.rows import RowLayout, RowTable
from rl_training.errors import ConfigError
from rl_training.observations import Entry
from rl_training.precision import widest_float
from rl_training.rewards import RewardTransformConfig
from rl_training.types import FIELD_NAMES, Batch, EnvSpec, Sampler, refuse_fields

if TYPE_CHECKING:
    from typing_extensions import Self

FloatRows = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class DatasetStatistics:
    """Statistics of a whole dataset."""

    obs_mean: Doubles
    """Mean of each value of an observation, without pixels."""
    obs_std: Doubles
    returns: Doubles
    lengths: npt.NDArray[np.int64]
    whole: npt.NDArray[np.bool_]
    """Which episodes are complete, not cut off by the end of the recording."""

    @property
    def return_range(self) -> float:
        """Largest minus smallest return of the complete episodes."""
        returns = self.returns[self.whole]
        return float(returns.max() - returns.min())


@dataclass(frozen=True)
class Findings:
    """What was found out about data when it was read."""

    notes: tuple[str, ...] = ()
    """Assumptions, as text."""
    guesses: tuple[str, ...] = ()
    """The notes that fill in missing information and may be wrong."""
    integer_actions: bool = False
    """Whether actions were recorded as integers, as discrete actions are."""
    odd_flags: tuple[str, ...] = ()
    """Descriptions of flags other than 0 and 1, which only an inspection accepts."""
    entries: tuple[Entry, ...] = ()
    """Entries of an observation; none for flat vectors."""

    @classmethod
    def of(cls, fields: Fields, notes: Sequence[str], odd_flags: Sequence[str]) -> Findings:
        """Return what was found in columns, with further notes."""
        return cls(
            (*fields.guesses, *fields.notes, *notes),
            fields.guesses,
            fields.integer_actions,
            tuple(odd_flags),
            fields.entries,
        )


class RecordedData(Sampler):
    """Recorded transitions, which never change, sampled with replacement."""

    is_fixed = True

    def __init__(
        self, layout: RowLayout, spec: EnvSpec | None = None, findings: Findings | None = None
    ) -> None:
        self.layout = layout
        self.spec = spec
        self.findings = findings or Findings()
        self.notes = self.findings.notes
        """Assumptions made when the data was read or changed, as text."""
        self.return_scale = 1.0
        """Factor by which `return_scaling` has multiplied all rewards."""
        self._device = torch.device("cpu")
        self._fields: RowFields | None = None
        self._supplied: tuple[tuple[str, ...], float, int] = (), 1.0, 1
        """Arguments of the last `supply`, which is repeated when the rows change."""

    # --- The rows -----------------------------------------------------------------

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    def device(self) -> torch.device:
        """The device of the batches."""
        return self._device

    def to(self, device: torch.device | str) -> None:
        """Move the batches to a device, and the rows if they are in memory."""
        self._device = torch.device(device)

    @property
    @abstractmethod
    def table(self) -> RowTable:
        """The rows."""

    @property
    @abstractmethod
    def rows(self) -> Tensor:
        """All rows as one tensor, ``[N, width]``."""

    @abstractmethod
    def as_column(self, name: str) -> Column:
        """Return one field of all rows; images are referred to by number."""

    @abstractmethod
    def batch(self, indices: Tensor) -> Batch:
        """Return the transitions at ``indices``."""

    @abstractmethod
    def _gather(self, indices: Tensor) -> Batch:
        """Return the transitions at ``indices`` on the device of the rows."""

    def _from_host(self, indices: Tensor) -> Batch:
        """Return transitions that are read by the host, on the device of the batches."""
        batch = self._gather(indices.cpu())
        return batch if self.device.type == "cpu" else batch.map(self._to_device)

    def _to_device(self, values: Tensor) -> Tensor:
        return values.to(self.device)

    def prepare(self, batch_size: int, generator: torch.Generator, updates: int = 1) -> None:
        """Do nothing, since a dataset does not change."""

    def gather(self, batch_size: int, generator: torch.Generator, updates: int = 1) -> Batch:
        """Draw rows uniformly with replacement."""
        return self.batch(self._draw(batch_size * updates, generator))

    @abstractmethod
    def column(self, name: str) -> FloatRows:
        """Return one column of all rows as an array."""

    @abstractmethod
    def chunks(self) -> Iterator[FloatRows]:
        """Yield all rows in order, in chunks of `chunk_rows`."""

    @property
    def chunk_rows(self) -> int:
        """Number of rows of a chunk."""
        return max(1, min(CHUNK_ROWS, CHUNK_BYTES // (4 * self.layout.width)))

    @property
    @abstractmethod
    def vector_dim(self) -> int:
        """Number of values of an observation that are not pixels; they are the first in a row."""

    @property
    def frames(self) -> Frames | None:
        """The images of the observations, to which rows refer by number."""
        return None

    @abstractmethod
    def observation_parts(self, name: str) -> Mapping[str, Column]:
        """Return observations or next observations as arrays, one for each entry with images.

        The arrays have the entries' names and shapes, but discrete numbers are one-hot.
        """

    @abstractmethod
    def vectors(self) -> Iterator[FloatRows]:
        """Yield the values of all observations that are not pixels, in chunks of rows."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Return the SHA-256 of the rows; equal transitions have equal ones in every format."""

    @abstractmethod
    def subset(self, indices: Tensor) -> Self:
        """Return the rows at ``indices`` as another dataset."""

    @abstractmethod
    def hold_out(self, fraction: float, seed: int) -> Self:
        """Move whole episodes, chosen by ``seed``, from this dataset into another one.

        They contain about ``fraction`` of the rows, and both datasets have at least one row. If
        every episode is too long, for example because there is only one, the last rows are moved.
        """

    @abstractmethod
    def transform_rewards(self, config: RewardTransformConfig) -> None:
        """Transform rewards in place."""

    @abstractmethod
    def normalize_observations(
        self, mean: Doubles, std: Doubles, clip: float | None = None
    ) -> None:
        """Standardize observations and next observations, and clip them to ±``clip``.

        ``mean`` and ``std`` have a value for each number of an observation that is not a pixel.
        """

    @property
    def guesses(self) -> tuple[str, ...]:
        """The notes that fill in missing information and may be wrong."""
        return self.findings.guesses

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Entries of an observation; none for flat vectors."""
        return self.findings.entries

    @property
    def obs_dim(self) -> int:
        """Number of values of an observation."""
        return sum(entry.width for entry in self.entries) or self.layout.obs_dim

    def fields(self, declared: Sequence[str] = ()) -> Fields:
        """Return the columns, to create another dataset from them."""
        own = [name for name, _ in self.layout.columns]
        refuse_fields(declared, own, "the dataset")
        names = [name for name in self.layout.names if name not in own or name in declared]
        columns = {name: self.as_column(name) for name in names}
        parts = {name: self.observation_parts(name) for name in OBSERVATIONS}
        for name in OBSERVATIONS:
            columns[name] = flat_column(parts[name], self.entries, "the dataset")
        return Fields(
            columns,
            {name: name for name in names},
            notes=tuple(note for note in self.notes if note not in self.guesses),
            guesses=self.guesses,
            ambiguous_done=False,
            own=tuple(declared),
            parts=parts,
            entries=self.entries,
            spec=self.spec,
        )

    # --- Sampling -----------------------------------------------------------------

    def supply(self, fields: Sequence[str], *, gamma: float = 1.0, n_step: int = 1) -> None:
        """Add ``fields`` to every batch, and sum rewards over ``n_step`` steps."""
        own = [name for name, _ in self.layout.columns]
        refuse_fields(fields, (*FIELD_NAMES, *own), "the data")
        self._supplied = tuple(fields), gamma, n_step
        self._fields = None
        if not fields and n_step == 1:
            return
        device, returns = self.table.device, None
        if "returns_to_go" in fields:
            returns = torch.from_numpy(self.returns_to_go(gamma)).float().to(device)
        self._fields = RowFields(
            self.layout,
            fields,
            position=torch.zeros((), dtype=torch.long, device=device),
            gamma=gamma,
            n_step=n_step,
            returns=returns,
        )

    def _supply_again(self) -> None:
        """Recompute the supplied fields after the rows have changed."""
        fields, gamma, n_step = self._supplied
        self.supply(fields, gamma=gamma, n_step=n_step)

    def _draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Return the indices of ``count`` rows, drawn uniformly with replacement."""
        device = generator.device
        uniform = torch.rand(count, dtype=widest_float(device), device=device, generator=generator)
        return (uniform * len(self)).long()

    # --- Episodes and statistics ------------------------------------------------

    def episode_bounds(self) -> npt.NDArray[np.int64]:
        """Return the first row of each episode, followed by the number of rows.

        Episode i is ``[b[i], b[i + 1])``.
        """
        return episode_bounds((self.column("terminations") + self.column("truncations")) > 0)

    def returns_to_go(self, gamma: float) -> Doubles:
        """Return the discounted return from each row to the last of its episode.

        The value after a time limit is not included.
        """
        bounds = self.episode_bounds()
        returns = self.column("rewards").astype(np.float64)
        last_rows = set((bounds[1:] - 1).tolist())
        for row in range(len(returns) - 2, -1, -1):
            if row not in last_rows:
                returns[row] += gamma * returns[row + 1]
        return returns

    def running_returns(self, gamma: float) -> Doubles:
        """Return each episode's return up to each row, with earlier rewards discounted."""
        returns = self.column("rewards").astype(np.float64)
        first_rows = set(self.episode_bounds().tolist())
        for row in range(1, len(returns)):
            if row not in first_rows:
                returns[row] += gamma * returns[row - 1]
        return returns

    def statistics(self, time_limit: int | None = None) -> DatasetStatistics:
        """Compute moments of the observations, and returns and lengths of the episodes.

        ``time_limit`` helps to decide whether the last episode is complete.
        """
        bounds = self.episode_bounds()
        mean, std = self.moments()
        return DatasetStatistics(
            obs_mean=mean,
            obs_std=std,
            returns=np.add.reduceat(self.column("rewards").astype(np.float64), bounds[:-1]),
            lengths=np.diff(bounds),
            whole=self.whole_episodes(time_limit),
        )

    def moments(self) -> tuple[Doubles, Doubles]:
        """Return mean and standard deviation of each value of an observation, without pixels.

        Sums over chunks need less memory than NumPy's functions.
        """
        mean: Doubles = sum(chunk.sum(axis=0, dtype=np.float64) for chunk in self.vectors())
        mean = mean / len(self)
        squares = np.zeros_like(mean)
        for chunk in self.vectors():
            deviations = chunk - mean
            squares += np.einsum("ij,ij->j", deviations, deviations)
        return mean, np.sqrt(squares / len(self))

    def whole_episodes(self, time_limit: int | None) -> npt.NDArray[np.bool_]:
        """Return which episodes are complete, as far as this can be known.

        Recorders mark their last row as cut off. This counts as a time limit only if the last
        episode is as long as the longest other episode that was cut off, or as ``time_limit`` if
        there is no other. Data from several environments, or from a ring buffer that was
        overwritten, has more incomplete episodes. They are detected if most of the episodes that
        were cut off have full length. With at most two episodes, all count as complete.
        """
        bounds = self.episode_bounds()
        lengths = np.diff(bounds)
        whole = np.ones(len(lengths), dtype=bool)
        cut = self.column("terminations")[bounds[1:] - 1] == 0
        if len(lengths) > 2:  # a range needs two episodes
            others = lengths[:-1][cut[:-1]]
            limit = others.max() if len(others) else time_limit
            whole[-1] = not cut[-1] or (limit is not None and lengths[-1] >= limit)
            if 2 * np.count_nonzero(others == limit) > len(others):
                whole[:-1] = ~cut[:-1] | (lengths[:-1] == limit)
        return whole

    def _rows_to_hold_out(self, fraction: float, seed: int) -> npt.NDArray[np.bool_]:
        """Return a mask of the rows to hold out."""
        if len(self) < 2:
            raise ConfigError("A dataset of one row cannot be split: set validation_fraction=0.")
        wanted = min(max(1, round(fraction * len(self))), len(self) - 1)
        bounds = self.episode_bounds()
        held = np.zeros(len(self), dtype=bool)
        count = 0
        order = np.random.default_rng(seed).permutation(len(bounds) - 1)
        for first, last in zip(bounds[order[:-1]], bounds[order[:-1] + 1], strict=True):
            if abs(count + last - first - wanted) < abs(count - wanted):
                held[first:last] = True
                count += last - first
        if count == 0:
            held[-wanted:] = True
        return held


def episode_bounds(ended: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return the first row of each episode, followed by the number of rows."""
    bounds = np.concatenate([[0], np.flatnonzero(ended) + 1, [len(ended)]])
    return np.unique(bounds).astype(np.int64)

"""Recorded transitions in packed rows, with their episodes and statistics."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from rl_training.boundary.columns import CHUNK_ROWS, Column
from rl_training.data.column_names import Fields, find_fields
from rl_training.data.fields import RowFields
from rl_training.data.rows import SCALAR_FIELDS, RowLayout
from rl_training.errors import ConfigError
from rl_training.precision import widest_float
from rl_training.rewards import RewardTransformConfig
from rl_training.text import counted
from rl_training.types import FIELD_NAMES, Batch, EnvSpec, Sampler, refuse_fields

FloatRows = npt.NDArray[np.float32]
Rows = TypeVar("Rows", FloatRows, torch.Tensor)
BOUND_TOLERANCE = 1e-3
"""An action up to this share of its range outside its bounds is clipped, not rejected."""


@dataclass(frozen=True)
class DatasetStatistics:
    """Statistics of a whole dataset."""

    obs_mean: npt.NDArray[np.float64]
    obs_std: npt.NDArray[np.float64]
    returns: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.int64]
    whole: npt.NDArray[np.bool_]
    """Which episodes are complete, not cut off by the end of the recording."""

    @property
    def return_range(self) -> float:
        """Largest minus smallest return of the complete episodes."""
        returns = self.returns[self.whole]
        return float(returns.max() - returns.min())


@dataclass(eq=False)
class TransitionDataset(Sampler):
    """Transitions in episode order on the learner's device, sampled with replacement.

    Create one with `from_dict`, or from a file with `load_transition_dataset`.
    """

    is_fixed = True  # recorded rows never change

    rows: torch.Tensor
    layout: RowLayout
    spec: EnvSpec | None = None
    notes: tuple[str, ...] = ()
    """Assumptions made when reading the data, as text."""
    guesses: tuple[str, ...] = ()
    """The notes that fill in missing information and may be wrong."""
    return_scale: float = 1.0
    """Factor by which `return_scaling` has multiplied all rewards."""
    integer_actions: bool = False
    """Whether actions were recorded as integers, as discrete actions are."""
    odd_flags: tuple[str, ...] = ()
    """Descriptions of flags other than 0 and 1, which only an inspection accepts."""
    _fields: RowFields | None = field(default=None, init=False, repr=False)
    _supplied: tuple[tuple[str, ...], float, int] = field(default=((), 1.0, 1), init=False)
    """Arguments of the last `supply`, which is repeated when the rows change."""

    @classmethod
    def from_dict(
        cls,
        data: Mapping[str, Any],
        *,
        spec: EnvSpec | None = None,
        columns: Sequence[str] = (),
        device: torch.device | str = "cpu",
        source: str = "the data",
    ) -> TransitionDataset:
        """Create a dataset from arrays under any of the usual names.

        With ``spec``, actions are in the environment's units: they are checked against its bounds
        and mapped to [-1, 1]. Without it they are unchanged. ``columns`` lists further arrays to
        keep, which `supply` can add to batches.
        """
        available = {
            key: Column.of(np.asarray(value.detach().cpu() if torch.is_tensor(value) else value))
            for key, value in data.items()
        }
        fields = find_fields(available, source, columns)
        return cls.from_fields(fields, spec=spec, device=device, source=source)

    @classmethod
    def from_fields(
        cls,
        fields: Fields,
        *,
        spec: EnvSpec | None,
        device: torch.device | str = "cpu",
        source: str,
        time_limit: int | None = None,
        finite: bool = True,
    ) -> TransitionDataset:
        """Fill packed rows column by column, and check each chunk.

        ``finite=False`` accepts values that are not finite and flags other than 0 and 1, which an
        inspection counts.
        """
        own = tuple((name, fields.width(name)) for name in fields.own)
        layout = RowLayout(fields.width("observations"), fields.width("actions"), own)
        mismatch = spec and layout.mismatch(spec, source)
        if mismatch:
            raise ConfigError(mismatch)
        try:
            rows: FloatRows = np.zeros((fields.rows, layout.width), dtype=np.float32)
        except (MemoryError, ValueError, OverflowError):
            raise ConfigError(
                f"{source} has {fields.rows} rows of {layout.width} numbers, which do not fit in "
                "memory."
            ) from None
        for name, column in fields.columns.items():
            _fill(rows[:, layout.slices[name]], column, name, source, finite)
        odd = tuple(_odd_flags(rows, layout, fields))  # before flags change and rows are dropped
        if finite and odd:
            raise ConfigError(f"{source}: {odd[0]}.")
        notes, guesses = list(fields.notes), list(fields.guesses)
        ended, cut = rows[:, layout.slices["terminations"]], rows[:, layout.slices["truncations"]]
        if fields.ambiguous_done:
            notes += _separate_time_limits(ended, cut, "truncations" in fields.columns, time_limit)
        if "next_observations" not in fields.columns:
            count = len(rows)
            rows = _derive_next(rows, layout)
            dropped = count - len(rows)
            notes.append(
                "next observations are taken from the following rows; "
                f"{counted(dropped, 'row')} without one {'is' if dropped == 1 else 'are'} dropped"
            )
        _map_actions(rows[:, layout.slices["actions"]], spec, source)
        return cls(
            torch.from_numpy(rows).to(device),
            layout,
            spec,
            notes=(*guesses, *notes),
            guesses=tuple(guesses),
            integer_actions=fields.integer_actions,
            odd_flags=odd,
        )

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    def prepare(self, batch_size: int, generator: torch.Generator, updates: int = 1) -> None:
        """Do nothing, since a dataset does not change."""

    def gather(self, batch_size: int, generator: torch.Generator, updates: int = 1) -> Batch:
        """Draw rows uniformly with replacement."""
        device = self.rows.device
        uniform = torch.rand(
            batch_size * updates, dtype=widest_float(device), device=device, generator=generator
        )
        return self.batch((uniform * len(self)).long())

    def supply(self, fields: Sequence[str], *, gamma: float = 1.0, n_step: int = 1) -> None:
        """Add ``fields`` to every batch, and sum rewards over ``n_step`` steps."""
        own = [name for name, _ in self.layout.columns]
        refuse_fields(fields, (*FIELD_NAMES, *own), "the data")
        self._supplied = tuple(fields), gamma, n_step
        self._fields = None
        if not fields and n_step == 1:
            return
        device, returns = self.rows.device, None
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

    def batch(self, indices: torch.Tensor) -> Batch:
        """Return the transitions at ``indices``: one gather if no fields are declared."""
        if self._fields is not None:
            return self._fields.batch(self.rows, indices)
        return self.layout.batch(self.rows.index_select(0, indices))

    def column(self, name: str) -> npt.NDArray[np.float32]:
        """Return one column as an array, a view if the rows are on the CPU."""
        columns = self.rows[:, self.layout.slices[name]].cpu().numpy()
        return columns[:, 0] if name in SCALAR_FIELDS else columns

    # --- Episodes and statistics ------------------------------------------------

    def episode_bounds(self) -> npt.NDArray[np.int64]:
        """Return the first row of each episode, followed by the number of rows.

        Episode i is ``[b[i], b[i + 1])``.
        """
        return episode_bounds((self.column("terminations") + self.column("truncations")) > 0)

    def returns_to_go(self, gamma: float) -> npt.NDArray[np.float64]:
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

    def running_returns(self, gamma: float) -> npt.NDArray[np.float64]:
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
        mean, std = _moments(self.column("observations"))
        return DatasetStatistics(
            obs_mean=mean,
            obs_std=std,
            returns=np.add.reduceat(self.column("rewards").astype(np.float64), bounds[:-1]),
            lengths=np.diff(bounds),
            whole=self._whole_episodes(bounds, time_limit),
        )

    def _whole_episodes(
        self, bounds: npt.NDArray[np.int64], time_limit: int | None
    ) -> npt.NDArray[np.bool_]:
        """Return which episodes are complete, as far as this can be known.

        Recorders mark their last row as cut off. This counts as a time limit only if the last
        episode is as long as the longest other episode that was cut off, or as ``time_limit`` if
        there is no other. Data from several environments, or from a ring buffer that was
        overwritten, has more incomplete episodes. They are detected if most of the episodes that
        were cut off have full length. With at most two episodes, all count as complete.
        """
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

    def fingerprint(self) -> str:
        """Return the SHA-256 of the current rows."""
        return hashlib.sha256(self.rows.cpu().numpy().data.cast("B")).hexdigest()

    # --- Transforms -------------------------------------------------------------

    def with_reward_transform(self, config: RewardTransformConfig) -> TransitionDataset:
        """Return a copy with transformed rewards."""
        changed = copy(self)
        changed.rows = self.rows.clone()
        changed.transform_rewards(config)
        return changed

    def transform_rewards(self, config: RewardTransformConfig) -> None:
        """Transform rewards in place."""
        if not config.is_identity:
            values = config(self.column("rewards")).astype(np.float32)
            self.rows[:, self.layout.slices["rewards"]] = torch.from_numpy(values)[:, None].to(
                self.rows.device
            )
            self._supply_again()

    def hold_out(self, fraction: float, seed: int) -> TransitionDataset:
        """Move whole episodes, chosen by ``seed``, from this dataset into another one.

        They contain about ``fraction`` of the rows, and both datasets have at least one row. If
        every episode is too long, for example because there is only one, the last rows are moved.
        """
        held = self._choose_episodes(fraction, seed)
        other = copy(self)
        other.rows = self.rows[held]
        self.rows = _keep_in_place(self.rows, ~held)
        for part in (self, other):
            part._supply_again()
        return other

    def _choose_episodes(self, fraction: float, seed: int) -> torch.Tensor:
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
        return torch.from_numpy(held).to(self.rows.device)

    def normalize_observations(
        self,
        mean: npt.NDArray[np.float64],
        std: npt.NDArray[np.float64],
        clip: float | None = None,
    ) -> None:
        """Standardize observations and next observations in place, and clip them to ±``clip``."""
        device = self.rows.device
        shift = torch.from_numpy(mean).float().to(device)
        scale = torch.from_numpy(1.0 / std).float().to(device)
        for name in ("observations", "next_observations"):
            values = self.rows[:, self.layout.slices[name]].sub_(shift).mul_(scale)
            if clip is not None:
                values.clamp_(-clip, clip)


def episode_bounds(ended: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return the first row of each episode, followed by the number of rows."""
    bounds = np.concatenate([[0], np.flatnonzero(ended) + 1, [len(ended)]])
    return np.unique(bounds).astype(np.int64)


def _moments(
    values: npt.NDArray[np.float32],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Compute mean and deviation of each column in chunks, which needs less memory than NumPy."""
    mean = values.mean(axis=0, dtype=np.float64)
    squares = np.zeros_like(mean)
    for start in range(0, len(values), CHUNK_ROWS):
        deviations = values[start : start + CHUNK_ROWS] - mean
        squares += np.einsum("ij,ij->j", deviations, deviations)
    return mean, np.sqrt(squares / len(values))


def _fill(target: FloatRows, column: Column, name: str, source: str, finite: bool) -> None:
    """Copy a column in chunks; reject values that are not finite, with their row."""
    start = 0
    for chunk in column.chunks():
        values = chunk.reshape(len(chunk), -1)
        part = target[start : start + len(values)]
        with np.errstate(over="ignore", invalid="ignore"):
            part[:] = values
        if finite and not np.isfinite(part).all():
            row = start + int(np.argwhere(~np.isfinite(part))[0, 0])
            raise ConfigError(
                f"{source}: {name} has values that are not finite in row {row}: {target[row]}."
            )
        start += len(values)
    if start != len(target):
        raise ConfigError(f"{source}: {name} has only {start} of {len(target)} rows.")


def _odd_flags(rows: FloatRows, layout: RowLayout, fields: Fields) -> Iterator[str]:
    """Describe flags other than 0 and 1, which would scale the bootstrapped targets."""
    for name in [name for name in ("terminations", "truncations") if name in fields.columns]:
        values = rows[:, layout.slices[name].start]
        places = np.flatnonzero((values != 0) & (values != 1))
        if len(places):
            yield (
                f"{fields.names[name]!r} has values other than 0 and 1 in {len(places)} "
                f"row{'s' if len(places) > 1 else ''}, first {values[places[0]]:g} in row "
                f"{places[0]}: store only 0 and 1"
            )


def _separate_time_limits(
    ended: FloatRows, cut: FloatRows, has_cut: bool, time_limit: int | None
) -> list[str]:
    """Separate time limits from terminations if one flag may mean either."""
    if has_cut:
        ended[cut[:, 0] > 0] = 0.0
        return []
    if time_limit is None:
        return []
    ends = np.flatnonzero(ended[:, 0] > 0)
    lengths = np.diff(np.concatenate([[-1], ends]))
    limited = ends[lengths == time_limit]
    ended[limited], cut[limited] = 0.0, 1.0
    return [
        f"episode ends at the time limit of {time_limit} steps are read as truncations "
        f"({len(limited)})"
    ]


def _derive_next(rows: FloatRows, layout: RowLayout) -> FloatRows:
    """Take next observations from the following row of the same episode.

    The last row of an episode that did not terminate has no next observation. It is dropped, and
    the row before it is marked as cut off. After a termination, no next observation is needed.
    """
    obs, nxt = layout.slices["observations"], layout.slices["next_observations"]
    rows[:-1, nxt] = rows[1:, obs]
    ended = rows[:, layout.slices["terminations"].start] > 0
    cut = rows[:, layout.slices["truncations"].start] > 0
    cut[-1] |= not ended[-1]
    rows[ended, nxt] = rows[ended, obs]
    dropped = cut & ~ended
    if dropped.all():
        raise ConfigError(
            "Next observations cannot be derived, because every episode has a single row: store "
            "them as next_observations."
        )
    shortened = np.flatnonzero(dropped[1:] & ~(ended | cut)[:-1])
    rows[shortened, layout.slices["truncations"]] = 1.0
    return _keep_in_place(rows, ~dropped)


def _keep_in_place(rows: Rows, kept: Any) -> Rows:
    """Move the masked rows to the front in chunks, since a copy would double the memory."""
    count = 0
    for start in range(0, len(rows), CHUNK_ROWS):
        mask = kept[start : start + CHUNK_ROWS]
        if count < start or not mask.all():  # otherwise they are already in place
            part = rows[start : start + CHUNK_ROWS][mask]
            rows[count : count + len(part)] = part
        count += int(mask.sum())
    return rows[:count]


def _map_actions(actions: FloatRows, spec: EnvSpec | None, source: str) -> None:
    """Map actions to [-1, 1] or to indices in place; reject actions that are out of bounds."""
    if spec is None:
        return
    if spec.discrete:
        first, last = spec.action_start, spec.action_start + spec.action_dim - 1
        valid = (actions >= first) & (actions <= last) & (actions == np.floor(actions))
        if not valid.all():
            row = int(np.argwhere(~valid)[0, 0])
            raise ConfigError(
                f"{source}: the action in row {row} is {actions[row, 0]:g}, but should be an "
                f"integer from {first} to {last}."
            )
        actions -= first
        return
    low = np.asarray(spec.action_low, dtype=np.float32)
    high = np.asarray(spec.action_high, dtype=np.float32)
    slack = BOUND_TOLERANCE * (high - low)
    least, greatest = actions.min(axis=0), actions.max(axis=0)
    if (least < low - slack).any() or (greatest > high + slack).any():
        place = int(np.argmax(np.maximum(low - least, greatest - high)))
        raise ConfigError(
            f"{source}: action {place} ranges from {least[place]:.6g} to {greatest[place]:.6g}, "
            f"outside its bounds {low[place]:.6g} to {high[place]:.6g}."
        )
    actions -= 0.5 * (low + high)
    actions /= 0.5 * (high - low)
    np.clip(actions, -1.0, 1.0, out=actions)

"""Recorded transitions: packed rows like the replay's, with their episodes and statistics."""

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
from rl_training.types import FIELD_NAMES, Batch, EnvSpec, Sampler, refuse_fields

FloatRows = npt.NDArray[np.float32]
Rows = TypeVar("Rows", FloatRows, torch.Tensor)
BOUND_TOLERANCE = 1e-3
"""How far outside its bounds an action is still clipped, as a share of its range."""


@dataclass(frozen=True)
class DatasetStatistics:
    """Statistics of a whole dataset."""

    obs_mean: npt.NDArray[np.float64]
    obs_std: npt.NDArray[np.float64]
    returns: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.int64]
    whole: npt.NDArray[np.bool_]
    """All episodes but a last one that the recording's end cut off, where two others remain."""

    @property
    def return_range(self) -> float:
        """Greatest return of a whole episode minus the least."""
        returns = self.returns[self.whole]
        return float(returns.max() - returns.min())


@dataclass(eq=False)
class TransitionDataset(Sampler):
    """Transitions in episode order, on the learner's device; a sampler with replacement.

    Build one with `from_dict`, or with `load_transition_dataset` from a file.
    """

    is_fixed = True  # recorded rows never change

    rows: torch.Tensor
    layout: RowLayout
    spec: EnvSpec | None = None
    notes: tuple[str, ...] = ()
    """What was assumed in reading the data, in words."""
    guesses: tuple[str, ...] = ()
    """Those of the notes about what the data does not say: they may be wrong."""
    return_scale: float = 1.0
    """The factor on all rewards that `return_scaling` found."""
    integer_actions: bool = False
    """Whether actions were recorded as integers: a choice, not a quantity."""
    odd_flags: tuple[str, ...] = ()
    """Flags other than 0 and 1, in words, where they were let through for an inspection."""
    _fields: RowFields | None = field(default=None, init=False, repr=False)
    _supplied: tuple[tuple[str, ...], float, int] = field(default=((), 1.0, 1), init=False)
    """The arguments of `supply`, for after a change of the rows."""

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
        """From arrays under any of the usual names.

        With ``spec``, actions are taken in the environment's units, checked against its bounds and
        mapped to [-1, 1]; without it they stay as they are. ``columns`` are other arrays to keep,
        which `supply` can then put into batches.
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
        """Fill packed rows column by column, checking each piece as it passes.

        ``finite=False`` lets values through that are not, and flags other than 0 and 1, for an
        inspection to count.
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
                f"{source} says it holds {fields.rows} rows of {layout.width} numbers, which do "
                "not fit into memory."
            ) from None
        for name, column in fields.columns.items():
            _fill(rows[:, layout.slices[name]], column, name, source, finite)
        odd = tuple(_odd_flags(rows, layout, fields))  # before a flag is settled or a row dropped
        if finite and odd:
            raise ConfigError(f"{source}: {odd[0]}.")
        notes, guesses = list(fields.notes), list(fields.guesses)
        ended, cut = rows[:, layout.slices["terminations"]], rows[:, layout.slices["truncations"]]
        if fields.ambiguous_done:
            notes += _settle_done(ended, cut, "truncations" in fields.columns, time_limit)
        if "next_observations" not in fields.columns:
            count = len(rows)
            rows = _derive_next(rows, layout)
            guesses.append(
                "next observations are derived from the order of rows; "
                f"{count - len(rows)} rows without one are left out"
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
        """Nothing: a dataset does not change."""

    def gather(self, batch_size: int, generator: torch.Generator, updates: int = 1) -> Batch:
        """Rows drawn uniformly with replacement."""
        device = self.rows.device
        uniform = torch.rand(
            batch_size * updates, dtype=widest_float(device), device=device, generator=generator
        )
        return self.batch((uniform * len(self)).long())

    def supply(self, fields: Sequence[str], *, gamma: float = 1.0, n_step: int = 1) -> None:
        """Put ``fields`` into every batch, and rewards of ``n_step`` steps."""
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
        """After the rows have changed: returns to go follow from them."""
        fields, gamma, n_step = self._supplied
        self.supply(fields, gamma=gamma, n_step=n_step)

    def batch(self, indices: torch.Tensor) -> Batch:
        """The transitions at ``indices``: one gather, if no fields are declared."""
        if self._fields is not None:
            return self._fields.batch(self.rows, indices)
        return self.layout.batch(self.rows.index_select(0, indices))

    def column(self, name: str) -> npt.NDArray[np.float32]:
        """One column as an array, a view where the rows are on the CPU."""
        columns = self.rows[:, self.layout.slices[name]].cpu().numpy()
        return columns[:, 0] if name in SCALAR_FIELDS else columns

    # --- Episodes and statistics ------------------------------------------------

    def episode_bounds(self) -> npt.NDArray[np.int64]:
        """Where episodes begin, and the length at the end: episode i is [b[i], b[i + 1])."""
        return episode_bounds((self.column("terminations") + self.column("truncations")) > 0)

    def returns_to_go(self, gamma: float) -> npt.NDArray[np.float64]:
        """The discounted return from each row to its episode's last, nothing after a time limit."""
        bounds = self.episode_bounds()
        onward = self.column("rewards").astype(np.float64)
        last_rows = set((bounds[1:] - 1).tolist())
        for row in range(len(onward) - 2, -1, -1):
            if row not in last_rows:
                onward[row] += gamma * onward[row + 1]
        return onward

    def running_returns(self, gamma: float) -> npt.NDArray[np.float64]:
        """The return of each row's episode up to the row, earlier rewards discounted."""
        returns = self.column("rewards").astype(np.float64)
        first_rows = set(self.episode_bounds().tolist())
        for row in range(1, len(returns)):
            if row not in first_rows:
                returns[row] += gamma * returns[row - 1]
        return returns

    def statistics(self, time_limit: int | None = None) -> DatasetStatistics:
        """Moments of the observations, returns and lengths of the episodes.

        ``time_limit`` helps to decide whether the last episode is whole.
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
        """Whether each episode goes to its end, or has to do for one that does.

        A recorder marks its last row as cut, wherever it is: that is a time limit only if the
        episode is as long as the longest of the others that were cut or, where none was, as
        ``time_limit``. Several environments or a ring that was written over leave more such
        pieces, which are known where they are fewer than the episodes of full length.
        """
        lengths = np.diff(bounds)
        whole = np.ones(len(lengths), dtype=bool)
        cut = self.column("terminations")[bounds[1:] - 1] == 0
        if len(lengths) > 2:  # a range needs two
            others = lengths[:-1][cut[:-1]]
            limit = others.max() if len(others) else time_limit
            whole[-1] = not cut[-1] or (limit is not None and lengths[-1] >= limit)
            if 2 * np.count_nonzero(others == limit) > len(others):
                whole[:-1] = ~cut[:-1] | (lengths[:-1] == limit)
        return whole

    def fingerprint(self) -> str:
        """SHA-256 of the rows as they are now."""
        return hashlib.sha256(self.rows.cpu().numpy().data.cast("B")).hexdigest()

    # --- Transforms -------------------------------------------------------------

    def with_reward_transform(self, config: RewardTransformConfig) -> TransitionDataset:
        """The same transitions with transformed rewards; this one stays as it is."""
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
        """Take whole episodes, chosen by ``seed``, out of this dataset into another one.

        They hold about ``fraction`` of the rows, and one at least stays and one goes. Where every
        episode is too long for that, as a single one is, the last rows go.
        """
        held = self._choose_episodes(fraction, seed)
        other = copy(self)
        other.rows = self.rows[held]
        self.rows = _keep_in_place(self.rows, ~held)
        for part in (self, other):
            part._supply_again()
        return other

    def _choose_episodes(self, fraction: float, seed: int) -> torch.Tensor:
        """Which rows to hold out, as a mask."""
        if len(self) < 2:
            raise ConfigError("A dataset of one row has none to hold out.")
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
        """Standardize observations and next observations in place, and limit them to ``clip``."""
        device = self.rows.device
        shift = torch.from_numpy(mean).float().to(device)
        scale = torch.from_numpy(1.0 / std).float().to(device)
        for name in ("observations", "next_observations"):
            values = self.rows[:, self.layout.slices[name]].sub_(shift).mul_(scale)
            if clip is not None:
                values.clamp_(-clip, clip)


def episode_bounds(ended: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Where episodes begin, and the number of rows at the end."""
    bounds = np.concatenate([[0], np.flatnonzero(ended) + 1, [len(ended)]])
    return np.unique(bounds).astype(np.int64)


def _moments(
    values: npt.NDArray[np.float32],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Mean and deviation of each column, in pieces: NumPy's would hold all deviations at once."""
    mean = values.mean(axis=0, dtype=np.float64)
    squares = np.zeros_like(mean)
    for start in range(0, len(values), CHUNK_ROWS):
        deviations = values[start : start + CHUNK_ROWS] - mean
        squares += np.einsum("ij,ij->j", deviations, deviations)
    return mean, np.sqrt(squares / len(values))


def _fill(target: FloatRows, column: Column, name: str, source: str, finite: bool) -> None:
    """Copy a column in pieces; a value that is not finite is named with its row."""
    start = 0
    for chunk in column.chunks():
        values = chunk.reshape(len(chunk), -1)
        part = target[start : start + len(values)]
        with np.errstate(over="ignore", invalid="ignore"):
            part[:] = values
        if finite and not np.isfinite(part).all():
            row = start + int(np.argwhere(~np.isfinite(part))[0, 0])
            raise ConfigError(f"{source}: {name} of row {row} are not finite: {target[row]}.")
        start += len(values)
    if start != len(target):
        raise ConfigError(f"{source}: {name} end after {start} of {len(target)} rows.")


def _odd_flags(rows: FloatRows, layout: RowLayout, fields: Fields) -> Iterator[str]:
    """The columns of flags with values other than 0 and 1, which a target would multiply by."""
    for name in [name for name in ("terminations", "truncations") if name in fields.columns]:
        values = rows[:, layout.slices[name].start]
        places = np.flatnonzero((values != 0) & (values != 1))
        if len(places):
            yield (
                f"{fields.names[name]!r} holds values other than 0 and 1 in {len(places)} "
                f"row{'s' if len(places) > 1 else ''}, the first {values[places[0]]:g} in row "
                f"{places[0]}: store 0 or 1"
            )


def _settle_done(
    ended: FloatRows, cut: FloatRows, has_cut: bool, time_limit: int | None
) -> list[str]:
    """Tell time limits from terminations where one flag may mean either."""
    if has_cut:
        ended[cut[:, 0] > 0] = 0.0
        return []
    if time_limit is None:
        return []
    ends = np.flatnonzero(ended[:, 0] > 0)
    lengths = np.diff(np.concatenate([[-1], ends]))
    limited = ends[lengths == time_limit]
    ended[limited], cut[limited] = 0.0, 1.0
    return [f"{len(limited)} ends at the environment's limit of {time_limit} steps are time limits"]


def _derive_next(rows: FloatRows, layout: RowLayout) -> FloatRows:
    """Next observations from the row after, never across an episode's end.

    The last row of an episode that did not terminate has no next observation: it is left out, and
    the row before it becomes the cut. After a termination none is needed.
    """
    obs, nxt = layout.slices["observations"], layout.slices["next_observations"]
    rows[:-1, nxt] = rows[1:, obs]
    ended = rows[:, layout.slices["terminations"].start] > 0
    cut = rows[:, layout.slices["truncations"].start] > 0
    cut[-1] |= not ended[-1]
    rows[ended, nxt] = rows[ended, obs]
    dropped = cut & ~ended
    if dropped.all():
        raise ConfigError("No episode is long enough to derive a next observation from.")
    shortened = np.flatnonzero(dropped[1:] & ~(ended | cut)[:-1])
    rows[shortened, layout.slices["truncations"]] = 1.0
    return _keep_in_place(rows, ~dropped)


def _keep_in_place(rows: Rows, kept: Any) -> Rows:
    """Move the rows of a mask to the front, in pieces: a second copy would double the memory."""
    count = 0
    for start in range(0, len(rows), CHUNK_ROWS):
        mask = kept[start : start + CHUNK_ROWS]
        if count < start or not mask.all():  # otherwise they are in place already
            part = rows[start : start + CHUNK_ROWS][mask]
            rows[count : count + len(part)] = part
        count += int(mask.sum())
    return rows[:count]


def _map_actions(actions: FloatRows, spec: EnvSpec | None, source: str) -> None:
    """Actions to [-1, 1] or to indices in place, or an error where they are out of bounds."""
    if spec is None:
        return
    if spec.discrete:
        first, last = spec.action_start, spec.action_start + spec.action_dim - 1
        valid = (actions >= first) & (actions <= last) & (actions == np.floor(actions))
        if not valid.all():
            row = int(np.argwhere(~valid)[0, 0])
            raise ConfigError(
                f"{source}: action {actions[row, 0]} of row {row} is none of {first} to {last}."
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
            f"{source}: action {place} goes from {least[place]:.6g} to {greatest[place]:.6g}, "
            f"outside its bounds {low[place]:.6g} to {high[place]:.6g}."
        )
    actions -= 0.5 * (low + high)
    actions /= 0.5 * (high - low)
    np.clip(actions, -1.0, 1.0, out=actions)

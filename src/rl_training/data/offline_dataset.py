"""Recorded transitions in packed rows in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from rl_training.boundary.columns import CHUNK_ROWS, Chunks, Column, chunk_rows
from rl_training.data.action_units import check_actions, check_masks, map_actions
from rl_training.data.column_names import OBSERVATION_NAMES, OBSERVATIONS, Fields, find_fields
from rl_training.data.episode_ends import ImpliedNext, odd_flags, separate_time_limits
from rl_training.data.frames import MAX_FRAMES, FrameLayout, FrameList, Frames, FrameSources
from rl_training.data.observation_columns import flat_arrays
from rl_training.data.recorded import Doubles, Findings, FloatRows, RecordedData
from rl_training.data.rows import SCALAR_FIELDS, PackedRows, RowLayout
from rl_training.errors import ConfigError
from rl_training.observations import Entry
from rl_training.rewards import RewardTransformConfig
from rl_training.types import Batch, EnvSpec

if TYPE_CHECKING:
    from typing_extensions import Self

Rows = TypeVar("Rows", FloatRows, torch.Tensor)
FLAGS = ("terminations", "truncations")


class TransitionDataset(RecordedData):
    """Transitions in episode order on the learner's device, sampled with replacement.

    Create one with `from_dict`, or from a file with `load_transition_dataset`. Images are stored
    once, as bytes: the rows refer to them by number (`data/frames.py`).
    """

    def __init__(
        self,
        rows: torch.Tensor,
        layout: RowLayout,
        spec: EnvSpec | None = None,
        findings: Findings | None = None,
        *,
        frames: Frames | None = None,
    ) -> None:
        super().__init__(layout, spec, findings)
        self._rows = rows
        self._device = rows.device
        self._frames = frames

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

        Observations are flat vectors or have the environment's form; those of a Dict are a dict of
        arrays, or arrays under ``observations/<entry>``.
        With ``spec``, actions are in the environment's units: they are checked against its bounds
        and mapped to [-1, 1]. Without it they are unchanged. ``columns`` lists further arrays to
        keep, which `supply` can add to batches.
        """
        fields = find_fields(array_columns(data), source, columns)
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
        entries: tuple[Entry, ...] = (),
        mapped: bool = False,
    ) -> TransitionDataset:
        """Fill packed rows column by column, and check each chunk.

        ``finite=False`` accepts values that are not finite and flags other than 0 and 1, which an
        inspection counts. ``entries`` describe the observations if there is no ``spec``. With
        ``mapped``, images stay in the memory-mapped files of their columns.
        """
        fields, images, layout, spec = arrange(fields, spec, entries, source)
        try:
            rows: FloatRows = np.zeros((fields.rows, layout.width), dtype=np.float32)
        except (MemoryError, ValueError, OverflowError):
            raise ConfigError(
                f"{source} has {fields.rows} rows of {layout.width} numbers, which do not fit in "
                "memory."
            ) from None
        for name, column in fields.columns.items():
            if images is None or name not in OBSERVATIONS:
                _fill(rows[:, layout.slices[name]], column, name, source, finite)
        ended, cut = (rows[:, layout.slices[name].start] for name in FLAGS)
        frames = None
        if images is not None:
            episodes = int(np.count_nonzero((ended > 0) | (cut > 0))) + 1
            observed = [fields.columns[name] for name in OBSERVATIONS if name in fields.columns]
            store = (
                FrameSources(images, observed) if mapped else FrameList(images, len(rows), episodes)
            )
            _fill_images(rows, layout, fields, store, source, finite)
            frames = store.frames()
        odd = tuple(odd_flags(fields.flags(ended, cut)))  # before flags change and rows are dropped
        if finite and odd:
            raise ConfigError(f"{source}: {odd[0]}.")
        notes: list[str] = []
        if fields.ambiguous_done:
            notes += separate_time_limits(ended, cut, "truncations" in fields.columns, time_limit)
        if "next_observations" not in fields.columns:
            implied = ImpliedNext.of(ended, cut)
            rows = _derive_next(rows, layout, implied)
            notes.append(implied.note)
        if fields.spec is None and spec is not None:
            actions = rows[:, layout.slices["actions"]]
            check_actions([actions], spec, source)
            map_actions(actions, spec)
        return cls(
            torch.from_numpy(rows).to(device),
            layout,
            spec,
            Findings.of(fields, notes, odd),
            frames=frames,
        )

    def as_column(self, name: str) -> Column:
        """Return one field of all rows; images are referred to by number."""
        return Column.of(self.column(name))

    def observation_parts(self, name: str) -> dict[str, Column]:
        """Return observations or next observations as arrays, one for each entry if it has images.

        The arrays have the entries' names and shapes, but discrete numbers are one-hot.
        """
        if self.frames is None:
            return {"": Column.of(self.column(name))}
        return {entry.name: self._part(name, entry, self.frames) for entry in self.entries}

    def _part(self, name: str, entry: Entry, frames: Frames) -> Column:
        place = self.layout.slices[name]
        shape = (entry.width,) if entry.choices else entry.shape
        dtype = np.dtype(entry.dtype if entry.kind == "image" else np.float32)

        def read(count: int) -> Chunks:
            for start in range(0, len(self), count):
                rows = frames.part(self.rows[start : start + count, place], entry)
                yield rows.cpu().numpy().astype(dtype, copy=False).reshape(len(rows), *shape)

        return Column((len(self), *shape), dtype, read)

    # --- The rows -----------------------------------------------------------------

    def __len__(self) -> int:
        return int(self._rows.shape[0])

    @property
    def rows(self) -> torch.Tensor:
        """All rows, ``[N, width]``."""
        return self._rows

    @rows.setter
    def rows(self, rows: torch.Tensor) -> None:
        self._rows = rows

    @property
    def on_host(self) -> bool:
        """Whether batches are read from a file."""
        return self.frames is not None and self.frames.on_host

    def to(self, device: torch.device | str) -> None:
        """Move the rows and the images to a device, or the batches if images are in a file."""
        super().to(device)
        if not self.on_host:
            self.rows = self.rows.to(device)
            self._device = self.rows.device
            if self.frames is not None:
                self.frames.to(device)

    def chunks(self) -> Iterator[FloatRows]:
        """Yield all rows in order; images are referred to by number."""
        for chunk in torch.split(self.rows, self.chunk_rows):
            yield chunk.cpu().numpy()

    @property
    def table(self) -> PackedRows:
        """The rows; images are referred to by number."""
        return PackedRows(self.rows)

    def most_updates(self, batch_size: int) -> int:
        """Return the largest number of updates that one `gather` can serve."""
        if self.frames is not None:
            return self.frames.most_updates(batch_size)
        return super().most_updates(batch_size)

    def batch(self, indices: torch.Tensor) -> Batch:
        """Return the transitions at ``indices``: one gather if no fields are declared."""
        if self.on_host:
            return self._from_host(indices)
        return self._gather(indices)

    def _gather(self, indices: torch.Tensor) -> Batch:
        if self._fields is not None:
            batch = self._fields.batch(self.table, indices)
        else:
            batch = self.layout.batch(self.rows.index_select(0, indices))
        return batch if self.frames is None else self.frames.decode_batch(batch)

    def column(self, name: str) -> npt.NDArray[np.float32]:
        """Return one column as an array, a view if the rows are on the CPU.

        Images in observations are the numbers of their frames.
        """
        columns = self.rows[:, self.layout.slices[name]].cpu().numpy()
        return columns[:, 0] if name in SCALAR_FIELDS else columns

    @property
    def frames(self) -> Frames | None:
        """The images of the observations, to which rows refer by number."""
        return self._frames

    @property
    def vector_dim(self) -> int:
        """Number of values of an observation that are not pixels; they are the first in a row."""
        return self.layout.obs_dim if self.frames is None else self.frames.layout.vector_dim

    def _vectors(self, name: str) -> torch.Tensor:
        """Return the values of observations that are not pixels, a view of the rows."""
        return self.rows[:, self.layout.slices[name]][:, : self.vector_dim]

    def vectors(self) -> Iterator[FloatRows]:
        """Yield the values of all observations that are not pixels, in chunks of rows."""
        for chunk in torch.split(self._vectors("observations"), self.chunk_rows):
            yield chunk.cpu().numpy()

    def fingerprint(self) -> str:
        """Return the SHA-256 of the current rows and of the images they refer to."""
        rows = hashlib.sha256(self.rows.cpu().numpy().data.cast("B"))
        if self.frames is None:
            return rows.hexdigest()
        pixels = hashlib.sha256()
        for chunk in self.frames.chunks():
            pixels.update(chunk.data.cast("B"))
        return hashlib.sha256(rows.digest() + pixels.digest()).hexdigest()

    # --- Transforms -------------------------------------------------------------

    def with_reward_transform(self, config: RewardTransformConfig) -> Self:
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

    def subset(self, indices: torch.Tensor) -> Self:
        """Return a copy with the rows at ``indices``, and the same images."""
        other = copy(self)
        other.rows = self.rows[indices.to(self.rows.device)]
        other._supply_again()
        return other

    def hold_out(self, fraction: float, seed: int) -> Self:
        """Move whole episodes, chosen by ``seed``, from this dataset into another one."""
        held = torch.from_numpy(self._rows_to_hold_out(fraction, seed)).to(self.rows.device)
        other = self.subset(held)
        self.rows = _keep_in_place(self.rows, ~held)
        self._supply_again()
        return other

    def normalize_observations(
        self, mean: Doubles, std: Doubles, clip: float | None = None
    ) -> None:
        """Standardize observations and next observations in place, and clip them to ±``clip``."""
        device = self.rows.device
        shift = torch.from_numpy(mean).float().to(device)
        scale = torch.from_numpy(1.0 / std).float().to(device)
        for name in ("observations", "next_observations"):
            values = self._vectors(name).sub_(shift).mul_(scale)
            if clip is not None:
                values.clamp_(-clip, clip)


def array_columns(data: Mapping[str, Any]) -> dict[str, Column]:
    """Return arrays, tensors or lists as columns; nested observations as ``name/entry``."""
    return {
        name: _as_column(values) for name, values in flat_arrays(data, OBSERVATION_NAMES).items()
    }


def _as_column(values: Any) -> Column:
    if isinstance(values, Column):
        return values
    return Column.of(np.asarray(values.detach().cpu() if torch.is_tensor(values) else values))


def arrange(
    fields: Fields, spec: EnvSpec | None, entries: tuple[Entry, ...], source: str
) -> tuple[Fields, FrameLayout | None, RowLayout, EnvSpec | None]:
    """Return the columns in the form of the environment, and the layout of their rows.

    Raises:
        ConfigError: They do not have the sizes of ``spec``, or follow another one already.
    """
    if spec is not None or entries:
        fields = fields.arranged(entries if spec is None else spec.entries, source)
    images = FrameLayout.of(fields.entries)
    obs_dim = fields.width("observations") if images is None else images.stored_dim
    own = tuple((name, fields.width(name)) for name in fields.own)
    layout = RowLayout(obs_dim, fields.width("actions"), own)
    mismatch = spec and layout.mismatch(spec, source)
    if mismatch:
        raise ConfigError(mismatch)
    if spec is not None and fields.spec not in (None, spec):
        raise ConfigError(
            f"{source} was created for {fields.spec}, but the environment has {spec}: create it "
            "without spec=, from actions in the environment's units."
        )
    if spec is not None and spec.action_masks:
        first = spec.action_start if fields.spec is None else 0
        check_masks(fields.columns, spec, source, first_action=first)
    return fields, images, layout, spec or fields.spec


def _fill(target: FloatRows, column: Column, name: str, source: str, finite: bool) -> None:
    """Copy a column in chunks; reject values that are not finite, with their row."""
    start = 0
    for chunk in column.chunks():
        values = chunk.reshape(len(chunk), -1)
        part = target[start : start + len(values)]
        with np.errstate(over="ignore", invalid="ignore"):
            part[:] = values
        if finite:
            check_finite(part, start, name, source)
        start += len(values)
    if start != len(target):
        raise ConfigError(f"{source}: {name} has only {start} of {len(target)} rows.")


def check_finite(values: FloatRows, first_row: int, name: str, source: str) -> None:
    """Reject values that are not finite; the error names their row."""
    if not np.isfinite(values).all():
        place = int(np.argwhere(~np.isfinite(values))[0, 0])
        raise ConfigError(
            f"{source}: {name} has values that are not finite in row {first_row + place}: "
            f"{values[place]}."
        )


def _fill_images(
    rows: FloatRows,
    layout: RowLayout,
    fields: Fields,
    store: FrameList | FrameSources,
    source: str,
    finite: bool,
) -> None:
    """Store the images of all observations once, and the observations without pixels in rows."""
    names = [name for name in OBSERVATIONS if name in fields.columns]
    columns = [fields.columns[name] for name in names]
    count, start = chunk_rows(columns), 0
    chunks: Iterator[tuple[Any, ...]] = zip(*(c.chunks(count) for c in columns), strict=True)
    for obs, following in chunks if len(names) > 1 else _with_following(c for (c,) in chunks):
        part = rows[start : start + len(obs)]
        split = [store.layout.split(values) for values in (obs, following)]
        places = store.add(*(frames for _, frames in split))
        for name, (vectors, _), numbers in zip(OBSERVATIONS, split, places, strict=True):
            part[:, layout.slices[name]] = np.concatenate([vectors, numbers], axis=1)
            if finite and name in names:
                check_finite(vectors, start, name, source)
        start += len(obs)
    if start != len(rows):
        raise ConfigError(f"{source}: observations has only {start} of {len(rows)} rows.")
    if store.written > MAX_FRAMES:
        raise ConfigError(
            f"{source} has {store.written:,} different images, but at most {MAX_FRAMES:,} are "
            "supported: use a part of the data."
        )


def _with_following(chunks: Iterator[npt.NDArray[Any]]) -> Iterator[tuple[Any, Any]]:
    """Yield rows with the rows that follow them; the last row is followed by itself."""
    held: npt.NDArray[Any] | None = None
    for chunk in chunks:
        rows = chunk if held is None else np.concatenate([held, chunk])
        if len(rows) > 1:
            yield rows[:-1], rows[1:]
        held = rows[-1:]
    if held is not None:
        yield held, held


def _derive_next(rows: FloatRows, layout: RowLayout, implied: ImpliedNext) -> FloatRows:
    """Take next observations from the following rows, in place, and drop the rows without one."""
    obs, nxt = layout.slices["observations"], layout.slices["next_observations"]
    rows[:-1, nxt] = rows[1:, obs]
    rows[implied.ended, nxt] = rows[implied.ended, obs]
    rows[implied.shortened, layout.slices["truncations"]] = 1.0
    return _keep_in_place(rows, implied.kept)


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

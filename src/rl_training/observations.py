"""Observations as vectors: the named entries of an observation, and how they are flattened.

A learner receives an observation as one float32 vector. The entries of a Dict or Tuple follow each
other in the order of `gymnasium.spaces.flatten`: the order of the space, which Gymnasium sorts by
key if the Dict was created from a plain dict. Discrete values are one-hot, and images are the
values of their pixels, which are whole numbers up to 255.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import accumulate
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from rl_training.text import shown

EntryKind = Literal["vector", "discrete", "multi_discrete", "multi_binary", "image"]
FloatRows = npt.NDArray[np.float32]

MAX_PIXEL = 255
MIN_SIDE = 3
"""Smallest height and width of an image; smaller arrays are vectors."""
MAX_CHOICES = 65_536
"""Largest number of values of a discrete entry, since each value is one input of the networks."""


class ObservationError(ValueError):
    """An observation does not match its entries; the message continues the word "observation"."""


class Planes(NamedTuple):
    """The axes of an image: frames of a stack, channels, height and width."""

    frames: int
    channels: int
    height: int
    width: int
    channels_last: bool = False
    """Whether a frame is ``[height, width, channels]``, not ``[channels, height, width]``."""

    @property
    def depth(self) -> int:
        """Number of planes that a network sees, frames × channels."""
        return self.frames * self.channels

    @classmethod
    def of(cls, shape: Sequence[int], frames: int = 1) -> Planes | None:
        """Interpret the shape of an image; None for a shape that is not one.

        A frame is ``[height, width]``, or has a third axis for channels: the last, or the first if
        that one is smaller. ``frames`` > 1 are in another axis, the first; four axes always have
        frames first.
        """
        sizes = tuple(shape)
        if frames > 1 or len(sizes) == 4:
            frames, sizes = sizes[0], sizes[1:]
        if len(sizes) == 2:
            found = cls(frames, 1, *sizes)
        elif len(sizes) != 3:
            return None
        elif sizes[0] < sizes[2]:
            found = cls(frames, *sizes)
        else:
            found = cls(frames, sizes[2], *sizes[:2], channels_last=True)
        return found if min(found.height, found.width) >= MIN_SIDE else None


@dataclass(frozen=True)
class Entry:
    """One array of an observation and its place in the flat vector."""

    name: str
    """Keys from the outermost Dict or Tuple to the entry, joined by slashes; empty for the only
    entry of an observation that is neither."""
    kind: EntryKind
    shape: tuple[int, ...]
    """Shape in the environment; empty for a single number."""
    dtype: str
    """NumPy type in the environment."""
    offset: int
    """Position in the flat vector."""
    choices: tuple[int, ...] = ()
    """Number of values of each discrete number; each has as many inputs."""
    starts: tuple[int, ...] = ()
    """First value of each discrete number."""
    frames: int = 1
    """Number of frames in a stack of images, the first axis of ``shape`` if it is above 1."""
    high: int = 0
    """Largest value of a pixel; 0 if the entry is not an image."""

    @property
    def planes(self) -> Planes:
        """The axes of an image."""
        found = Planes.of(self.shape, self.frames)
        assert found is not None
        return found

    @property
    def width(self) -> int:
        """Number of values in the flat vector."""
        return sum(self.choices) if self.choices else math.prod(self.shape)

    @property
    def place(self) -> slice:
        """Position in the flat vector."""
        return slice(self.offset, self.offset + self.width)

    @property
    def label(self) -> str:
        """Name for messages: ``"entry 'joints'"``, or nothing for the only entry."""
        return f"entry {shown(self.name)}" if self.name else ""

    def __str__(self) -> str:
        kind = _SPACES[self.kind]
        size = self.choices if self.choices else self.shape
        inside = size[0] if len(size) == 1 else list(size)
        return f"{self.name}: {kind}({inside})" if self.name else f"{kind}({inside})"

    def flatten(self, values: npt.NDArray[Any]) -> FloatRows | npt.NDArray[np.uint8]:
        """Return rows ``[n, width]`` for values of the environment ``[n, *shape]``.

        Images are uint8, and everything else is float32.

        Raises:
            ObservationError: The values are not numbers of this shape, or not among the choices.
        """
        if values.dtype.kind not in "biuf" or values.shape[1:] != self.shape:
            raise ObservationError(
                f"{self.label or 'it'} has the type {values.dtype} and the shape "
                f"{list(values.shape[1:])}, but should contain numbers of the shape "
                f"{list(self.shape)}"
            )
        if self.kind == "image":
            return self._pixels(values.reshape(len(values), self.width))
        if not self.choices:
            with np.errstate(over="ignore"):  # found by the checks for finite values
                return values.reshape(len(values), self.width).astype(np.float32)
        return self._one_hot(values.reshape(len(values), len(self.choices)))

    def _pixels(self, values: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
        if values.dtype == np.bool_:
            return values.view(np.uint8)
        if values.dtype == np.uint8 and self.high == MAX_PIXEL:
            return values
        valid = (values >= 0) & (values <= self.high) & (values == np.floor(values))
        if not valid.all():
            found = values[tuple(np.argwhere(~valid)[0])]
            raise ObservationError(
                f"{self.label or 'it'} contains {found}, but the pixels of an image should be "
                f"whole numbers from 0 to {self.high}"
            )
        return values.astype(np.uint8)

    def _one_hot(self, values: npt.NDArray[Any]) -> FloatRows:
        first, count = np.asarray(self.starts), np.asarray(self.choices)
        valid = (values >= first) & (values < first + count) & (values == np.floor(values))
        if not valid.all():
            row, place = np.argwhere(~valid)[0]
            low = self.starts[place]
            raise ObservationError(
                f"{self.label or 'it'} contains {values[row, place]}, but should contain integers "
                f"from {low} to {low + self.choices[place] - 1}"
            )
        rows = np.zeros((len(values), self.width), dtype=np.float32)
        begins = np.cumsum(count) - count
        places = values.astype(np.int64) - first + begins
        rows[np.arange(len(values))[:, None], places] = 1.0
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for a manifest, without fields of other kinds."""
        pixels = () if self.kind == "image" else ("frames", "high")
        data = {k: value for k, value in asdict(self).items() if value != () and k not in pixels}
        return {key: list(x) if isinstance(x, tuple) else x for key, x in data.items()}

    @classmethod
    def from_dict(cls, data: Any) -> Entry:
        """Read the result of `to_dict`.

        Raises:
            ValueError: A field is missing, unknown or invalid.
        """
        if not isinstance(data, dict):
            raise ValueError(f"an entry is {shown(data)}, but should be a mapping")
        data = {"shape": [], "choices": [], "starts": [], "frames": 1, "high": 0, **data}
        wanted = {item.name for item in fields(cls)}
        if set(data) != wanted:
            raise ValueError(
                f"the fields {sorted(map(str, set(data) ^ wanted))} of an entry are missing or "
                "unknown"
            )
        lists = {name: data[name] for name in ("shape", "choices", "starts")}
        for name, numbers in lists.items():
            least = -(2**53) if name == "starts" else 1
            if type(numbers) is not list or not all(
                type(x) is int and least <= x < 2**53 for x in numbers
            ):
                raise ValueError(f"{name} of an entry is {shown(numbers)}")
        numbers = {type(data[x]) for x in ("offset", "frames", "high")}
        if numbers != {int} or {type(data[x]) for x in ("name", "dtype")} != {str}:
            raise ValueError("an entry has an invalid name, dtype or number")
        entry = cls(**{**data, **{name: tuple(numbers) for name, numbers in lists.items()}})
        if not entry._is_valid():
            raise ValueError(f"{entry.label or 'an entry'} is not a valid {shown(data['kind'])}")
        return entry

    def _is_valid(self) -> bool:
        discrete = self.kind in ("discrete", "multi_discrete")
        numbers = math.prod(self.shape) if discrete else 0
        if self.kind not in get_args(EntryKind):
            return False
        if not len(self.choices) == len(self.starts) == numbers:
            return False
        if self.kind != "image":
            return (self.frames, self.high) == (1, 0)
        stacked = self.frames == 1 or (self.frames > 1 and self.frames == self.shape[0])
        found = stacked and Planes.of(self.shape, self.frames) is not None
        return found and 0 < self.high <= MAX_PIXEL


_SPACES: dict[EntryKind, str] = {
    "vector": "Box",
    "discrete": "Discrete",
    "multi_discrete": "MultiDiscrete",
    "multi_binary": "MultiBinary",
    "image": "image",
}


def check_entries(entries: Sequence[Entry], size: int) -> None:
    """Raise a ValueError unless the entries fill a vector of ``size`` values, in order."""
    widths = [entry.width for entry in entries]
    ends = list(accumulate(widths))
    starts = [end - width for end, width in zip(ends, widths, strict=True)]
    names = {entry.name for entry in entries}
    stacks = {entry.frames for entry in entries if entry.kind == "image"}
    if (
        len(stacks) > 1
        or starts != [entry.offset for entry in entries]
        or ends[-1:] != [size]
        or len(names) < len(entries)
        or ("" in names and len(entries) > 1)
    ):
        raise ValueError("the entries of an observation do not match its size")


def leaves(observation: Any, name: str = "") -> dict[str, Any]:
    """Return the arrays of nested Dicts and Tuples by name, in order."""
    if isinstance(observation, Mapping):
        pairs: Iterable[tuple[Any, Any]] = observation.items()
    elif isinstance(observation, tuple):
        pairs = enumerate(observation)
    else:
        return {name: observation}
    found: dict[str, Any] = {}
    for key, part in pairs:
        found |= leaves(part, f"{name}/{key}" if name else str(key))
    return found


def is_structured(observation: Any, entries: Sequence[Entry]) -> bool:
    """Return whether an observation has the environment's form, not that of a flat vector.

    If both are possible, it has the environment's form.
    """
    if isinstance(observation, Mapping | tuple):
        return True
    if len(entries) != 1 or entries[0].name:
        return False
    entry, array = entries[0], np.asarray(observation)
    batch = array.shape[1:] == entry.shape and array.ndim == len(entry.shape) + 1
    if not entry.shape and array.ndim == 1:  # one number each; a flat vector is one-hot or [1]
        batch = array.dtype.kind in "iu" or (not entry.choices and len(array) != 1)
    return array.shape == entry.shape or batch


def flatten_observation(observation: Any, entries: Sequence[Entry]) -> FloatRows:
    """Return the flat vector ``[obs_dim]`` of an observation, or rows for a batch of them.

    In a batch, every array has one more axis, the first.

    Raises:
        ObservationError: An array is missing, or does not match its entry.
    """
    found = leaves(observation)
    missing = [entry.name for entry in entries if entry.name not in found]
    if missing:
        raise ObservationError(
            f"it has the entries {', '.join(found) or 'none'}, but should have "
            f"{', '.join(entry.name for entry in entries)}"
        )
    arrays = [_as_array(found[entry.name], entry) for entry in entries]
    pairs = list(zip(entries, arrays, strict=True))
    batched = [array.ndim > len(entry.shape) for entry, array in pairs]
    if not any(batched):
        parts = [entry.flatten(array[None])[0] for entry, array in pairs]
        return np.concatenate(parts, dtype=np.float32)
    rows = {len(array) for array, has_rows in zip(arrays, batched, strict=True) if has_rows}
    if not all(batched) or len(rows) > 1:
        shapes = ", ".join(f"{entry.name} {list(array.shape)}" for entry, array in pairs)
        raise ObservationError(
            f"its entries have the shapes {shapes}, but all entries of a batch need the same "
            "number of rows"
        )
    rows_of = [entry.flatten(array) for entry, array in pairs]
    return np.concatenate(rows_of, axis=-1, dtype=np.float32)


def _as_array(value: Any, entry: Entry) -> npt.NDArray[Any]:
    try:
        return np.asarray(value)
    except (TypeError, ValueError):  # rows of different lengths
        raise ObservationError(f"{entry.label or 'it'} is not an array of numbers") from None

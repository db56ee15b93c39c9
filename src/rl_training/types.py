"""Types shared by all packages. Importing this module loads neither torch nor gymnasium."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from rl_training.errors import ConfigError, nearest
from rl_training.observations import Entry, check_entries
from rl_training.text import counted, shorten

if TYPE_CHECKING:
    import torch
    from torch import Tensor

FloatArray = npt.NDArray[np.floating[Any]]
BoolArray = npt.NDArray[np.bool_]
ObsArray = FloatArray | npt.NDArray[np.uint8]
"""Flat observations of an environment; uint8 if they contain only images."""
ActionArray = npt.NDArray[np.floating[Any]] | npt.NDArray[np.integer[Any]]
"""Actions in the environment's units: floats for a Box, integers for a Discrete space."""
Metrics = dict[str, "Tensor"]
SAMPLE = "sample/"
"""Prefix of metrics with one value per row of the batch, which are passed to the sampler."""
TD_ERROR = f"{SAMPLE}td_error"
"""Absolute TD error of each row, from which a prioritized replay computes priorities."""
Noise = Mapping[str, "Tensor"]
Mode = Literal["online", "offline", "offline_to_online"]
"""Source of a run's data."""
ActionKind = Literal["continuous", "discrete", "both"]


class NoiseField(NamedTuple):
    """One random input of an update: its distribution and its shape."""

    kind: Literal["normal", "uniform"]
    shape: tuple[int, ...]


NoiseSpec = Mapping[str, NoiseField]


class Batch(NamedTuple):
    """Transitions on the learner's device, with the batch axis first.

    ``terminations`` is 1.0 where the task itself ended the episode. A time limit is not a
    termination: its value is bootstrapped. A discrete action is its index, counted from 0, as a
    float in one column. ``extra`` contains the fields that `Algorithm.fields` declares, by name.
    """

    obs: Tensor  # [B, obs_dim]
    actions: Tensor  # [B, action_dim], in [-1, 1]; or [B, 1], the index of a discrete action
    rewards: Tensor  # [B]
    next_obs: Tensor  # [B, obs_dim]
    terminations: Tensor  # [B]
    extra: Mapping[str, Tensor] = MappingProxyType({})

    @property
    def next_actions(self) -> Tensor:
        """Actions taken at ``next_obs``: [B, action_dim]; 0 where `next_action_mask` is 0."""
        return self.column("next_actions")

    @property
    def next_action_mask(self) -> Tensor:
        """1.0 where the episode continues and its next action is known: [B]."""
        return self.column("next_action_mask")

    @property
    def legal_actions(self) -> Tensor:
        """1.0 for each action that is legal at ``obs``, from the action mask: [B, actions]."""
        return self.column("legal_actions")

    @property
    def next_legal_actions(self) -> Tensor:
        """1.0 for each action that is legal at ``next_obs``: [B, actions]; 1.0 at an end."""
        return self.column("next_legal_actions")

    @property
    def truncations(self) -> Tensor:
        """1.0 where the episode was cut off, for example by a time limit: [B]."""
        return self.column("truncations")

    @property
    def discounts(self) -> Tensor:
        """γ^m for the m steps that ``rewards`` sums up: [B]."""
        return self.column("discounts")

    @property
    def returns_to_go(self) -> Tensor:
        """Discounted return from the transition to the last recorded one of its episode: [B]."""
        return self.column("returns_to_go")

    @property
    def indices(self) -> Tensor:
        """Row of the transition in its source, as int64: [B]."""
        return self.column("indices")

    @property
    def weights(self) -> Tensor:
        """Importance weights of the transitions: [B]."""
        return self.column("weights")

    def column(self, name: str) -> Tensor:
        """Return a declared field, such as a column of the dataset: [B] or [B, width]."""
        if name not in self.extra:
            raise ConfigError(
                f"This batch has no field {name!r}. Declare it in the algorithm's fields() method, "
                f"for example with return ({name!r},)."
            )
        return self.extra[name]

    def tensors(self) -> Iterator[Tensor]:
        """Yield every tensor: the first five, then those of ``extra`` in order."""
        yield from self[:5]
        yield from self.extra.values()

    @classmethod
    def of(cls, tensors: Iterable[Tensor], names: Iterable[str] = ()) -> Batch:
        """Create a batch from its `tensors`; ``names`` are the keys of ``extra``."""
        obs, actions, rewards, next_obs, terminations, *others = tensors
        extra = dict(zip(names, others, strict=True))
        return cls(obs, actions, rewards, next_obs, terminations, extra)

    def map(self, function: Callable[[Tensor], Tensor]) -> Batch:
        """Return a batch with ``function`` applied to every tensor."""
        return Batch.of(map(function, self.tensors()), self.extra)

    def __reduce__(self) -> tuple[Any, ...]:
        return Batch, (*self[:5], dict(self.extra))  # a read-only mapping cannot be copied


MASK_FIELDS = ("legal_actions", "next_legal_actions")
"""Fields of a source with action masks, ``[B, actions]`` each."""

FIELD_NAMES = (
    *("next_actions", "next_action_mask", "truncations", "discounts", "returns_to_go"),
    *("indices", "weights", *MASK_FIELDS),
)
"""Fields that `Algorithm.fields` may declare; every other name is a column of the dataset."""


class Sampler(Protocol):
    """A source of batches: a replay buffer, a dataset, or a mixture of both.

    `prepare` runs on the host between blocks of updates. `gather` has static shapes, never waits
    for the host, and may be captured in a graph.
    """

    def supply(self, fields: Sequence[str], *, gamma: float = 1.0, n_step: int = 1) -> None:
        """Add ``fields`` to every batch; called once, before the first batch.

        ``gamma`` is the discount of `returns_to_go` and of ``n_step`` rewards.

        Raises:
            ConfigError: This source does not have one of the fields.
        """
        refuse_fields(fields, (), f"a {type(self).__name__}")
        if n_step > 1:
            raise ConfigError(
                f"n_step = {n_step}: a {type(self).__name__} only supports n_step = 1."
            )

    def prepare(self, batch_size: int, generator: torch.Generator, updates: int = 1) -> None:
        """Prepare the next `gather`."""
        ...

    def gather(self, batch_size: int, generator: torch.Generator, updates: int = 1) -> Batch:
        """Return the batches of ``updates`` updates as one, in order, drawn by ``generator``."""
        ...

    def feedback(self, batch: Batch, values: Metrics) -> None:
        """Receive the values that the update reported for each row: ``sample/…``, each ``[B]``.

        Like `gather`, it has static shapes, never waits for the host, and may be captured in a
        graph. A sampler whose next batch depends on these values serves blocks of one update
        (`most_updates`).
        """
        return None

    @property
    def is_fixed(self) -> bool:
        """Whether its rows cannot change for now, so that batches may be drawn in advance."""
        return False

    @property
    def on_host(self) -> bool:
        """Whether the host reads the rows from a file, which a captured graph cannot do."""
        return False

    @property
    def has_position(self) -> bool:
        """Whether its `state_dict` is needed to continue with the same batches."""
        return self.is_fixed

    def most_updates(self, batch_size: int) -> int:
        """Return the largest number of updates that one `gather` can serve."""
        return 1_000_000

    @property
    def form(self) -> int:
        """Current pattern of rows in `gather`; a recorded block is valid for one pattern."""
        return 0

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the data as plain data, without the rows."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved position."""
        return None

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Prepare and gather one batch."""
        self.prepare(batch_size, generator)
        return self.gather(batch_size, generator)

    def __len__(self) -> int: ...


def refuse_fields(fields: Iterable[str], known: Iterable[str], source: str) -> None:
    """Reject declared fields that a source cannot supply."""
    known = tuple(known)
    for name in fields:
        if name not in known:
            raise ConfigError(
                f"The algorithm declares the batch field {name!r}, which {source} does not have"
                f"{nearest(name, known)}"
            )


@dataclass(frozen=True)
class EnvSpec:
    """Sizes and bounds of an environment or a dataset."""

    obs_dim: int
    action_dim: int
    """Size of a continuous action, or the number of discrete actions."""
    action_low: tuple[float, ...] = ()
    action_high: tuple[float, ...] = ()
    discrete: bool = False
    action_start: int = 0
    """First discrete action in the environment's numbering; the learner counts from 0."""
    goal_dim: int = 0
    """Size of the desired goal at the end of an observation; 0 without goals."""
    entries: tuple[Entry, ...] = ()
    """Parts of an observation in the flat vector; none if it is a flat Box or has goals."""
    action_masks: bool = False
    """Whether the infos have an ``action_mask`` with the legal actions, and the run uses it."""
    action_choices: tuple[int, ...] = ()
    """Number of values of each number of a MultiDiscrete action; their sum is `action_dim`."""
    action_starts: tuple[int, ...] = ()
    """First value of each of these numbers in the environment."""

    @property
    def first_actions(self) -> npt.NDArray[np.int64]:
        """Smallest values of a discrete action in the environment, ``[action_width]``."""
        return np.array(self.action_starts or (self.action_start,), dtype=np.int64)

    @property
    def last_actions(self) -> npt.NDArray[np.int64]:
        """Largest values of a discrete action in the environment, ``[action_width]``."""
        counts = np.array(self.action_choices or (self.action_dim,), dtype=np.int64)
        return np.asarray(self.first_actions + counts - 1)

    @property
    def parts(self) -> tuple[Entry, ...]:
        """`entries`, or those that a goal environment's policy needs; none for a flat Box."""
        if not self.goal_dim:
            return self.entries
        size = self.obs_dim - self.goal_dim
        return (
            Entry("observation", "vector", (size,), "float32", 0),
            Entry("desired_goal", "vector", (self.goal_dim,), "float32", size),
        )

    @property
    def obs_dtype(self) -> np.dtype[Any]:
        """Type of the flat observations of an environment: uint8 if they contain only images."""
        only_images = self.entries and all(entry.kind == "image" for entry in self.entries)
        return np.dtype(np.uint8 if only_images else np.float32)

    @property
    def stored_dim(self) -> int:
        """Values of an observation in a row, which refers to the frames of images by number."""
        images = [entry for entry in self.entries if entry.kind == "image"]
        frames = images[0].frames if images else 0
        return self.obs_dim - sum(image.width for image in images) + frames

    @property
    def action_width(self) -> int:
        """Values per action in a batch: an index for each number of a discrete action."""
        return (len(self.action_choices) or 1) if self.discrete else self.action_dim

    @property
    def mask_width(self) -> int:
        """Values per action mask in a row: the number of actions, or 0 without masks."""
        return self.action_dim if self.action_masks else 0

    @property
    def mask_fields(self) -> tuple[str, ...]:
        """Fields of the recorded action masks; none without masks."""
        return MASK_FIELDS if self.action_masks else ()

    def __str__(self) -> str:
        """Describe the sizes: ``3 observation values and 1 action value in [-2, 2]``."""
        parts = f" ({self.goal_dim} for the goal)" if self.goal_dim else ""
        if self.entries:
            parts = f" ({shorten(', '.join(map(str, self.entries)), 200)})"
        text = f"{counted(self.obs_dim, 'observation value')}{parts} and "
        if self.action_choices:
            sizes = ", ".join(map(str, self.action_choices))
            return f"{text}actions of {len(self.action_choices)} numbers with {sizes} values"
        if self.discrete:
            first = f", numbered from {self.action_start}" if self.action_start else ""
            masks = " with action masks" if self.action_masks else ""
            return f"{text}{counted(self.action_dim, 'discrete action')}{first}{masks}"
        low, high = _bound(self.action_low), _bound(self.action_high)
        return f"{text}{counted(self.action_dim, 'action value')} in [{low}, {high}]"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for a manifest, without fields that few environments have."""
        data = asdict(self)
        lists = ("action_low", "action_high", "action_choices", "action_starts")
        data |= {key: list(data[key]) for key in lists}
        data["entries"] = [entry.to_dict() for entry in self.entries]
        return {
            key: value
            for key, value in data.items()
            if value or key not in ("entries", "action_masks", "action_choices", "action_starts")
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> EnvSpec:
        """Read the result of `to_dict`; fields and types must match exactly.

        Old checkpoints lack `action_start`, `goal_dim` and `action_masks`, which then have their
        defaults. Those of flat observations have no `entries`.

        Raises:
            ValueError: A field is missing or unknown, or has the wrong type.
        """
        data = {"action_start": 0, "goal_dim": 0, "action_masks": False, "entries": [], **data}
        data = {"action_choices": [], "action_starts": [], **data}
        wanted = {item.name for item in fields(cls)}
        if set(data) != wanted:
            raise ValueError(f"the fields {sorted(set(data) ^ wanted)} are missing or unknown")
        bounds = {}
        for name in ("action_low", "action_high"):
            if type(data[name]) is not list or {type(x) for x in data[name]} - {int, float}:
                raise ValueError(f"{name} is not a list of numbers")
            bounds[name] = tuple(float(x) for x in data[name])
        numbers = {name: _integers(data, name) for name in ("action_choices", "action_starts")}
        flags = {"discrete", "action_masks"}
        for name in sorted(flags):
            if type(data[name]) is not bool:
                raise ValueError(f"{name} is not true or false")
        for name in wanted - flags - {*bounds, *numbers, "entries"}:
            if type(data[name]) is not int:
                raise ValueError(f"{name} is not an integer")
        if type(data["entries"]) is not list:
            raise ValueError("entries is not a list")
        entries = tuple(Entry.from_dict(entry) for entry in data["entries"])
        if entries:
            check_entries(entries, data["obs_dim"])
        return cls(**{**data, **bounds, **numbers, "entries": entries})


def _integers(data: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """Return a list of integers in the data of a manifest."""
    found = data[name]
    if type(found) is not list or {type(x) for x in found} - {int}:
        raise ValueError(f"{name} is not a list of integers")
    return tuple(found)


def _bound(values: tuple[float, ...]) -> str:
    """Format bounds as one number if all are equal, otherwise as the first few."""
    if len(set(values)) == 1:
        return f"{values[0]:g}"
    return f"({', '.join(f'{value:g}' for value in values[:4])}{', …' if values[4:] else ''})"

"""Types that all packages share. Importing this module loads neither torch nor gymnasium."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch
    from torch import Tensor

FloatArray = npt.NDArray[np.floating[Any]]
BoolArray = npt.NDArray[np.bool_]
ActionArray = npt.NDArray[np.floating[Any]] | npt.NDArray[np.integer[Any]]
"""Actions as an environment takes them: floats of a Box, integers of a Discrete space."""
Metrics = dict[str, "Tensor"]
Noise = Mapping[str, "Tensor"]
Mode = Literal["online", "offline", "offline_to_online"]
"""Where a run's data comes from."""
ActionKind = Literal["continuous", "discrete"]


class NoiseField(NamedTuple):
    """One random input of an update: how it is distributed and its shape."""

    kind: Literal["normal", "uniform"]
    shape: tuple[int, ...]


NoiseSpec = Mapping[str, NoiseField]


class Batch(NamedTuple):
    """Transitions on the learner's device, the batch axis first.

    ``terminations`` is 1.0 where the episode ended for a reason inside the task. A time limit is
    not a termination: its value is bootstrapped. A discrete action is its index, counted from 0, as
    a float in one column.
    """

    obs: Tensor  # [B, obs_dim]
    actions: Tensor  # [B, action_dim], in [-1, 1]; or [B, 1], the index of a discrete action
    rewards: Tensor  # [B]
    next_obs: Tensor  # [B, obs_dim]
    terminations: Tensor  # [B]


class Sampler(Protocol):
    """A source of batches: a replay buffer, a dataset, or a mixture of both.

    `prepare` is the part that the host does between blocks of updates; `gather` has static shapes,
    never waits for the host, and may be captured in a graph.
    """

    def prepare(self, batch_size: int, generator: torch.Generator, updates: int = 1) -> None:
        """Make the next `gather` possible."""
        ...

    def gather(self, batch_size: int, generator: torch.Generator, updates: int = 1) -> Batch:
        """The batches of ``updates`` updates as one, in their order; numbers by ``generator``."""
        ...

    @property
    def is_fixed(self) -> bool:
        """Whether its rows do not change now, so that batches may be drawn ahead of updates."""
        return False

    @property
    def has_place(self) -> bool:
        """Whether its `state_dict` is needed to continue with the same batches."""
        return self.is_fixed

    def most_updates(self, batch_size: int) -> int:
        """The longest block that `gather` can serve."""
        return 1_000_000

    @property
    def form(self) -> int:
        """Which pattern of rows `gather` has at present: a recorded block is for one of them."""
        return 0

    def state_dict(self) -> dict[str, Any]:
        """The place in the data, as plain data; without the rows."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a place."""
        return None

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Prepare and gather one batch."""
        self.prepare(batch_size, generator)
        return self.gather(batch_size, generator)

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class EnvSpec:
    """The sizes and bounds that a learner needs of an environment or a dataset."""

    obs_dim: int
    action_dim: int
    """Size of a continuous action, or the number of discrete ones."""
    action_low: tuple[float, ...] = ()
    action_high: tuple[float, ...] = ()
    discrete: bool = False
    action_start: int = 0
    """What the environment calls the first of its discrete actions; the learner calls it 0."""
    goal_dim: int = 0
    """Size of a goal, where the last entries of an observation are the desired one."""

    @property
    def action_width(self) -> int:
        """Values that an action takes in a batch: a discrete one is its index."""
        return 1 if self.discrete else self.action_dim

    def __str__(self) -> str:
        """In words, for error messages: ``3 observation values and 1 action value in [-2, 2]``."""
        text = f"{_count(self.obs_dim, 'observation value')} and "
        if self.goal_dim:
            text = f"{_count(self.obs_dim, 'observation value')} ({self.goal_dim} of the goal) and "
        if self.discrete:
            first = f" from {self.action_start}" if self.action_start else ""
            return f"{text}{_count(self.action_dim, 'discrete action')}{first}"
        low, high = _bound(self.action_low), _bound(self.action_high)
        return f"{text}{_count(self.action_dim, 'action value')} in [{low}, {high}]"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a manifest."""
        data = asdict(self)
        return data | {key: list(data[key]) for key in ("action_low", "action_high")}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> EnvSpec:
        """Read what `to_dict` wrote: exactly its fields, each of its type.

        Checkpoints of the first versions lack `action_start` and `goal_dim`, which are then 0.

        Raises:
            ValueError: A field is missing, unknown or of another type.
        """
        data = {"action_start": 0, "goal_dim": 0, **data}
        wanted = {item.name for item in fields(cls)}
        if set(data) != wanted:
            raise ValueError(f"the fields {sorted(set(data) ^ wanted)} are missing or unknown")
        bounds = {}
        for name in ("action_low", "action_high"):
            if type(data[name]) is not list or {type(x) for x in data[name]} - {int, float}:
                raise ValueError(f"{name} is not a list of numbers")
            bounds[name] = tuple(float(x) for x in data[name])
        if type(data["discrete"]) is not bool:
            raise ValueError("discrete is not true or false")
        for name in wanted - {"action_low", "action_high", "discrete"}:
            if type(data[name]) is not int:
                raise ValueError(f"{name} is not an integer")
        return cls(**{**data, **bounds})


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _bound(values: tuple[float, ...]) -> str:
    """One number where all are the same; the first few otherwise."""
    if len(set(values)) == 1:
        return f"{values[0]:g}"
    return f"({', '.join(f'{value:g}' for value in values[:4])}{', …' if values[4:] else ''})"

"""The `algo_kwargs` that select a dataset and transform its rewards and observations."""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from rl_training.boundary.minari_format import check_minari_id
from rl_training.config_model import ConfigModel, Trait
from rl_training.errors import ConfigError
from rl_training.rewards import RewardTransformConfig

if TYPE_CHECKING:
    from typing_extensions import Self

DatasetKind = Literal["random", "npz", "pt", "hdf5", "minari", "starter"]

STARTER_FILE = "data/pendulum.npz"
"""The file of `dataset_kind: starter` if `dataset_path` is not set."""


class DataConfig(ConfigModel):
    """A dataset and its transforms; the reward keys also apply to environments."""

    dataset_kind: Annotated[DatasetKind | None, Trait.DATASET] = None
    """Format of the recorded data; null means that there is none."""
    dataset_path: Annotated[str | None, Trait.DATASET, Trait.MAY_CHANGE] = None
    """The file of an npz, pt, hdf5 or starter dataset."""
    dataset_id: Annotated[str | None, Trait.DATASET] = None
    """The id of a Minari dataset."""
    dataset_download: Annotated[bool, Trait.DATASET, Trait.MAY_CHANGE] = False
    """Download a Minari dataset if it is missing."""
    dataset_size: Annotated[int, Trait.DATASET] = Field(default=10_000, gt=0, le=10**9)
    """Number of transitions in a random dataset."""
    dataset_seed: Annotated[int, Trait.DATASET] = Field(default=0, ge=0)
    """Seed of a random dataset."""
    reward_scale: Annotated[float, Trait.REWARD] = 1.0
    """Factor by which every reward is multiplied."""
    reward_shift: Annotated[float, Trait.REWARD] = 0.0
    """Constant added to every reward after scaling."""
    reward_clip_min: Annotated[float | None, Trait.REWARD] = None
    """Smallest reward after scaling and shifting."""
    reward_clip_max: Annotated[float | None, Trait.REWARD] = None
    """Largest reward after scaling and shifting."""
    return_scaling: bool = False
    """Multiply the dataset's rewards by 1000 / (largest return - smallest return)."""
    normalize_states: bool = False
    """Normalize observations with the dataset's mean and standard deviation."""
    sampling: Literal["replacement", "epochs"] = "replacement"
    """Draw dataset rows independently, or every row once per epoch."""
    num_epochs: Annotated[int | None, Trait.MAY_CHANGE, Trait.FRESH] = Field(default=None, gt=0)
    """Training budget in passes over the training rows."""
    validation_fraction: Annotated[float | None, Trait.FRESH] = Field(default=None, ge=0, lt=1)
    """Share of rows to hold out, in whole episodes; null means 0.05 without env_id, else 0."""
    action_low: Annotated[float | tuple[float, ...] | None, Trait.FRESH] = None
    """Lower action bounds of the data; only needed if env_id is null."""
    action_high: Annotated[float | tuple[float, ...] | None, Trait.FRESH] = None
    """Upper action bounds of the data; only needed if env_id is null."""

    @field_validator("dataset_path", mode="before")
    @classmethod
    def _as_text(cls, path: Any) -> Any:
        return fspath(path) if isinstance(path, PathLike) else path

    @field_validator("dataset_id")
    @classmethod
    def _is_an_id(cls, dataset_id: str | None) -> str | None:
        return dataset_id and check_minari_id(dataset_id)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        kind = self.dataset_kind
        if kind in ("npz", "pt", "hdf5") and not self.dataset_path:
            raise ValueError(f"dataset_kind {kind!r} needs dataset_path: set it to the file's path")
        if kind == "minari" and not self.dataset_id:
            raise ValueError("dataset_kind 'minari' needs dataset_id: set it to the dataset's id")
        if kind is None and (self.dataset_path or self.dataset_id):
            given = "dataset_path" if self.dataset_path else "dataset_id"
            raise ValueError(
                f"{given} needs dataset_kind: set dataset_kind={self._likely_kind()}, and use an "
                "algorithm that learns from recorded data"
            )
        for name in ("num_epochs", "validation_fraction", "action_low", "action_high"):
            if kind is None and getattr(self, name) is not None:
                raise ValueError(f"{name} needs dataset_kind: set that, or remove {name}")
        for name in ("dataset_size", "dataset_seed"):
            if kind != "random" and getattr(self, name) != DataConfig.model_fields[name].default:
                raise ValueError(f"{name} only applies to dataset_kind 'random': remove it")
        if (self.action_low is None) != (self.action_high is None):
            raise ValueError("action_low and action_high must be set together")
        self.rewards()
        return self

    def _likely_kind(self) -> str:
        """Return the kind to suggest for the given path or id."""
        if not self.dataset_path:
            return "minari"
        suffix = PurePath(self.dataset_path).suffix.lower()
        return {".npz": "npz", ".pt": "pt", ".hdf5": "hdf5", ".h5": "hdf5"}.get(suffix, "KIND")

    def action_bounds(self, size: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the bounds of ``size`` actions; a single number applies to all of them."""
        low, high = (
            (float(bound),) * size if isinstance(bound, int | float) else tuple(bound or ())
            for bound in (self.action_low, self.action_high)
        )
        if len(low) != size or len(high) != size:
            raise ConfigError(
                f"action_low and action_high have {len(low)} and {len(high)} values, but an action "
                f"has {size}."
            )
        if not all(one < other for one, other in zip(low, high, strict=True)):
            raise ConfigError(f"action_low = {low} must be less than action_high = {high}.")
        return low, high

    def rewards(self) -> RewardTransformConfig:
        """Return the reward keys as one transform."""
        return RewardTransformConfig(
            scale=self.reward_scale,
            shift=self.reward_shift,
            clip_min=self.reward_clip_min,
            clip_max=self.reward_clip_max,
        )

    @property
    def source(self) -> str:
        """Description of the dataset for messages."""
        if self.dataset_kind == "minari":
            return f"Minari dataset {self.dataset_id!r}"
        if self.dataset_kind == "random":
            return "the random dataset"
        return str(self.dataset_path or STARTER_FILE)

    @property
    def needs_starter_recording(self) -> bool:
        """Whether the starter dataset is used, and its default file does not exist yet.

        A file set with `dataset_path` is never recorded: a misspelled path should be an error.
        """
        wanted = self.dataset_kind == "starter" and self.dataset_path is None
        return wanted and not Path(STARTER_FILE).exists()

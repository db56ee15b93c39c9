"""The `algo_kwargs` that select a dataset and transform its rewards and observations."""

from __future__ import annotations

import os
from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PrivateAttr, field_validator, model_validator

from rl_training.boundary.minari_format import check_minari_id, is_minari_folder
from rl_training.config_model import ConfigModel, Trait
from rl_training.errors import ConfigError
from rl_training.rewards import RewardTransformConfig
from rl_training.text import shown

if TYPE_CHECKING:
    from typing_extensions import Self

DatasetKind = Literal["random", "npz", "pt", "hdf5", "npy", "minari", "starter", "memory"]

SUFFIXES: dict[str, DatasetKind] = {
    ".npz": "npz",
    ".pt": "pt",
    ".pth": "pt",
    ".hdf5": "hdf5",
    ".h5": "hdf5",
}

STARTER_FILES = {"Pendulum-v1": "data/pendulum.npz", "CartPole-v1": "data/cartpole.npz"}
"""The file of `dataset_kind: starter` by environment, if `dataset_path` is not set."""


class DataConfig(ConfigModel):
    """A dataset and its transforms; the reward keys also apply to environments."""

    _env_id: str | None = PrivateAttr(default=None)

    dataset_kind: Annotated[DatasetKind | None, Trait.DATASET, Trait.MAY_CHANGE] = None
    """Format of the recorded data; by default, that of dataset_path or dataset_id."""
    dataset_path: Annotated[str | None, Trait.DATASET, Trait.MAY_CHANGE] = None
    """A .npz, .pt or .hdf5 file, a folder of .npy files, or the folder of a Minari dataset."""
    dataset_id: Annotated[str | None, Trait.DATASET, Trait.MAY_CHANGE] = None
    """The id of a Minari dataset."""
    dataset_download: Annotated[bool, Trait.DATASET, Trait.MAY_CHANGE] = False
    """Download a Minari dataset if it is missing."""
    dataset_memory: Annotated[Literal["auto", "load", "map"], Trait.MAY_CHANGE] = "auto"
    """Load the data, or read rows from memory-mapped files as needed; auto maps large files."""
    dataset_size: Annotated[int, Trait.DATASET, Trait.MAY_CHANGE] = Field(
        default=10_000, gt=0, le=10**9
    )
    """Number of transitions in a random dataset."""
    dataset_seed: Annotated[int, Trait.DATASET, Trait.MAY_CHANGE] = Field(default=0, ge=0)
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
    action_range: Literal["environment", "data"] | tuple[tuple[float, ...], tuple[float, ...]] = (
        "environment"
    )
    """Actions the policy chooses from: all of the environment's, or the range of the data's."""
    action_low: Annotated[float | tuple[float, ...] | None, Trait.FRESH] = None
    """Lower action bounds of the data; only needed if env_id is null."""
    action_high: Annotated[float | tuple[float, ...] | None, Trait.FRESH] = None
    """Upper action bounds of the data; only needed if env_id is null."""

    @model_validator(mode="before")
    @classmethod
    def _infer_kind(cls, data: Any) -> Any:
        """Set a missing `dataset_kind` from the path or the id."""
        if not isinstance(data, Mapping) or data.get("dataset_kind") is not None:
            return data
        path, dataset_id = data.get("dataset_path"), data.get("dataset_id")
        if path and dataset_id:
            raise ValueError("dataset_path and dataset_id are both set: set only one of them")
        if isinstance(path, str | PathLike) and path:
            return {**data, **infer_keys(fspath(path))}
        return {**data, "dataset_kind": "minari"} if dataset_id else data

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
        self._check_place()
        for name in ("num_epochs", "validation_fraction", "action_low", "action_high"):
            if kind is None and getattr(self, name) is not None:
                raise ValueError(f"{name} needs recorded data: set dataset_path, or remove {name}")
        if kind is None and self.action_range == "data":
            raise ValueError(
                "action_range = data needs recorded data: set dataset_path, or remove action_range"
            )
        for name in ("dataset_size", "dataset_seed"):
            if kind != "random" and getattr(self, name) != DataConfig.model_fields[name].default:
                raise ValueError(f"{name} only applies to dataset_kind 'random': remove it")
        if (self.action_low is None) != (self.action_high is None):
            raise ValueError("action_low and action_high must be set together")
        self.rewards()
        return self

    def _check_place(self) -> None:
        """Check that the kind has its path or id, and that they do not contradict each other."""
        kind = self.dataset_kind
        if kind in (*SUFFIXES.values(), "npy") and not self.dataset_path:
            raise ValueError(f"dataset_kind {kind!r} needs dataset_path: set it to the path")
        if kind == "minari" and not (self.dataset_id or self.dataset_path):
            raise ValueError("dataset_kind 'minari' needs dataset_id: set it to the dataset's id")
        if self.dataset_id and kind != "minari":
            raise ValueError(
                f"dataset_id = {self.dataset_id!r} contradicts dataset_kind = {kind}: remove one "
                "of them"
            )
        if not self.dataset_path:
            return
        found = SUFFIXES.get(PurePath(self.dataset_path).suffix.lower(), kind)
        both = kind == "minari" and bool(self.dataset_id)
        if both or kind in ("random", "memory") or (kind != "starter" and kind != found):
            raise ValueError(
                f"dataset_path = {shown(self.dataset_path)} contradicts dataset_kind = {kind}: "
                "remove one of them"
            )

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
        if self.dataset_id is not None:
            return f"Minari dataset {self.dataset_id!r}"
        if self.dataset_kind == "random":
            return "the random dataset"
        if self.dataset_kind == "memory":
            return "the data passed in Python"
        return str(self.dataset_path or self.starter_file)

    @property
    def starter_file(self) -> str:
        """The file of the starter dataset for the environment of the config."""
        return STARTER_FILES.get(self._env_id or "", next(iter(STARTER_FILES.values())))

    def for_env(self, env_id: str | None) -> Self:
        """Return the settings of a config with this environment."""
        bound = self.model_copy()
        bound._env_id = env_id
        return bound

    @property
    def needs_starter_recording(self) -> bool:
        """Whether the starter dataset is used, and its default file does not exist yet.

        A file set with `dataset_path` is never recorded: a misspelled path should be an error.
        """
        wanted = self.dataset_kind == "starter" and self.dataset_path is None
        return wanted and not Path(self.starter_file).exists()


def infer_keys(source: str) -> dict[str, Any]:
    """Return the keys of a dataset that is given by its path or its Minari id.

    Raises:
        ConfigError: It is neither.
    """
    keys: dict[str, Any] = {"dataset_path": source, "dataset_id": None}
    suffix = PurePath(source).suffix.lower()
    if suffix in SUFFIXES:
        return {**keys, "dataset_kind": SUFFIXES[suffix]}
    if os.path.isdir(source):  # False for an invalid path
        kind = "minari" if is_minari_folder(Path(source)) else "npy"
        return {**keys, "dataset_kind": kind}
    if os.path.exists(source):
        raise ConfigError(
            f"{source!r}: the file name must end in {' or '.join(SUFFIXES)}; otherwise set "
            "dataset_kind."
        )
    try:
        check_minari_id(source)
    except ConfigError:
        raise ConfigError(
            f"{shown(source)} is neither a dataset file ({', '.join(SUFFIXES)}), nor a folder of "
            ".npy files, nor a Minari id such as 'D4RL/door/human-v2'."
        ) from None
    return {"dataset_kind": "minari", "dataset_path": None, "dataset_id": source}

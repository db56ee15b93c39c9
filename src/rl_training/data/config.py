"""The `algo_kwargs` that say where data comes from and what is done to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rl_training.rewards import RewardTransformConfig

if TYPE_CHECKING:
    from typing_extensions import Self

DatasetKind = Literal["random", "npz", "pt", "hdf5", "minari"]


class DataConfig(BaseModel):
    """A dataset and its transforms; the reward keys hold for environments too."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    dataset_kind: DatasetKind | None = Field(
        None, description="Where recorded data comes from; null for none."
    )
    dataset_path: str | None = Field(None, description="The file of an npz, pt or hdf5 dataset.")
    dataset_id: str | None = Field(None, description="The id of a Minari dataset.")
    dataset_download: bool = Field(False, description="Let Minari download a missing dataset.")
    dataset_size: int = Field(10_000, gt=0, description="Transitions of a random dataset.")
    dataset_seed: int = Field(0, ge=0, description="Seed of a random dataset.")
    reward_scale: float = Field(1.0, description="Factor on every reward.")
    reward_shift: float = Field(0.0, description="Added to every reward after scaling.")
    reward_clip_min: float | None = Field(None, description="Least reward, after scale and shift.")
    reward_clip_max: float | None = Field(
        None, description="Greatest reward, after scale and shift."
    )
    return_scaling: bool = Field(
        False, description="Scale a dataset's rewards by 1000 over its range of returns."
    )
    normalize_states: bool = Field(
        False, description="Standardise observations by the dataset's mean and deviation."
    )
    sampling: Literal["replacement", "epochs"] = Field(
        "replacement",
        description="Draw dataset rows independently, or every row once an epoch.",
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        kind = self.dataset_kind
        if kind in ("npz", "pt", "hdf5") and not self.dataset_path:
            raise ValueError(f"dataset_kind {kind!r} needs dataset_path")
        if kind == "minari" and not self.dataset_id:
            raise ValueError("dataset_kind 'minari' needs dataset_id")
        if kind is None and (self.dataset_path or self.dataset_id):
            raise ValueError("dataset_path or dataset_id needs dataset_kind")
        self.rewards()
        return self

    def rewards(self) -> RewardTransformConfig:
        """The reward keys as the one transform."""
        return RewardTransformConfig(
            scale=self.reward_scale,
            shift=self.reward_shift,
            clip_min=self.reward_clip_min,
            clip_max=self.reward_clip_max,
        )

    @property
    def source(self) -> str:
        """The dataset in words, for messages."""
        if self.dataset_kind == "minari":
            return f"Minari dataset {self.dataset_id!r}"
        if self.dataset_kind == "random":
            return "the random dataset"
        return str(self.dataset_path)

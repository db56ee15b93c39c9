"""Hindsight Experience Replay (arXiv 1707.01495): options and declaration.

HER is not a learner; it relabels another learner's batches (`data/hindsight.py`).
"""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar, Literal, cast

from pydantic import Field, create_model, field_validator

from rl_training.algorithms.config import AlgorithmConfig
from rl_training.config_model import ConfigModel
from rl_training.types import ActionKind, Mode


class HindsightConfig(ConfigModel):
    """Hyperparameters of HER (docs/algorithms/her.md)."""

    base_algo: str = "sac"
    """The learner: any online algorithm for continuous actions; its options are accepted too."""
    her_strategy: Literal["future", "final", "episode"] = "future"
    """Which achieved goals of the episode replace a transition's goal."""
    her_ratio: float = Field(default=0.8, ge=0, le=1)
    """Share of transitions that are relabeled with another goal; 0 relabels none."""
    replay: Literal["uniform"] = "uniform"
    """Always uniform, since priorities would refer to the original goals."""

    @field_validator("replay", mode="before")
    @classmethod
    def _is_uniform(cls, replay: Any) -> Any:
        if replay == "prioritized":
            raise ValueError(
                "HER samples transitions uniformly, since a new goal changes their TD errors; "
                "remove this key"
            )
        return replay

    @property
    def replay_kind(self) -> str:
        """The kind of replay, a key of `data.replays.REPLAYS`."""
        return "hindsight"

    def replay_options(self) -> dict[str, Any]:
        """Return the arguments of the replay buffer other than sizes and device."""
        return {"strategy": self.her_strategy, "ratio": self.her_ratio}


class HER:
    """The declaration of HER, in the form of a learner class."""

    name: ClassVar[str] = "her"
    title: ClassVar[str] = "Hindsight Experience Replay"
    paper: ClassVar[str] = "arXiv 1707.01495"
    mode: ClassVar[Mode] = "online"
    actions: ClassVar[ActionKind] = "continuous"
    goals: ClassVar[bool] = True
    summary: ClassVar[str] = "Relabels goals with achieved goals, for any online learner."
    config_class: ClassVar[type[ConfigModel]] = HindsightConfig


@cache
def hindsight_config(base: type[AlgorithmConfig]) -> type[AlgorithmConfig]:
    """Return the base algorithm's config class extended with HER's keys."""
    bases: Any = (HindsightConfig, base)
    return cast("type[AlgorithmConfig]", create_model(f"HER{base.__name__}", __base__=bases))

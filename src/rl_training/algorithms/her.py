"""Hindsight Experience Replay (arXiv 1707.01495): its keys beside those of the learner it feeds.

HER is no learner: it changes the batches of one. `data/hindsight.py` makes them.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, cast

from pydantic import Field, create_model

from rl_training.algorithms.config import AlgorithmConfig
from rl_training.config_model import ConfigModel


class HindsightConfig(ConfigModel):
    """HER's own hyper-parameters (docs/algorithms/her.md)."""

    base_algo: str = Field(
        default="sac", description="The learner: any online algorithm for continuous actions."
    )
    her_strategy: Literal["future", "final", "episode"] = Field(
        default="future",
        description="Which achieved goals of its episode replace a transition's goal.",
    )
    her_ratio: float = Field(
        default=0.8,
        ge=0,
        le=1,
        description="Share of transitions that get another goal; 0 for none.",
    )


@cache
def hindsight_config(base: type[AlgorithmConfig]) -> type[AlgorithmConfig]:
    """The base algorithm's config with HER's keys: both a `HindsightConfig` and a ``base``."""
    bases: Any = (HindsightConfig, base)
    return cast("type[AlgorithmConfig]", create_model(f"HER{base.__name__}", __base__=bases))

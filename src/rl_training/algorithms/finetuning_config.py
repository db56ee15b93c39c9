"""Options of a fine-tuning run, in addition to those of its learner.

Fine-tuning is not a learner: the checkpoint's algorithm continues online, on batches from
`MixedSampler`.
"""

from __future__ import annotations

from functools import cache
from typing import Any, cast

from pydantic import Field, create_model

from rl_training.algorithms.config import AlgorithmConfig, MixingConfig


class FinetuningConfig(MixingConfig):
    """Keys of a fine-tuning run (docs/finetuning.md)."""

    finetuned_step: int = Field(ge=0)
    """Step of the source checkpoint; the step count continues from it."""
    learning_starts: int = Field(default=5_000, ge=0)
    """Environment steps before the first update on new experience."""
    random_play: bool = False
    """Take random actions until `learning_starts`; otherwise the policy acts from the start."""

    @property
    def first_step(self) -> int:
        """Step of the source checkpoint, from which the count continues."""
        return self.finetuned_step


@cache
def finetuning_config(base: type[AlgorithmConfig]) -> type[AlgorithmConfig]:
    """Return the algorithm's config class extended with the keys above."""
    bases: Any = (FinetuningConfig, base)
    own = {name: (field.annotation, field) for name, field in base.model_fields.items()}
    kept: Any = {k: v for k, v in own.items() if k not in FinetuningConfig.__annotations__}
    return cast(
        "type[AlgorithmConfig]",
        create_model(f"Finetuned{base.__name__}", __base__=bases, **kept),
    )

"""Fine-tuning: the keys of a run that goes on online from a checkpoint, beside its learner's own.

It is no learner: the checkpoint's algorithm goes on, with the batches of `MixedSampler`.
"""

from __future__ import annotations

from functools import cache
from typing import Any, cast

from pydantic import Field, create_model

from rl_training.algorithms.config import AlgorithmConfig, MixingConfig


class FinetuningConfig(MixingConfig):
    """A fine-tuning run's own keys (docs/finetuning.md)."""

    finetuned_step: int = Field(ge=0)
    """Step of the checkpoint that the run went on from; steps go on from it."""
    learning_starts: int = Field(default=5_000, ge=0)
    """Environment steps before the first update on new experience."""
    random_play: bool = False
    """Play at random until `learning_starts`; else the policy plays."""

    @property
    def first_step(self) -> int:
        """The count continues from the checkpoint's."""
        return self.finetuned_step


@cache
def finetuning_config(base: type[AlgorithmConfig]) -> type[AlgorithmConfig]:
    """The algorithm's config with the keys above; where both have a key, the meaning is one."""
    bases: Any = (FinetuningConfig, base)
    own = {name: (field.annotation, field) for name, field in base.model_fields.items()}
    kept: Any = {k: v for k, v in own.items() if k not in FinetuningConfig.__annotations__}
    return cast(
        "type[AlgorithmConfig]",
        create_model(f"Finetuned{base.__name__}", __base__=bases, **kept),
    )

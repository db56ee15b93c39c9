"""Hyper-parameters that algorithms share; each algorithm's file extends them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rl_training.config_model import ConfigModel, Trait

# Upper bounds are far above any use: typos are caught before memory is allocated.
Width = Annotated[int, Field(gt=0, le=65_536), Trait.NETWORK_SIZE]
Widths = Annotated[tuple[Width, ...], Field(min_length=1, max_length=64), Trait.NETWORK_SIZE]
EnsembleSize = Annotated[int, Field(gt=0, le=65_536), Trait.NETWORK_SIZE]
BatchSize = Annotated[int, Field(gt=0, le=2**24), Trait.UPDATE_SIZE]
SampleCount = Annotated[int, Field(gt=0, le=65_536), Trait.UPDATE_SIZE]
Capacity = Annotated[int, Field(gt=0, le=10**9)]
LearningRate = Annotated[float, Field(gt=0, le=10)]


class AlgorithmConfig(ConfigModel):
    """Base of every algorithm's config: frozen, and an unknown key is an error."""

    batch_size: BatchSize = 256
    """Transitions in one gradient update."""
    learning_rate: LearningRate = 3e-4
    """Adam's step size, for every network."""
    hidden_sizes: Widths = (256, 256)
    """Widths of the hidden layers."""


class ValueConfig(AlgorithmConfig):
    """What every learner of values has, online or offline."""

    gamma: float = Field(default=0.99, ge=0, le=1)
    """Discount factor γ."""
    tau: float = Field(default=0.005, gt=0, le=1)
    """Polyak rate τ of the target networks."""


class CollectionConfig(AlgorithmConfig):
    """What every learner that collects its data has."""

    buffer_capacity: Capacity = 1_000_000
    """Transitions that the replay keeps; the oldest are dropped."""
    learning_starts: Annotated[int, Trait.FRESH] = Field(default=5_000, ge=0)
    """Environment steps of uniform random actions before the first update."""
    train_frequency: int = Field(default=1, gt=0)
    """Collected transitions between rounds of updates."""
    gradient_updates_per_step: int = Field(default=1, gt=0)
    """Updates in each round."""


class MixingConfig(CollectionConfig):
    """What every learner that collects beside a dataset has."""

    offline_batch_ratio: Annotated[float, Trait.FRESH] = Field(default=0.5, ge=0, le=1)
    """Share of the dataset's rows in every batch, rounded to whole rows, a half up."""
    offline_pretrain_updates: Annotated[int, Trait.FRESH] = Field(default=0, ge=0)
    """Updates on the dataset alone before the first environment step; intervals count them."""
    random_play: Annotated[bool, Trait.FRESH] = True
    """Play at random until `learning_starts`; otherwise the policy plays from the first step."""

    @property
    def first_step(self) -> int:
        """Where the run's count of steps begins."""
        return 0

    @property
    def online_from(self) -> int:
        """The step at which collection begins: all steps before it are gradient updates."""
        return self.first_step + self.offline_pretrain_updates


class OffPolicyConfig(CollectionConfig, ValueConfig):
    """What every online learner has."""

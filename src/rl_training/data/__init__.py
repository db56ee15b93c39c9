"""Sources of batches: replay buffers, recorded data, and samplers that draw from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.lazy import lazy_exports

if TYPE_CHECKING:
    from rl_training.generated.data import *
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "config": ["DataConfig"],
            "dataset_loaders": ["load_transition_dataset"],
            "hindsight": ["HindsightReplay"],
            "offline_dataset": ["TransitionDataset"],
            "prioritized_replay": ["PrioritizedReplay"],
            "recorded": ["DatasetStatistics"],
            "replay_buffer": ["ReplayBuffer", "ReplayPlan"],
            "samplers": ["EpochSampler", "MixedSampler", "NormalizedSampler"],
        },
    )

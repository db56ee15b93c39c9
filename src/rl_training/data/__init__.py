"""Where batches come from: replay, recorded data, and the order they are sampled in."""

from rl_training.data.config import DataConfig
from rl_training.data.dataset_loaders import load_transition_dataset
from rl_training.data.hindsight import HindsightReplay
from rl_training.data.offline_dataset import DatasetStatistics, TransitionDataset
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.samplers import EpochSampler, MixedSampler, NormalizedSampler

__all__ = [
    "DataConfig",
    "DatasetStatistics",
    "EpochSampler",
    "HindsightReplay",
    "MixedSampler",
    "NormalizedSampler",
    "ReplayBuffer",
    "TransitionDataset",
    "load_transition_dataset",
]

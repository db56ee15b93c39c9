"""The exports of `rl_training.data`. Written by `make generate`. Do not edit."""

from rl_training.data.config import DataConfig as DataConfig
from rl_training.data.dataset_loaders import load_transition_dataset as load_transition_dataset
from rl_training.data.hindsight import HindsightReplay as HindsightReplay
from rl_training.data.offline_dataset import TransitionDataset as TransitionDataset
from rl_training.data.prioritized_replay import PrioritizedReplay as PrioritizedReplay
from rl_training.data.recorded import DatasetStatistics as DatasetStatistics
from rl_training.data.replay_buffer import ReplayBuffer as ReplayBuffer
from rl_training.data.replay_buffer import ReplayPlan as ReplayPlan
from rl_training.data.samplers import EpochSampler as EpochSampler
from rl_training.data.samplers import MixedSampler as MixedSampler
from rl_training.data.samplers import NormalizedSampler as NormalizedSampler

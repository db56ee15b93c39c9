"""Replay buffers that a config can select."""

from __future__ import annotations

from collections.abc import Mapping

from rl_training.data.hindsight import HindsightReplay
from rl_training.data.prioritized_replay import PrioritizedReplay
from rl_training.data.replay_buffer import ReplayBuffer

REPLAYS: Mapping[str, type[ReplayBuffer]] = {
    "uniform": ReplayBuffer,
    "prioritized": PrioritizedReplay,
    "hindsight": HindsightReplay,
}
"""Classes by `CollectionConfig.replay_kind`."""

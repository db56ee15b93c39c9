"""Replays of all members as one tensor contain what each member would store alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rl_training.data import ReplayBuffer
from rl_training.runtime.population.replays import SLOTS, StackedReplays

CAPACITY, OBS, ACTIONS, ENVS, MEMBERS = 14, 3, 2, 2, 3


def buffers() -> list[ReplayBuffer]:
    return [ReplayBuffer(CAPACITY, OBS, ACTIONS, ENVS) for _ in range(MEMBERS)]


def transitions(rng: np.random.Generator) -> list[Any]:
    """Return a transition of every environment of all members."""
    count = MEMBERS * ENVS
    obs, actions, rewards, next_obs = (
        rng.normal(size=shape).astype(np.float32)
        for shape in ((count, OBS), (count, ACTIONS), (count,), (count, OBS))
    )
    terminations, truncations = rng.random((2, count)) < 0.3
    return [obs, actions, rewards, next_obs, terminations, truncations]


def test_rows_equal_those_of_separate_replays() -> None:
    """Whichever members add transitions, including none, and after the ring is full."""
    rng = np.random.default_rng(0)
    stacked, separate = StackedReplays(buffers()), buffers()
    for _ in range(2 * SLOTS):
        members = np.flatnonzero(rng.random(MEMBERS) < 0.5).tolist()
        arrays = transitions(rng)
        stacked.add(members, *arrays)
        for member in members:
            own = [array[member * ENVS : (member + 1) * ENVS] for array in arrays]
            separate[member].add(*own)
    for ours, theirs in zip(stacked.buffers, separate, strict=True):
        assert len(ours) == len(theirs) == CAPACITY
        assert ours.total == theirs.total
        assert torch.equal(ours.rows, theirs.rows)
        assert torch.equal(ours.filled, theirs.filled)

"""The replay: a ring of packed rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_training.data import replay_buffer
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.errors import CheckpointError


def add(buffer: ReplayBuffer, values: list[int]) -> None:
    """Add transitions that are identified by one number."""
    v = np.asarray(values, dtype=np.float32)[:, None]
    buffer.add(
        v + np.array([0.0, 0.25], dtype=np.float32),
        v / 1000,
        v[:, 0] * 2,
        v + 0.5,
        v[:, 0] % 3 == 0,
        v[:, 0] % 5 == 0,
    )


def stored(buffer: ReplayBuffer) -> list[int]:
    return [int(x) for x in buffer.rows[: len(buffer), 0]]


@given(
    capacity=st.integers(1, 30),
    counts=st.lists(st.integers(1, 7), min_size=1, max_size=20),
)
def test_ring_keeps_the_newest(capacity: int, counts: list[int]) -> None:
    buffer = ReplayBuffer(capacity, 2, 1)
    seen: list[int] = []
    for count in (min(count, capacity) for count in counts):
        fresh = list(range(len(seen), len(seen) + count))
        add(buffer, fresh)
        seen += fresh
    assert len(buffer) == min(len(seen), capacity)
    assert sorted(stored(buffer)) == seen[-capacity:]


def test_batches_are_whole_transitions() -> None:
    buffer = ReplayBuffer(100, 2, 1)
    add(buffer, list(range(100)))
    batch = buffer.sample(500, torch.Generator().manual_seed(0))
    value = batch.obs[:, 0]
    torch.testing.assert_close(batch.obs[:, 1], value + 0.25)
    torch.testing.assert_close(batch.actions[:, 0], value / 1000)
    torch.testing.assert_close(batch.rewards, value * 2)
    torch.testing.assert_close(batch.next_obs[:, 0], value + 0.5)
    torch.testing.assert_close(batch.terminations, (value % 3 == 0).float())
    assert len(set(value.tolist())) > 90  # 500 draws from 100 rows reach almost all


def test_sampling_never_reaches_unfilled_rows() -> None:
    buffer = ReplayBuffer(1000, 2, 1)
    buffer.rows.fill_(float("nan"))
    add(buffer, [1, 2, 3])
    batch = buffer.sample(2000, torch.Generator().manual_seed(0))
    assert set(batch.obs[:, 0].tolist()) == {1.0, 2.0, 3.0}


def test_sampling_is_uniform() -> None:
    buffer = ReplayBuffer(10, 2, 1)
    add(buffer, list(range(10)))
    drawn = buffer.sample(20_000, torch.Generator().manual_seed(0)).obs[:, 0]
    counts = torch.bincount(drawn.long(), minlength=10)
    assert (counts - 2000).abs().max() < 5 * (2000 * 0.9) ** 0.5


def test_sampling_from_an_empty_buffer_is_an_error() -> None:
    with pytest.raises(ValueError, match="empty"):
        ReplayBuffer(10, 2, 1).sample(1, torch.Generator())


def test_memory_matches_the_contents() -> None:
    """A million HalfCheetah transitions: at most 1.1 times the bytes of their float32 values."""
    buffer = ReplayBuffer(1_000_000, 17, 6)
    contents = 1_000_000 * 4 * (17 + 6 + 1 + 17 + 1)
    assert buffer.rows.element_size() * buffer.rows.nelement() <= 1.1 * contents


@settings(deadline=None, max_examples=30)
@given(counts=st.lists(st.integers(1, 9), min_size=1, max_size=15), capacity=st.integers(9, 40))
def test_segments_rebuild_the_buffer(counts: list[int], capacity: int) -> None:
    """Save dirty segments at random times and restore the whole buffer."""
    original, saved = replay_buffer.SEGMENT_ROWS, dict[int, Any]()
    replay_buffer.SEGMENT_ROWS = 8
    try:
        buffer, total = ReplayBuffer(capacity, 2, 1), 0
        for index, count in enumerate(counts):
            add(buffer, list(range(total, total + count)))
            total += count
            if index % 2:
                saved |= {i: buffer.segment(i).copy() for i in buffer.dirty}
                buffer.dirty.clear()
        saved |= {i: buffer.segment(i).copy() for i in buffer.dirty}
        copy = ReplayBuffer(capacity, 2, 1)
        copy.load_state_dict(buffer.state_dict())
        assert sorted(saved) == list(range(copy.num_segments()))
        for index, rows in saved.items():
            copy.load_segment(index, rows)
        assert torch.equal(copy.rows[: len(copy)], buffer.rows[: len(buffer)])
    finally:
        replay_buffer.SEGMENT_ROWS = original


@pytest.mark.parametrize(
    "rows", [np.zeros((3, 9), np.float32), np.zeros((5, 8), np.float32), np.zeros((5, 9))]
)
def test_segment_of_another_shape_is_rejected(rows: Any) -> None:
    buffer = ReplayBuffer(10, 2, 3)
    buffer.load_state_dict({"total": 5, "capacity": 10})
    with pytest.raises(CheckpointError, match="segment 0"):
        buffer.load_segment(0, rows)

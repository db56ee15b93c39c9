"""Prioritized replay against a slow reference, its distribution, and its saved state."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rl_training.boundary.values import StateError
from rl_training.data import MixedSampler, PrioritizedReplay, TransitionDataset
from rl_training.data.prioritized_replay import PriorityTable
from rl_training.data.samplers import NormalizedSampler
from rl_training.errors import ConfigError
from rl_training.types import TD_ERROR, Batch


class SlowTable:
    """Priorities as a list of numbers, written from the paper."""

    def __init__(self, size: int) -> None:
        self.values = [0.0] * size
        self.largest = 1.0

    def add_rows(self, start: int, stop: int) -> None:
        for row in range(start, stop):
            self.values[row] = self.largest

    def update(self, rows: list[int], priorities: list[float]) -> None:
        for row in rows:
            self.values[row] = max(p for r, p in zip(rows, priorities, strict=True) if r == row)
        self.largest = max(self.largest, *priorities)


def chi_square_p(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> float:
    """Return the p-value of the counts."""
    statistic = ((found - expected) ** 2 / expected).sum()
    half = torch.tensor([(len(found) - 1) / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


def draw_counts(table: PriorityTable, count: int, seed: int = 0) -> Counter[int]:
    return Counter(table.draw(count, torch.Generator().manual_seed(seed)).tolist())


@given(st.data())
def test_priorities_equal_a_slow_reference(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 1200))
    table, slow, filled = PriorityTable(size), SlowTable(size), 0
    for _ in range(data.draw(st.integers(1, 6))):
        start = data.draw(st.integers(0, filled if filled < size else size - 1))
        stop = data.draw(st.integers(start + 1, size))
        table.add_rows(start, stop)
        slow.add_rows(start, stop)
        filled = max(filled, stop)
        rows = data.draw(st.lists(st.integers(0, filled - 1), min_size=1, max_size=12))
        width = len(rows)
        priorities = data.draw(
            st.lists(st.floats(2.0**-40, 2.0**40, width=32), min_size=width, max_size=width)
        )
        table.update(torch.tensor(rows), torch.tensor(priorities))
        slow.update(rows, priorities)
        assert table.values.tolist() == slow.values
        assert table.largest.item() == slow.largest
    assert all(slow.values[row] > 0 for row in draw_counts(table, 200))


@pytest.mark.parametrize("size", [1, 7, 64, 65, 4097, 1_000_000])
def test_any_size_has_a_place_for_every_row(size: int) -> None:
    table = PriorityTable(size)
    for row in {0, size // 2, size - 1}:
        table.values.zero_()
        table.add_rows(row, row + 1)
        assert draw_counts(table, 50) == {row: 50}


def test_draws_are_in_proportion_to_priorities() -> None:
    """χ² test with a fixed seed; a correct table fails for one seed in a thousand."""
    size, draws = 600, 400_000
    table = PriorityTable(size)
    priorities = np.random.default_rng(0).lognormal(0.0, 1.5, size).astype(np.float32)
    priorities[::7] = 0.0
    table.values.copy_(torch.from_numpy(priorities))
    counts = draw_counts(table, draws)
    kept = np.flatnonzero(priorities)
    assert set(counts) <= set(kept.tolist())
    found = np.array([counts[row] for row in kept.tolist()])
    expected = draws * priorities[kept].astype(float) / priorities.astype(float).sum()
    likely = expected >= 5  # the test's condition; rare rows are one cell
    cells = [np.append(x[likely], x[~likely].sum()) for x in (found, expected)]
    assert chi_square_p(*cells) > 1e-3


def test_tiny_priorities_are_drawn_next_to_large_ones() -> None:
    table = PriorityTable(1_000_000)
    table.values.fill_(1e-7)
    table.values[123_456] = 0.1  # as much as all others together
    counts = draw_counts(table, 4000)
    assert 1800 < counts[123_456] < 2200
    others = np.array([row for row in counts if row != 123_456])
    cells = np.bincount(others // 10_000, minlength=100)
    assert chi_square_p(cells, np.full(100, len(others) / 100)) > 1e-3


def test_draws_are_independent() -> None:
    """Neighbors in a batch are as likely to be equal as any other two."""
    table = PriorityTable(64)
    table.add_rows(0, 64)
    drawn = table.draw(40_000, torch.Generator().manual_seed(0))
    equal = int((drawn[1:] == drawn[:-1]).sum())
    cells = np.array([equal, 39_999 - equal])
    assert chi_square_p(cells, 39_999 * np.array([1 / 64, 63 / 64])) > 1e-3


# --- The replay -----------------------------------------------------------------


def add(replay: PrioritizedReplay, count: int, num_envs: int = 1) -> None:
    """Add transitions whose observation is their number, ``num_envs`` at a time."""
    for first in range(replay.total, replay.total + count, num_envs):
        number = np.arange(first, first + num_envs, dtype=np.float32)
        no = np.zeros(num_envs, bool)
        replay.add(number[:, None], number[:, None] * 0, number, number[:, None] + 1, no, no)


def sample(replay: Any, size: int = 16, seed: int = 0) -> Batch:
    batch: Batch = replay.sample(size, torch.Generator().manual_seed(seed))
    return batch


@given(st.data())
def test_replay_equals_a_slow_reference(data: st.DataObject) -> None:
    """Priorities by transition number, through wrap-around and with several environments."""
    num_envs = data.draw(st.integers(1, 3))
    capacity = data.draw(st.integers(num_envs, 25))
    alpha, epsilon = data.draw(st.sampled_from([(0.6, 1e-6), (1.0, 0.1), (0.0, 1e-6)]))
    replay = PrioritizedReplay(
        capacity,
        1,
        1,
        num_envs=num_envs,
        priority_exponent=alpha,
        priority_epsilon=epsilon,
    )
    slow: dict[int, float] = {}
    largest = 1.0
    for seed in range(data.draw(st.integers(1, 8))):
        for _ in range(data.draw(st.integers(1, 6))):
            slow |= dict.fromkeys(range(replay.total, replay.total + num_envs), largest)
            add(replay, num_envs, num_envs)
        slow = {number: slow[number] for number in sorted(slow)[-capacity:]}
        batch = sample(replay, 6, seed)
        drawn = [int(number) for number in batch.rewards]
        assert set(drawn) <= set(slow)
        places = batch.indices.tolist()
        assert places == [number % capacity for number in drawn]
        errors = np.random.default_rng(seed).normal(0, 3, 6).astype(np.float32)
        replay.feedback(batch, {TD_ERROR: torch.from_numpy(errors)})
        fresh = [(abs(float(error)) + epsilon) ** alpha for error in errors]
        for number in drawn:
            slow[number] = max(p for n, p in zip(drawn, fresh, strict=True) if n == number)
        largest = max(largest, *fresh)
        found = {number: float(replay.priorities.values[number % capacity]) for number in slow}
        assert found == pytest.approx(slow, rel=1e-5)
    assert float(replay.priorities.largest) == pytest.approx(largest, rel=1e-5)


@pytest.mark.parametrize("added", [10, 40, 100])
def test_weights_follow_the_formula_of_the_paper(added: int) -> None:
    """w_i = (N P(i))^−β / max_j w_j, with β on its way from 0.4 to 1 in 80 transitions."""
    replay = PrioritizedReplay(30, 1, 1, horizon=80)
    add(replay, added)
    first = sample(replay)
    replay.feedback(first, {TD_ERROR: torch.linspace(0.01, 5, 16)})
    batch = sample(replay, seed=1)
    priorities = replay.priorities.values[: len(replay)].double().numpy()
    probabilities = priorities / priorities.sum()
    beta = 0.4 + 0.6 * min(1.0, added / 80)
    weights = (len(replay) * probabilities[batch.indices.numpy()]) ** -beta
    np.testing.assert_allclose(batch.weights.numpy(), weights / weights.max(), rtol=1e-5)
    assert len(set(batch.weights.tolist())) > 3


def test_each_batch_of_a_block_is_weighted_separately() -> None:
    replay = PrioritizedReplay(30, 1, 1)
    add(replay, 30)
    replay.feedback(sample(replay), {TD_ERROR: torch.linspace(0.01, 5, 16)})
    generator = torch.Generator().manual_seed(1)
    replay.prepare(8, generator, 3)
    weights = replay.gather(8, generator, 3).weights.view(3, 8)
    assert weights.amax(-1).tolist() == [1.0, 1.0, 1.0]
    assert replay.most_updates(8) == 1


def test_draws_follow_td_errors() -> None:
    replay = PrioritizedReplay(100, 1, 1, priority_exponent=1.0)
    add(replay, 100)
    everything = replay.batch(torch.arange(100))
    replay.feedback(everything, {TD_ERROR: torch.where(torch.arange(100) < 10, 9.0, 1.0)})
    counts = np.bincount(sample(replay, 20_000).indices, minlength=100)
    expected = 20_000 * np.where(np.arange(100) < 10, 9.0, 1.0) / 180
    assert chi_square_p(counts, expected) > 1e-3


def test_learner_without_td_errors_gets_a_clear_error() -> None:
    replay = PrioritizedReplay(10, 1, 1)
    add(replay, 3)
    with pytest.raises(ConfigError, match="does not return 'sample/td_error'"):
        replay.feedback(sample(replay), {})
    batch = sample(replay)
    both = torch.ones(2, len(batch.rewards))
    with pytest.raises(ConfigError, match=r"has the shape \[2, \d+\], but should have one value"):
        replay.feedback(batch, {"sample/td_error": both})


# --- Mixtures -------------------------------------------------------------------


def mixture(ratio: float = 0.5, **options: Any) -> tuple[MixedSampler, PrioritizedReplay]:
    rows: dict[str, Any] = {
        "observations": np.full((40, 1), -1.0),
        "next_observations": np.full((40, 1), -1.0),
    }
    rows |= {"actions": np.zeros((40, 1)), "rewards": np.full(40, -1.0)}
    data = TransitionDataset.from_dict(rows | {"terminals": np.zeros(40), "timeouts": np.zeros(40)})
    replay = PrioritizedReplay(30, 1, 1)
    add(replay, 30)
    shift, scale = torch.zeros(1), torch.ones(1)
    online = NormalizedSampler(replay, shift, scale)
    mixed = MixedSampler(NormalizedSampler(data, shift, scale), online, ratio, **options)
    mixed.supply(PrioritizedReplay.needed_fields)
    return mixed, replay


def test_recorded_rows_have_weight_1_and_no_priority() -> None:
    mixed, replay = mixture()
    batch = sample(mixed)
    assert (batch.rewards < 0).tolist() == [True] * 8 + [False] * 8
    mixed.feedback(batch, {TD_ERROR: torch.cat((torch.full((8,), 100.0), torch.ones(8)))})
    drawn = set(batch.indices[8:].tolist())
    values = replay.priorities.values
    assert {row for row in range(30) if values[row] != 1.0} == drawn  # 1 + ε, not 100
    assert values.max() < 1.01
    replay.feedback(replay.batch(torch.arange(5)), {TD_ERROR: torch.arange(5.0)})
    weights = sample(mixed, 64).weights
    assert weights[:32].tolist() == [1.0] * 32
    assert len(set(weights[32:].tolist())) > 1


def test_pretraining_has_the_same_fields_and_no_feedback() -> None:
    mixed, replay = mixture(pretraining=True)
    batch = sample(mixed)
    assert list(batch.extra) == list(PrioritizedReplay.needed_fields)
    assert batch.weights.tolist() == [1.0] * 16
    mixed.feedback(batch, {TD_ERROR: torch.full((16,), 5.0)})
    assert set(replay.priorities.values.tolist()) == {1.0}
    assert mixed.most_updates(16) > 1
    mixed.pretraining = False
    assert mixed.most_updates(16) == 1


# --- Saving ---------------------------------------------------------------------


def filled(capacity: int = 30, count: int = 47) -> PrioritizedReplay:
    replay = PrioritizedReplay(capacity, 1, 1, horizon=100)
    add(replay, count)
    replay.feedback(sample(replay), {TD_ERROR: torch.linspace(0.01, 50, 16)})
    return replay


@pytest.mark.parametrize("count", [0, 12, 47])
def test_restored_replay_continues_identically(count: int) -> None:
    whole = filled(count=count) if count else PrioritizedReplay(30, 1, 1, horizon=100)
    other = PrioritizedReplay(30, 1, 1, horizon=100)
    other.priorities.values.fill_(3.0)  # no earlier value may remain
    other.load_state_dict(whole.state_dict())
    for index in range(whole.num_segments()):
        other.load_segment(index, whole.segment(index).copy())
    for seed in range(3):
        add(whole, 1)
        add(other, 1)
        batches = [sample(replay, 16, seed) for replay in (whole, other)]
        for one, two in zip(*(batch.tensors() for batch in batches), strict=True):
            assert torch.equal(one, two)
        for replay, batch in zip((whole, other), batches, strict=True):
            replay.feedback(batch, {TD_ERROR: batch.rewards + seed})
    assert torch.equal(whole.priorities.values, other.priorities.values)
    assert torch.equal(whole.priorities.largest, other.priorities.largest)


def with_value(value: float) -> Any:
    def change(state: dict[str, Any]) -> None:
        state["priorities"] = state["priorities"].copy()
        state["priorities"][3] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_value(float("nan")), "finite numbers"),
        (with_value(float("inf")), "finite numbers"),
        (with_value(-1.0), "above 0"),
        (with_value(0.0), "above 0"),
        (with_value(1e30), "largest_priority is"),
        (lambda state: state.update(priorities=state["priorities"][1:]), r"float32\[29\]"),
        (lambda state: state.update(priorities=state["priorities"].astype(float)), "float64"),
        (lambda state: state.update(priorities="many"), "'many'"),
        (lambda state: state.update(largest_priority=float("nan")), "finite number"),
        (lambda state: state.update(largest_priority=1e300), "largest_priority is 1e\\+300"),
        (lambda state: state.update(largest_priority=0.5), "largest_priority is 0.5"),
    ],
)
def test_invalid_saved_priorities_are_rejected(change: Any, message: str) -> None:
    state = filled().state_dict()
    change(state)
    with pytest.raises(StateError, match=message):
        PrioritizedReplay(30, 1, 1).load_state_dict(state)

"""Scores of runs, and what they mean for a trial."""

from __future__ import annotations

import pytest

from rl_training.tuning.objective import AGGREGATES, Objective


def objective(score: str = "last_return", aggregate: str = "worse_half") -> Objective:
    return Objective(score, aggregate, interval=10, last_step=45)


def test_aggregates() -> None:
    values = [4.0, -2.0, 1.0, 9.0, 0.0]
    found = {name: combine(values) for name, combine in AGGREGATES.items()}
    assert found["mean"] == pytest.approx(2.4)
    assert found["median"] == 1.0
    assert found["worst"] == -2.0
    assert found["worse_half"] == pytest.approx((-2.0 + 0.0 + 1.0) / 3)


@pytest.mark.parametrize("count", range(1, 8))
def test_a_lucky_minority_does_not_change_the_worse_half(count: int) -> None:
    scores = [float(n) for n in range(count)]
    lucky = [s if n < (count + 1) // 2 else 1e6 for n, s in enumerate(scores)]
    combine = AGGREGATES["worse_half"]
    assert combine(lucky) == combine(scores)
    assert AGGREGATES["mean"](lucky) != AGGREGATES["mean"](scores) or count == 1


def test_scores_of_a_run() -> None:
    values = {10: -5.0, 20: 3.0, 30: 1.0}
    assert objective("last_return").score_of(values) == 1.0
    assert objective("best_return").score_of(values) == 3.0
    assert objective("area_under_curve").score_of(values) == pytest.approx((-1 + 2) / 2)
    assert objective("last_return").score_of({}) is None


def test_scores_so_far_have_the_number_of_their_evaluation() -> None:
    """The last evaluation comes at the end of the budget, which is not a multiple."""
    values = {45: 5.0, 20: 3.0, 10: 4.0}
    assert objective().per_run == 5
    assert objective().scores_so_far(values) == [(0, 4.0), (1, 3.0), (4, 5.0)]
    assert objective("best_return").scores_so_far(values) == [(0, 4.0), (1, 4.0), (4, 5.0)]


def test_one_evaluation_at_the_end() -> None:
    at_end = Objective("last_return", "mean", interval=0, last_step=45)
    assert at_end.per_run == 1
    assert at_end.scores_so_far({45: 2.0}) == [(0, 2.0)]
    assert Objective("fqe", "mean", interval=10, last_step=45).per_run == 1

"""The value of the policy that a few online evaluations would choose."""

from __future__ import annotations

import json
import math
from math import comb
from pathlib import Path

import numpy as np
import pytest

from rl_training.boundary.journal import read_journal
from rl_training.errors import ConfigError
from rl_training.study.index import StudyIndex
from rl_training.study.selection import EVALUATIONS_FILE, SEED, select, selection_curve
from tests.study.simulated import simulate_study


def one_user(returns: np.ndarray, evaluations: int, rng: np.random.Generator) -> list[float]:
    """UCB1 with returns scaled to a range of 1, written as a loop over episodes."""
    sums, counts = [0.0] * len(returns), [0] * len(returns)
    order, spread, values = list(rng.permutation(len(returns))), np.ptp(returns), []
    for number in range(evaluations):
        if number < len(returns):
            arm = order[number]
        else:
            bounds = [
                total / count / spread + math.sqrt(2 * math.log(number + 1) / count)
                for total, count in zip(sums, counts, strict=True)
            ]
            arm = int(np.argmax(bounds))
        sums[arm] += rng.choice(returns[arm])
        counts[arm] += 1
        tried = [i for i, count in enumerate(counts) if count]
        best = max(tried, key=lambda i: sums[i] / counts[i])
        values.append(float(np.mean(returns[best])))
    return values


def test_the_curve_is_that_of_a_bandit() -> None:
    rng = np.random.default_rng(0)
    returns = rng.normal(size=(5, 30)) + np.arange(5)[:, None] * 0.5
    expected = np.mean([one_user(returns, 40, rng) for _ in range(3000)], axis=0)
    found = selection_curve(returns, 40, candidates=5, repeats=20_000)
    assert np.abs(found.value - expected).max() < 0.06  # four standard errors
    assert list(found.x) == list(range(1, 41))
    assert (found.low <= found.value).all()
    assert (found.value <= found.high).all()


def test_without_noise_the_best_candidate_is_found_after_trying_each_once() -> None:
    values = np.array([3.0, 1.0, 4.0, 1.5, 9.0, 2.6])
    returns = np.repeat(values[:, None], 4, axis=1)
    found = selection_curve(returns, 12, candidates=3, repeats=50_000)
    ordered = np.sort(values)
    largest_of = [
        sum(ordered[k] * comb(k, size - 1) for k in range(len(values))) / comb(len(values), size)
        for size in (1, 2, 3)
    ]
    assert found.value[:3] == pytest.approx(largest_of, abs=0.05)
    assert found.value[3:] == pytest.approx(largest_of[2], abs=0.05)


def test_more_candidates_than_policies_are_all_of_them() -> None:
    returns = np.array([[0.0, 0.0], [1.0, 1.0]])
    assert selection_curve(returns, 3, candidates=8).value[-1] == 1.0


def test_the_simulation_is_reproducible() -> None:
    returns = np.random.default_rng(1).normal(size=(4, 10))
    first, again = (selection_curve(returns, 20).value for _ in range(2))
    assert (first == again).all()


def test_policies_of_a_study_are_played_once(reference_study: Path, tmp_path: Path) -> None:
    """The fixture has SAC and TD3 with two seeds each."""
    played = reference_study / EVALUATIONS_FILE
    try:
        found = select(reference_study, episodes=2, evaluations=5)
        assert [(each.algo, each.policies) for each in found] == [("sac", 2), ("td3", 2)]
        rows = list(read_journal(played))
        assert {row["run"] for row in rows if row} == set(StudyIndex.open(reference_study).runs)
        again = select(reference_study, episodes=2, evaluations=5)
        assert [each.to_json() for each in again] == [each.to_json() for each in found]
        assert len(list(read_journal(played))) == 4
        with played.open("a") as stream:
            stream.write('{"torn')
        assert len(select(reference_study, episodes=2, evaluations=5)) == 2
        assert json.dumps(found[0].to_json())
        assert found[0].average <= found[0].best
        assert all(row is not None and row["seed"] == SEED for row in rows)
    finally:
        played.unlink(missing_ok=True)


def test_nothing_to_choose_from_is_one_sentence(tmp_path: Path) -> None:
    study = simulate_study(tmp_path / "study", labels=("sac",), seeds=1, points=0)
    with pytest.raises(ConfigError, match="nothing to choose from"):
        select(study)
    with pytest.raises(ConfigError, match="episodes = 0: should be an integer from 1"):
        select(study, episodes=0)

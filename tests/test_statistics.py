"""Statistics equal their definitions, SciPy and rliable, and have their nominal error rates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rl_training import statistics
from rl_training.errors import ConfigError
from rl_training.statistics import (
    aggregate,
    area_under_curve,
    holm,
    interval,
    interval_curve,
    mean_interval,
    performance_profile,
    permutation_test,
    probability_of_improvement,
    steps_to_threshold,
    student_band,
    student_cdf,
    student_quantile,
    welch_test,
)
from tests.reference import statistics as reference

STATISTICS: list[Any] = ["mean", "median", "iqm", "optimality_gap"]


def rliable_library(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return rliable's module of intervals, or skip the test if rliable is not installed."""
    decorators = pytest.importorskip("pandas.util._decorators", reason="rliable is not installed")
    # rliable 1.2 needs arch 7, which calls a decorator of pandas 2 with other arguments when it is
    # imported. Without that decorator, the import works with pandas 3 as well.
    monkeypatch.setattr(decorators, "deprecate_kwarg", lambda *_, **__: lambda function: function)
    return pytest.importorskip("rliable.library", reason="rliable is not installed")


def random_scores(seed: int, *, tasks: int = 4, runs: tuple[int, int] = (5, 12)) -> list[Any]:
    """Scores around 0.7 with ties and a different number of runs for each task."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(*runs, size=tasks)
    return [np.round(rng.normal(0.7, 0.4, size=count), 1) for count in counts]


# --- Aggregates -----------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_aggregates_equal_their_definitions(seed: int) -> None:
    scores = random_scores(seed)
    means = reference.task_means(scores)
    assert aggregate(scores, "mean") == pytest.approx(np.mean(means), abs=1e-12)
    assert aggregate(scores, "median") == pytest.approx(np.median(means), abs=1e-12)
    expected = reference.interquartile_mean(scores)
    assert aggregate(scores) == pytest.approx(expected, abs=1e-12)
    gap = reference.optimality_gap(scores, 0.8)
    assert aggregate(scores, "optimality_gap", threshold=0.8) == pytest.approx(gap, abs=1e-12)


@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (5, 4), (10, 7), (13, 3)])
def test_point_estimates_equal_rliable(shape: tuple[int, int]) -> None:
    metrics = pytest.importorskip("rliable.metrics", reason="rliable is not installed")
    rng = np.random.default_rng(sum(shape))
    for _ in range(20):
        matrix, other = rng.normal(size=shape), rng.normal(0.3, size=shape)
        scores, others = list(matrix.T), list(other.T)
        for name in STATISTICS:
            theirs = getattr(metrics, f"aggregate_{name}")(matrix)
            assert aggregate(scores, name) == pytest.approx(theirs, abs=1e-12)
        ours = probability_of_improvement(scores, others, resamples=1).value
        theirs = metrics.probability_of_improvement(matrix, other)
        assert ours == pytest.approx(theirs, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(5, 3), (10, 6), (8, 1)])
def test_intervals_equal_those_of_rliable_within_monte_carlo_error(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    library = rliable_library(monkeypatch)
    metrics = pytest.importorskip("rliable.metrics")
    np.random.seed(0)  # rliable draws from NumPy's global generator
    rng = np.random.default_rng(0)
    matrix, other = rng.normal(size=shape), rng.normal(0.5, size=shape)

    def compare(ours: Any, function: Any, data: Any, reps: int) -> None:
        _, intervals = library.get_interval_estimates({"a": data}, function, reps=reps)
        low, high = intervals["a"][:, 0]
        # The standard error of a 2.5% quantile of `reps` normal draws is 2.67 σ / sqrt(reps), and
        # the width of the interval is 3.92 σ. Five standard errors of a difference of two:
        slack = 5 * math.sqrt(2) * 2.67 / math.sqrt(reps) * (high - low) / 3.92
        assert ours.low == pytest.approx(low, abs=slack)
        assert ours.high == pytest.approx(high, abs=slack)

    for name in STATISTICS:
        function = getattr(metrics, f"aggregate_{name}")
        ours = interval(list(matrix.T), name, resamples=20_000)
        compare(ours, lambda x, function=function: np.array([function(x)]), matrix, 20_000)
    ours = probability_of_improvement(list(matrix.T), list(other.T), resamples=3_000)
    compare(
        ours,
        lambda x, y: np.array([metrics.probability_of_improvement(x, y)]),
        (matrix, other),
        3_000,
    )


def test_profiles_equal_those_of_rliable_within_monte_carlo_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = rliable_library(monkeypatch)
    np.random.seed(1)
    matrix = np.random.default_rng(1).normal(size=(10, 4))
    levels = np.array([-1.0, 0.0, 1.0])
    _, bands = library.create_performance_profile({"a": matrix}, levels, reps=2_000)
    ours = performance_profile(list(matrix.T), levels, resamples=20_000)
    theirs = library.score_distributions(matrix, levels)
    np.testing.assert_allclose(ours.value, theirs, atol=1e-12)
    np.testing.assert_allclose(ours.low, bands["a"][0], atol=0.05)
    np.testing.assert_allclose(ours.high, bands["a"][1], atol=0.05)


def test_profile_is_the_share_of_runs_above_each_threshold() -> None:
    found = performance_profile([[0.0, 1.0], [2.0, 3.0, 4.0]], [0.0, 2.5, 9.0])
    assert found.value.tolist() == [0.8, 0.4, 0.0]
    assert (found.low <= found.value).all()
    assert (found.value <= found.high).all()
    assert found.low[2] == found.high[2] == 0.0


# --- Intervals ------------------------------------------------------------------


def test_means_of_few_runs_use_student() -> None:
    found = mean_interval([1.0, 2.0, 6.0])
    half = 4.302652729911275 * math.sqrt(7.0 / 3)
    assert found.method == "student"
    assert (found.low, found.high) == pytest.approx((3 - half, 3 + half))
    assert found.reliable
    assert mean_interval([1.0, 2.0]).high == pytest.approx(1.5 + 12.706204736432095 * 0.5)


def test_other_intervals_of_few_runs_are_marked_as_unreliable() -> None:
    scores = [[0.1, 0.4, 0.2], [0.5, 0.6, 0.9, 1.0, 0.3]]
    assert not interval(scores, "iqm").reliable
    assert interval([scores[1]], "iqm").reliable
    assert interval(scores, "mean").method == "student"  # the smallest task decides
    assert interval([scores[1]], "mean").method == "bootstrap"
    assert not probability_of_improvement(scores, scores).reliable


def test_one_run_has_no_interval() -> None:
    for found in (mean_interval([3.0]), probability_of_improvement([[1.0]], [[0.0, 2.0]])):
        assert found.method == "none"
        assert math.isnan(found.low)
        assert math.isnan(found.high)
    assert mean_interval([3.0]).value == 3.0
    assert math.isnan(welch_test([[1.0]], [[0.0, 2.0]]).p_value)


def test_student_interval_over_tasks_averages_their_variances() -> None:
    first, second = [1.0, 2.0, 6.0], [10.0, 10.5, 11.0, 12.0]
    found = interval([first, second], "mean")
    parts = np.array([np.var(task, ddof=1) / len(task) for task in (first, second)]) / 4
    freedom = parts.sum() ** 2 / (parts**2 / [2, 3]).sum()
    half = student_quantile(0.975, freedom) * math.sqrt(parts.sum())
    assert (found.low, found.high) == pytest.approx((found.value - half, found.value + half))


def test_the_same_seed_gives_the_same_interval() -> None:
    scores = random_scores(3)
    assert interval(scores, "iqm", seed=1) == interval(scores, "iqm", seed=1)
    assert interval(scores, "iqm", seed=1) != interval(scores, "iqm", seed=2)


def test_chunks_do_not_change_the_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(size=9)
    whole = mean_interval(values)
    monkeypatch.setattr(statistics, "_CHUNK", 1_000)
    assert mean_interval(values) == whole


def test_resamples_stay_within_their_task() -> None:
    """Tasks with constant scores have no uncertainty, however different the tasks are."""
    found = interval([[0.0] * 6, [100.0] * 6], "mean")
    assert (found.low, found.value, found.high) == (50.0, 50.0, 50.0)


@pytest.mark.parametrize(("runs", "least"), [(3, 0.93), (4, 0.93), (20, 0.90)])
def test_intervals_of_the_mean_cover_it(runs: int, least: float) -> None:
    rng = np.random.default_rng(runs)
    hits = 0
    for _ in range(400):
        found = mean_interval(rng.normal(3.0, 1.0, runs))
        hits += found.low <= 3.0 <= found.high
    assert least <= hits / 400 <= 0.98


def test_curve_intervals_equal_those_of_each_point() -> None:
    rng = np.random.default_rng(0)
    curves = [rng.normal(size=(6, 3)), rng.normal(size=(7, 3))]
    found = interval_curve(np.arange(3.0), curves, resamples=500, seed=4)
    for point in range(3):
        one = interval([task[:, point] for task in curves], resamples=500, seed=4)
        assert (one.value, one.low, one.high) == pytest.approx(
            (found.value[point], found.low[point], found.high[point])
        )
    single = interval_curve(np.arange(3.0), [curves[0][:1]])
    assert (single.low == single.value).all()


def test_student_band_is_the_interval_of_each_point() -> None:
    values = np.array([[1.0, 5.0], [2.0, 5.0], [6.0, 5.0]])
    mean, low, high = student_band(values)
    found = mean_interval(values[:, 0])
    assert (mean[0], low[0], high[0]) == pytest.approx((found.value, found.low, found.high))
    assert mean[1] == low[1] == high[1] == 5.0


# --- Student's t ----------------------------------------------------------------


@pytest.mark.parametrize("freedom", [1, 1.7, 2, 3, 4.4, 9, 30, 250.5, 1e4])
def test_student_distribution_equals_scipy(freedom: float) -> None:
    scipy = pytest.importorskip("scipy.stats", reason="SciPy is not installed")
    for t in (-300.0, -12.7, -2.0, -0.1, 0.0, 0.7, 3.2, 40.0, math.inf):
        assert student_cdf(t, freedom) == pytest.approx(scipy.t.cdf(t, freedom), abs=1e-10)
    for probability in (0.01, 0.5, 0.9, 0.975, 0.995):
        expected = scipy.t.ppf(probability, freedom)
        assert student_quantile(probability, freedom) == pytest.approx(expected, rel=1e-8, abs=1e-9)


def test_student_distribution_is_the_integral_of_its_density() -> None:
    grid = np.linspace(-1.0, 2.5, 20_001)
    density = np.array([reference.student_density(t, 4.4) for t in grid])
    area = np.sum((density[1:] + density[:-1]) / 2) * (grid[1] - grid[0])
    assert student_cdf(2.5, 4.4) - student_cdf(-1.0, 4.4) == pytest.approx(area, abs=1e-8)


# --- Comparisons ----------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_probability_of_improvement_counts_ties_as_half(seed: int) -> None:
    x, y = random_scores(seed), random_scores(seed + 10)
    found = probability_of_improvement(x, y)
    assert found.value == pytest.approx(reference.probability_of_improvement(x, y), abs=1e-12)
    assert found.low <= found.value <= found.high
    back = probability_of_improvement(y, x).value
    assert found.value + back == pytest.approx(1.0)


def test_welch_test_equals_the_formula_and_scipy() -> None:
    scipy = pytest.importorskip("scipy.stats", reason="SciPy is not installed")
    rng = np.random.default_rng(0)
    for count, other in ((2, 2), (3, 5), (10, 4), (30, 30)):
        x, y = rng.normal(size=count), rng.normal(0.5, 3.0, size=other)
        found = welch_test([x], [y])
        theirs = scipy.ttest_ind(x, y, equal_var=False)
        bounds = theirs.confidence_interval(0.95)
        assert found.p_value == pytest.approx(theirs.pvalue, abs=1e-9)
        assert (found.low, found.high) == pytest.approx((bounds.low, bounds.high), rel=1e-7)
        t, freedom = reference.welch(x, y)
        assert found.p_value == pytest.approx(2 * student_cdf(-abs(t), freedom), abs=1e-12)


def test_welch_test_of_constant_scores() -> None:
    assert welch_test([[1.0, 1.0]], [[1.0, 1.0]]).p_value == 1.0
    assert welch_test([[1.0, 1.0]], [[2.0, 2.0]]).p_value == 0.0


@pytest.mark.parametrize("seed", range(4))
def test_permutation_test_enumerates_all_exchanges(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = np.round(rng.normal(size=4), 1), np.round(rng.normal(0.8, size=5), 1)
    assert permutation_test([x], [y]) == pytest.approx(reference.permutation_p_value(x, y))


def test_permutation_test_equals_scipy() -> None:
    scipy = pytest.importorskip("scipy.stats", reason="SciPy is not installed")
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=12), rng.normal(0.7, size=12)
    theirs = scipy.permutation_test(
        (x, y), lambda a, b: np.mean(a) - np.mean(b), n_resamples=20_000, rng=rng
    ).pvalue
    assert permutation_test([x], [y], resamples=20_000) == pytest.approx(theirs, abs=0.01)


def test_permutation_of_tasks_exchanges_runs_within_tasks() -> None:
    """A large difference between tasks is no evidence for a difference between methods."""
    x, y = [[0.0, 1.0, 2.0, 3.0], [100.0, 101.0, 102.0, 103.0]], [[0.5, 1.5, 2.5], [100.5, 101.5]]
    assert permutation_test(x, y) > 0.5
    better = [[value + 50 for value in task] for task in y]
    assert permutation_test(x, better) < 0.05


def test_p_value_of_random_permutations_is_never_zero() -> None:
    x, y = [list(range(12))], [list(range(100, 112))]
    assert permutation_test(x, y, resamples=100) == pytest.approx(1 / 101)


def test_holm_corrects_for_the_number_of_comparisons() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    first, second = holm([math.nan, 0.02])
    assert math.isnan(first)
    assert second == 0.02


@pytest.mark.parametrize("tasks", [1, 3])
def test_rejection_rate_under_the_null_is_nominal(tasks: int) -> None:
    """Two methods with the same distribution differ at the 5% level in 5% of experiments."""
    rng = np.random.default_rng(11)
    rejected = np.zeros(2)
    for trial in range(1_000):
        x, y = rng.normal(size=(2, tasks, 6))
        p_values = welch_test(x, y).p_value, permutation_test(x, y, resamples=500, seed=trial)
        rejected += np.array(p_values) < 0.05
    assert np.abs(rejected / 1_000 - 0.05).max() <= 0.014


def test_rejection_rate_of_five_seeds_is_nominal() -> None:
    rng = np.random.default_rng(2)
    rejected = 0
    for _ in range(1_000):
        x, y = rng.normal(size=(2, 1, 5))
        rejected += permutation_test(x, y) < 0.05
    assert abs(rejected / 1_000 - 0.05) <= 0.014


# --- Speed of learning ----------------------------------------------------------


def test_area_under_curve_is_its_mean_height() -> None:
    assert area_under_curve([0, 10, 20], [0.0, 1.0, 1.0]) == pytest.approx(0.75)
    assert area_under_curve([0, 10, 20], [0.0, 1.0, 1.0], end=5) == pytest.approx(0.25)
    assert area_under_curve([10, 20], [2.0, 4.0], start=0, end=40) == pytest.approx(3.25)
    assert area_under_curve([10], [2.0]) == 2.0


def test_steps_to_threshold_is_the_first_point_that_reaches_it() -> None:
    assert steps_to_threshold([10, 20, 30, 40], [1.0, 5.0, 2.0, 6.0], 5.0) == 20
    assert steps_to_threshold([10, 20], [1.0, 2.0], 5.0) is None


# --- Invalid input --------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([], "There are no scores"),
        ([[1.0], []], r"scores\[1\] has shape \(0,\)"),
        ([1.0, 2.0], r"scores\[0\] has shape \(\)"),
        ([[1.0, math.nan]], r"scores\[0\] contains values that are not finite"),
    ],
)
def test_invalid_scores_are_refused(scores: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        aggregate(scores)


def test_unknown_statistic_and_different_tasks_are_refused() -> None:
    unknown: Any = "mode"
    with pytest.raises(ConfigError, match="should be one of mean, median, iqm, optimality_gap"):
        aggregate([[1.0]], unknown)
    with pytest.raises(ConfigError, match="The methods have 1 and 2 tasks"):
        welch_test([[1.0, 2.0]], [[1.0, 2.0], [1.0, 2.0]])
    with pytest.raises(ConfigError, match="should be between 0 and 1"):
        student_quantile(1.0, 3)

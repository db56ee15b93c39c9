"""Statistics of runs: aggregates with intervals, comparisons of methods, and speed of learning.

The scores of a method are one array of values for each task, with one value for each run. The
definitions follow rliable (Agarwal et al., 2021, https://arxiv.org/abs/2108.13264).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rl_training.errors import ConfigError
from rl_training.text import shown

__all__ = [
    "Comparison",
    "CurveEstimate",
    "Estimate",
    "aggregate",
    "area_under_curve",
    "holm",
    "interval",
    "interval_curve",
    "mean_interval",
    "performance_profile",
    "permutation_test",
    "probability_of_improvement",
    "steps_to_threshold",
    "student_band",
    "welch_test",
]

Values = NDArray[np.float64]
Scores = Sequence[ArrayLike]
"""One array of scores for each task, with one score for each run."""

Statistic = Literal["mean", "median", "iqm", "optimality_gap"]
Method = Literal["student", "bootstrap", "none"]

FEW_RUNS = 5
"""Below this number of runs per task, means use Student's t and other intervals are unreliable."""

RESAMPLES = 10_000
"""Default number of bootstrap resamples and of random permutations."""

MAX_EXACT = 20_000
"""A permutation test with at most this many permutations enumerates all of them."""

_CHUNK = 1 << 21
"""Maximum number of values that are resampled at once."""


@dataclass(frozen=True)
class Estimate:
    """A point estimate with its confidence interval."""

    value: float
    low: float
    high: float
    method: Method
    """``"student"``, ``"bootstrap"``, or ``"none"`` if a task has one run and no interval."""
    reliable: bool = True
    """False if there are too few runs for the interval to have its nominal coverage."""


@dataclass(frozen=True)
class Comparison:
    """A difference between two methods, with its confidence interval and p-value."""

    difference: float
    low: float
    high: float
    p_value: float
    """Two-sided; NaN if there are too few runs to test."""


@dataclass(frozen=True)
class CurveEstimate:
    """Point estimates along an axis, with pointwise confidence intervals."""

    x: Values
    value: Values
    low: Values
    high: Values


def as_samples(scores: Scores) -> list[Values]:
    """Return the scores of each task as an array; raise if a task is empty or not finite."""
    samples = [np.asarray(task, dtype=np.float64) for task in scores]
    if not samples:
        raise ConfigError("There are no scores: pass one array for each task.")
    for index, sample in enumerate(samples):
        if sample.ndim != 1 or not len(sample):
            raise ConfigError(
                f"scores[{index}] has shape {sample.shape}: should be a list of one or more "
                "numbers, one for each run of the task."
            )
        if not np.isfinite(sample).all():
            raise ConfigError(f"scores[{index}] contains values that are not finite.")
    return samples


# --- Aggregates -----------------------------------------------------------------
# Each takes one array [..., runs] for each task, so that all resamples are computed at once.


def _task_means(samples: Sequence[Values]) -> Values:
    return np.stack([sample.mean(-1) for sample in samples])  # [tasks, ...]


def _iqm(samples: Sequence[Values]) -> Values:
    pooled = np.concatenate(samples, -1)
    count = pooled.shape[-1]
    cut = int(0.25 * count)
    middle = np.partition(pooled, (cut, count - cut - 1), -1)[..., cut : count - cut]
    return np.asarray(middle.mean(-1))


def _statistic(name: Statistic, threshold: float) -> Callable[[Sequence[Values]], Values]:
    functions: dict[str, Callable[[Sequence[Values]], Values]] = {
        "mean": lambda samples: _task_means(samples).mean(0),
        "median": lambda samples: np.asarray(np.median(_task_means(samples), 0)),
        "iqm": _iqm,
        "optimality_gap": lambda samples: (
            threshold - _task_means([np.minimum(sample, threshold) for sample in samples]).mean(0)
        ),
    }
    if name not in functions:
        allowed = ", ".join(get_args(Statistic))
        raise ConfigError(f"statistic = {shown(name)}: should be one of {allowed}.")
    return functions[name]


def aggregate(scores: Scores, statistic: Statistic = "iqm", *, threshold: float = 1.0) -> float:
    """Return one number for all runs of all tasks.

    Args:
        scores: One array of scores for each task. To compare tasks, use normalized scores.
        statistic: ``"iqm"`` is the mean of the middle half of all runs. ``"mean"`` and
            ``"median"`` are taken over the tasks' means. ``"optimality_gap"`` is how far the runs
            are below ``threshold`` on average.
        threshold: Score that counts as optimal in the optimality gap.
    """
    return float(_statistic(statistic, threshold)(as_samples(scores)))


def interval(
    scores: Scores,
    statistic: Statistic = "iqm",
    *,
    threshold: float = 1.0,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """Return a statistic of `aggregate` with its confidence interval.

    The interval is a percentile bootstrap over the runs within each task. The mean of fewer than
    five runs per task uses Student's t instead; other intervals of so few runs are unreliable.

    Args:
        scores: One array of scores for each task.
        statistic: A statistic of `aggregate`.
        threshold: Score that counts as optimal in the optimality gap.
        confidence: Nominal coverage.
        resamples: Number of bootstrap resamples.
        seed: Seed of the bootstrap. The same seed gives the same interval.
    """
    samples = as_samples(scores)
    function = _statistic(statistic, threshold)
    value, fewest = float(function(samples)), min(map(len, samples))
    if fewest == 1:
        return Estimate(value, math.nan, math.nan, "none", reliable=False)
    if statistic == "mean" and fewest < FEW_RUNS:
        spread = _mean_spread(samples)
        half = student_quantile((1 + confidence) / 2, spread.freedom) * math.sqrt(spread.variance)
        return Estimate(value, value - half, value + half, "student")
    drawn = np.concatenate([function(part) for part in _resampled(samples, resamples, seed)])
    low, high = _percentiles(drawn, confidence)
    return Estimate(value, float(low), float(high), "bootstrap", reliable=fewest >= FEW_RUNS)


def mean_interval(values: ArrayLike, *, confidence: float = 0.95, seed: int = 0) -> Estimate:
    """Return the mean of one sample with its interval, as `interval` does."""
    return interval([values], "mean", confidence=confidence, seed=seed)


def student_band(values: Values, *, confidence: float = 0.95) -> tuple[Values, Values, Values]:
    """Return the mean over the first axis, and Student's interval around it.

    The bands of learning curves use this: it costs nothing per point and does not depend on a seed.
    """
    count = len(values)
    mean = values.mean(0)
    half = student_quantile((1 + confidence) / 2, count - 1) * values.std(0, ddof=1)
    half /= math.sqrt(count)
    return mean, mean - half, mean + half


def interval_curve(
    x: Values,
    curves: Sequence[Values],
    statistic: Statistic = "iqm",
    *,
    threshold: float = 1.0,
    confidence: float = 0.95,
    resamples: int = 2_000,
    seed: int = 0,
) -> CurveEstimate:
    """Return a statistic of `aggregate` at each point of an axis, with bootstrap intervals.

    Args:
        x: The axis, ``[points]``.
        curves: The runs of each task, ``[runs, points]``. All points use the same resamples of
            runs, so the band is as smooth as the curves.
        statistic: A statistic of `aggregate`.
        threshold: Score that counts as optimal in the optimality gap.
        confidence: Nominal coverage of each point.
        resamples: Number of bootstrap resamples.
        seed: Seed of the bootstrap.
    """
    function = _statistic(statistic, threshold)
    value = function([task.T for task in curves])
    if min(map(len, curves)) == 1:
        return CurveEstimate(x, value, value, value)
    drawn: list[Values] = []
    runs = [np.arange(len(task), dtype=np.float64) for task in curves]
    for part in _resampled(runs, resamples, seed):
        rows = [indices.astype(np.intp) for indices in part]
        points = [
            function([task[:, point][chosen] for task, chosen in zip(curves, rows, strict=True)])
            for point in range(len(x))
        ]
        drawn.append(np.stack(points, -1))  # [resamples, points]
    low, high = _percentiles(np.concatenate(drawn), confidence)
    return CurveEstimate(x, value, low, high)


def performance_profile(
    scores: Scores,
    thresholds: ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = 2_000,
    seed: int = 0,
) -> CurveEstimate:
    """Return the share of runs that score above each threshold, with bootstrap intervals.

    Args:
        scores: One array of scores for each task.
        thresholds: Scores at which the profile is computed.
        confidence: Nominal coverage of each point.
        resamples: Number of bootstrap resamples.
        seed: Seed of the bootstrap.
    """
    samples, levels = as_samples(scores), np.asarray(thresholds, dtype=np.float64)
    above = [(sample[:, None] > levels).astype(np.float64) for sample in samples]
    total = sum(map(len, samples))
    value = np.sum([task.sum(0) for task in above], axis=0) / total
    rng = np.random.default_rng(seed)
    drawn = sum(_counts(rng, len(task), resamples) @ task for task in above) / total
    low, high = _percentiles(np.asarray(drawn), confidence)
    return CurveEstimate(levels, value, low, high)


# --- Comparisons ----------------------------------------------------------------


def probability_of_improvement(
    x: Scores,
    y: Scores,
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """Return the probability that a run of ``x`` scores higher than a run of ``y``.

    This is the Mann-Whitney statistic of each task, averaged over the tasks. Ties count as half.

    Args:
        x: Scores of one method, one array for each task.
        y: Scores of another method, with the same tasks in the same order.
        confidence: Nominal coverage of the bootstrap interval.
        resamples: Number of bootstrap resamples.
        seed: Seed of the bootstrap.
    """
    first, second = _same_tasks(x, y)
    wins = [
        (a[:, None] > b).astype(np.float64) + 0.5 * (a[:, None] == b)
        for a, b in zip(first, second, strict=True)
    ]
    value = float(np.mean([task.mean() for task in wins]))
    rng = np.random.default_rng(seed)
    drawn = np.zeros(resamples)
    for task in wins:
        rows, columns = (_counts(rng, size, resamples) for size in task.shape)
        drawn += ((rows @ task) * columns).sum(1) / (task.size * len(wins))
    low, high = _percentiles(drawn, confidence)
    fewest = min(map(len, [*first, *second]))
    if fewest == 1:
        return Estimate(value, math.nan, math.nan, "none", reliable=False)
    reliable = fewest >= FEW_RUNS
    return Estimate(value, float(low), float(high), "bootstrap", reliable=reliable)


def welch_test(x: Scores, y: Scores, *, confidence: float = 0.95) -> Comparison:
    """Test whether two methods have the same mean score, without assuming equal variances.

    For one task, this is Welch's t-test. For several, the difference is averaged over the tasks and
    its variance has Satterthwaite's degrees of freedom.

    Args:
        x: Scores of one method, one array for each task.
        y: Scores of another method, with the same tasks in the same order.
        confidence: Nominal coverage of the interval of the difference.
    """
    first, second = _same_tasks(x, y)
    difference = float(_task_means(first).mean() - _task_means(second).mean())
    if min(map(len, [*first, *second])) == 1:
        return Comparison(difference, math.nan, math.nan, math.nan)
    spread = _mean_spread(first, second)
    if spread.variance == 0:
        return Comparison(difference, difference, difference, 1.0 if difference == 0 else 0.0)
    error = math.sqrt(spread.variance)
    p_value = 2 * student_cdf(-abs(difference) / error, spread.freedom)
    half = student_quantile((1 + confidence) / 2, spread.freedom) * error
    return Comparison(difference, difference - half, difference + half, p_value)


def permutation_test(x: Scores, y: Scores, *, resamples: int = RESAMPLES, seed: int = 0) -> float:
    """Return the two-sided p-value of the difference of means if runs are exchanged within tasks.

    All permutations of one task are enumerated if there are at most 20,000; otherwise random ones
    are drawn. With fewer than four runs on each side, no difference can reach p < 0.05.

    Args:
        x: Scores of one method, one array for each task.
        y: Scores of another method, with the same tasks in the same order.
        resamples: Number of random permutations.
        seed: Seed of the random permutations.
    """
    first, second = _same_tasks(x, y)
    observed = abs(float((_task_means(first) - _task_means(second)).mean()))
    sizes = [(len(a), len(b)) for a, b in zip(first, second, strict=True)]
    pooled = [np.concatenate(pair) for pair in zip(first, second, strict=True)]
    exact = len(pooled) == 1 and math.comb(len(pooled[0]), sizes[0][0]) <= MAX_EXACT
    if exact:
        chosen = np.array(list(combinations(range(len(pooled[0])), sizes[0][0])))
        differences = _exchanged(pooled[0], pooled[0][chosen].sum(1), *sizes[0])
    else:
        rng = np.random.default_rng(seed)
        differences = np.zeros(resamples)
        for values, (count, other) in zip(pooled, sizes, strict=True):
            drawn = rng.permuted(np.tile(values, (resamples, 1)), axis=1)[:, :count].sum(1)
            differences += _exchanged(values, drawn, count, other) / len(pooled)
    # Equal differences may differ in their last bits, because sums depend on the order.
    slack = 1e-12 * max(float(np.abs(values).max()) for values in pooled)
    extreme = int((np.abs(differences) >= observed - slack).sum())
    return extreme / len(differences) if exact else (extreme + 1) / (resamples + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for the number of comparisons by Holm's method.

    NaN stands for a comparison that could not be made. It stays NaN and is not counted.
    """
    known = sorted((value, index) for index, value in enumerate(p_values) if not math.isnan(value))
    corrected, largest = [math.nan] * len(p_values), 0.0
    for rank, (value, index) in enumerate(known):
        largest = max(largest, min(1.0, value * (len(known) - rank)))
        corrected[index] = largest
    return corrected


# --- Speed of learning ------------------------------------------------------------


def area_under_curve(
    x: ArrayLike, y: ArrayLike, *, start: float | None = None, end: float | None = None
) -> float:
    """Return the mean height of a curve between ``start`` and ``end``.

    The curve is linear between its points, and constant before the first and after the last one.

    Args:
        x: Increasing positions.
        y: Values at these positions.
        start: Start of the range, by default the first position.
        end: End of the range, by default the last position.
    """
    places, values = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    low = float(places[0]) if start is None else start
    high = float(places[-1]) if end is None else end
    if high <= low:
        return float(np.interp(low, places, values))
    inside = places[(low < places) & (places < high)]
    grid = np.concatenate([[low], inside, [high]])
    heights = np.interp(grid, places, values)
    return float(np.sum((heights[1:] + heights[:-1]) / 2 * np.diff(grid)) / (high - low))


def steps_to_threshold(x: ArrayLike, y: ArrayLike, threshold: float) -> float | None:
    """Return the first recorded position at which a curve reaches a threshold, or None."""
    reached = np.flatnonzero(np.asarray(y) >= threshold)
    return float(np.asarray(x)[reached[0]]) if len(reached) else None


# --- Student's t ------------------------------------------------------------------

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(96)


def student_cdf(t: float, freedom: float) -> float:
    """Return the cumulative distribution function of Student's t.

    With t = √ν tan θ, its density is proportional to cos^(ν-1) θ, which is integrated by
    Gauss-Legendre quadrature. The absolute error is below 1e-7, and for usual values below 1e-11.
    """
    if math.isinf(t):
        return 0.0 if t < 0 else 1.0
    # In these units the integrand is close to a normal density, whose tail beyond 40 is zero.
    bounded = max(-40.0, min(40.0, t)) if freedom > 50 else t
    angle = math.atan(bounded / math.sqrt(freedom))
    angles = angle / 2 * (_NODES + 1)
    norm = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)
    area = float(_WEIGHTS @ np.cos(angles) ** (freedom - 1)) * angle / 2
    return min(1.0, max(0.0, 0.5 + norm * area))


@lru_cache(maxsize=4096)
def student_quantile(probability: float, freedom: float) -> float:
    """Return the quantile of Student's t, by bisection."""
    if not 0 < probability < 1:
        raise ConfigError(f"probability = {shown(probability)}: should be between 0 and 1.")
    if probability < 0.5:
        return -student_quantile(1 - probability, freedom)
    low, high = 0.0, 1.0
    while student_cdf(high, freedom) < probability:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if student_cdf(middle, freedom) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


# --- Helpers ----------------------------------------------------------------------


@dataclass(frozen=True)
class _MeanSpread:
    variance: float
    freedom: float


def _mean_spread(*methods: Sequence[Values]) -> _MeanSpread:
    """Return the variance of a mean over tasks, summed over the methods, and its freedom."""
    parts = [
        (float(task.var(ddof=1)) / len(task) / len(samples) ** 2, len(task) - 1)
        for samples in methods
        for task in samples
    ]
    variance = sum(part for part, _ in parts)
    if variance == 0:
        return _MeanSpread(0.0, float(sum(freedom for _, freedom in parts)))
    # Shares instead of variances: the squares of tiny variances would be zero.
    shares = sum((part / variance) ** 2 / freedom for part, freedom in parts)
    return _MeanSpread(variance, 1 / shares)


def _resampled(samples: Sequence[Values], resamples: int, seed: int) -> Iterator[list[Values]]:
    """Yield resamples ``[resamples, runs]`` of each task, in parts of limited size."""
    rng = np.random.default_rng(seed)
    size = max(1, _CHUNK // sum(map(len, samples)))
    for start in range(0, resamples, size):
        count = min(size, resamples - start)
        yield [sample[rng.integers(len(sample), size=(count, len(sample)))] for sample in samples]


def _counts(rng: np.random.Generator, size: int, resamples: int) -> Values:
    """Return how often each run occurs in each resample, ``[resamples, size]``."""
    return rng.multinomial(size, np.full(size, 1 / size), size=resamples).astype(np.float64)


def _percentiles(drawn: Values, confidence: float) -> tuple[Values, Values]:
    tail = 50 * (1 - confidence)
    low, high = np.percentile(drawn, [tail, 100 - tail], axis=0)
    return low, high


def _same_tasks(x: Scores, y: Scores) -> tuple[list[Values], list[Values]]:
    first, second = as_samples(x), as_samples(y)
    if len(first) != len(second):
        raise ConfigError(
            f"The methods have {len(first)} and {len(second)} tasks: compare them on the same ones."
        )
    return first, second


def _exchanged(values: Values, sums: Values, count: int, other: int) -> Values:
    """Return differences of means, given the sums of the values that were chosen as ``x``."""
    return np.asarray(sums / count - (values.sum() - sums) / other)

"""Aggregates and tests from their definitions, run by run, in plain Python and NumPy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Sample = Sequence[float] | NDArray[np.float64]
Tasks = Sequence[Sample]


def interquartile_mean(tasks: Tasks) -> float:
    """Drop a quarter of all runs at either end (rounded down), and average the rest."""
    pooled = sorted(score for task in tasks for score in task)
    cut = len(pooled) // 4
    kept = pooled[cut : len(pooled) - cut]
    return math.fsum(kept) / len(kept)


def task_means(tasks: Tasks) -> list[float]:
    return [math.fsum(task) / len(task) for task in tasks]


def optimality_gap(tasks: Tasks, threshold: float) -> float:
    clipped = [[min(score, threshold) for score in task] for task in tasks]
    return threshold - math.fsum(task_means(clipped)) / len(tasks)


def probability_of_improvement(x: Tasks, y: Tasks) -> float:
    shares = []
    for first, second in zip(x, y, strict=True):
        wins = [1.0 if a > b else 0.5 if a == b else 0.0 for a in first for b in second]
        shares.append(math.fsum(wins) / len(wins))
    return math.fsum(shares) / len(shares)


def student_density(t: float, freedom: float) -> float:
    """The density of Student's t from its formula."""
    log = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    log -= 0.5 * math.log(freedom * math.pi) + (freedom + 1) / 2 * math.log1p(t * t / freedom)
    return math.exp(log)


def welch(x: Sample, y: Sample) -> tuple[float, float]:
    """Welch's t statistic and the degrees of freedom of Welch and Satterthwaite."""
    a, b = (np.var(sample, ddof=1) / len(sample) for sample in (x, y))
    t = (np.mean(x) - np.mean(y)) / math.sqrt(a + b)
    return float(t), float((a + b) ** 2 / (a**2 / (len(x) - 1) + b**2 / (len(y) - 1)))


def permutation_p_value(x: Sample, y: Sample) -> float:
    """The share of all exchanges whose difference of means is at least as large."""
    pooled, count = [*x, *y], len(x)
    observed = abs(math.fsum(x) / count - math.fsum(y) / len(y))
    extreme = total = 0
    for chosen in combinations(range(len(pooled)), count):
        first = [pooled[index] for index in chosen]
        second = [value for index, value in enumerate(pooled) if index not in chosen]
        gap = abs(math.fsum(first) / count - math.fsum(second) / len(second))
        extreme += gap >= observed - 1e-9
        total += 1
    return extreme / total

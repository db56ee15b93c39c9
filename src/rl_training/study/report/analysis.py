"""The statistics of a report: estimates, comparisons, and curves over tasks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Literal

import numpy as np

from rl_training.curves import Curve, Values
from rl_training.errors import ConfigError
from rl_training.statistics import (
    FEW_RUNS,
    RESAMPLES,
    Comparison,
    CurveEstimate,
    Estimate,
    Statistic,
    area_under_curve,
    holm,
    interval,
    interval_curve,
    performance_profile,
    permutation_test,
    probability_of_improvement,
    steps_to_threshold,
    welch_test,
)
from rl_training.study.records import RunStatus
from rl_training.study.report.results import SCORE_NAMES, RunResult, StudyResults
from rl_training.text import counted, shown

STATISTICS: tuple[Statistic, ...] = ("iqm", "median", "mean", "optimality_gap")
STATISTIC_NAMES: dict[Statistic, str] = {
    "iqm": "IQM",
    "median": "Median",
    "mean": "Mean",
    "optimality_gap": "Optimality gap",
}

SIGNIFICANT = 0.05
"""Differences with a smaller corrected p-value are called significant."""

MAX_ALL_PAIRS = 8
"""With more labels, each one is compared with the baseline only."""

MAX_TASK_COMPARISONS = 1_000
"""With more comparisons of single tasks, labels are compared across tasks only."""

MAX_DRAWN = 20
"""Number of labels that the charts show."""

CURVE_POINTS = 50
"""Number of points of a curve over all tasks."""

DRAWS = 40_000_000
"""Number of values that are resampled for the curves over all tasks, which take the longest."""

DEFAULT_THRESHOLD = 0.9
"""Normalized score that counts as solved when steps are counted."""

Axis = Literal["steps", "share", "time"]


@dataclass(frozen=True)
class ReportOptions:
    """What to compute."""

    baseline: str | None = None
    """Label with which the others are compared; None compares all pairs if they are few."""
    threshold: float | None = None
    """Score to reach, on the scale on which scores are compared."""
    confidence: float = 0.95
    seed: int = 0
    """Seed of the bootstrap and the permutations."""


@dataclass(frozen=True)
class TaskScores:
    """The scores of a label on a task."""

    label: str
    task: str
    runs: int
    """Number of all runs."""
    scores: Values
    """Scores of the runs that have ended."""
    mean: Estimate | None
    iqm: Estimate | None
    is_best: bool = False
    """Whether its mean is the best one, or not significantly different from it."""


@dataclass(frozen=True)
class PairComparison:
    """A comparison of two labels, on one task or across tasks."""

    first: str
    second: str
    task: str | None
    """None stands for all tasks."""
    difference: Comparison
    permutation_p: float
    improvement: Estimate
    """Probability that a run of ``first`` is better than one of ``second``."""
    corrected_p: float = math.nan
    """The p-value of Welch's test, corrected for all comparisons of the report."""

    @property
    def is_significant(self) -> bool:
        """Whether the difference is significant after the correction."""
        return self.corrected_p < SIGNIFICANT


@dataclass(frozen=True)
class Speed:
    """How fast a label learns a task."""

    label: str
    task: str
    area: Estimate | None
    """Mean of the curve between the first and the last evaluation."""
    reached: int
    """Number of runs that reach the threshold."""
    runs: int
    steps: float | None
    """Median number of steps to the threshold; None if fewer than half of the runs reach it."""
    seconds: float | None
    """Mean training time of a run."""


@dataclass
class Analysis:
    """All numbers of a report."""

    results: StudyResults
    options: ReportOptions
    tasks: list[str]
    """Tasks over which scores are aggregated: all labels have scores there, on the same scale."""
    is_normalized: bool
    """Whether scores are normalized when they are compared across tasks."""
    drawn: list[str]
    """Labels in the charts."""
    by_task: dict[tuple[str, str], TaskScores] = field(default_factory=dict)
    aggregates: dict[str, dict[Statistic, Estimate]] = field(default_factory=dict)
    profiles: dict[str, CurveEstimate] = field(default_factory=dict)
    curves: dict[Axis, dict[str, CurveEstimate]] = field(default_factory=dict)
    """The IQM over all tasks, over steps (or the share of the budget) and over time."""
    comparisons: list[PairComparison] = field(default_factory=list)
    speeds: list[Speed] = field(default_factory=list)
    threshold: float | None = None
    resamples: int = RESAMPLES
    notes: list[str] = field(default_factory=list)

    @property
    def tested(self) -> int:
        """Number of comparisons for which the p-values are corrected."""
        return sum(not math.isnan(pair.difference.p_value) for pair in self.comparisons)

    @property
    def statistics(self) -> list[Statistic]:
        """The statistics over all tasks.

        The median is taken over the tasks' means, and the optimality gap needs normalized scores.
        """
        left_out = set() if len(self.tasks) > 1 else {"median"}
        left_out |= set() if self.is_normalized else {"optimality_gap"}
        return [name for name in STATISTICS if name not in left_out]

    @property
    def scale(self) -> str:
        """What the scores that are compared across tasks are."""
        return "normalized score" if self.is_normalized else self.score_name

    @property
    def score_name(self) -> str:
        """What the score of a run is."""
        metric = self.results.metric
        names = {"eval_return_mean": "return", "eval_loss": "held-out loss"}
        return names.get(metric, metric)


def analyze(results: StudyResults, options: ReportOptions | None = None) -> Analysis:
    """Compute the statistics of a report.

    Raises:
        ConfigError: The baseline is not a label.
    """
    options = options or ReportOptions()
    if options.baseline is not None and options.baseline not in results.labels:
        names = ", ".join(map(shown, results.labels[:20]))
        raise ConfigError(f"baseline = {shown(options.baseline)}: should be a label: {names}.")
    tasks, normalized = _aggregated_tasks(results)
    analysis = Analysis(results, options, tasks, normalized, [])
    # Resampling hundreds of groups thousands of times each would take minutes.
    analysis.resamples = RESAMPLES if len(results.groups) <= 100 else 2_000
    analysis.by_task = {(s.label, s.task): s for s in _task_scores(analysis)}
    _aggregate(analysis)
    analysis.drawn = _drawn_labels(analysis)
    _profiles(analysis)
    _aggregate_curves(analysis)
    _compare(analysis)
    _mark_best(analysis)
    _measure_speed(analysis)
    analysis.notes = [*results.notes, *_notes(analysis)]
    return analysis


def better_first(results: StudyResults, value: float) -> float:
    """Return a key by which better scores come first."""
    return value if results.lower_is_better else -value


# --- One task -----------------------------------------------------------------------


def _task_scores(analysis: Analysis) -> Iterator[TaskScores]:
    results = analysis.results
    for (label, task), runs in results.groups.items():
        scores = results.scores(label, task)
        mean = _interval(analysis, [scores], "mean")
        iqm = _interval(analysis, [scores], "iqm")
        yield TaskScores(label, task, len(runs), scores, mean, iqm)


def _interval(
    analysis: Analysis, scores: Sequence[Values], statistic: Statistic
) -> Estimate | None:
    if not all(len(task) for task in scores):
        return None
    options = analysis.options
    return interval(
        scores,
        statistic,
        confidence=options.confidence,
        resamples=analysis.resamples,
        seed=options.seed,
    )


# --- All tasks ----------------------------------------------------------------------


def _aggregated_tasks(results: StudyResults) -> tuple[list[str], bool]:
    """Return the tasks over which scores can be aggregated, and whether they are normalized."""
    labels = [label for label in results.labels if _has_scores(results, label)]
    complete = [
        task
        for task in results.tasks
        if labels and all(len(results.scores(label, task)) for label in labels)
    ]
    known = [task for task in complete if task in results.references]
    if known:
        return known, True
    return (complete, False) if len(results.tasks) == 1 else ([], False)


def _has_scores(results: StudyResults, label: str) -> bool:
    return any(len(results.scores(label, task)) for task in results.tasks)


def scored_labels(results: StudyResults) -> list[str]:
    """Return the labels with at least one run that has ended."""
    return [label for label in results.labels if _has_scores(results, label)]


def _aggregate(analysis: Analysis) -> None:
    for label in scored_labels(analysis.results) if analysis.tasks else ():
        scores = _compared(analysis, label)
        found: dict[Statistic, Estimate] = {}
        for statistic in analysis.statistics:
            estimate = _interval(analysis, scores, statistic)
            if estimate is not None:
                found[statistic] = estimate
        analysis.aggregates[label] = found


def _compared(analysis: Analysis, label: str) -> list[Values]:
    return [analysis.results.compared_scores(label, task) for task in analysis.tasks]


def _drawn_labels(analysis: Analysis) -> list[str]:
    """Return the labels in the charts: all of them, or the baseline and the best ones."""
    results = analysis.results
    if len(results.labels) <= MAX_DRAWN:
        return results.labels
    baseline = analysis.options.baseline or results.labels[0]

    def place(label: str) -> tuple[bool, float]:
        if label in analysis.aggregates:
            return label != baseline, better_first(results, analysis.aggregates[label]["iqm"].value)
        means = [
            found.mean.value
            for task in results.tasks
            if (found := analysis.by_task.get((label, task))) and found.mean
        ]
        return label != baseline, better_first(
            results, float(np.mean(means))
        ) if means else math.inf

    chosen = set(sorted(results.labels, key=place)[:MAX_DRAWN])
    return [label for label in results.labels if label in chosen]


def _profiles(analysis: Analysis) -> None:
    labels = [label for label in analysis.drawn if label in analysis.aggregates]
    if not labels:
        return
    every = np.concatenate([task for label in labels for task in _compared(analysis, label)])
    low, high = float(every.min()), float(every.max())
    if analysis.is_normalized:
        low, high = min(0.0, low), max(1.0, high)
    margin = 0.02 * ((high - low) or 1.0)
    levels = np.linspace(low - margin, high + margin, 101)
    sign = -1.0 if analysis.results.lower_is_better else 1.0
    for label in labels:
        found = performance_profile(
            [sign * task for task in _compared(analysis, label)],
            sign * levels,
            confidence=analysis.options.confidence,
            seed=analysis.options.seed,
        )
        analysis.profiles[label] = replace(found, x=levels)


def _aggregate_curves(analysis: Analysis) -> None:
    """Compute the IQM of all runs over steps and over time."""
    results, tasks = analysis.results, analysis.tasks
    labels = [label for label in analysis.drawn if label in analysis.aggregates]
    if not labels:
        return
    budgets = {task: _budget(results, task) for task in tasks}
    same = max(budgets.values()) <= 1.01 * min(budgets.values())
    over_steps: Axis = "steps" if same else "share"
    count = sum(len(results.drawn(label, task)) for label in labels for task in tasks)
    resamples = int(np.clip(DRAWS / max(1, 2 * count * CURVE_POINTS), 200, 2_000))
    for axis in (over_steps, "time"):
        found: dict[str, CurveEstimate] = {}
        for label in labels:
            curves = [
                [_placed(results, run, axis, budgets[task]) for run in results.drawn(label, task)]
                for task in tasks
            ]
            estimate = _aggregate_curve(curves, axis, resamples, analysis.options)
            if estimate is not None:
                found[label] = estimate
        if found:
            analysis.curves[axis] = found


def _budget(results: StudyResults, task: str) -> float:
    """Return the last step of the longest run on a task."""
    runs = (run for (_, other), runs in results.groups.items() if other == task for run in runs)
    return max((float(run.curve.steps[-1]) for run in runs if run.curve is not None), default=1.0)


def _placed(results: StudyResults, run: RunResult, axis: Axis, budget: float) -> Curve:
    """Return the curve of a run over an axis, on the scale on which tasks are compared."""
    assert run.curve is not None
    values = results.compared_curve(run)
    if axis == "time":
        return Curve.of(zip(run.curve.seconds.tolist(), values.tolist(), strict=True))
    return Curve(run.curve.steps / budget if axis == "share" else run.curve.steps, values)


def _aggregate_curve(
    curves: Sequence[Sequence[Curve]], axis: Axis, resamples: int, options: ReportOptions
) -> CurveEstimate | None:
    """Return the IQM over the range that all runs cover; over time, runs keep their last score."""
    every = [curve for task in curves for curve in task]
    if not all(task for task in curves) or not all(len(curve) for curve in every):
        return None
    start = max(float(curve.x[0]) for curve in every)
    ends = [float(curve.x[-1]) for curve in every]
    end = max(ends) if axis == "time" else min(ends)
    if start > end:
        return None
    same = all(np.array_equal(curve.x, every[0].x) for curve in every)
    if same and len(every[0]) <= CURVE_POINTS:
        x = every[0].x
    else:
        x = np.linspace(start, end, CURVE_POINTS if end > start else 1)
    values = [np.stack([np.interp(x, curve.x, curve.y) for curve in task]) for task in curves]
    return interval_curve(
        x, values, "iqm", confidence=options.confidence, resamples=resamples, seed=options.seed
    )


# --- Comparisons --------------------------------------------------------------------


def _compare(analysis: Analysis) -> None:
    results = analysis.results
    pairs = list(_pairs(analysis))
    places: list[str | None] = [None] if len(analysis.tasks) > 1 else []
    if len(pairs) * len(results.tasks) <= MAX_TASK_COMPARISONS or not places:
        places += results.tasks
    resamples = RESAMPLES if len(pairs) * len(places) <= 200 else 1_000
    found = []
    for task in places:
        for first, second in pairs:
            pair = _compare_pair(analysis, first, second, task, resamples)
            if pair is not None:
                found.append(pair)
    corrected = holm([pair.difference.p_value for pair in found])
    analysis.comparisons = [
        replace(pair, corrected_p=value) for pair, value in zip(found, corrected, strict=True)
    ]


def _pairs(analysis: Analysis) -> Iterator[tuple[str, str]]:
    """Yield the pairs of labels that are compared."""
    labels = scored_labels(analysis.results)
    baseline = analysis.options.baseline
    if baseline is None and len(labels) <= MAX_ALL_PAIRS:
        yield from combinations(labels, 2)
        return
    baseline = baseline or labels[0]
    for label in labels:
        if label != baseline:
            yield label, baseline


def _compare_pair(
    analysis: Analysis, first: str, second: str, task: str | None, resamples: int
) -> PairComparison | None:
    results, options = analysis.results, analysis.options
    if task is None:
        x, y = _compared(analysis, first), _compared(analysis, second)
    else:
        x, y = [results.scores(first, task)], [results.scores(second, task)]
    if not all(len(scores) for scores in (*x, *y)):
        return None
    sign = -1.0 if results.lower_is_better else 1.0
    improvement = probability_of_improvement(
        [sign * scores for scores in x],
        [sign * scores for scores in y],
        confidence=options.confidence,
        resamples=resamples,
        seed=options.seed,
    )
    return PairComparison(
        first,
        second,
        task,
        welch_test(x, y, confidence=options.confidence),
        permutation_test(x, y, resamples=resamples, seed=options.seed),
        improvement,
    )


def _mark_best(analysis: Analysis) -> None:
    """Mark the best mean of each task, and those that do not differ significantly from it."""
    results = analysis.results
    significant = {
        (pair.task, frozenset((pair.first, pair.second)))
        for pair in analysis.comparisons
        if pair.is_significant
    }
    tested = {
        (pair.task, frozenset((pair.first, pair.second)))
        for pair in analysis.comparisons
        if not math.isnan(pair.corrected_p)
    }
    for task in results.tasks:
        known = [
            found
            for label in results.labels
            if (found := analysis.by_task.get((label, task))) and found.mean
        ]
        if len(known) < 2:
            continue
        best = min(known, key=lambda s: better_first(results, s.mean.value if s.mean else 0.0))
        for found in known:
            pair = (task, frozenset((found.label, best.label)))
            equal = pair in tested and pair not in significant
            if found is best or equal:
                analysis.by_task[found.label, task] = replace(found, is_best=True)


# --- Speed --------------------------------------------------------------------------


def _measure_speed(analysis: Analysis) -> None:
    results = analysis.results
    analysis.threshold = analysis.options.threshold
    if analysis.threshold is None and results.references:
        analysis.threshold = DEFAULT_THRESHOLD
    for (label, task), runs in results.groups.items():
        ended = [run for run in runs if run.has_ended]
        curves = [run.curve for run in ended if run.curve is not None]
        if not ended:
            continue
        areas = [area_under_curve(curve.steps, curve.values) for curve in curves]
        area = _interval(analysis, [np.array(areas)], "mean") if areas else None
        seconds = [run.run.seconds for run in ended if run.run.seconds > 0]
        reached, steps = _steps(analysis, [run for run in ended if run.curve is not None])
        analysis.speeds.append(
            Speed(
                label,
                task,
                area,
                reached,
                len(curves),
                steps,
                float(np.mean(seconds)) if seconds else None,
            )
        )


def _steps(analysis: Analysis, runs: Sequence[RunResult]) -> tuple[int, float | None]:
    """Return how many runs reach the threshold, and the median number of steps."""
    results, threshold = analysis.results, analysis.threshold
    if threshold is None:
        return 0, None
    sign = -1.0 if results.lower_is_better else 1.0
    steps = []
    for run in runs:
        assert run.curve is not None
        if results.references and run.task not in results.references:
            return 0, None
        values = sign * results.compared_curve(run)
        found = steps_to_threshold(run.curve.steps, values, sign * threshold)
        steps.append(math.inf if found is None else found)
    median = float(np.median(steps)) if steps else math.inf
    # An even number of runs of which half succeed has a median between a number and infinity.
    return sum(math.isfinite(s) for s in steps), median if math.isfinite(median) else None


# --- Notes --------------------------------------------------------------------------


def _notes(analysis: Analysis) -> Iterator[str]:
    """Yield what a reader should know before trusting the numbers."""
    yield from _notes_on_runs(analysis)
    yield from _notes_on_tasks(analysis)
    results = analysis.results
    if len(results.labels) > len(analysis.drawn):
        yield (
            f"The charts show {len(analysis.drawn)} of {len(results.labels)} labels: the first one "
            "and the best ones. The tables and the CSV files have all of them."
        )
    if results.score == "best":
        yield (
            "The score of a run is its best evaluation, which is lucky: it overestimates the "
            "policy, and noisy runs the most."
        )


def _notes_on_runs(analysis: Analysis) -> Iterator[str]:
    results = analysis.results
    sizes = [len(found.scores) for found in analysis.by_task.values() if len(found.scores)]
    if not sizes:
        yield "No run has ended with an evaluation yet, so there are no scores to compare."
    elif min(sizes) == 1:
        yield (
            "Some results come from a single run: they have no interval and are not tested. Use at "
            "least five seeds."
        )
    if sizes and min(sizes) < FEW_RUNS:
        yield (
            f"With fewer than {FEW_RUNS} runs, intervals of means use Student's t; intervals of "
            "the IQM, the median, the optimality gap and the probability of improvement are "
            "unreliable (marked †)."
        )
    failed: dict[str, int] = {}
    for result in results.runs:
        if result.run.status is RunStatus.FAILED:
            failed[result.label] = failed.get(result.label, 0) + 1
    if failed:
        listed = ", ".join(f"{count} of {label}" for label, count in list(failed.items())[:8])
        more = f" and of {counted(len(failed) - 8, 'more label')}" if len(failed) > 8 else ""
        yield (
            f"Failed runs have no score ({listed}{more}). If a method fails where it would have "
            "scored badly, its results look better than they are."
        )
    waiting = sum(
        not result.has_ended and result.run.status is not RunStatus.FAILED
        for result in results.runs
    )
    if waiting:
        yield (
            f"{counted(waiting, 'run')} of {len(results.runs)} have not ended. They are drawn, but "
            "not compared."
        )
    lost = sum(result.has_ended and result.score is None for result in results.runs)
    if lost:
        yield f"{counted(lost, 'run')} ended without a finite value of {results.metric}."


def _notes_on_tasks(analysis: Analysis) -> Iterator[str]:
    results = analysis.results
    if len(results.tasks) == 1 or results.metric != "eval_return_mean":
        return
    without = [task for task in results.tasks if task not in results.references]
    if without:
        names = ", ".join(without[:8]) + (", …" if len(without) > 8 else "")
        yield (
            f"There are no reference returns for {names}, so scores are not aggregated over them. "
            "Pass random and expert returns with --references FILE."
        )
    known = [task for task in results.tasks if task in results.references]
    missing = [task for task in known if task not in analysis.tasks]
    if missing:
        names = ", ".join(missing[:8]) + (", …" if len(missing) > 8 else "")
        yield f"Not every label has a finished run on {names}: left out of the aggregates."


def describe_score(results: StudyResults) -> str:
    """Return what the score of a run is, as text."""
    return SCORE_NAMES[results.score]

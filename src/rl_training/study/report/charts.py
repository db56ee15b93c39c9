"""The charts of a report as plain data, thinned so that the page stays small."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rl_training.curves import Values, band, thinned
from rl_training.errors import ConfigError
from rl_training.statistics import CurveEstimate, Estimate
from rl_training.study.report.analysis import STATISTIC_NAMES, Analysis, Axis, PairComparison
from rl_training.study.report.results import RunResult, is_offline
from rl_training.study.report.tables import digits_for

MAX_TASK_CHARTS = 60
"""Number of tasks whose curves are drawn."""

MAX_LINE = 200
"""Maximum number of points of a line."""

MAX_PAIRS = 40
"""Maximum number of pairs of labels in a chart."""

Chart = dict[str, Any]

AXIS_LABELS: dict[Axis, tuple[str, str]] = {
    "steps": ("Environment steps", "count"),
    "share": ("Share of the training budget", "share"),
    "time": ("Training time", "time"),
}


def chart_data(analysis: Analysis, numbers: int) -> dict[str, Any]:
    """Return the labels and all charts, with about ``numbers`` numbers in their lines."""
    return {
        "labels": analysis.drawn,
        "charts": [
            *task_charts(analysis, numbers),
            *aggregate_charts(analysis),
            *improvement_charts(analysis),
        ],
    }


def drawn_tasks(analysis: Analysis) -> list[str]:
    """Return the tasks whose curves are drawn."""
    results, labels = analysis.results, analysis.drawn
    known = [task for task in results.tasks if any(results.drawn(label, task) for label in labels)]
    return known[:MAX_TASK_CHARTS]


def steps_name(analysis: Analysis) -> str:
    """Return what the steps of the runs are."""
    offline = [is_offline(result.run.group) for result in analysis.results.runs]
    if all(offline):
        return "Updates"
    return "Steps" if any(offline) else "Environment steps"


# --- Tasks --------------------------------------------------------------------------


def task_charts(analysis: Analysis, numbers: int) -> Iterator[Chart]:
    """Yield a chart of the learning curves on each task."""
    tasks, results = drawn_tasks(analysis), analysis.results
    drawn = {
        (label, task): results.drawn(label, task) for label in analysis.drawn for task in tasks
    }
    every = [run for runs in drawn.values() for run in runs]
    shown = _shown_seeds(analysis, tasks)
    groups = sum(bool(runs) for runs in drawn.values())
    # A run has a value and a time at each point, a band has four numbers over two axes.
    points = int(np.clip(numbers / max(1, 2 * len(shown) + 8 * groups), 8, MAX_LINE))
    values = [float(run.curve.values[-1]) for run in every if run.curve is not None]
    for number, task in enumerate(tasks):
        places: list[list[float]] = []
        chart: Chart = {
            "id": f"task-{number}",
            "kind": "line",
            "title": task,
            "y": _score_title(analysis),
            "large": len(tasks) == 1,
            "digits": digits_for(values),
            "views": {},
            "places": places,
            "seeds": [_seed(analysis, run, points, places) for run in shown if run.task == task],
        }
        for axis in ("steps", "time"):
            series = [
                _series(analysis, label, found, points, len(drawn[label, task]))
                for label in analysis.drawn
                if (found := _mean(drawn[label, task], axis)) is not None
            ]
            if series:
                name, kind = AXIS_LABELS[axis]
                name = steps_name(analysis) if axis == "steps" else name
                chart["views"][axis] = {"x": {"label": name, "kind": kind}, "series": series}
        if chart["views"]:
            yield chart


def _score_title(analysis: Analysis) -> str:
    names = {"eval_return_mean": "Evaluation return", "eval_loss": "Held-out loss"}
    return names.get(analysis.results.metric, analysis.results.metric)


def _shown_seeds(analysis: Analysis, tasks: Sequence[str]) -> list[RunResult]:
    labels, places = set(analysis.drawn), set(tasks)
    return [
        run
        for run in analysis.results.runs
        if run.label in labels and run.task in places and run.curve is not None
    ]


def _mean(runs: Sequence[RunResult], axis: Axis) -> CurveEstimate | None:
    """Return the mean over runs as `plot` draws it, or None if they have no common range."""
    curves = [
        run.curve.over_time if axis == "time" else run.curve.over_steps
        for run in runs
        if run.curve is not None
    ]
    curves = [curve for curve in curves if len(curve)]
    if not curves:
        return None
    try:
        return band(curves)
    except ConfigError:  # the lines of the runs are still there
        return None


def _series(
    analysis: Analysis, label: str, found: CurveEstimate, points: int, runs: int | None = None
) -> Chart:
    """Return a line with its band; ``runs`` is None if it is not a mean over runs."""
    kept = thinned(len(found.x), points)
    series: Chart = {
        "l": analysis.drawn.index(label),
        "x": rounded(found.x[kept], 6),
        "y": rounded(found.value[kept]),
    }
    if runs != 1:
        series |= {"lo": rounded(found.low[kept]), "hi": rounded(found.high[kept])}
    return series if runs is None else series | {"n": runs}


def _seed(analysis: Analysis, run: RunResult, points: int, places: list[list[float]]) -> Chart:
    """Return the line of a run; its steps are kept only once for all runs of a task."""
    curve = run.curve
    assert curve is not None
    kept = thinned(len(curve.steps), points)
    steps = rounded(curve.steps[kept], 6)
    if steps not in places:
        places.append(steps)
    return {
        "l": analysis.drawn.index(run.label),
        "s": run.run.seed,
        "p": places.index(steps),
        "t": rounded(curve.seconds[kept]) if np.isfinite(curve.seconds).all() else None,
        "y": rounded(curve.values[kept]),
    }


def rounded(values: Values, digits: int = 5) -> list[Any]:
    """Return numbers with a few significant digits; None for those that are not finite."""
    return [float(f"{v:.{digits}g}") if math.isfinite(v) else None for v in values.tolist()]


# --- All tasks ----------------------------------------------------------------------


def aggregate_charts(analysis: Analysis) -> Iterator[Chart]:
    """Yield the charts of the statistics over all tasks."""
    for statistic in analysis.statistics if analysis.aggregates else ():
        rows = [
            _row(label, analysis.drawn.index(label), found[statistic])
            for label in analysis.drawn
            if statistic in (found := analysis.aggregates.get(label, {}))
        ]
        yield {
            "id": f"aggregate-{statistic}",
            "kind": "dots",
            "title": STATISTIC_NAMES[statistic],
            "x": analysis.scale.capitalize(),
            "digits": 3 if analysis.is_normalized else digits_for(row["v"] for row in rows),
            "rows": rows,
        }
    views: Chart = {}
    for axis, curves in analysis.curves.items():
        name, kind = AXIS_LABELS[axis]
        name = steps_name(analysis) if axis == "steps" else name
        series = [_series(analysis, label, found, MAX_LINE) for label, found in curves.items()]
        views["time" if axis == "time" else "steps"] = {
            "x": {"label": name, "kind": kind},
            "series": series,
        }
    digits = 3 if analysis.is_normalized else 1
    if views:
        yield {
            "id": "aggregate-curve",
            "kind": "line",
            "title": "IQM over training",
            "y": f"IQM of the {analysis.scale}",
            "digits": digits,
            "views": views,
        }
    if analysis.profiles:
        series = [
            _series(analysis, label, found, MAX_LINE) for label, found in analysis.profiles.items()
        ]
        yield {
            "id": "profile",
            "kind": "line",
            "title": "Performance profile",
            "y": "Share of runs with a better score",
            "digits": 2,
            "limits": [0, 1],
            "views": {
                "steps": {
                    "x": {"label": analysis.scale.capitalize(), "kind": "value"},
                    "series": series,
                }
            },
        }


def _row(name: str, label: int, found: Estimate, **more: Any) -> Chart:
    known = not math.isnan(found.low)
    return {
        "name": name,
        "l": label,
        "v": float(f"{found.value:.6g}"),
        "lo": float(f"{found.low:.6g}") if known else None,
        "hi": float(f"{found.high:.6g}") if known else None,
        "u": int(known and not found.reliable),
        **more,
    }


def improvement_pairs(analysis: Analysis) -> list[PairComparison]:
    """Return the pairs in the chart of improvements: across tasks if that is possible."""
    places = list(dict.fromkeys(pair.task for pair in analysis.comparisons))
    if not places or (None not in places and len(places) > 1):
        return []
    drawn = set(analysis.drawn)
    return [
        pair
        for pair in analysis.comparisons
        if pair.task == places[0] and {pair.first, pair.second} <= drawn
    ][:MAX_PAIRS]


def improvement_charts(analysis: Analysis) -> Iterator[Chart]:
    """Yield the chart of the probabilities of improvement."""
    pairs = improvement_pairs(analysis)
    if not pairs:
        return
    rows = []
    for pair in pairs:
        labels = [analysis.drawn.index(pair.first), analysis.drawn.index(pair.second)]
        name = f"{pair.first} > {pair.second}"
        rows.append(_row(name, labels[0], pair.improvement, of=labels))
    yield {
        "id": "improvement",
        "kind": "dots",
        "title": "Probability of improvement",
        "x": "P(a run of A is better than one of B)",
        "digits": 2,
        "limits": [0, 1],
        "reference": 0.5,
        "rows": rows,
    }

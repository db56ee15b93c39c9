"""The numbers of a report as records, for CSV files and programs."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rl_training.statistics import CurveEstimate, Estimate
from rl_training.study.report.analysis import Analysis
from rl_training.study.report.tables import label_settings

Record = dict[str, Any]


def _estimate(found: Estimate | None, prefix: str) -> Record:
    if found is None:
        return dict.fromkeys(f"{prefix}{name}" for name in ("", "_low", "_high", "_interval"))
    return {
        prefix: found.value,
        f"{prefix}_low": found.low,
        f"{prefix}_high": found.high,
        f"{prefix}_interval": found.method if found.reliable else f"{found.method}, unreliable",
    }


def score_records(analysis: Analysis) -> Iterator[Record]:
    """Yield the scores of each label on each task."""
    for found in analysis.by_task.values():
        scores = found.scores
        yield {
            "label": found.label,
            "task": found.task,
            "runs": found.runs,
            "ended": len(scores),
            **_estimate(found.mean, "mean"),
            **_estimate(found.iqm, "iqm"),
            "lowest": float(scores.min()) if len(scores) else None,
            "highest": float(scores.max()) if len(scores) else None,
            "best": found.is_best,
        }


def aggregate_records(analysis: Analysis) -> Iterator[Record]:
    """Yield the statistics over all tasks."""
    for label, estimates in analysis.aggregates.items():
        for statistic, found in estimates.items():
            yield {
                "label": label,
                "statistic": statistic,
                "scale": analysis.scale,
                "tasks": len(analysis.tasks),
                **_estimate(found, "value"),
            }


def comparison_records(analysis: Analysis) -> Iterator[Record]:
    """Yield the comparisons of labels."""
    for pair in analysis.comparisons:
        found = pair.difference
        yield {
            "task": pair.task,
            "first": pair.first,
            "second": pair.second,
            "difference": found.difference,
            "difference_low": found.low,
            "difference_high": found.high,
            "p_welch": found.p_value,
            "p_holm": pair.corrected_p,
            "p_permutation": pair.permutation_p,
            **_estimate(pair.improvement, "improvement"),
            "comparisons": analysis.tested,
        }


def speed_records(analysis: Analysis) -> Iterator[Record]:
    """Yield how fast each label learns each task."""
    for speed in analysis.speeds:
        yield {
            "label": speed.label,
            "task": speed.task,
            **_estimate(speed.area, "mean_over_training"),
            "threshold": analysis.threshold,
            "steps_to_threshold": speed.steps,
            "reached": speed.reached,
            "runs": speed.runs,
            "seconds_per_run": speed.seconds,
        }


def run_records(analysis: Analysis) -> Iterator[Record]:
    """Yield what is known about each run."""
    normalized = analysis.results.references
    for result in analysis.results.runs:
        run, reference = result.run, normalized.get(result.task)
        known = result.score is not None and reference is not None
        yield {
            "label": result.label,
            "task": result.task,
            "seed": run.seed,
            "status": run.status.value,
            "score": result.score,
            "normalized_score": reference.normalized(result.score)
            if known and reference is not None and result.score is not None
            else None,
            "steps": None if result.curve is None else float(result.curve.steps[-1]),
            "seconds": run.seconds,
            "attempts": run.attempts,
            "machine": run.host,
            "reason": run.reason,
            "run": run.key,
        }


def curve_records(analysis: Analysis) -> Iterator[Record]:
    """Yield every evaluation of every run."""
    for result in analysis.results.runs:
        curve = result.curve
        if curve is None:
            continue
        where = {"label": result.label, "task": result.task, "seed": result.run.seed}
        points = (curve.steps.tolist(), curve.seconds.tolist(), curve.values.tolist())
        for step, seconds, value in zip(*points, strict=True):
            yield {**where, "step": step, "seconds": seconds, analysis.results.metric: value}


def aggregate_curve_records(analysis: Analysis) -> Iterator[Record]:
    """Yield the IQM over all tasks, over steps and over time, and the performance profiles."""
    for axis, curves in analysis.curves.items():
        for label, found in curves.items():
            yield from _points(found, {"curve": "iqm", "axis": axis, "label": label})
    for label, found in analysis.profiles.items():
        yield from _points(found, {"curve": "profile", "axis": "score", "label": label})


def _points(found: CurveEstimate, where: Record) -> Iterator[Record]:
    columns = (found.x.tolist(), found.value.tolist(), found.low.tolist(), found.high.tolist())
    for x, value, low, high in zip(*columns, strict=True):
        yield {**where, "x": x, "value": value, "low": low, "high": high}


def setting_records(analysis: Analysis) -> Iterator[Record]:
    """Yield every setting of each label."""
    for label, settings in label_settings(analysis).items():
        for key, value in settings.items():
            yield {"label": label, "key": key, "value": value}


CSV_FILES: Mapping[str, Callable[[Analysis], Iterable[Record]]] = {
    "scores": score_records,
    "aggregates": aggregate_records,
    "comparisons": comparison_records,
    "speed": speed_records,
    "runs": run_records,
    "curves": curve_records,
    "aggregate_curves": aggregate_curve_records,
    "settings": setting_records,
}
"""CSV files beside the report, and their records."""


def to_csv(records: Iterable[Record]) -> str:
    """Return records as CSV; NaN and None are empty cells.

    Spreadsheets run text that starts like a formula, so such text gets an apostrophe in front.
    """
    stream = io.StringIO()
    writer: Any = None
    for record in records:
        if writer is None:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(record)
        writer.writerow([_csv_value(value) for value in record.values()])
    return stream.getvalue()


def _csv_value(value: Any) -> Any:
    if isinstance(value, str):
        return f"'{value}" if value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
    if isinstance(value, float) and math.isnan(value):
        return None
    return value

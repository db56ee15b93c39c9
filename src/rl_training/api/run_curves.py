"""Curves of runs: read metrics, group runs, and average over a group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from rl_training.algorithms.registry import get_algorithm
from rl_training.config_model import Trait, keys_with
from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.run_directory import is_run, read_config_file, runs_hint
from rl_training.runtime.logging import read_metrics
from rl_training.text import shorten, shown

EVALUATION_RETURN = "eval_return_mean"

Axis = Literal["steps", "updates", "time"]
GroupBy = Literal["config", "algo", "run"]

MAX_POINTS = 1_000
"""Maximum number of points of a mean over runs that were recorded at different steps."""

IGNORED_KEYS = {
    *("seed", "checkpoint_interval", "log_interval", "eval_interval"),
    *("keep_checkpoints", "tensorboard", *keys_with(Trait.LABEL, TrainConfig)),
}
"""Keys in which runs of one group may differ."""

T_975 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""97.5% quantiles of Student's t for 1 to 30 degrees of freedom."""

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """One metric of one run, with increasing ``x``."""

    x: Values
    y: Values


@dataclass(frozen=True)
class Band:
    """The mean over the runs of a group, and the range around it."""

    x: Values
    mean: Values
    low: Values
    high: Values


@dataclass
class Run:
    """A run folder and its config."""

    path: Path
    config: TrainConfig = field(init=False)

    def __post_init__(self) -> None:
        if not is_run(self.path):
            raise ConfigError(f"{str(self.path)!r} is not a run{runs_hint(self.path)}.")
        self.config = read_config_file(self.path)

    @property
    def is_offline(self) -> bool:
        """Whether the run learns only from recorded data."""
        return self.config.mode == "offline"

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The config as a flat mapping, without the keys that may differ within a group."""
        flat = _flatten(self.config.resolved().to_dict())
        return {key: value for key, value in flat.items() if key not in IGNORED_KEYS}

    @property
    def algorithm(self) -> str:
        """Name of the algorithm for legends."""
        name = get_algorithm(self.config.algo).short_name
        return f"{name}, fine-tuned" if self.config.finetunes else name

    def curve(self, metric: str, axis: Axis) -> Curve:
        """Return a metric over environment steps, updates or seconds.

        For an offline run, ``"steps"`` are updates.

        Raises:
            ConfigError: The run does not have the metric, or did not record its number of updates.
        """
        points = {
            self._position(row, axis): float(row[metric])
            for row in self._rows()
            if math.isfinite(row.get(metric, math.nan))
        }
        known = sorted(point for point in points.items() if math.isfinite(point[0]))
        if not known:
            raise ConfigError(self._missing(metric))
        x, y = np.array(known, dtype=np.float64).T
        return Curve(x, y)

    def _rows(self) -> list[dict[str, Any]]:
        """Return the rows of this run, without the rows copied from the source of fine-tuning."""
        rows = list(read_metrics(self.path))
        if self.config.mode == "offline_to_online":
            start = self.config.online_from
            rows = [row for row in rows if row.get("env_steps") == row["step"] - start]
        return rows

    def _position(self, row: dict[str, Any], axis: Axis) -> float:
        """Return a row's position on the axis, or NaN if it was not recorded."""
        if axis == "time":
            return float(row.get("time/seconds", math.nan))
        if axis == "updates" and not self.is_offline:
            steps, updates = self._updates
            return float(np.interp(row["step"], steps, updates, left=math.nan, right=math.nan))
        return float(row.get("env_steps", row["step"]))

    @cached_property
    def _updates(self) -> tuple[list[int], list[float]]:
        """Steps and update counts of the training rows; evaluation rows have no counts."""
        counts = {row["step"]: float(row["updates"]) for row in self._rows() if "updates" in row}
        if not counts:
            raise ConfigError(
                f"{self.path} did not record its number of updates: use --x steps or --x time."
            )
        return list(counts), list(counts.values())

    def _missing(self, metric: str) -> str:
        found = {name for row in self._rows() for name in row}
        if metric in found:
            return f"{self.path}: no value of {metric!r} can be plotted on this axis."
        if metric == EVALUATION_RETURN:
            message = f"{self.path} was never evaluated in an environment."
        else:
            message = f"{self.path} has no metric {shown(metric)}."
        found -= {"step", "time/seconds"}
        if not found:
            return f"{message} It has no metrics yet."
        return f"{message} Its metrics: {shorten(', '.join(sorted(found)), 600)}."


def evaluations(run: str | Path) -> tuple[list[int], list[float]]:
    """Return the steps and mean returns of a run's evaluations.

    The steps are environment steps, or updates for an offline run. For an offline-to-online run,
    they are counted from the start of collection.
    """
    curve = Run(Path(run)).curve(EVALUATION_RETURN, "steps")
    return [int(x) for x in curve.x], curve.y.tolist()


@dataclass
class RunGroup:
    """Runs that are plotted as one line."""

    runs: list[Run]
    label: str = ""

    @property
    def is_offline(self) -> bool:
        """Whether all runs of the group are offline."""
        return all(run.is_offline for run in self.runs)

    @property
    def size(self) -> str:
        """Number of seeds, or of runs if a seed occurs twice."""
        count = len(self.runs)
        seeds = {run.config.seed for run in self.runs}
        what = "seed" if len(seeds) == count else "run"
        return f"{count} {what}{'s' if count > 1 else ''}"


def group_runs(runs: Sequence[Run], by: GroupBy) -> list[RunGroup]:
    """Group runs, in the order of each group's first run, and label the groups.

    Args:
        runs: The runs.
        by: ``"config"`` groups runs that differ only in their seed, ``"algo"`` groups the runs of
            one algorithm, and ``"run"`` plots a line for each run.
    """
    if by not in get_args(GroupBy):
        raise ConfigError(f"by = {shown(by)}: should be one of {', '.join(get_args(GroupBy))}.")
    groups: dict[Any, RunGroup] = {}
    for run in runs:
        settings = tuple(sorted((key, repr(value)) for key, value in run.settings.items()))
        keys = {"config": settings, "algo": (run.algorithm, run.is_offline), "run": run.path}
        groups.setdefault(keys[by], RunGroup([])).runs.append(run)
    found = list(groups.values())
    labels = _run_labels(found) if by == "run" else _config_labels(found, by)
    for group, label in zip(found, labels, strict=True):
        group.label = label
    return found


def _run_labels(groups: Sequence[RunGroup]) -> list[str]:
    return unique_names([group.runs[0].path for group in groups])


def _config_labels(groups: Sequence[RunGroup], by: GroupBy) -> list[str]:
    """Return labels: the algorithm, and the settings that differ between its groups."""
    labels = []
    for group in groups:
        first = group.runs[0]
        rivals = [g.runs[0] for g in groups if g.runs[0].algorithm == first.algorithm]
        settings = [run.settings for run in rivals]
        differing = [
            key
            for key in first.settings
            if any(repr(other.get(key)) != repr(first.settings[key]) for other in settings)
        ]
        shown_keys = differing[:3] if by == "config" else []
        words = [first.algorithm]
        words += [f"{key}={_short(first.settings[key])}" for key in shown_keys]
        labels.append(", ".join(words))
    if len(set(labels)) < len(labels):  # more settings differ than a label shows
        names = _run_labels(groups)
        labels = [
            label if labels.count(label) == 1 else f"{label} ({name})"
            for label, name in zip(labels, names, strict=True)
        ]
    return labels


def _short(value: Any) -> str:
    if isinstance(value, str) and "/" in value:
        return shorten(Path(value).name, 30)
    return shorten(str(value), 30)


def _flatten(data: dict[str, Any]) -> dict[str, Any]:
    """Flatten nested settings: ``algo_kwargs.gamma`` becomes ``gamma``."""
    flat: dict[str, Any] = {}
    for key, value in data.items():
        flat |= _flatten(value) if isinstance(value, dict) and value else {key: value}
    return flat


def unique_names(places: Sequence[Path]) -> list[str]:
    """Return the folder names, with as many parent folders as needed to make them unique."""

    def tail(place: Path, length: int) -> tuple[str, ...]:
        return place.parts[-length:]

    names = []
    for place in places:
        length = 1
        while sum(tail(other, length) == tail(place, length) for other in places) > 1:
            length += 1
        names.append(str(Path(*tail(place, length))))
    return names


def smoothed(curve: Curve, weight: float) -> Curve:
    """Return an exponential moving average, as in TensorBoard.

    ``weight`` is the weight of the past. The average is corrected for starting at zero.
    """
    if weight == 0:
        return curve
    values, average = np.empty_like(curve.y), 0.0
    for index, value in enumerate(curve.y):
        average = weight * average + (1 - weight) * float(value)
        values[index] = average / (1 - weight ** (index + 1))
    return Curve(curve.x, values)


def band(curves: Sequence[Curve]) -> Band:
    """Return the mean of several curves and the range around it.

    The range is the 95% confidence interval of the mean (Student's t) for three or more curves,
    and the minimum to maximum for two. Curves recorded at different steps are interpolated
    linearly, within the range that all of them cover.

    Raises:
        ConfigError: There is no range that all curves cover.
    """
    x = _common_x(curves)
    y = np.stack([np.interp(x, curve.x, curve.y) for curve in curves])
    mean = y.mean(0)
    if len(curves) < 3:
        return Band(x, mean, y.min(0), y.max(0))
    half = t_quantile(len(curves) - 1) * y.std(0, ddof=1) / math.sqrt(len(curves))
    return Band(x, mean, mean - half, mean + half)


def _common_x(curves: Sequence[Curve]) -> Values:
    first = curves[0].x
    if all(np.array_equal(curve.x, first) for curve in curves):
        return first
    start = max(float(curve.x[0]) for curve in curves)
    end = min(float(curve.x[-1]) for curve in curves)
    if start > end:
        raise ConfigError(
            f"The runs of a group have no common range: one starts at {start:,.0f}, but another "
            f"ends at {end:,.0f}. Use --by run to plot a line for each run."
        )
    x = np.unique(np.concatenate([curve.x for curve in curves]))
    x = x[(start <= x) & (x <= end)]
    return x if len(x) <= MAX_POINTS else np.linspace(start, end, MAX_POINTS)


def t_quantile(freedom: int) -> float:
    """Return the 97.5% quantile of Student's t."""
    return T_975[freedom - 1] if freedom <= len(T_975) else 1.96 + 2.4 / freedom

"""Plots of runs: means over seeds, with bands."""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from rl_training.api.arguments import as_output, as_path
from rl_training.api.figures import (
    COLORS,
    ENDINGS,
    GRAY,
    figure_bytes,
    format_counts,
    format_values,
    literal,
    new_figure,
    plot_style,
)
from rl_training.api.run_curves import Axis, GroupBy, Run, RunGroup, group_runs
from rl_training.boundary.writing import write_output
from rl_training.curves import EVALUATION_RETURN, band, smoothed
from rl_training.errors import ConfigError
from rl_training.statistics import CurveEstimate
from rl_training.text import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEGEND_CHARACTERS = 96
"""Number of characters that fit into one row of the legend."""

NOTE_CHARACTERS = 100
"""Number of characters that fit into one row of the note under the axes."""

LINES: tuple[Any, ...] = ("-", ":", "-.", (0, (5, 1, 1, 1, 1, 1)))
DASHES: tuple[Any, ...] = ("--", (0, (8, 4)), (0, (2, 2)), (0, (8, 2, 2, 2)))
MARKERS = ("", "o", "^", "s")
"""Styles of curves and horizontal lines; the next one is used each time the colors repeat."""

AXIS_LABELS = {"steps": "Environment steps", "updates": "Gradient updates"}
TIME_UNITS = (("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))


def plot_runs(
    runs: Sequence[str | Path] | str | Path,
    file: str | Path,
    *,
    by: GroupBy = "config",
    metric: str = EVALUATION_RETURN,
    x: Axis | None = None,
    smooth: float = 0.0,
    title: str | None = None,
    xlabel: str | None = None,
    ylabel: str | None = None,
) -> dict[str, list[Path]]:
    """Plot a metric of one or more runs, with one line per group of runs.

    A line is the mean over the group's runs. The band around it is the 95% confidence interval of
    the mean (Student's t) for three or more runs, and the minimum to maximum for two. On an axis of
    environment steps, an offline run is a dashed line at its last value.

    Args:
        runs: Run folders.
        file: File to write, with the suffix .png, .pdf, .svg or .jpg.
        by: ``"config"`` groups runs that differ only in their seed, ``"algo"`` groups the runs of
            one algorithm, and ``"run"`` plots a line for each run.
        metric: The name of a metric in ``metrics.jsonl``.
        x: ``"steps"``, ``"updates"`` or ``"time"``. By default environment steps, or updates if all
            runs are offline.
        smooth: Weight of the past in an exponential moving average, from 0 (off) to below 1.
        title: Title of the plot, by default the environment id; ``""`` for none.
        xlabel: Label of the horizontal axis.
        ylabel: Label of the vertical axis.

    Returns:
        The runs of each group, by the label in the legend.
    """
    file = as_output("out", file, ENDINGS)
    labels = {"title": title, "xlabel": xlabel, "ylabel": ylabel}
    data, groups = draw_runs(runs, file.suffix, by=by, metric=metric, x=x, smooth=smooth, **labels)
    write_output(file, data)
    return groups


def draw_runs(
    runs: Sequence[str | Path] | str | Path,
    suffix: str,
    *,
    by: GroupBy = "config",
    metric: str = EVALUATION_RETURN,
    x: Axis | None = None,
    smooth: float = 0.0,
    title: str | None = None,
    xlabel: str | None = None,
    ylabel: str | None = None,
) -> tuple[bytes, dict[str, list[Path]]]:
    """Return the image that `plot_runs` writes, and the runs of each group."""
    found = _find_runs(runs)
    axis = _check_axis(x, found)
    if not 0 <= smooth < 1:
        raise ConfigError(f"smooth = {shown(smooth)}: should be at least 0 and below 1.")
    groups = group_runs(found, by)
    drawn = [_Line(group, by, metric, axis, smooth) for group in groups]
    with plot_style():
        note = _note(drawn, smooth)
        figure, axes = _new_axes([line.label for line in drawn], note)
        unit, seconds = _time_unit(drawn) if axis == "time" else ("", 1.0)
        for index, line in enumerate(drawn):
            line.draw(axes, index, seconds, level=axis == "steps" and line.group.is_offline)
        if axis != "time":
            format_counts(axes.xaxis)
        environments = [run.config.env_id for run in found if run.config.env_id]
        label = f"Training time ({unit})" if axis == "time" else AXIS_LABELS[axis]
        name = "Evaluation return" if metric == EVALUATION_RETURN else metric
        axes.set_title(literal(_title(environments) if title is None else title))
        axes.set_xlabel(literal(label if xlabel is None else xlabel))
        axes.set_ylabel(literal(name if ylabel is None else ylabel))
        _start_at_zero(axes, drawn)
        format_values(axes)
        _add_legend(figure, [line.label for line in drawn], note)
        image = figure_bytes(figure, suffix)
    return image, {line.label: [run.path for run in line.group.runs] for line in drawn}


def _find_runs(runs: Sequence[str | Path] | str | Path) -> list[Run]:
    listed = [runs] if isinstance(runs, str | Path) else runs
    paths = dict.fromkeys(Path(os.path.abspath(as_path("run", run))) for run in listed)
    if not paths:
        raise ConfigError("There is no run to plot: pass at least one.")
    return [Run(path) for path in paths]


def _check_axis(x: Axis | None, runs: Sequence[Run]) -> Axis:
    """Return the quantity of the horizontal axis, by default one that all runs have."""
    over_updates = all(run.is_offline for run in runs)
    if x is None:
        return "updates" if over_updates else "steps"
    if x not in get_args(Axis):
        raise ConfigError(f"x = {shown(x)}: should be one of {', '.join(get_args(Axis))}.")
    if x == "steps" and over_updates:
        raise ConfigError("Offline runs have no environment steps: use --x updates or --x time.")
    return x


class _Line:
    """The line and band of a group."""

    def __init__(
        self, group: RunGroup, by: GroupBy, metric: str, axis: Axis, smooth: float
    ) -> None:
        self.group = group
        curves = [smoothed(run.curve(metric, axis), smooth) for run in group.runs]
        with np.errstate(over="ignore", invalid="ignore"):  # returns may be as large as 1e308
            self.band: CurveEstimate = band(curves)
        self.interpolated = not all(np.array_equal(curve.x, curves[0].x) for curve in curves)
        facts = [] if by == "run" else [group.size]
        if axis == "steps" and group.is_offline:
            facts += ["offline", f"{self.band.x[-1]:,.0f} updates"]
        self.label = f"{group.label} ({', '.join(facts)})" if facts else group.label

    def draw(self, axes: Axes, index: int, seconds: float, *, level: bool) -> None:
        turn = index // len(COLORS)
        style = turn % len(LINES)
        look: dict[str, Any] = {"color": COLORS[index % len(COLORS)], "label": literal(self.label)}
        shade = {"color": look["color"], "alpha": 0.08 if level else 0.16, "linewidth": 0}
        x, several = self.band.x / seconds, len(self.group.runs) > 1
        if level:
            axes.axhline(self.band.value[-1], linestyle=DASHES[style], **look)
            if several:
                axes.axhspan(self.band.low[-1], self.band.high[-1], **shade)
            return
        marker = MARKERS[turn // len(LINES) % len(MARKERS)] or ("o" if len(x) == 1 else "")
        axes.plot(x, self.band.value, linestyle=LINES[style], marker=marker, markersize=4, **look)
        if several:
            axes.fill_between(x, self.band.low, self.band.high, **shade)


def _new_axes(labels: Sequence[str], note: str) -> tuple[Figure, Axes]:
    """Return a figure and axes, whose size does not depend on the rows of the legend."""
    rows = math.ceil(len(labels) / _columns(labels)) + len(note.splitlines())
    figure = new_figure(6.4, 4.0 + 0.19 * rows)
    return figure, figure.subplots()


def _start_at_zero(axes: Axes, lines: Sequence[_Line]) -> None:
    """Start the horizontal axis at zero unless that would leave much of it empty."""
    axes.margins(x=0.02)
    first = min(float(line.band.x[0]) for line in lines)
    last = max(float(line.band.x[-1]) for line in lines)
    if 0 < first < 0.3 * last:
        axes.set_xlim(left=0)


def _columns(labels: Sequence[str]) -> int:
    widest = max(map(len, labels)) + 8
    return max(1, min(4, len(labels), LEGEND_CHARACTERS // widest))


def _add_legend(figure: Figure, labels: Sequence[str], note: str) -> None:
    """Put the legend below the axes, where it never covers a curve."""
    legend = figure.legend(
        loc="outside lower center", ncols=_columns(labels), frameon=False, handlelength=2.4
    )
    if note:
        legend.set_title(note)
        legend.get_title().set(color=GRAY, fontsize=8, multialignment="center")


def _note(lines: Sequence[_Line], smooth: float) -> str:
    """Return a note that explains lines and bands."""
    sizes = {min(len(line.group.runs), 3) for line in lines}
    few, many = "minimum to maximum", "95% confidence intervals (Student's t)"
    bands = {(2,): few, (3,): many, (2, 3): f"{many}, or {few} of 2 runs"}.get(
        tuple(sorted(sizes - {1})), ""
    )
    notes = [f"Lines are means; bands are {bands}."] if bands else []
    if any(line.interpolated for line in lines):
        notes.append("Runs are interpolated over the range that all runs of a group cover.")
    if smooth:
        notes.append(f"Smoothed with weight {smooth:g}.")
    return textwrap.fill(" ".join(notes), NOTE_CHARACTERS)


def _time_unit(lines: Sequence[_Line]) -> tuple[str, float]:
    longest = max(float(line.band.x[-1]) for line in lines)
    return next((unit for unit in TIME_UNITS if longest >= 2 * unit[1]), TIME_UNITS[-1])


def _title(env_ids: Sequence[str]) -> str:
    """Return the environment id, or a title that lists the different environments."""
    names = list(dict.fromkeys(env_ids))
    if len(names) < 2:
        return "".join(names)
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"Different environments: {', '.join(names[:3])}{more}"

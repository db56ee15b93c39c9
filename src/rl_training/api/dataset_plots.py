"""Plots of datasets: the distributions of returns, lengths, rewards and actions."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rl_training.api.arguments import as_output
from rl_training.api.figures import (
    COLORS,
    ENDINGS,
    GRAY,
    format_counts,
    literal,
    new_figure,
    plot_style,
    write_figure,
)
from rl_training.data.recorded import RecordedData

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CLIPPED = 0.005
"""Fraction of the values that an axis may leave out at either end."""

MIN_STRETCH = 1.5
"""An axis leaves out outliers if showing them would make it this many times wider."""

MAX_RANGES = 24
"""Number of action dimensions that fit into a plot."""

Values = NDArray[np.float64]


def plot_dataset(dataset: RecordedData, file: str | Path, title: str) -> None:
    """Plot the distributions of returns, lengths, rewards and actions, with their medians.

    If a few outliers would stretch an axis, it leaves out at most 0.5% of the values at either
    end, and a note shows how many.
    """
    file = as_output("plot", file, ENDINGS)
    statistics = dataset.statistics()
    name = Path(title).name if Path(title).exists() else title
    counts = f"{len(dataset):,} transitions, {len(statistics.returns):,} episodes"
    with plot_style():
        figure = new_figure(7.6, 5.2)
        returns, lengths, rewards, actions = figure.subplots(2, 2).flat
        _draw_histogram(returns, statistics.returns, 40)
        returns.set(xlabel="Episode return", ylabel="Episodes")
        _draw_histogram(lengths, statistics.lengths, 40)
        lengths.set(xlabel="Episode length", ylabel="Episodes")
        _draw_histogram(rewards, dataset.column("rewards"), 60)
        rewards.set(xlabel="Reward", ylabel="Transitions (log scale)", yscale="log")
        _draw_actions(actions, dataset.column("actions"))
        figure.suptitle(f"{literal(name)}: {counts}", fontsize=11)
        write_figure(figure, file)


def _draw_histogram(axes: Axes, values: Any, bins: int) -> None:
    """Draw a histogram of the values, and their median."""
    array = np.asarray(values, dtype=np.float64)
    array = array[np.isfinite(array)]  # the report counts the other rows
    if not len(array):
        return
    low, high = _axis_range(array)
    edges = _edges(axes, array, low, high, min(bins, max(10, 2 * math.isqrt(len(array)))))
    axes.hist(array, bins=edges, color=COLORS[0], alpha=0.85)
    _use_whole_counts(axes)
    _draw_median(axes, array)
    _annotate_outliers(axes, array, edges[0], edges[-1])


def _draw_median(axes: Axes, array: Values) -> None:
    median = float(np.median(array))
    axes.axvline(median, color=COLORS[1], linewidth=1.4, label=f"median {_short(median)}")
    axes.legend(
        loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False, borderpad=0, handlelength=1.2
    )


def _draw_actions(axes: Axes, actions: Any) -> None:
    """Draw a histogram of one dimension, or the ranges of several."""
    columns = np.asarray(actions, dtype=np.float64).T
    if len(columns) == 1:
        _draw_histogram(axes, columns[0], 60)
        axes.set(xlabel="Action", ylabel="Transitions")
    else:
        _draw_ranges(axes, columns[:MAX_RANGES])


def _draw_ranges(axes: Axes, columns: Values) -> None:
    """Draw the median, the middle half and the middle 98% of each action dimension."""
    for index, values in enumerate(columns):
        column = values[np.isfinite(values)]
        if not len(column):
            continue
        lowest, lower, median, upper, highest = np.quantile(column, (0.01, 0.25, 0.5, 0.75, 0.99))
        axes.plot((lowest, highest), (index, index), color=COLORS[0], linewidth=1.0)
        axes.plot((lower, upper), (index, index), color=COLORS[0], linewidth=5.0)
        axes.plot(median, index, "o", color="white", markeredgecolor=COLORS[1], markersize=5)
    axes.set_yticks(range(len(columns)))
    axes.tick_params(axis="y", labelsize=9 if len(columns) <= 10 else 6)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set(xlabel="Action", ylabel="Action dimension")
    axes.set_title("median, middle 50% and 98%", fontsize=9, loc="right", color=GRAY)


def _axis_range(array: Values) -> tuple[float, float]:
    """Return the range of the values, without outliers that would stretch it."""
    low, high = float(array.min()), float(array.max())
    if len(array) * CLIPPED < 1:
        return low, high
    inner_low, inner_high = (float(q) for q in np.quantile(array, (CLIPPED, 1 - CLIPPED)))
    if high - low > MIN_STRETCH * (inner_high - inner_low) > 0:
        return inner_low, inner_high
    return low, high


def _edges(axes: Axes, array: Values, low: float, high: float, bins: int) -> list[float]:
    """Return the edges of a histogram's bins; integers are in the middle of their bins."""
    from matplotlib.ticker import MaxNLocator

    if (array == np.round(array)).all():
        width = math.ceil((high - low + 1) / bins)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        return [float(edge) for edge in np.arange(math.floor(low) - 0.5, high + width, width)]
    return [float(edge) for edge in np.histogram_bin_edges(array, bins, (low, high))]


def _annotate_outliers(axes: Axes, array: Values, low: float, high: float) -> None:
    """Add a note about the fraction and range of the values outside of the axis."""
    outside = float(np.mean((array < low) | (array > high)))
    if outside > 0:
        note = f"{100 * outside:.2g}% outside, from {_short(array.min())} to {_short(array.max())}"
        axes.annotate(
            note, (0, 1), xytext=(0, 3), xycoords="axes fraction", textcoords="offset points",
            fontsize=7, color=GRAY, va="bottom",
        )  # fmt: skip


def _short(value: float) -> str:
    """Format a number with three significant digits, or as an integer, with a real minus sign."""
    digits = f"{value:,.0f}" if 100 <= abs(value) < 1e7 else f"{value:.3g}"
    return digits.replace("-", "−")


def _use_whole_counts(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    format_counts(axes.yaxis)
    axes.grid(visible=False, axis="x")

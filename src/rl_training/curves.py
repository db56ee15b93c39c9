"""Learning curves: read them from metrics, smooth them, and average them over runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.errors import ConfigError
from rl_training.statistics import CurveEstimate, student_band

EVALUATION_RETURN = "eval_return_mean"

MAX_POINTS = 1_000
"""Maximum number of points of a mean over runs that were recorded at different steps."""

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """One metric of one run, with increasing ``x``."""

    x: Values
    y: Values

    @classmethod
    def of(cls, points: Iterable[tuple[float, float]]) -> Curve:
        """Return the curve of points in any order; of two at the same place, the last one counts.

        Points that are not finite are left out.
        """
        known = {x: y for x, y in points if math.isfinite(x) and math.isfinite(y)}
        x = np.array(sorted(known), dtype=np.float64)
        return cls(x, np.array([known[place] for place in x], dtype=np.float64))

    def __len__(self) -> int:
        return len(self.x)


# --- Metrics ----------------------------------------------------------------------


def online_rows(rows: Iterable[Mapping[str, Any]], start: int) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of collection, which starts at step ``start`` of an offline-to-online run.

    The rows of the offline phase, and those copied from the source of fine-tuning, are left out.
    """
    for row in rows:
        if row.get("env_steps") == row["step"] - start:
            yield row


def env_steps(row: Mapping[str, Any]) -> float:
    """Return the environment steps of a row; for an offline run, its updates."""
    return float(row.get("env_steps", row["step"]))


def seconds(row: Mapping[str, Any]) -> float:
    """Return the training time of a row, or NaN if it was not recorded."""
    return float(row.get("time/seconds", math.nan))


# --- Arithmetic -------------------------------------------------------------------


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


def band(curves: Sequence[Curve], *, points: int = MAX_POINTS) -> CurveEstimate:
    """Return the mean of several curves and the range around it.

    The range is the 95% confidence interval of the mean (Student's t) for three or more curves,
    and the minimum to maximum for two. Curves recorded at different steps are interpolated
    linearly, within the range that all of them cover.

    Args:
        curves: The curves, each with at least one point.
        points: Maximum number of points if the curves were recorded at different steps.

    Raises:
        ConfigError: There is no range that all curves cover.
    """
    x = common_x(curves, points)
    y = np.stack([np.interp(x, curve.x, curve.y) for curve in curves])
    if len(curves) < 3:
        return CurveEstimate(x, y.mean(0), y.min(0), y.max(0))
    return CurveEstimate(x, *student_band(y))


def common_x(curves: Sequence[Curve], points: int = MAX_POINTS) -> Values:
    """Return the places at which curves are compared."""
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
    return x if len(x) <= points else np.linspace(start, end, points)


def thinned(length: int, most: int) -> NDArray[np.intp]:
    """Return at most ``most`` evenly spaced indices, with the first and the last one."""
    if length <= most:
        return np.arange(length)
    return np.round(np.linspace(0, length - 1, most)).astype(np.intp)

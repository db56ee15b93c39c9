"""The charts of a tuning as SVG: the best value so far, importances, parallel coordinates.

They need no script: details are shown as tooltips, and colors follow the style of the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from rl_training.text import printable, shorten
from rl_training.tuning.space import Dimension, Numbers, Space
from rl_training.tuning.trials import Trial, TrialStatus
from rl_training.tuning.winner import number_text, params_text

STYLE = """
svg .trial { stroke: var(--accent); fill: none; }
svg .pruned { stroke: var(--soft); stroke-dasharray: 3 3; fill: none; }
svg .best { stroke: var(--text); stroke-width: 3; fill: none; }
svg .trial:hover, svg .pruned:hover { stroke-width: 4; stroke-opacity: 1; }
svg circle.trial { fill: var(--accent); }
svg circle.pruned { stroke-dasharray: none; }
svg .bar { fill: var(--accent); }
"""
"""Rules in addition to those of the page."""

WIDTH = 960
HEIGHT = 330
MAX_DRAWN = 1_000
"""Number of trials in the parallel coordinates: the best ones."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 12, 34
_FAINTEST = 0.12
"""Opacity of the worst trial; the best one has 1."""


def text(words: str) -> str:
    """Return text for SVG; control characters are shown."""
    return escape(printable(words, keep=""), quote=True)


def described(trial: Trial) -> str:
    """Return what a tooltip says about a trial."""
    how = {
        TrialStatus.PRUNED: "pruned at ",
        TrialStatus.FAILED: f"failed: {trial.reason} ",
        TrialStatus.OPEN: "not complete ",
    }.get(trial.status, "")
    value = "" if trial.value is None else number_text(trial.value)
    return f"Trial {trial.number}: {how}{value} ({params_text(trial.params)})"


def _svg(parts: Iterator[str], height: int, name: str) -> str:
    head = f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{text(name)}">'
    return f"{head}{''.join(parts)}</svg>\n"


def _words(x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> str:
    kinds = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kinds}>{text(words)}</text>'


# --- The best value so far ----------------------------------------------------------------


def history_chart(trials: Sequence[Trial]) -> str:
    """Return the value of each trial, and the best one so far; '' if there is none."""
    known = [trial for trial in trials if trial.value is not None]
    if not known:
        return ""
    return _svg(_history(trials, known), HEIGHT, "The best value so far")


def _history(trials: Sequence[Trial], known: Sequence[Trial]) -> Iterator[str]:
    ticks = nice_ticks(min(_value(t) for t in known), max(_value(t) for t in known))
    low, high = ticks[0], ticks[-1]
    last = max(1, len(trials) - 1)

    def at(number: float, value: float) -> tuple[float, float]:
        x = _LEFT + (WIDTH - _LEFT - _RIGHT) * number / last
        return x, _TOP + (HEIGHT - _TOP - _BOTTOM) * (high - value) / (high - low)

    for value in ticks:
        (x, y), (end, _) = at(0, value), at(last, value)
        yield f'<line class="gridline" x1="{x:.1f}" y1="{y:.1f}" x2="{end:.1f}" y2="{y:.1f}"/>'
        yield _words(x - 8, y + 4, number_text(value).removesuffix(".0"), "end")
    for tick in sorted({round(last * share / 5) for share in range(6)}):
        yield _words(at(tick, low)[0], HEIGHT - 14, str(tick), "middle")
    best, path = -math.inf, list[str]()
    for trial in trials:
        if trial.status is TrialStatus.COMPLETE and _value(trial) > best:
            x, y = at(trial.number, best) if path else (math.nan, math.nan)
            path += [f"{x:.1f},{y:.1f}"] if path else []
            best = _value(trial)
            path.append("{:.1f},{:.1f}".format(*at(trial.number, best)))
    if path:
        path.append("{:.1f},{:.1f}".format(*at(last, best)))
        yield f'<polyline class="best" points="{" ".join(path)}"/>'
    for trial in known:
        x, y = at(trial.number, _value(trial))
        kind = "trial" if trial.status is TrialStatus.COMPLETE else "pruned"
        yield f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4">'
        yield f"<title>{text(described(trial))}</title></circle>"


def _value(trial: Trial) -> float:
    assert trial.value is not None
    return trial.value


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return round numbers that contain an interval, about ``count`` of them."""
    span = (high - low) or abs(high) or 1.0
    size = 10 ** math.floor(math.log10(span / count))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor * count >= span)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


# --- Importances ----------------------------------------------------------------------------


def importance_chart(shares: Mapping[str, float]) -> str:
    """Return a bar for each key, the most important one first."""
    rows = sorted(shares.items(), key=lambda item: -item[1])
    return _svg(_bars(rows), 30 * len(rows) + 8, "Importance of each key")


def _bars(rows: Sequence[tuple[str, float]]) -> Iterator[str]:
    left, longest = 260, WIDTH - 260 - 70
    for number, (key, share) in enumerate(rows):
        y, width = 30 * number + 6, longest * share
        yield _words(left - 10, y + 15, shorten(key, 34), "end", "name")
        yield f'<rect class="bar" x="{left}" y="{y}" width="{width:.1f}" height="20" rx="2">'
        yield f"<title>{text(key)}: {share:.1%}</title></rect>"
        yield _words(left + width + 8, y + 15, f"{share:.0%}")


# --- Parallel coordinates -------------------------------------------------------------------


@dataclass(frozen=True)
class Axis:
    """A vertical axis: where a value is, from 0 at the bottom to 1, and its labels."""

    name: str
    place: Callable[[Trial], float]
    labels: Sequence[tuple[float, str]]


def parallel_chart(space: Space, trials: Sequence[Trial]) -> str:
    """Return a line for each trial through its settings and its value; '' if there is none."""
    known = sorted((t for t in trials if t.value is not None), key=_value)[-MAX_DRAWN:]
    if not known:
        return ""
    axes = [_axis(key, dimension) for key, dimension in space.dimensions.items()]
    axes.append(_value_axis(known))
    return _svg(_parallel(axes, known), HEIGHT + 30, "Settings and value of each trial")


def _axis(key: str, dimension: Dimension) -> Axis:
    if isinstance(dimension, Numbers):
        low, high = float(dimension.low), float(dimension.high)
        scale = math.log if dimension.log else float
        first, last = scale(low), scale(high)
        return Axis(
            key,
            lambda trial: (scale(trial.params[key]) - first) / (last - first),
            [(0.0, f"{low:.4g}"), (1.0, f"{high:.4g}")],
        )
    values, last_place = dimension.values, max(1, len(dimension.values) - 1)
    return Axis(
        key,
        lambda trial: values.index(trial.params[key]) / last_place,
        [(number / last_place, str(label)) for number, label in enumerate(dimension.labels)],
    )


def _value_axis(known: Sequence[Trial]) -> Axis:
    low, high = _value(known[0]), _value(known[-1])
    span = high - low or 1.0
    labels = [(0.0, number_text(low)), (1.0, number_text(high))]
    return Axis("value", lambda trial: (_value(trial) - low) / span, labels)


def _parallel(axes: Sequence[Axis], known: Sequence[Trial]) -> Iterator[str]:
    top, bottom = 40, HEIGHT
    gap = (WIDTH - 160) / max(1, len(axes) - 1)

    def height(share: float) -> float:
        return bottom - (bottom - top) * share

    for position, trial in enumerate(known):  # the best one is drawn last
        points = " ".join(
            f"{80 + gap * number:.1f},{height(axis.place(trial)):.1f}"
            for number, axis in enumerate(axes)
        )
        share = (position + 1) / len(known)
        kind = "trial" if trial.status is TrialStatus.COMPLETE else "pruned"
        is_best = trial is known[-1] and trial.status is TrialStatus.COMPLETE
        opacity = 1.0 if is_best else _FAINTEST + 0.7 * share**2
        yield f'<polyline class="{"best" if is_best else kind}" stroke-opacity="{opacity:.2f}" '
        yield f'points="{points}"><title>{text(described(trial))}</title></polyline>'
    for number, axis in enumerate(axes):
        x = 80 + gap * number
        yield f'<line class="axis" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}"/>'
        name = shorten(axis.name.rpartition(".")[2], max(6, int(gap / 7)))
        yield _words(x, 18, name, "middle", "name")
        for share, words in axis.labels:
            yield _words(x + 6, height(share) + (14 if share == 0 else -4), shorten(words, 14))

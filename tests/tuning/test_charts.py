"""The charts of a tuning: where points are, and that any text is safe in them."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from rl_training.tuning.charts import history_chart, importance_chart, nice_ticks, parallel_chart
from rl_training.tuning.space import Choices, Numbers, Space
from rl_training.tuning.trials import Trial, TrialStatus

SPACE = Space(
    {
        "rate": Numbers(1e-4, 1e-2, log=True),
        "gamma": Choices((0.9, 0.99)),
        "name": Choices(("<b>&", [64, 64])),
    }
)


def trial(number: int, value: float | None, status: str = "complete", **params: Any) -> Trial:
    settings = {"rate": 1e-3, "gamma": 0.9, "name": "<b>&"} | params
    return Trial(number, settings, "sampler", 0, "f/f", TrialStatus(status), value)


TRIALS = [
    trial(0, -300.0),
    trial(1, -500.0, "pruned", rate=1e-4),
    trial(2, -100.0, gamma=0.99, name=[64, 64]),
    trial(3, -200.0, rate=1e-2),
    trial(4, None, "failed"),
]


def parsed(svg: str) -> ElementTree.Element:
    """Return the chart; only well-formed XML is accepted."""
    return ElementTree.fromstring(svg)


def points(line: ElementTree.Element) -> list[tuple[float, float]]:
    pairs = re.findall(r"([\d.]+),([\d.]+)", line.attrib["points"])
    return [(float(x), float(y)) for x, y in pairs]


def test_the_best_value_never_falls() -> None:
    chart = parsed(history_chart(TRIALS))
    (best,) = chart.findall("polyline")
    heights = [y for _, y in points(best)]
    assert heights == sorted(heights, reverse=True)  # y points down
    circles = {c.findtext("title", "").partition(":")[0]: c for c in chart.findall("circle")}
    assert set(circles) == {"Trial 0", "Trial 1", "Trial 2", "Trial 3"}
    assert [circles[f"Trial {n}"].attrib["class"] for n in (1, 2)] == ["pruned", "trial"]
    y = {name: float(circle.attrib["cy"]) for name, circle in circles.items()}
    assert y["Trial 2"] < y["Trial 3"] < y["Trial 0"] < y["Trial 1"]
    assert min(heights) == pytest.approx(y["Trial 2"], abs=0.1)


def test_parallel_coordinates_are_on_the_scales_of_the_space() -> None:
    chart = parsed(parallel_chart(SPACE, TRIALS))
    lines = {e.findtext("title", "").partition(":")[0]: e for e in chart.findall("polyline")}
    top, bottom = 40.0, 330.0
    rate = {name: points(line)[0][1] for name, line in lines.items()}
    assert rate["Trial 1"] == bottom
    assert rate["Trial 3"] == top
    assert rate["Trial 0"] == pytest.approx((top + bottom) / 2)  # in the middle of a log scale
    assert lines["Trial 2"].attrib["class"] == "best"
    assert [y for _, y in points(lines["Trial 2"])][1:] == [top, top, top]
    assert lines["Trial 1"].attrib["class"] == "pruned"


def test_importances_are_bars() -> None:
    chart = parsed(importance_chart({"a": 0.2, "b": 0.8}))
    widths = [float(bar.attrib["width"]) for bar in chart.findall("rect")]
    assert widths[0] == pytest.approx(4 * widths[1], abs=0.1)
    assert [t.text for t in chart.findall("text")] == ["b", "80%", "a", "20%"]


def test_without_values_there_is_no_chart() -> None:
    assert history_chart([trial(0, None, "failed")]) == ""
    assert parallel_chart(SPACE, []) == ""


@pytest.mark.parametrize("value", [0.0, 5.0, -1e-9, 1e12])
def test_a_single_trial_can_be_drawn(value: float) -> None:
    parsed(history_chart([trial(0, value)]))
    parsed(parallel_chart(SPACE, [trial(0, value)]))


def test_ticks_are_round_and_contain_the_values() -> None:
    assert nice_ticks(-157.0, -12.0) == [-200, -150, -100, -50, 0]
    assert nice_ticks(0.0, 1.0)[0] <= 0.0
    assert nice_ticks(3.0, 3.0)[-1] >= 3.0

"""The results page is what `make results` writes from the records."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from benchmarks import records, report, report_plots


def test_results_page_is_up_to_date() -> None:
    assert report.PAGE.read_text(encoding="utf-8") == report.page(), "run make results"


def test_every_plot_on_the_page_exists() -> None:
    shown = set(re.findall(r"\]\(images/([^)]+)\)", report.page()))
    assert shown <= set(report_plots.PLOTS)
    assert {path.name for path in report.IMAGES.iterdir()} >= set(report_plots.PLOTS)


def test_plots_can_be_drawn(tmp_path: Path) -> None:
    report_plots.PLOTS["learning_offline.svg"](tmp_path / "a.svg")
    assert b"<svg" in (tmp_path / "a.svg").read_bytes()


def test_every_number_has_its_source() -> None:
    """A command, commit, machine and date follow each table of measurements."""
    sources = re.findall(r"```\n\n(Commits? .*)\n", report.page())
    assert len(sources) > 15
    for facts in sources:
        assert re.search(r"Commits? [0-9a-f]{7}", facts), facts
        assert re.search(r"(EPYC|Xeon)", facts), facts
        assert re.search(r"2026-\d\d-\d\d", facts), facts
        assert "](../benchmarks/results/" in facts


def test_estimates_are_student_intervals() -> None:
    assert records.estimate([1.0, 2.0, 6.0], 1) == "3.0 [−3.6, 9.6]"
    assert records.estimate([1.0]) == "1 (one seed)"
    assert records.normalized(12135.0, "halfcheetah") == 100

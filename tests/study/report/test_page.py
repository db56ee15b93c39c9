"""The page and the tables of a report: complete, inert, and small."""

from __future__ import annotations

import base64
import csv
import hashlib
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from rl_training.errors import ConfigError
from rl_training.study.report import page as page_module
from rl_training.study.report.analysis import analyze
from rl_training.study.report.page import PageFacts, report_page
from rl_training.study.report.records import to_csv
from rl_training.study.report.results import read_results
from rl_training.study.report.tables import (
    Cell,
    Table,
    digits_for,
    number_text,
    to_latex,
    to_markdown,
)
from rl_training.study.report.writing import ReportSettings, write_report
from tests.study.report.building import chart, page_data, study_of
from tests.study.simulated import simulate_study

SAC, TD3 = [-200.0, -180.0, -150.0], [-300.0, -320.0, -280.0]
PENDULUM = "Pendulum-v1"
HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    '"><svg onload=alert(3)>',
    "<!--",
    "a' onmouseover='alert(4)",
)


def written(folder: Path, scores: Any = None, **options: Any) -> str:
    """Return the page of a study."""
    study = study_of(folder / "study", scores or {"sac": {PENDULUM: SAC}, "td3": {PENDULUM: TD3}})
    return write_report([study], settings=ReportSettings(**options)).path.read_text()


class Elements(HTMLParser):
    """The elements of a page and their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


# --- The page -------------------------------------------------------------------


def test_the_page_has_every_part(tmp_path: Path) -> None:
    page = written(tmp_path, {"sac": {PENDULUM: [*SAC, "failed"]}, "td3": {PENDULUM: TD3}})
    for text in (
        "Scores on Pendulum-v1",
        "Learning curves",
        "IQM over training",
        "Performance profile",
        "Probability of improvement",
        "p (Holm)",
        "1 comparison.",
        "Speed of learning",
        "Failures",
        "ValueError: &lt;b&gt;bad&lt;/b&gt;",
        "rl-training study run study.yaml",
        "rl-training study report",
    ):
        assert text in page, text
    ids = {attrs.get("id") for _, attrs in Elements(page).found}
    names = {chart["id"] for chart in page_data(page)["charts"]}
    assert names <= ids
    assert {"task-0", "aggregate-iqm", "aggregate-curve", "profile", "improvement"} <= names


def test_the_page_refers_to_nothing_outside(tmp_path: Path) -> None:
    page = written(tmp_path)
    for tag, attributes in Elements(page).found:
        assert tag not in ("iframe", "object", "embed", "base", "form"), tag
        for key in ("src", "href", "action", "data"):
            value = attributes.get(key) or "#"
            assert value.startswith(("#", "data:,")), (tag, key, value)
    outside = set(re.findall(r"https?://[^\s\"'<)]+|url\([^)]*\)|@import", page))
    assert outside <= {"http://www.w3.org/2000/svg", "url(#${id})"}


def test_only_the_script_and_style_of_the_page_may_run(tmp_path: Path) -> None:
    page = written(tmp_path)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy[1].split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"] == "'none'"
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.S)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert not [attrs for _, attrs in Elements(page).found if "style" in attrs]


def test_hostile_names_are_inert(tmp_path: Path) -> None:
    """Names, reasons and settings come from files: as text they are shown, never run."""
    scores: Any = {name: {name: SAC, PENDULUM: [*SAC, "failed"]} for name in HOSTILE}
    configs = {name: {"env_id": name, "algo": name, "tags": [name]} for name in HOSTILE}
    study = study_of(tmp_path / "study", scores, configs=configs, name=HOSTILE[1])
    (study / "study.yaml").write_text(f"name: '{HOSTILE[1]}'")
    page = write_report([study]).path.read_text()
    elements = Elements(page).found
    names = [tag for tag, _ in elements]
    assert not {"img", "svg"} & set(names)
    assert names.count("script") == 2
    assert not [attrs for _, attrs in elements if any(key.startswith("on") for key in attrs)]
    assert page.count("</script>") == 2
    assert page_data(page)["labels"] == list(HOSTILE)
    data = page[page.index('id="data">') : page.rindex("<script>")]
    assert data.count("<") == 1  # with "<!--" and "<script", a browser would skip the end
    assert "&lt;img src=x onerror=alert(1)&gt;" in page


def test_data_of_the_charts_is_that_of_the_runs(tmp_path: Path) -> None:
    page = written(tmp_path)
    task = chart(page, "task-0")
    (series, _) = task["views"]["steps"]["series"]
    assert (series["x"], series["n"]) == ([250, 500, 750, 1000], 3)
    assert series["y"][-1] == pytest.approx(sum(SAC) / 3, rel=1e-4)
    assert [seed["y"][-1] for seed in task["seeds"] if seed["l"] == 0] == SAC
    assert task["places"] == [[250, 500, 750, 1000]]
    assert task["views"]["time"]["x"]["kind"] == "time"


def test_large_studies_give_small_pages(tmp_path: Path) -> None:
    labels = [f"label{number}" for number in range(30)]
    study = simulate_study(tmp_path / "study", labels=labels, tasks=("a", "b"), seeds=10, points=50)
    analysis = analyze(read_results([study]))
    facts = PageFacts("large", "now", "rl-training study report study")
    page = report_page(analysis, facts)
    assert len(page) < page_module.MAX_PAGE / 2
    data = page_data(page.decode())
    assert len(data["labels"]) == 20
    assert page.decode().count("<tr") < 2 * page_module.MAX_ROWS


def test_a_page_that_is_too_large_has_fewer_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = simulate_study(tmp_path / "study", seeds=5, points=200)
    analysis = analyze(read_results([study]))
    facts = PageFacts("large", "now", "command")
    monkeypatch.setattr(page_module, "NUMBERS", (100_000, 300))
    whole = report_page(analysis, facts)
    monkeypatch.setattr(page_module, "MAX_PAGE", len(whole) - 1)
    assert len(report_page(analysis, facts)) < len(whole)
    monkeypatch.setattr(page_module, "MAX_PAGE", 1000)
    with pytest.raises(ConfigError, match="at most 1,000 are allowed"):
        report_page(analysis, facts)


# --- Files ----------------------------------------------------------------------


def test_tables_are_written_beside_the_page(tmp_path: Path) -> None:
    study = study_of(tmp_path / "study", {"sac": {PENDULUM: SAC}, "td3": {PENDULUM: TD3}})
    found = write_report([study], tmp_path / "mine.html")
    assert found.tables == tmp_path / "mine_tables"
    names = {file.name for file in found.tables.iterdir()}
    assert {"scores.csv", "summary.md", "summary.tex", "comparisons.csv", "curves.csv"} <= names
    with (found.tables / "scores.csv").open() as stream:
        first, _ = csv.DictReader(stream)
    assert first["label"] == "sac"
    assert float(first["mean"]) == pytest.approx(sum(SAC) / 3)
    with (found.tables / "curves.csv").open() as stream:
        assert len(list(csv.DictReader(stream))) == 6 * 4
    assert found.scores[0]["mean"] == pytest.approx(sum(SAC) / 3)
    assert found.comparisons[0]["comparisons"] == 1


def test_output_is_checked_before_anything_is_computed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"should be the name of an HTML file"):
        write_report([tmp_path], tmp_path / "report.pdf")
    with pytest.raises(ConfigError, match="does not exist"):
        write_report([tmp_path], tmp_path / "missing" / "report.html")
    study = study_of(tmp_path / "study", {"sac": {PENDULUM: SAC}})
    (tmp_path / "taken_tables").touch()
    with pytest.raises(ConfigError, match="taken_tables cannot be written"):
        write_report([study], tmp_path / "taken.html")


def test_a_report_in_its_study_does_not_disturb_it(tmp_path: Path) -> None:
    study = study_of(tmp_path / "study", {"sac": {PENDULUM: SAC}})
    first = write_report([study])
    assert first.path == study / "report.html"
    assert write_report([study]).scores == first.scores


def test_custom_references_normalize_scores(tmp_path: Path) -> None:
    study = study_of(tmp_path / "study", {"sac": {"Mine-v0": SAC}})
    file = tmp_path / "references.yaml"
    file.write_text("Mine-v0: {random: -1000, expert: 0}")
    found = write_report([study], settings=ReportSettings(references=file))
    mean = {record["statistic"]: record["value"] for record in found.aggregates}["mean"]
    assert mean == pytest.approx(1 + sum(SAC) / 3 / 1000)


TABLE = Table(
    "t",
    "T",
    ["A|b", "50%"],
    [[Cell("x_1 & <b> $y$ \\ [z] {#} ~^"), Cell("−1.5 [−2, −1] †", -1.5, is_best=True)]],
)


def test_markdown_is_escaped() -> None:
    head, align, row, _, note = to_markdown(TABLE).splitlines()
    assert head == r"| A\|b | 50% |"
    assert align == "| --- | ---: |"
    assert row == r"| x\_1 \& \<b\> $y$ \\ \[z\] {#} ~^ | **−1.5 \[−2, −1\] †** |"
    assert note.startswith("† The interval is unreliable")


def test_latex_is_escaped() -> None:
    note, *_, row, _, _ = to_latex(TABLE).splitlines()
    assert note.startswith("% † The interval is unreliable")
    assert row == (
        r"x\_1 \& \textless{}b\textgreater{} \$y\$ \textbackslash{} {[}z{]} \{\#\} "
        r"\textasciitilde{}\textasciicircum{} & \textbf{$-$1.5 {[}$-$2, $-$1{]} $^\dagger$} \\"
    )


def test_text_in_csv_is_not_a_formula() -> None:
    text = to_csv([{"label": "=cmd|' /C calc'!A0", "score": -1.5, "gap": float("nan"), "p": None}])
    assert text.splitlines()[1] == "'=cmd|' /C calc'!A0,-1.5,,"


@pytest.mark.parametrize(
    ("values", "digits"), [([12345.6], 0), ([-151.9], 1), ([1.5, 0.2], 3), ([0.001], 6), ([0.0], 1)]
)
def test_numbers_have_four_significant_digits(values: list[float], digits: int) -> None:
    assert digits_for(values) == digits


def test_numbers_have_a_minus_sign_and_no_negative_zero() -> None:
    assert number_text(-1234.5, 0) == "−1,234"
    assert number_text(-0.0001, 2) == "0.00"
    assert number_text(float("-inf"), 2) == "−inf"
    assert number_text(1e300, 2) == "1e+300"


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1000, 1), (10, 100)], ids=["labels", "tasks"])
def test_ten_thousand_runs_are_reported_in_seconds(tmp_path: Path, shape: tuple[int, int]) -> None:
    """In a process of its own, without torch: less than 10 s, 1 GB and 6 MB."""
    labels = [f"label{number}" for number in range(shape[0])]
    tasks = [f"task{number}" for number in range(shape[1])]
    study = simulate_study(tmp_path / "study", labels=labels, tasks=tasks, seeds=10, points=20)
    code = (
        "import re, sys, time; from pathlib import Path; "
        "from rl_training.study.report.writing import write_report; "
        f"report = write_report([{str(study)!r}]); assert 'torch' not in sys.modules; "
        "most = re.search('VmHWM:(.*)kB', Path('/proc/self/status').read_text())[1]; "
        "print(report.path.stat().st_size, most, time.process_time())"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    size, kilobytes, seconds = map(float, out.stdout.split())
    assert size < page_module.MAX_PAGE
    assert seconds < 10  # of the processor, since the machine may be busy
    assert kilobytes < 1024 * 1024

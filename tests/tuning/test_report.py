"""The report of a tuning."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rl_training.errors import ConfigError
from rl_training.tuning.report import write_tuning_report
from tests.tuning.simulated import SimulatedExecutor, tuning


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuning") / "tuned <b>"
    made = tuning(trials=25)
    made.run(folder, executor=SimulatedExecutor(), progress=False)
    return folder


def test_the_page_has_every_part_and_loads_nothing(folder: Path) -> None:
    page = write_tuning_report(folder).read_text()
    assert write_tuning_report(folder) == folder / "report.html"
    heads = re.findall(r"<h2>(.*?)</h2>", page)
    assert heads == ["Result", "Best so far", "Importances", "Settings", "Trials", "Reproduce"]
    assert page.count("<svg") == 3
    assert page.count("<tr>") == 26  # with the heads
    assert "<script" not in page
    assert not re.search(r"(?:src|href)=\"(?!data:)", page)
    assert "default-src 'none'" in page
    assert "tuned &lt;b&gt;" in page
    assert "<b>" not in page.replace("<body>", "")
    assert "On fresh seeds, this trial is better" in page
    assert len(page) < 200_000


def test_a_tuning_that_has_just_begun_has_a_report(tmp_path: Path) -> None:
    def fail() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tuning().run(tmp_path / "tuning", executor=SimulatedExecutor(at_event=fail), progress=False)
    page = write_tuning_report(tmp_path / "tuning", tmp_path / "page.html").read_text()
    assert "No trial is complete yet." in page
    assert "No trial has a value yet." in page
    assert "Importances need 10 complete trials." in page


def test_wrong_arguments_are_one_sentence(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="should be the name of an HTML file"):
        write_tuning_report(folder, tmp_path / "page.txt")
    with pytest.raises(ConfigError, match=r"index\.jsonl"):
        write_tuning_report(tmp_path / "none", tmp_path / "page.html")

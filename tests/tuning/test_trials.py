"""The lines of a tuning in the index, and damaged ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rl_training.boundary.journal import journal_line
from rl_training.errors import ConfigError
from rl_training.study.index import StudyIndex
from rl_training.study.records import INDEX_FILE
from rl_training.study.study import Study
from rl_training.tuning.folder import read_tuning
from rl_training.tuning.trials import TrialIndex, TrialStatus, is_tuning
from rl_training.tuning.tuning import Tuning
from tests.study.simulated import simulate_study
from tests.tuning.simulated import SimulatedExecutor, outcomes, tuning


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tuning(trials=4).run(tmp_path / "tuning", executor=SimulatedExecutor(), progress=False)
    return tmp_path / "tuning"


def lines(folder: Path) -> list[bytes]:
    return (folder / INDEX_FILE).read_bytes().splitlines(keepends=True)


def kind(line: bytes) -> str:
    return str(json.loads(line).get("kind"))


def rewrite(folder: Path, changed: list[bytes]) -> None:
    (folder / INDEX_FILE).write_bytes(b"".join(changed))


def test_a_tuning_is_a_study_with_more_lines(folder: Path, tmp_path: Path) -> None:
    assert is_tuning(folder)
    assert not is_tuning(simulate_study(tmp_path / "study"))
    assert len(StudyIndex.open(folder).groups) == 4 + 2
    assert (folder / "tuning.yaml").read_text().startswith("name:")


def test_a_tuning_is_not_run_as_a_study(folder: Path) -> None:
    with pytest.raises(ConfigError, match="is a tuning: continue it with rl-training tune"):
        Study.load(folder).run(executor=SimulatedExecutor(), progress=False)


def test_a_study_is_not_a_tuning(tmp_path: Path) -> None:
    study = simulate_study(tmp_path / "study")
    with pytest.raises(ConfigError, match="is a study, but not a tuning"):
        Tuning.load(study)
    with pytest.raises(ConfigError, match="is a study, but not a tuning"):
        tuning().run(study, executor=SimulatedExecutor(), progress=False)


def test_a_lost_outcome_is_found_again(folder: Path) -> None:
    before = outcomes(folder)
    rewrite(folder, [line for line in lines(folder) if kind(line) != "outcome"])
    assert len(TrialIndex.open(folder).with_status(TrialStatus.OPEN)) == 4
    executor = SimulatedExecutor()
    tuning(trials=4).run(folder, executor=executor, progress=False)
    assert executor.submitted == []
    assert outcomes(folder) == before


def test_a_lost_group_of_runs_is_added_again(folder: Path) -> None:
    """A kill may cut off the second of two lines."""
    before = outcomes(folder)
    last = max(number for number, line in enumerate(lines(folder)) if kind(line) == "trial")
    kept = lines(folder)[: last + 1]
    rewrite(folder, kept)
    assert "trial-0003" not in StudyIndex.open(folder).labels
    tuning(trials=4).run(folder, executor=SimulatedExecutor(), progress=False)
    assert outcomes(folder) == before


def test_a_lost_trial_is_one_sentence(folder: Path) -> None:
    changed = [
        b'{"sum":"0000000000000000","kind":"trial"}\n'
        if kind(line) == "trial" and json.loads(line)["number"] == 1
        else line
        for line in lines(folder)
    ]
    rewrite(folder, changed)
    with pytest.raises(ConfigError, match="has trial 2, but not trial 1: its index"):
        TrialIndex.open(folder)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"kind": "trial", "number": "0"}, "was not written by a study"),
        ({"kind": "trial", "number": 10**9}, "was not written by a study"),
        (
            {"kind": "outcome", "number": 0, "status": "great", "time": "now"},
            "status = 'great': should be 'complete', 'pruned' or 'failed'",
        ),
        (
            {
                "kind": "trial",
                "number": 4,
                "params": {},
                "origin": "sampler",
                "known": 0,
                "folder": "../../evil",
                "time": "now",
            },
            "folder = '../../evil'",
        ),
        (
            {"kind": "tuning", "id": "x", "description": {"trials": 3}},
            "The key 'config' is missing",
        ),
    ],
)
def test_a_forged_line_is_one_sentence(folder: Path, record: dict[str, Any], message: str) -> None:
    rewrite(folder, [*lines(folder), journal_line(record)])
    with pytest.raises(ConfigError) as error:
        read_tuning(folder)
    assert message in str(error.value)


def test_points_without_a_number_are_refused(folder: Path) -> None:
    forged = {
        "kind": "outcome",
        "number": 0,
        "status": "complete",
        "value": 1.0,
        "points": {"one": 1.0},
        "time": "now",
    }
    rewrite(folder, [*(x for x in lines(folder) if kind(x) != "outcome"), journal_line(forged)])
    with pytest.raises(ConfigError, match="a point of a trial has no number"):
        TrialIndex.open(folder)


def test_settings_that_do_not_belong_to_the_space_are_refused(folder: Path) -> None:
    """An index may come from somebody else."""
    changed = []
    for line in lines(folder):
        record = json.loads(line)
        record.pop("sum")
        if record["kind"] == "trial" and record["number"] == 3:
            record["params"] = {"x": 5.0, "y": 0.0}
        changed.append(journal_line(record))
    rewrite(folder, changed)
    with pytest.raises(ConfigError, match="trial 3 has settings that are not part of the space"):
        tuning(trials=4).run(folder, executor=SimulatedExecutor(), progress=False)

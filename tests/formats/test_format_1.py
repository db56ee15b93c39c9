"""Runs recorded with the first version of the format predict, evaluate and resume as they did then.

How they were recorded: ``tests/fixtures/record_format_1.py``. A failure here means that users of
that version lose their runs: fix the reader, not the fixtures.
"""

from __future__ import annotations

import json
import math
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from rl_training import REGISTRY, resume
from tests.fixtures.record_format_1 import DATASET, EXPECTED, actions, evaluation, outcome

FIXTURES = Path(__file__).parents[1] / "fixtures" / "format_1"
TOLERANCE = 1e-5

ALGORITHMS = (
    *("sac", "ddpg", "td3", "redq", "tqc", "dqn", "her"),
    *("bc", "iql", "awac", "td3_bc", "cql", "edac", "rlpd"),
)
RUNS = (*ALGORITHMS, "sac_vector", "iql_finetuned")

each_run = pytest.mark.parametrize("name", RUNS)


@cache
def expected() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FIXTURES / EXPECTED).read_text())
    return found


@pytest.fixture
def run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy a recorded run and its dataset into the current folder."""
    copy = Path(shutil.copytree(FIXTURES / name, tmp_path / name))
    (copy / "replay").mkdir(exist_ok=True)  # git does not keep empty folders
    shutil.copy(FIXTURES / DATASET, tmp_path)
    monkeypatch.chdir(tmp_path)
    return Path(name)


def assert_close(found: Any, wanted: Any, where: str = "") -> None:
    """Compare nested values, up to rounding; mappings may have additional keys."""
    if isinstance(wanted, dict):
        for key, value in wanted.items():
            assert key in found, f"{where}/{key}"
            assert_close(found[key], value, f"{where}/{key}")
    elif isinstance(wanted, list):
        np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE, err_msg=where)
    elif isinstance(wanted, float):
        assert math.isclose(found, wanted, rel_tol=TOLERANCE, abs_tol=TOLERANCE), where
    else:
        assert found == wanted, where


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_every_algorithm_of_format_1_has_a_fixture() -> None:
    configs = {name: yaml.safe_load((FIXTURES / name / "config.yaml").read_text()) for name in RUNS}
    assert len(ALGORITHMS) == 14
    assert set(ALGORITHMS) <= set(REGISTRY)
    assert {name: configs[name]["algo"] for name in ALGORITHMS} == {n: n for n in ALGORITHMS}
    assert configs["sac_vector"]["num_envs"] == 3
    assert configs["iql_finetuned"]["algo_kwargs"]["finetuned_step"] == 30
    assert set(expected()) == set(RUNS)
    assert {path.name for path in FIXTURES.iterdir() if path.is_dir()} == set(RUNS)


@each_run
def test_every_checkpoint_is_of_format_1(name: str) -> None:
    """The fixtures must not be recorded again with later code."""
    manifests = sorted((FIXTURES / name / "checkpoints").glob("step_*/manifest.json"))
    assert len(manifests) == 2
    for file in manifests:
        manifest = json.loads(file.read_text())
        assert manifest["format"] == 1
        assert manifest["versions"]["rl_training"] == "0.1.0"


@each_run
def test_predicts_as_recorded(run: Path, name: str) -> None:
    wanted = expected()[name]
    assert_close(actions(run, wanted["observations"]), wanted["actions"])
    assert_close(actions(run, wanted["observations"], best=True), wanted["best_actions"])


@each_run
def test_evaluates_as_recorded(run: Path, name: str) -> None:
    before = files(run)
    wanted = dict(expected()[name]["evaluation"])
    wanted.pop("eval_return_ci95", None)  # computed from the returns, by a later definition
    assert "eval_loss" in wanted if name == "bc" else len(wanted["eval_returns"]) == 2
    assert_close(evaluation(run), wanted)
    assert files(run) == before


@each_run
def test_resumes_as_recorded(run: Path, name: str) -> None:
    original, wanted = files(FIXTURES / name), expected()[name]
    warnings: list[str] = []
    result = resume(run, on_warning=warnings.append)
    assert result.run_dir == run
    assert_close(outcome(result, wanted["observations"]), wanted["resumed"])
    assert result.metrics["step"] > json.loads(original["run.json"])["step"]
    assert not [text for text in warnings if "written with" not in text], warnings
    assert files(FIXTURES / name) == original

"""The studies in benchmarks/studies can be run as they are."""

from __future__ import annotations

from pathlib import Path

import benchmarks.tasks  # noqa: F401 - registers environments
import pytest

from rl_training import Study
from rl_training.study.planning import StudyPlan

STUDIES = sorted((Path(__file__).parents[1] / "benchmarks" / "studies").glob("*.yaml"))
NEEDS = {"halfcheetah": "mujoco", "minatar": "minatar"}
"""Packages that a study needs, by a part of its name."""
DATA = {"offline_cartpole": "data/cartpole-replay-d3rlpy-v1.1.0.npz"}
"""Files that are not part of the repository."""


def plan(file: Path) -> StudyPlan:
    """Plan a study as `rl-training study run FILE --dry-run` does."""
    for part, package in NEEDS.items():
        if part in file.stem:
            pytest.importorskip(package)
    if file.stem in DATA and not Path(DATA[file.stem]).exists():
        pytest.skip(f"{DATA[file.stem]} does not exist")
    return Study.load(file).plan()


@pytest.mark.parametrize("file", STUDIES, ids=lambda file: file.stem)
def test_a_study_can_be_planned(file: Path) -> None:
    planned = plan(file)
    assert planned.description.name == file.stem.replace("_", "-")
    assert all(len(group.seeds) >= 5 for group in planned.groups)
    assert file.read_text(encoding="utf-8").startswith("# ")


def test_every_online_and_offline_learner_has_evidence_on_pendulum() -> None:
    names = ("online_pendulum", "offline_pendulum", "prior_data_pendulum")
    found = {group.config.algo for n in names for group in plan(STUDIES[0].with_stem(n)).groups}
    assert found >= {"sac", "td3", "ddpg", "tqc", "redq", "rlpd"}
    assert found >= {"bc", "td3_bc", "iql", "awac", "rebrac", "cql", "edac"}

"""Small studies, and how to compare them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rl_training.boundary.yaml_codec import dump_yaml
from rl_training.study.config import make_study_config
from rl_training.study.index import StudyIndex, StudyRun
from rl_training.study.jobs import Job
from rl_training.study.planning import StudyPlan, plan_study
from rl_training.study.resources import Resources
from tests.faults.runs import CONFIG, assert_equal_runs

ALGOS = ("sac", "td3")


def small_description(
    algos: tuple[str, ...] = ALGOS,
    seeds: Any = 2,
    settings: dict[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return the description of a study with runs of 200 steps, which take less than a second."""
    runs = [{"config": CONFIG | {"algo": algo}} for algo in algos]
    return {"runs": runs, "seeds": seeds, "set": settings or {}} | more


def small_plan(**changes: Any) -> StudyPlan:
    return plan_study(make_study_config(small_description(**changes), "Study"))


def write_study(file: Path, **changes: Any) -> Path:
    """Write a study file."""
    file.write_text(dump_yaml(small_description(**changes)))
    return file


def job_for(run: StudyRun, **changes: Any) -> Job:
    """Return the job of a run."""
    options: dict[str, Any] = {"resources": Resources(), "is_named": True} | changes
    return Job(os.path.abspath(run.study), run.key, run.config, **options)


def assert_equal_studies(study: Path, reference: Path) -> None:
    """Fail with the first difference between the runs of two studies."""
    found, expected = StudyIndex.open(study), StudyIndex.open(reference)
    assert found.runs.keys() == expected.runs.keys()
    for key, run in found.runs.items():
        assert run.status is expected.runs[key].status, (key, run.status, run.reason)
        assert_equal_runs(run.path, expected.runs[key].path)
        assert run.results == expected.runs[key].results

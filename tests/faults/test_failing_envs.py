"""Environments that fail: one line, exit code 1 and a run with state failed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.envs.odd_envs import WALK
from tests.faults.zygote import Zygote

IMPORT = ("--import", "tests.envs.odd_envs")


@pytest.mark.parametrize(
    ("trouble", "error"),
    [("exit", "SystemExit: 0"), ("error", "ZeroDivisionError: division by zero")],
)
def test_failing_environment_is_one_line_and_exit_code_1(
    zygote: Zygote,
    small_config: Callable[..., dict[str, Any]],
    tmp_path: Path,
    trouble: str,
    error: str,
) -> None:
    config = small_config(env_id=WALK, env_kwargs={"trouble": trouble, "at": 50})
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))  # parsed as YAML
    outcome = zygote.run(*IMPORT, "train", "-c", file)
    assert outcome.status == 1
    line = f"Error: at step 50, {WALK}: step() failed with {error}; fix the environment"
    assert outcome.error_line() == line
    (run_dir,) = (tmp_path / "runs").iterdir()
    assert json.loads((run_dir / "run.json").read_text())["state"] == "failed"
    debugged = zygote.run("--debug", *IMPORT, "resume", run_dir)  # fails at the same step
    assert debugged.status == 1
    assert "odd_envs.py" in debugged.err
    assert line.removeprefix("Error: ") in debugged.err


@pytest.mark.parametrize("method", ["__init__", "reset", "step"])
def test_environment_that_exits_immediately_is_one_line(
    zygote: Zygote, small_config: Callable[..., dict[str, Any]], tmp_path: Path, method: str
) -> None:
    config = small_config(env_id=WALK, env_kwargs={"trouble": "exit", "method": method})
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    outcome = zygote.run(*IMPORT, "train", "-c", file)
    assert outcome.status == 2  # no run was created
    assert "failed with SystemExit: 0; fix the environment" in outcome.error_line()
    assert not (tmp_path / "runs").exists()


def test_failed_evaluation_is_one_line(
    zygote: Zygote, small_config: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """Training has 40 steps, and the evaluation episodes have 50."""
    kwargs = {"trouble": "exit", "at": 45}
    file = tmp_path / "config.json"
    file.write_text(json.dumps(small_config(env_id=WALK, total_timesteps=40, env_kwargs=kwargs)))
    assert zygote.run(*IMPORT, "train", "-c", file).status == 0
    (run_dir,) = (tmp_path / "runs").iterdir()
    outcome = zygote.run(*IMPORT, "evaluate", run_dir, "--episodes", "10")
    assert outcome.status == 1
    assert "after 4 steps of an evaluation episode, " in outcome.error_line()

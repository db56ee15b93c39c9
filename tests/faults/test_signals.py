"""SIGINT and SIGTERM end a run cleanly; no process outlives its trainer."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.faults.conftest import Reference
from tests.faults.processes import session_members, wait_until_gone
from tests.faults.runs import RUN_NAME, assert_equal_runs, newest, write_config
from tests.faults.zygote import Zygote

EXIT_CODES = {"SIGINT": 130, "SIGTERM": 143}
ASYNC = {"num_envs": 2, "env_kwargs": {"vectorization": "async"}, "total_timesteps": 300}


@pytest.mark.parametrize("name", EXIT_CODES)
@pytest.mark.parametrize("moment", ["during a save", "between saves"])
def test_signal_ends_a_run_cleanly(
    zygote: Zygote, reference: Reference, tmp_path: Path, name: str, moment: str
) -> None:
    saving = moment == "during a save"
    part = "step_000000100/optimizers" if saving else "run.json"
    numbers = [n for n, e in enumerate(reference.events) if part in e.path and e.saving == saving]
    at = numbers[len(numbers) // 2]
    config = write_config(tmp_path)
    stopped = zygote.run("train", "-c", config, watch=tmp_path, at=at, action=name)
    run_dir = tmp_path / RUN_NAME
    assert stopped.status == EXIT_CODES[name], stopped.err
    assert f"Continue with: rl-training resume {run_dir}" in stopped.out
    assert "a checkpoint was saved" in stopped.out
    assert '"interrupted"' in (run_dir / "run.json").read_text()
    assert newest(run_dir).name < "step_000000200"
    assert zygote.run("resume", run_dir).status == 0
    assert_equal_runs(run_dir, reference.run_dir)


@pytest.fixture(scope="module")
def async_reference(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("async")
    outcome = zygote.run("train", "-c", write_config(folder, **ASYNC))
    assert outcome.status == 0, outcome.err
    return folder / RUN_NAME


@pytest.mark.parametrize("name", EXIT_CODES)
def test_signal_to_the_process_group_ends_a_run_cleanly(
    zygote: Zygote, async_reference: Path, tmp_path: Path, name: str
) -> None:
    """Like Ctrl-C in a terminal or SIGTERM from a scheduler, it also reaches every worker."""
    child = zygote.start("train", "-c", write_config(tmp_path, **ASYNC))
    # The best checkpoint may be saved after the signal, and must not contain the request to stop.
    child.wait_for_line("step 50/")
    workers = session_members(child.pid)
    assert len(workers) >= 2
    os.killpg(child.pid, signal.Signals[name])
    outcome = child.wait()
    run_dir = tmp_path / RUN_NAME
    assert outcome.status == EXIT_CODES[name], outcome.err
    assert "Traceback" not in outcome.err
    assert f"rl-training resume {run_dir}" in outcome.out
    assert wait_until_gone(workers, 10) == set()
    assert zygote.run("resume", run_dir).status == 0
    assert_equal_runs(run_dir, async_reference)


def test_killed_trainer_leaves_no_workers(
    zygote: Zygote, async_reference: Path, tmp_path: Path
) -> None:
    child = zygote.start("train", "-c", write_config(tmp_path, **ASYNC))
    child.wait_for_line("step 50/")
    workers = session_members(child.pid)
    assert len(workers) >= 2
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait().status == -signal.SIGKILL
    assert wait_until_gone(workers, 10) == set()
    assert zygote.run("resume", tmp_path / RUN_NAME).status == 0
    assert_equal_runs(tmp_path / RUN_NAME, async_reference)


def test_second_signal_ends_a_run_immediately(
    zygote: Zygote, reference: Reference, tmp_path: Path
) -> None:
    """A second Ctrl-C does not wait; files on disk stay intact."""
    config = write_config(tmp_path, total_timesteps=1_000_000, engine="eager")
    child = zygote.start("train", "-c", config)
    child.wait_for_line("step 100/")
    os.kill(child.pid, signal.SIGINT)
    os.kill(child.pid, signal.SIGINT)
    stopped = child.wait()
    assert stopped.status == 130, stopped.err
    assert "Traceback" not in stopped.err
    outcome = zygote.run("resume", tmp_path / RUN_NAME, "total_timesteps=200")
    assert outcome.status == 0, outcome.err

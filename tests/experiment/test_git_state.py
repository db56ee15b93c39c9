"""The git commit and the command line in ``run.json``."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rl_training import train
from rl_training.experiment import git_state
from rl_training.experiment.git_state import read_git_state
from tests.faults.zygote import shared_zygote


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    command = ("git", "-C", str(folder), *who, *words)
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("1")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-qm", "First")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    return tmp_path


def test_commit_and_dirty_flag_are_recorded(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    assert read_git_state() == {"commit": commit, "dirty": False}
    (repository / "untracked").touch()
    assert read_git_state() == {"commit": commit, "dirty": False}
    (repository / "file").write_text("2")
    assert read_git_state() == {"commit": commit, "dirty": True}


def test_programs_of_the_repository_are_not_run(repository: Path) -> None:
    program = repository / "program"
    program.write_text(f"#!/bin/sh\ntouch {repository}/ran\n")
    program.chmod(0o755)
    git(repository, "config", "core.fsmonitor", str(program))
    assert read_git_state() is not None
    assert not (repository / "ran").exists()


def test_no_process_without_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(git_state, "COMMAND", ("false",))
    monkeypatch.delattr(subprocess, "run")
    assert read_git_state() is None


@pytest.mark.parametrize("command", [("no-such-program",), ("sleep", "9"), ("false",)])
def test_missing_slow_or_broken_git_is_ignored(
    command: tuple[str, ...], repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_state, "COMMAND", command)
    monkeypatch.setattr(git_state, "TIMEOUT_SECONDS", 0.1)
    assert read_git_state() is None


def test_repository_without_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(tmp_path, "init", "-q")
    monkeypatch.chdir(tmp_path)
    assert read_git_state() is None


def test_run_records_commit_and_command(
    repository: Path, small_config: Callable[..., dict[str, Any]]
) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    config = small_config(total_timesteps=20)
    info = json.loads((train(config).run_dir / "run.json").read_text())
    assert info["git"] == {"commit": commit, "dirty": False}
    assert "command" not in info  # it was not started from the command line
    (repository / "c.yaml").write_text(json.dumps(config))
    words = ("train", "c.yaml", "seed=3", "--json")
    done = shared_zygote().run(*words, cwd=repository)
    assert done.status == 0, done.err
    info = json.loads((Path(json.loads(done.out)["run_dir"]) / "run.json").read_text())
    assert info["command"] == ["rl-training", *words]

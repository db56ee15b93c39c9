"""The git commit of the current folder, which `train` records in ``run.json``."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

TIMEOUT_SECONDS = 2.0
COMMAND = (
    *("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"),
    *("status", "--porcelain=v2", "--branch", "--untracked-files=no", "--ignore-submodules=all"),
)
"""One command for both facts. It runs no hooks, and writes nothing to the repository."""


def read_git_state() -> dict[str, Any] | None:
    """The commit, and whether tracked files differ from it.

    None outside of a repository, in one without commits, and where git is missing or slow: a run
    does not depend on it.
    """
    try:
        here = Path.cwd()
        if not any((folder / ".git").exists() for folder in (here, *here.parents)):
            return None  # without starting a process
        done = subprocess.run(
            COMMAND,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.splitlines()
    commits = [line.split()[-1] for line in lines if line.startswith("# branch.oid ")]
    if done.returncode != 0 or not commits or commits[0] == "(initial)":
        return None
    return {"commit": commits[0], "dirty": any(not line.startswith("#") for line in lines)}

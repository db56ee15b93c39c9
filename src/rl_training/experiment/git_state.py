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
"""Prints both the commit and the changed files, without running hooks or writing anything."""


def read_git_state() -> dict[str, Any] | None:
    """Return the commit, and whether tracked files differ from it.

    Returns None outside of a repository, in a repository without commits, and if git is missing or
    slow, so that training never depends on git.
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

"""Real processes of the command line, the groups they lead, and waiting for their ends."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

from tests.faults.zygote import ENVIRONMENT, REPOSITORY


def start(*argv: str | Path) -> subprocess.Popen[str]:
    """``python -m rl_training ARGV``, the leader of a session and a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "rl_training", *map(str, argv)],
        cwd=REPOSITORY,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for_line(stream: IO[str] | None, start: str) -> None:
    """Read until a line begins with ``start``: the process itself says how far it is."""
    assert stream is not None
    seen = []
    for line in stream:
        seen.append(line)
        if line.startswith(start):
            return
    raise AssertionError(f"no line begins with {start!r}: {''.join(seen)}")


def session_members(leader: int) -> set[int]:
    """The living processes of a session, its leader left out."""
    members = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == leader and fields[0] != "Z":
                    members.add(int(entry.name))
    return members - {leader}


def wait_until_gone(pids: set[int], seconds: float) -> set[int]:
    """Wait for the ends of processes that need not be children; returns those still alive."""
    deadline = time.monotonic() + seconds
    alive = set()
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        left = max(0.0, deadline - time.monotonic())
        if not select.select([descriptor], [], [], left)[0]:
            alive.add(pid)
        os.close(descriptor)
    return alive

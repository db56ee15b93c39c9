"""The processes of a session, and waiting until they end."""

from __future__ import annotations

import contextlib
import os
import select
import time
from pathlib import Path


def session_members(leader: int) -> set[int]:
    """Return the running processes of a session, except for its leader."""
    members = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == leader and fields[0] != "Z":
                    members.add(int(entry.name))
    return members - {leader}


def wait_until_gone(pids: set[int], seconds: float) -> set[int]:
    """Wait until processes, not necessarily children, end; return those still running."""
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

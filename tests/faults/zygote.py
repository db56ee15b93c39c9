"""Many command-line processes for the price of one import of torch.

``python -m tests.faults.zygote`` imports the package once and then forks a process for each request
on its standard input; the child calls the command line's `main`, alone in its session.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.injection import Disk, Event

REPOSITORY = Path(__file__).parents[2]
PATIENCE_SECONDS = 45.0
"""A child that takes longer hangs: it is killed, and its test fails."""
MEMORY_LIMIT = 8 << 30
"""A child that takes more is under an attack that works."""
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


@dataclass(frozen=True)
class Outcome:
    """How a process ended."""

    status: int
    """Its exit code, or minus the signal that killed it."""
    out: str
    err: str
    events: list[Event] = field(default_factory=list)

    def error_line(self) -> str:
        """The one line that a refusal prints, without a traceback before it."""
        lines = [line for line in self.err.splitlines() if line.startswith("Error: ")]
        assert "Traceback" not in self.err, self.err
        assert len(lines) == 1, self.err
        return lines[0]


# --- The tests' side ----------------------------------------------------------


class Zygote:
    """Asks the server for processes."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.zygote"],
            cwd=REPOSITORY,
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(
        self,
        *argv: str | Path,
        watch: Path | None = None,
        at: int = -1,
        action: str = "",
        file_limit: int | None = None,
    ) -> Child:
        """Begin ``rl-training ARGV``; with ``watch``, every change below it is an event."""
        request = {
            "do": "start",
            "argv": [str(arg) for arg in argv],
            "watch": None if watch is None else str(watch),
            "at": at,
            "action": action,
            "file_limit": file_limit,
        }
        return Child(self, **self._ask(request))

    def run(self, *argv: str | Path, **options: Any) -> Outcome:
        """Begin it and wait for its end."""
        return self.start(*argv, **options).wait()

    def wait(self, pid: int, kill_after: float) -> int:
        """A child's status; it is killed if it takes longer."""
        return int(self._ask({"do": "wait", "pid": pid, "kill_after": kill_after})["status"])

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        reply: dict[str, Any] = json.loads(self._process.stdout.readline())
        return reply

    def close(self) -> None:
        """End the server."""
        self._process.communicate(timeout=PATIENCE_SECONDS)


@dataclass(frozen=True)
class Child:
    """A process that the server forked."""

    zygote: Zygote
    pid: int
    folder: str

    def wait(self, kill_after: float = PATIENCE_SECONDS) -> Outcome:
        """Wait for its end; kill it if it takes longer than ``kill_after`` seconds."""
        status = self.zygote.wait(self.pid, kill_after)
        folder = Path(self.folder)
        events = (folder / "events").read_text().splitlines()
        return Outcome(
            status,
            (folder / "out").read_text(),
            (folder / "err").read_text(),
            [Event.parse(line) for line in events],
        )


# --- The server's side --------------------------------------------------------


def serve() -> None:
    """Answer requests until the standard input ends."""
    import torch

    import rl_training.api.training
    import rl_training.cli  # noqa: F401

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        for number, line in enumerate(sys.stdin):
            request = json.loads(line)
            if request["do"] == "start":
                folder = Path(scratch, str(number))
                folder.mkdir()
                reply = {"pid": _fork(request, folder), "folder": str(folder)}
            else:
                reply = {"status": _wait(request["pid"], request["kill_after"])}
            print(json.dumps(reply), flush=True)


def _wait(pid: int, kill_after: float) -> int:
    descriptor = os.pidfd_open(pid)
    select.select([descriptor], [], [], kill_after)
    os.close(descriptor)
    os.kill(pid, signal.SIGKILL)  # no error if it has ended: it is not reaped yet
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _fork(request: dict[str, Any], folder: Path) -> int:
    files = [os.open(folder / name, os.O_CREAT | os.O_RDWR) for name in ("out", "err", "events")]
    pid = os.fork()
    if pid:
        for descriptor in files:
            os.close(descriptor)
        return pid
    status = 70  # a failure of this harness, should `_become` not come to its end
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(files[0], 1)
        os.dup2(files[1], 2)
        status = _become(request, files[2])
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(status)


def _become(request: dict[str, Any], report: int) -> int:
    """Be the command line; the exit code it would have."""
    import traceback

    import rl_training.cli

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    if request["watch"] is not None:
        Disk(request["watch"], report, at=request["at"], action=request["action"]).install()
    if request["file_limit"] is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write fails instead
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_limit"],) * 2)
    sys.argv = ["rl-training", *request["argv"]]
    try:
        rl_training.cli.main()
    except SystemExit as error:
        if error.code is None:
            return 0
        return error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    serve()

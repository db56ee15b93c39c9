"""A server that forks command-line processes, so that torch is imported only once.

``python -m tests.faults.zygote`` imports the package once and then forks a process for each request
on its standard input; the child calls the command line's `main`, or runs Python code, alone in its
session.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import multiprocessing
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

from tests.faults.injection import Disk, Event

REPOSITORY = Path(__file__).parents[2]
PATIENCE_SECONDS = 45.0
"""Time limit; a child that takes longer is killed, and its test fails."""
MEMORY_LIMIT = 8 << 30
"""Memory limit of a child; an attack that exceeds it has succeeded."""
ENVIRONMENT = os.environ | {
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONDONTWRITEBYTECODE": "1",
    "COLUMNS": "100",
}
PRELOADED = (
    "rl_training.cli",
    "rl_training.api.finetuning",
    "rl_training.api.offline_evaluation",
    "rl_training.api.datasets",
    "rl_training.api.progress",
    "rl_training.runtime.loggers.tensorboard",
    "rl_training.study.study",
    "rich.progress",
    "gymnasium.envs.classic_control",
)
"""Modules that the server imports for its children."""


@dataclass(frozen=True)
class Outcome:
    """Result of a process."""

    status: int
    """Exit code, or the negative number of the signal that killed it."""
    out: str
    err: str
    events: list[Event] = field(default_factory=list)

    def error_line(self) -> str:
        """Return the line that an error prints, which must not follow a traceback."""
        lines = [line for line in self.err.splitlines() if line.startswith("Error: ")]
        assert "Traceback" not in self.err, self.err
        assert len(lines) == 1, self.err
        return lines[0]


# --- Client ----------------------------------------------------------


class Zygote:
    """Requests processes from the server."""

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
        code: str | None = None,
        cwd: Path = REPOSITORY,
        watch: Path | None = None,
        at: int = -1,
        action: str = "",
        file_limit: int | None = None,
        streams: Mapping[str, str] | None = None,
    ) -> Child:
        """Start ``rl-training ARGV`` or ``python -c CODE``.

        With ``watch``, every change below this folder is an event. ``streams`` sets the faults of
        ``out`` and ``err``: ``closed``, ``full``, ``broken`` (without a reader) or ``ascii``.
        """
        request = {
            "do": "start",
            "argv": [str(arg) for arg in argv],
            "code": code,
            "cwd": str(cwd),
            "watch": None if watch is None else str(watch),
            "at": at,
            "action": action,
            "file_limit": file_limit,
            "streams": dict(streams or {}),
        }
        return Child(self, **self._ask(request))

    def run(self, *argv: str | Path, **options: Any) -> Outcome:
        """Start it and wait until it ends."""
        return self.start(*argv, **options).wait()

    def wait(self, pid: int, kill_after: float) -> int:
        """Return the status of a child, which is killed after a timeout."""
        return int(self._ask({"do": "wait", "pid": pid, "kill_after": kill_after})["status"])

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        reply: dict[str, Any] = json.loads(self._process.stdout.readline())
        return reply

    def close(self) -> None:
        """Stop the server."""
        self._process.communicate(timeout=PATIENCE_SECONDS)


@functools.cache
def shared_zygote() -> Zygote:
    """Return the server that all tests of this process share."""
    server = Zygote()
    atexit.register(server.close)
    return server


@dataclass(frozen=True)
class Child:
    """A process forked by the server."""

    zygote: Zygote
    pid: int
    folder: str

    def is_running(self) -> bool:
        """Wait a moment; return whether the process has not ended yet."""
        time.sleep(0.01)
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"

    def wait_for_line(self, start: str) -> None:
        """Wait until a line of its standard error starts with ``start``."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            text = Path(self.folder, "err").read_text()
            if any(line.startswith(start) for line in text.splitlines()):
                return
            assert time.monotonic() < deadline, f"no line starts with {start!r}: {text}"
            time.sleep(0.01)

    def wait(self, kill_after: float = PATIENCE_SECONDS) -> Outcome:
        """Wait until it ends; kill it after ``kill_after`` seconds."""
        status = self.zygote.wait(self.pid, kill_after)
        folder = Path(self.folder)
        events = (folder / "events").read_text().splitlines()
        return Outcome(
            status,
            (folder / "out").read_text(),
            (folder / "err").read_text(),
            [Event.parse(line) for line in events],
        )


# --- Server --------------------------------------------------------


def serve() -> None:
    """Handle requests until standard input ends."""
    import torch

    for module in PRELOADED:
        importlib.import_module(module)
    with contextlib.suppress(ImportError):  # an extra
        importlib.import_module("matplotlib.backends.backend_agg")
    torch.set_num_threads(1)
    multiprocessing.set_forkserver_preload(["rl_training.envs.factory"])
    mock.patch.object(os, "fsync", os.fstat).start()  # as in tests/conftest.py
    gc.freeze()  # garbage collection in a child would copy memory pages
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
    os.kill(pid, signal.SIGKILL)  # no error if it has ended, since it is not reaped yet
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _fork(request: dict[str, Any], folder: Path) -> int:
    files = [os.open(folder / name, os.O_CREAT | os.O_RDWR) for name in ("out", "err", "events")]
    pid = os.fork()
    if pid:
        for descriptor in files:
            os.close(descriptor)
        return pid
    _exit_with(lambda: _run_program(request, files))


def _exit_with(work: Callable[[], int]) -> NoReturn:
    """Exit with the result of ``work``, without the cleanup of the server."""
    status = 70  # the exit code if the harness itself fails
    try:
        status = work()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, AttributeError):  # None if it is closed
                stream.flush()
        os._exit(status)


def _run_program(request: dict[str, Any], files: list[int]) -> int:
    """Run the requested program and return its exit code."""
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(files[0], 1)
    os.dup2(files[1], 2)
    for name, fault in request["streams"].items():
        _break_stream(name, fault)
    os.chdir(request["cwd"])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    if request["watch"] is not None:
        Disk(request["watch"], files[2], at=request["at"], action=request["action"]).install()
    if request["file_limit"] is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write fails instead
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_limit"],) * 2)
    if request["code"] is None:
        return _command_line(request["argv"])
    code = compile(request["code"], "<string>", "exec")
    return _exit_code(lambda: exec(code, {"__name__": "__main__"}))


def _break_stream(name: str, fault: str) -> None:
    """Apply a fault to a standard stream, like a shell, a terminal or a pipe can cause."""
    descriptor, stream = {"out": (1, "stdout"), "err": (2, "stderr")}[name]
    if fault == "closed":
        os.close(descriptor)
        setattr(sys, stream, None)  # like Python at startup
    elif fault == "full":
        os.dup2(os.open("/dev/full", os.O_WRONLY), descriptor)
    elif fault == "broken":
        reader, writer = os.pipe()
        os.dup2(writer, descriptor)
        os.close(reader)
    else:
        getattr(sys, stream).reconfigure(encoding=fault, errors="strict")


def run_command(*argv: str) -> None:
    """Run ``rl-training ARGV`` in a fork of this process; it must succeed."""
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        _exit_with(lambda: _command_line(argv))
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status == 0, f"rl-training {' '.join(argv)}: {status}"


def _command_line(argv: Sequence[str]) -> int:
    import rl_training.cli

    sys.argv = ["rl-training", *argv]
    return _exit_code(rl_training.cli.main)


def _exit_code(program: Callable[[], object]) -> int:
    import traceback

    try:
        program()
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

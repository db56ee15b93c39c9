"""Runs command lines under the guard while importing torch only once.

``python -m tests.hostile.server`` imports the package and everything that its commands use, then
answers one request per line. Commands without side effects on the process share a forked child;
commands that train get a separate child. A child is replaced if a command killed it or if the
guard stopped an operation in it.
"""

from __future__ import annotations

import gc
import importlib
import io
import json
import math
import os
import pkgutil
import resource
import select
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any, TextIO

MEMORY_LIMIT = 8 << 30
"""Limit of the address space in bytes; allocations beyond it fail."""
WALL_SECONDS = 90.0
"""Generous time limit, since the machine may be busy."""
MOST_COMMANDS = 60
"""Maximum number of commands per child, to limit the influence of earlier commands."""
THIRD_PARTY = (
    *("h5py", "minari", "gymnasium.envs.classic_control", "matplotlib.figure", "rich.progress"),
    *("matplotlib.backends.backend_agg", "rich.live", "rich.markdown"),
    *("typer.rich_utils", "torch.utils.tensorboard.writer"),
)
"""Modules that commands import when they need them."""


def serve() -> None:
    """Answer requests until the standard input ends."""
    _import_everything()
    gc.collect()
    gc.freeze()  # a collection in a child would copy the shared memory pages
    server = _Server()
    for line in sys.stdin:
        print(json.dumps(server.answer(json.loads(line))), flush=True)
    server.close()


def _import_everything() -> None:
    import torch

    import rl_training

    torch.set_num_threads(1)
    for module in pkgutil.walk_packages(rl_training.__path__, "rl_training."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in (*THIRD_PARTY, "tests.hostile.probes"):
        importlib.import_module(name)

    import rl_training.boundary.hdf5 as hdf5

    hdf5.Reader = LocalReader  # type: ignore[assignment, misc]


class LocalReader:
    """Reads HDF5 files in this process, so that the guard sees which files are opened."""

    is_alive = True

    def __init__(self) -> None:
        from rl_training.boundary.hdf5_process import Server

        self._server = Server()

    def ask(self, **request: Any) -> tuple[Any, bytes]:
        from rl_training.boundary.hdf5 import Answer

        answer, data = self._server.answer(request)
        return Answer.model_validate_json(json.dumps(answer)), data

    def stop(self) -> None:
        """Do nothing: there is no child process."""


class _Server:
    def __init__(self) -> None:
        self._child: _Child | None = None
        self._modules: dict[str, set[str]] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run one command; check its imports or, in a benign run, record them."""
        group, benign = request["group"], request["benign"]
        known = self._modules.setdefault(group, set())
        request["modules"] = None if benign else sorted(known)
        alone = benign or request["alone"]
        if self._child is None or alone:
            self.close()
            self._child = _Child()
        reply = self._child.run(request)
        if alone or reply["found"] or not self._child.is_reusable():
            self.close()
        if benign:
            known.update(reply.pop("imported"))
        return reply

    def close(self) -> None:
        if self._child is not None:
            self._child.close()
        self._child = None


class _Child:
    """A forked process and the pipes to it."""

    def __init__(self) -> None:
        ours, theirs = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(ours[1])
            os.close(theirs[0])
            _serve_requests(os.fdopen(ours[0]), os.fdopen(theirs[1], "w"))
        os.close(ours[0])
        os.close(theirs[1])
        self._requests, self._replies = os.fdopen(ours[1], "w"), theirs[0]
        self._commands = 0

    def is_reusable(self) -> bool:
        return self.pid > 0 and self._commands < MOST_COMMANDS

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        self._commands += 1
        print(json.dumps(request), file=self._requests, flush=True)
        if (problem := self._wait(request["blocked_seconds"])) is not None:
            os.kill(self.pid, signal.SIGKILL)
        line = b""
        while not line.endswith(b"\n") and (part := os.read(self._replies, 1 << 16)):
            line += part
        if line:
            reply: dict[str, Any] = json.loads(line)
            return reply
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.pid = 0
        found = [] if problem is None else [problem]
        return {"status": status, "found": found, "imported": [], "grown_mib": 0.0, "seconds": 0.0}

    def _wait(self, blocked_seconds: float) -> str | None:
        """Wait for a reply or the child's exit; return the problem if neither happens."""
        started = last_active = time.monotonic()
        used = -1.0
        while not select.select([self._replies], [], [], 0.1)[0]:
            now = time.monotonic()
            asleep, cpu = _activity(self.pid)
            if cpu != used or not asleep:
                last_active, used = now, cpu
            if now - last_active > blocked_seconds:
                return f"blocked for {blocked_seconds:g} s"
            if now - started > WALL_SECONDS:
                return f"took more than {WALL_SECONDS:g} s"
        return None

    def close(self) -> None:
        os.close(self._replies)
        self._requests.close()
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)  # safe after its exit: it has not been reaped yet
            os.waitpid(self.pid, 0)
        self.pid = 0


def _activity(pid: int) -> tuple[bool, float]:
    """Return whether a process sleeps, and its processor time in ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return fields[0] in "SDZ", float(fields[11]) + float(fields[12])


# --- Inside a child -----------------------------------------------------------


def _serve_requests(requests: TextIO, replies: TextIO) -> None:
    """Run the requested commands; never returns."""
    status = 70  # the harness itself failed
    try:
        from tests.hostile.guard import Guard

        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
        sys.dont_write_bytecode = True
        guard = Guard()
        guard.install()
        for line in requests:
            print(json.dumps(run_command(json.loads(line), guard)), file=replies, flush=True)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def run_command(request: dict[str, Any], guard: Any) -> dict[str, Any]:
    """Run one command line in the request's folder and environment."""
    before = dict(os.environ), list(sys.path), sys.argv, list(warnings.filters)
    streams = sys.stdout, sys.stderr
    limit = math.ceil(time.process_time()) + request["cpu_seconds"] + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.path.insert(0, "")  # as in `python -m rl_training`
    sys.stdout, sys.stderr = (_stream(number, request) for number in (1, 2))
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak of earlier commands
    memory, started = _resident_mib(), time.process_time()
    guard.watch(request["writable"], request["secret"], request["modules"])
    try:
        status = _call(request)
    finally:
        guard.pause()
    seconds, grown = time.process_time() - started, _resident_mib() - memory
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    sys.stdout, sys.stderr = streams
    os.chdir("/")
    os.environ.clear()
    os.environ.update(before[0])
    sys.path[:], sys.argv, warnings.filters[:] = before[1:]  # type: ignore[index]
    _reset_globals()
    return {
        "status": status,
        "found": guard.found,
        "imported": sorted(set(guard.imported)),
        "grown_mib": grown,
        "seconds": seconds,
    }


def _reset_globals() -> None:
    """Reset the package's global state, so that commands do not influence each other."""
    from rl_training.boundary import terminal
    from rl_training.envs import resolving

    resolving._named = resolving._Named()  # which environments it named
    terminal._results = None  # where its results went


def _stream(number: int, request: dict[str, Any]) -> TextIO:
    """Open a file as standard output or error, configured as in a new process."""
    file = os.open(request["streams"][number - 1], os.O_CREAT | os.O_TRUNC | os.O_RDWR)
    os.dup2(file, number)
    os.close(file)
    given = request["env"].get("PYTHONIOENCODING", "")
    encoding, _, errors = given.partition(":")
    if number == 2:
        errors = "backslashreplace"
    binary = os.fdopen(os.dup(number), "wb", buffering=0)
    return io.TextIOWrapper(
        binary, encoding=encoding or "utf-8", errors=errors or "strict", write_through=True
    )


def _resident_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _call(request: dict[str, Any]) -> int:
    """Run the command or probe and return its exit code."""
    import rl_training.cli

    sys.argv = ["rl-training", *request["argv"]]
    try:
        if request["probe"]:
            from tests.hostile import probes

            getattr(probes, request["probe"])(*request["argv"])
        else:
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

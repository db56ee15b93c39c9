"""Start worker processes: forked from a server that has imported PyTorch, or one by one.

The fork server is a process of its own. It imports the package once and never trains, so its
children start within milliseconds and share its memory. Every worker has a session of its own, so
that Ctrl-C in a terminal reaches only the coordinator.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from typing import Any, NoReturn, Protocol

FORKED = "rl_training.study.launching"
ALONE = "rl_training.study.serving"


class Launcher(Protocol):
    """Starts worker processes."""

    def launch(self) -> socket.socket:
        """Start a worker and return the socket to it."""

    def exit_status(self, pid: int, seconds: float) -> int | None:
        """Return the exit code of a worker that is ending, or None if it is unknown.

        It is the negative number of a signal if that has killed it. ``seconds`` is how long to wait
        for it.
        """

    def kill(self, pid: int) -> None:
        """Kill a worker."""

    def close(self) -> None:
        """End what the launcher has started, except for workers."""


HIDDEN = ("RAY_",)
"""Beginnings of the names of variables that workers do not inherit, since runs do not depend on
where they are trained."""


def worker_environment(threads: int = 1) -> dict[str, str]:
    """Return the environment of workers.

    Libraries such as OpenBLAS start threads when they are imported. A run sets its own number of
    threads for PyTorch, which is all that the package uses.
    """
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    inherited = {name: text for name, text in os.environ.items() if not name.startswith(HIDDEN)}
    return inherited | {name: str(threads) for name in names} | {"PYTHONSAFEPATH": "1"}


def start_process(
    module: str, connection: socket.socket, folder: str | None = None
) -> subprocess.Popen[bytes]:
    """Start a module of the package in a session of its own, with one end of a connection.

    ``folder`` is the working directory, by default that of this process.
    """
    descriptor = connection.fileno()
    return subprocess.Popen(
        [sys.executable, "-m", module, str(descriptor)],
        stdin=subprocess.DEVNULL,
        pass_fds=[descriptor],
        env=worker_environment(),
        cwd=folder,
        start_new_session=True,
    )


def can_fork() -> bool:
    """Return whether workers can be forked, which is unsafe after an import of torch on macOS."""
    return sys.platform == "linux"


def choose_launcher() -> Launcher:
    """Return the launcher for this system."""
    return ForkServer() if can_fork() else ProcessLauncher()


class ProcessLauncher:
    """Starts a new interpreter for each worker."""

    def __init__(self) -> None:
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def launch(self) -> socket.socket:
        """Start a worker and return the socket to it."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = start_process(ALONE, theirs)
        self._processes[process.pid] = process
        return ours

    def exit_status(self, pid: int, seconds: float) -> int | None:
        """Return the exit code of a worker that is ending, or None if it is unknown."""
        process = self._processes.pop(pid, None)
        if process is None:
            return None
        try:
            return process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self, pid: int) -> None:
        """Kill a worker."""
        if pid in self._processes:
            self._processes[pid].kill()

    def close(self) -> None:
        """Wait for workers that have ended."""
        for process in self._processes.values():
            process.poll()


class ForkServer:
    """Asks a server process to fork workers; the server is started when it is needed."""

    def __init__(self, folder: str | None = None) -> None:
        """Create a launcher; ``folder`` is the working directory of the workers."""
        self._folder = folder
        self._statuses: dict[int, int] = {}
        self._server: subprocess.Popen[bytes] | None = None
        self._socket = socket.socket(socket.AF_UNIX)  # not connected yet

    def _start(self) -> None:
        self._socket.close()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._server = start_process(FORKED, theirs, self._folder)

    def launch(self) -> socket.socket:
        """Start a worker and return the socket to it."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._socket, [b"fork"], [theirs.fileno()])
            except OSError:  # the server does not run yet, or was killed
                self.close()
                self._start()
                socket.send_fds(self._socket, [b"fork"], [theirs.fileno()])
        return ours

    def exit_status(self, pid: int, seconds: float) -> int | None:
        """Return the exit code of a worker that is ending, or None if it is unknown."""
        self._socket.settimeout(seconds)
        with suppress(OSError):
            while pid not in self._statuses:
                message = self._socket.recv(1024)
                if not message:  # the server was killed
                    break
                ended = json.loads(message)
                self._statuses[ended["pid"]] = ended["status"]
        self._socket.settimeout(None)
        return self._statuses.pop(pid, None)

    def kill(self, pid: int) -> None:
        """Kill a worker."""
        if os.name == "posix":
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """End the server, which does not end its workers."""
        self._socket.close()
        if self._server is not None:
            self._server.kill()  # it may still be importing
            self._server.wait()


# --- The server process -------------------------------------------------------------------


class _Server:
    """Forks a worker for each socket that it receives, and reports how each of them ends."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: set[int] = set()

    def run(self) -> None:
        """Serve until the coordinator closes the connection."""
        wakeup, woken = socket.socketpair()
        for end in (wakeup, woken):
            end.setblocking(False)
        signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
        self._handle_signals(ignore=True)
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(wakeup, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select()]
                if wakeup in ready:
                    with suppress(BlockingIOError):
                        wakeup.recv(4096)
                    self._reap()
                if self._control in ready and not self._fork():
                    return

    def _handle_signals(self, *, ignore: bool) -> None:
        """Ignore requests to stop, which are for the workers; a child gets the defaults back."""
        stop = signal.SIG_IGN if ignore else signal.SIG_DFL
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), stop)
        handler: Any = (lambda *_: None) if ignore else signal.SIG_DFL
        signal.signal(signal.SIGCHLD, handler)

    def _fork(self) -> bool:
        """Handle a request; return False if the coordinator is gone."""
        try:
            message, descriptors, _, _ = socket.recv_fds(self._control, 16, 1)
        except ConnectionError:
            return False
        if not message:
            return False
        if os.name != "posix":
            raise NotImplementedError
        child = os.fork()
        if child == 0:
            self._work(descriptors[0])
        os.close(descriptors[0])
        self._children.add(child)
        return True

    def _work(self, descriptor: int) -> NoReturn:
        """Run a worker in the child process."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            self._handle_signals(ignore=False)
            self._control.close()
            if hasattr(os, "setsid"):
                os.setsid()
            from rl_training.study.serving import serve

            code = serve(socket.socket(fileno=descriptor))
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):
                    stream.flush()
            os._exit(code)

    def _reap(self) -> None:
        """Report the children that have ended."""
        for child in list(self._children):
            if os.name != "posix":
                raise NotImplementedError
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                self._children.discard(pid)
                ended = {"pid": pid, "status": os.waitstatus_to_exitcode(status)}
                with suppress(OSError):  # the coordinator is gone, or has not read for a long time
                    self._control.send(json.dumps(ended).encode(), socket.MSG_DONTWAIT)


def preload() -> None:
    """Import what workers need."""
    import rl_training.study.serving  # noqa: F401

    gc.collect()
    gc.freeze()  # garbage collection in a worker would copy memory pages


def main() -> None:
    """Run the fork server with the socket whose descriptor is the first argument."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    preload()
    _Server(control).run()


if __name__ == "__main__":
    main()

"""An audit hook that detects operations that reading a file must never cause.

A command must not start processes, open connections, unpickle objects, import modules that the same
command does not import for ordinary input, or write outside the folders that it was given.
`Violation` is not an `Exception`, so that the package's handlers cannot hide it.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import rl_training

PROCESSES = frozenset(
    {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork"}
    | {"os.forkpty", "pty.spawn", "os.startfile"}
)
NETWORK = frozenset(
    {"socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo"}
    | {"socket.gethostbyname", "socket.gethostbyaddr", "urllib.Request", "http.client.connect"}
)
CODE_FOLDERS = tuple(
    os.path.realpath(folder)
    for folder in (
        *(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        str(Path(rl_training.__file__).parent),
        str(Path(__file__).parents[1]),  # the test harness
    )
)
"""The standard library, the installed packages, the package itself and its tests."""
HARMLESS = ("encodings.", "typer.", "click.", "rich.")
"""Codecs and command-line libraries: any input may import parts of them."""
ALWAYS_WRITABLE = frozenset({os.devnull, "/dev/tty"})
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Violation(BaseException):
    """An operation that no input may cause; it was prevented."""


class Guard:
    """Watches one process; `watch` sets what the next command may do."""

    def __init__(self) -> None:
        self.found: list[str] = []
        """Violations of the current command."""
        self.imported: list[str] = []
        """Modules that the current command imported, in order."""
        self._writable: tuple[str, ...] = ()
        self._secret: tuple[str, ...] = ()
        self._modules: frozenset[str] | None = None
        self._watching = False
        self._handlers: dict[str, Callable[[Any], None]] = {
            "import": self._import,
            "exec": self._exec,
            "open": self._open,
            "pickle.find_class": lambda args: self._stop(f"unpickles {args[0]}.{args[1]}"),
            "ctypes.dlopen": self._dlopen,
            "os.rename": self._rename,
            "os.link": lambda args: self._change(args[1], args[3]),
            "os.symlink": lambda args: self._change(args[1], args[2]),
            "os.mkdir": lambda args: self._change(args[0], args[2]),
            "os.remove": lambda args: self._change(args[0], args[1]),
            "os.rmdir": lambda args: self._change(args[0], args[1]),
            "os.truncate": lambda args: self._change(args[0], -1, follows=True),
            "os.chmod": lambda args: self._change(args[0], args[2], follows=True),
            "os.chown": lambda args: self._change(args[0], args[3], follows=True),
            "os.utime": lambda args: self._change(args[0], args[3], follows=True),
            "os.setxattr": lambda args: self._change(args[0], -1, follows=True),
        }
        for event in PROCESSES | NETWORK:
            self._handlers[event] = partial(self._forbidden, event)

    def install(self) -> None:
        """Install the audit hook in this process; hooks cannot be removed."""
        sys.addaudithook(self._on_event)

    def watch(
        self,
        writable: Iterable[str],
        secret: Iterable[str],
        modules: Iterable[str] | None,
    ) -> None:
        """Start watching a command.

        It may write to the folders ``writable``, must not read from ``secret``, and may import only
        ``modules``. With None, it may import anything, and its imports are recorded.
        """
        self.found, self.imported = [], []
        self._writable = tuple(os.path.realpath(folder) for folder in writable)
        self._secret = tuple(os.path.realpath(folder) for folder in secret)
        self._modules = None if modules is None else frozenset(modules)
        self._watching = True

    def pause(self) -> None:
        """Stop watching until the next command."""
        self._watching = False

    def _on_event(self, event: str, args: Any) -> None:
        handler = self._handlers.get(event)
        if handler is not None and self._watching:
            self._watching = False  # do not watch the handler itself
            try:
                handler(args)
            finally:
                self._watching = True

    def _stop(self, what: str) -> None:
        self.found.append(what[:300])
        raise Violation(what)

    def _forbidden(self, event: str, args: Any) -> None:
        self._stop(f"{event} {args}")

    # --- Code -----------------------------------------------------------------

    def _import(self, args: Any) -> None:
        name = str(args[0])
        self.imported.append(name)
        known = self._modules is None or name in self._modules or name.startswith(HARMLESS)
        if not known:
            self._stop(f"imports {name}")

    def _exec(self, args: Any) -> None:
        file = getattr(args[0], "co_filename", "<")
        if not file.startswith("<") and not _inside(os.path.realpath(file), CODE_FOLDERS):
            self._stop(f"runs code from {file}")

    def _dlopen(self, args: Any) -> None:
        name = args[0]
        named = isinstance(name, str) and "/" in name
        if named and not _inside(os.path.realpath(name), (*CODE_FOLDERS, "/lib", "/usr")):
            self._stop(f"loads the library {name}")

    # --- Files ----------------------------------------------------------------

    def _open(self, args: Any) -> None:
        path, mode, flags = args
        if not isinstance(path, str | bytes | os.PathLike):
            return  # a descriptor: the file is already open
        writes = bool(flags & _WRITING) if mode is None else bool(set(mode) & set("wax+"))
        if writes:
            exclusive = flags & os.O_EXCL and flags & os.O_CREAT
            self._change(path, -1, follows=not (exclusive or flags & os.O_NOFOLLOW))
        elif _inside(_resolved(path, -1, follows=True), self._secret):
            self._stop(f"reads {os.fsdecode(path)}")

    def _rename(self, args: Any) -> None:
        self._change(args[0], args[2])
        self._change(args[1], args[3])

    def _change(self, path: Any, folder: Any, *, follows: bool = False) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return
        target = _resolved(path, folder, follows=follows)
        if target not in ALWAYS_WRITABLE and not _inside(target, self._writable):
            self._stop(f"changes {target}")


def _resolved(path: Any, folder: Any, *, follows: bool) -> str:
    """Resolve a path as the operating system would."""
    name = os.fsdecode(path)
    if isinstance(folder, int) and folder >= 0:
        name = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), name)
    if follows:
        return os.path.realpath(name)
    parent, last = os.path.split(name.rstrip("/"))
    return os.path.join(os.path.realpath(parent), last)


def _inside(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(folder + os.sep) for folder in folders)

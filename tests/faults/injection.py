"""Simulated disk faults: every change to a run folder is an event at which a fault can occur.

Python's audit hooks report each file that is opened for writing, each rename, removal and new
folder before it happens, in any module. Writes are not audited: `os.fsync` is
wrapped, which ends the writing of a new file, and so is the function that appends lines.
"""

from __future__ import annotations

import errno
import functools
import os
import signal
import sys
from dataclasses import dataclass
from io import FileIO
from typing import Any
from unittest import mock

from rl_training.boundary.writing import write_all
from rl_training.runtime import logging
from rl_training.runtime.checkpoint_writer import CheckpointWriter
from rl_training.runtime.loggers import tensorboard

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_GROWING = ("open", "mkdir", "sync", "write")
"""Events that need disk space."""


@dataclass(frozen=True)
class Event:
    """A change that a process is about to make."""

    name: str
    path: str
    saving: bool
    """Whether it happened inside `CheckpointWriter.save`."""

    @classmethod
    def parse(cls, line: str) -> Event:
        """Parse a line of a report."""
        where, name, path = line.split(" ", 2)
        return cls(name, path, where == "save")

    @property
    def needs_room(self) -> bool:
        """Whether it fails on a full disk."""
        return self.name in _GROWING


class Disk:
    """Watches the folder ``root`` and performs ``action`` at event number ``at``.

    Actions: ``kill`` kills the process before the change; ``tear`` and ``empty`` do so after half
    of the file or line, or nothing, was written; ``full`` makes this and every later write fail on
    a full disk; ``SIGINT`` and ``SIGTERM`` send these signals.
    """

    def __init__(self, root: str, report: int, *, at: int = -1, action: str = "") -> None:
        self._root = root
        self._report = report
        self._at = at
        self._action = action
        self._count = 0
        self._full = False
        self._saving = False

    def install(self) -> None:
        """Start watching; this cannot be undone, since audit hooks cannot be removed."""
        sys.addaudithook(self._audit)
        fsync, save = os.fsync, CheckpointWriter.save

        def watched_fsync(descriptor: int) -> None:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            self._event("sync", path, descriptor)
            fsync(descriptor)
            self._event("synced", path)

        @functools.wraps(save)
        def watched_save(*args: Any, **kwargs: Any) -> Any:
            self._saving = True
            try:
                return save(*args, **kwargs)
            finally:
                self._saving = False

        def watched_write(stream: FileIO, data: bytes) -> None:
            path = os.readlink(f"/proc/self/fd/{stream.fileno()}")
            self._event("write", path, stream.fileno(), data)
            write_all(stream, data)

        mock.patch.object(os, "fsync", watched_fsync).start()
        for module in (logging, tensorboard):
            mock.patch.object(module, "write_all", watched_write).start()
        mock.patch.object(CheckpointWriter, "save", watched_save).start()

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = args
            reading = not flags & _WRITING if isinstance(flags, int) else "r" in str(mode)
            if not isinstance(path, int) and not reading:
                self._change("open", path)
        elif event == "os.rename":
            self._change("rename", args[1])
        elif event == "os.mkdir":
            self._change("mkdir", args[0])
        elif event in ("os.remove", "os.rmdir"):
            inside = len(args) > 1 and args[1] != -1  # relative to a folder that rmtree opened
            self._change("remove", f"{self._root}/…/{args[0]}" if inside else args[0])

    def _change(self, name: str, path: Any) -> None:
        text = os.fsdecode(os.fspath(path))
        if text.startswith(self._root):
            self._event(name, text)

    def _event(
        self, name: str, detail: str, descriptor: int | None = None, data: bytes = b""
    ) -> None:
        number, self._count = self._count, self._count + 1
        line = f"{'save' if self._saving else 'else'} {name} {detail}\n"
        os.write(self._report, line.encode())
        if number == self._at:
            self._act(descriptor, data)
        if self._full and name in _GROWING:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), detail)

    def _act(self, descriptor: int | None, data: bytes) -> None:
        if self._action == "full":
            self._full = True
        elif self._action in ("kill", "tear", "empty"):
            if self._action != "kill" and descriptor is not None:
                self._tear(descriptor, data)
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            os.kill(os.getpid(), signal.Signals[self._action])

    def _tear(self, descriptor: int, data: bytes) -> None:
        """Truncate what is being written, an appended line or a new file."""
        if data:
            os.write(descriptor, data[: len(data) // 2])
        elif not os.path.isdir(f"/proc/self/fd/{descriptor}"):
            size = os.fstat(descriptor).st_size
            os.ftruncate(descriptor, size // 2 if self._action == "tear" else 0)

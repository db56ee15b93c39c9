"""Print plain text to standard output and standard error, even if these streams break."""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from rl_training.text import one_line, printable

if TYPE_CHECKING:
    from rich.console import Console

BROKEN_PIPE_EXIT = 141
"""Exit code that the shell reports for a program ended by SIGPIPE."""

_results: TextIO | None = None
"""The real standard output if `sys.stdout` is redirected to standard error."""


class _Guarded(io.RawIOBase):
    """A byte stream that never raises: after a failed write, further output is dropped.

    A full disk or a closed pipe must not end a training run.
    """

    def __init__(self, stream: io.TextIOWrapper) -> None:
        self._stream = stream  # keeps the descriptor open
        self._raw: Any = getattr(stream.buffer, "raw", stream.buffer)
        self.failure: OSError | None = None

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return int(self._raw.fileno())

    def isatty(self) -> bool:
        return bool(self._raw.isatty())

    def write(self, data: Any) -> int:
        while self.failure is None:
            try:
                written = self._raw.write(data)
            except OSError as error:
                self.failure = error
                break
            if written is not None:
                return int(written)
            select.select([], [self._raw], [])  # a non-blocking descriptor is full
        return memoryview(data).nbytes


def guarded(stream: TextIO | None) -> TextIO:
    """Return a stream that never raises (see `_Guarded`) and replaces unencodable characters.

    A closed stream, or None, which Python uses for a closed descriptor, becomes a null device.
    Streams that replaced the standard ones are returned unchanged.
    """
    if stream is None or getattr(stream, "closed", False):
        return open(os.devnull, "w", encoding="utf-8")
    if type(stream) is not io.TextIOWrapper or _guard_of(stream) is not None:
        return stream
    with suppress(OSError):  # if it is broken, buffered output is lost as well
        stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Guarded(stream)),
        encoding=stream.encoding,
        errors="replace",
        line_buffering=stream.line_buffering or stream.write_through,
    )


def _guard_of(stream: TextIO) -> _Guarded | None:
    raw = getattr(getattr(stream, "buffer", None), "raw", None)
    return raw if isinstance(raw, _Guarded) else None


def open_standard_streams(*, results_only: bool = False) -> None:
    """Make the standard streams of a command safe to print to.

    With ``results_only``, only `say` prints to standard output. Anything else that is written
    there, by Python, a C library or a child process, goes to standard error.
    """
    global _results
    for descriptor in range(3):
        _open_if_closed(descriptor)
    sys.stderr = guarded(sys.stderr)
    sys.stdout = guarded(sys.stdout)
    if results_only:
        sys.stdout.flush()
        _results = guarded(open(os.dup(1), "w", encoding="utf-8"))  # noqa: SIM115
        os.dup2(2, 1)
        sys.stdout = sys.stderr


def _open_if_closed(descriptor: int) -> None:
    """Open a standard descriptor if it is closed, so that no other file gets its number."""
    try:
        os.fstat(descriptor)
    except OSError:
        opened = os.open(os.devnull, os.O_RDWR)
        if opened != descriptor:
            os.dup2(opened, descriptor)
            os.close(opened)


def output() -> TextIO:
    """Return the stream for the results of a command."""
    return _results or guarded(sys.stdout)


def say(text: str, *, keep: str = "") -> None:
    """Print a line to standard output; escape control characters except those in ``keep``."""
    print(printable(text, keep=keep), file=output(), flush=True)


def print_stderr(text: str) -> None:
    """Print a message to standard error on one line."""
    print(one_line(text), file=guarded(sys.stderr), flush=True)


def output_failure() -> int:
    """Return the exit code for failed writes to standard output: 0 if there were none."""
    stream = output()
    stream.flush()
    guard = _guard_of(stream)
    if guard is None or guard.failure is None:
        return 0
    if guard.failure.errno == errno.EPIPE:  # the reader closed the pipe
        return BROKEN_PIPE_EXIT
    print_stderr(f"Error: Standard output could not be written: {guard.failure.strerror}.")
    return 1


def plain_console(stream: TextIO, **options: Any) -> Console:
    """Return a rich console without markup, emoji codes and highlighting."""
    from rich.console import Console

    return Console(file=stream, markup=False, emoji=False, highlight=False, **options)

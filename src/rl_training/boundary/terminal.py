"""Standard output and standard error: plain printable text, on streams that may break."""

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
"""As the shell reports a program that SIGPIPE ended."""

_results: TextIO | None = None
"""The real standard output, where the process's own leads to standard error."""


class _Guarded(io.RawIOBase):
    """A stream's bytes, without errors: after a failed write, the rest is dropped.

    A full disk behind standard error, or a reader that has left, must not end a training.
    """

    def __init__(self, stream: io.TextIOWrapper) -> None:
        self._stream = stream  # which closes its descriptor when nothing refers to it
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
            select.select([], [self._raw], [])  # a descriptor that does not block, and is full
        return memoryview(data).nbytes


def guarded(stream: TextIO | None) -> TextIO:
    """The same stream without errors: what cannot be encoded is replaced, see also `_Guarded`.

    A closed stream, or None, which Python has for a closed descriptor, becomes one to nowhere.
    Streams that a program put in place of the standard ones are left as they are.
    """
    if stream is None or getattr(stream, "closed", False):
        return open(os.devnull, "w", encoding="utf-8")
    if type(stream) is not io.TextIOWrapper or _guard_of(stream) is not None:
        return stream
    with suppress(OSError):  # if it is broken, what it holds is lost as well
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
    """Make the standard streams of a command safe to print on.

    With ``results_only`` standard output is for `say` alone. What anything else writes there,
    be it Python, a C library or a child process, goes to standard error.
    """
    global _results
    for descriptor in range(3):
        _fill(descriptor)
    sys.stderr = guarded(sys.stderr)
    sys.stdout = guarded(sys.stdout)
    if results_only:
        sys.stdout.flush()
        _results = guarded(open(os.dup(1), "w", encoding="utf-8"))  # noqa: SIM115
        os.dup2(2, 1)
        sys.stdout = sys.stderr


def _fill(descriptor: int) -> None:
    """Open a standard descriptor that is closed, or the next file would get its number."""
    try:
        os.fstat(descriptor)
    except OSError:
        opened = os.open(os.devnull, os.O_RDWR)
        if opened != descriptor:
            os.dup2(opened, descriptor)
            os.close(opened)


def output() -> TextIO:
    """Where the results of a command go."""
    return _results or guarded(sys.stdout)


def say(text: str, *, keep: str = "") -> None:
    """Print a line on standard output: control characters escaped, but for those in ``keep``."""
    print(printable(text, keep=keep), file=output(), flush=True)


def tell(text: str) -> None:
    """Print a message on standard error, on one line."""
    print(one_line(text), file=guarded(sys.stderr), flush=True)


def output_failure() -> int:
    """The exit code for what standard output could not take: 0 if it took everything."""
    stream = output()
    stream.flush()
    guard = _guard_of(stream)
    if guard is None or guard.failure is None:
        return 0
    if guard.failure.errno == errno.EPIPE:  # the reader has seen enough
        return BROKEN_PIPE_EXIT
    tell(f"Error: Standard output could not be written: {guard.failure.strerror}.")
    return 1


def plain_console(stream: TextIO, **options: Any) -> Console:
    """A rich console that prints text as it is: no markup, no emoji codes, no highlighting."""
    from rich.console import Console

    return Console(file=stream, markup=False, emoji=False, highlight=False, **options)

"""The process that reads HDF5 files for `boundary/hdf5.py`.

The HDF5 library can loop forever or crash on a damaged file, and Python cannot interrupt it. In
this separate process, the kernel limits memory, and ends the process when a request takes too much
processor time.

Requests and answers are lines of JSON; rows follow their answer as raw bytes. Only values inside
the file itself are read, through filters that HDF5 includes. External links, external storage and
virtual datasets would make the library open other files, and unknown filters would make it load a
plugin.
"""

from __future__ import annotations

import json
import mmap
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rl_training.boundary.columns import NUMBERS
from rl_training.errors import ConfigError
from rl_training.text import first_line, shown

IDLE_SECONDS = 10
"""The process ends after this time without a request."""
CPU_SECONDS = 4.0
"""Processor time allowed for a request, in addition to the time for its bytes."""
OPENED_BYTES_PER_SECOND = 2e6
READ_BYTES_PER_SECOND = 2e7
EXTRA_BYTES = 256 << 20
MEMORY_FACTOR = 8
"""Memory allowed for a request: `EXTRA_BYTES` plus this factor times the bytes of the request."""
MAX_DEPTH = 8
"""Levels of groups that are listed inside a group of observations."""
_FILTERS = {1, 2, 3, 4, 5, 6, 32000}
"""Deflate, shuffle, Fletcher32, szip, n-bit, scale-offset, and LZF, which h5py includes."""


class Server:
    """Answers requests about one file at a time."""

    def __init__(self) -> None:
        self._file: Any = None

    def answer(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Return the answer to a request, and the rows that follow it."""
        import h5py

        try:
            if "open" in request:
                self._file = h5py.File(request["open"], "r")
                found = entries(self._file, request["depth"], request["groups"])
                return {"entries": list(found)}, b""
            if "read" in request:
                data = rows(self._file[request["read"]], request["start"], request["stop"])
                return {"bytes": len(data)}, data
            if self._file is not None:
                self._file.close()
        except ConfigError as error:
            return {"refused": str(error)}, b""
        except Exception as error:  # h5py derives the exception class from the library's error
            return {"damaged": first_line(error)}, b""
        return {}, b""


def serve() -> None:
    """Answer requests from standard input until it ends."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent process
    server, limits = Server(), _Limits()
    while True:
        limits.wait()
        line = requests.readline()
        if not line:
            return
        request = json.loads(line)
        limits.work(request.get("bytes", 0), opening="open" in request)
        answer, data = server.answer(request)
        answers.write(json.dumps(answer).encode() + b"\n" + data)
        answers.flush()


class _Limits:
    """Time and memory limits enforced by the kernel; Windows and macOS lack some of them."""

    def __init__(self) -> None:
        import h5py  # noqa: F401

        pages = Path("/proc/self/statm")
        self._idle_bytes = (
            int(pages.read_text().split()[0]) * mmap.PAGESIZE if pages.exists() else 0
        )

    def wait(self) -> None:
        """End this process if no request arrives in time."""
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.alarm(IDLE_SECONDS)

    def work(self, size: int, *, opening: bool) -> None:
        """Limit processor time and memory for a request of ``size`` bytes."""
        if hasattr(signal, "setitimer"):
            speed = OPENED_BYTES_PER_SECOND if opening else READ_BYTES_PER_SECOND
            signal.alarm(0)
            signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS + size / speed)
        if self._idle_bytes:
            import resource

            hard = resource.getrlimit(resource.RLIMIT_AS)[1]
            most = self._idle_bytes + EXTRA_BYTES + MEMORY_FACTOR * size
            soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def entries(
    group: Any, depth: int, groups: Sequence[str] = (), path: str = ""
) -> Iterator[dict[str, Any]]:
    """Yield the contents of a group: paths, with shapes and types for non-empty datasets.

    Groups are listed down to ``depth``, and those named in ``groups`` completely.
    """
    import h5py

    for key in group:
        name = path + (key if isinstance(key, str) else str(key))  # bytes if it is not UTF-8
        if not isinstance(group.get(key, getlink=True), h5py.HardLink):
            raise ConfigError(f"{shown(name)} is a link; links are not followed.")
        found = group[key]
        if isinstance(found, h5py.Dataset):
            _check_dataset(found, shown(name))
            if found.shape is not None:
                yield {"path": name, "shape": list(found.shape), "dtype": found.dtype.str}
                continue
        yield {"path": name}
        below = MAX_DEPTH if key in groups and depth <= MAX_DEPTH else depth - 1
        if isinstance(found, h5py.Group) and below > 0:
            # A group inside itself would never end, so the depth only decreases from here.
            inner = () if below >= MAX_DEPTH else groups
            yield from entries(found, below, inner, f"{name}/")


def rows(dataset: Any, start: int, stop: int) -> bytes:
    """Return rows of a numeric dataset as raw bytes."""
    values = dataset[start:stop]
    if values.dtype.kind not in NUMBERS:
        raise ConfigError("it does not contain numbers.")
    data: bytes = values.tobytes()
    return data


def _check_dataset(dataset: Any, place: str) -> None:
    import h5py

    plist = dataset.id.get_create_plist()
    if plist.get_external_count():
        raise ConfigError(f"{place} stores its values in another file, which is not opened.")
    if plist.get_layout() == h5py.h5d.VIRTUAL:
        raise ConfigError(
            f"{place} is a virtual dataset that refers to other files, which are not opened."
        )
    for index in range(plist.get_nfilters()):
        code = plist.get_filter(index)[0]
        if code not in _FILTERS:
            raise ConfigError(
                f"{place} uses the unsupported HDF5 filter {code}: store it with gzip or without "
                "compression."
            )

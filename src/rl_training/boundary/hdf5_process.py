"""The process that reads HDF5 files for `boundary/hdf5.py`.

The HDF5 library can loop forever or crash on a damaged file, and nothing in Python can interrupt
it. Here it does so in a process of its own, which the kernel ends when a request takes too much
processor time, and whose memory it limits.

A request is a line of JSON, and so is the answer; rows follow their answer as raw bytes. Only
values inside the file itself are read, through filters that HDF5 ships with: external links,
external storage and virtual datasets would make the library open other files, and unknown filters
would make it load a plug-in.
"""

from __future__ import annotations

import json
import mmap
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rl_training.boundary.columns import NUMBERS
from rl_training.errors import ConfigError
from rl_training.text import first_line, shown

IDLE_SECONDS = 10
"""After so long without a request the process ends."""
CPU_SECONDS = 4.0
"""Processor time of a request, beside what its bytes take."""
OPENED_BYTES_PER_SECOND = 2e6
READ_BYTES_PER_SECOND = 2e7
EXTRA_BYTES = 256 << 20
MEMORY_FACTOR = 8
"""Memory of a request: `EXTRA_BYTES`, and so many times the bytes of the file or of its rows."""
_FILTERS = {1, 2, 3, 4, 5, 6, 32000}
"""Deflate, shuffle, Fletcher32, szip, n-bit, scale-offset; and LZF, which h5py brings."""


class Server:
    """One file at a time, and the answers to requests about it."""

    def __init__(self) -> None:
        self._file: Any = None

    def answer(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """What is answered to a request, and the rows that follow the answer."""
        import h5py

        try:
            if "open" in request:
                self._file = h5py.File(request["open"], "r")
                return {"entries": list(entries(self._file, request["depth"]))}, b""
            if "read" in request:
                data = rows(self._file[request["read"]], request["start"], request["stop"])
                return {"bytes": len(data)}, data
            if self._file is not None:
                self._file.close()
        except ConfigError as error:
            return {"refused": str(error)}, b""
        except Exception as error:  # h5py raises whatever the library's error looks like
            return {"damaged": first_line(error)}, b""
        return {}, b""


def serve() -> None:
    """Answer requests on standard input until there are no more."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program that reads
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
    """Limits of time and memory that the kernel enforces; Windows and macOS lack some of them."""

    def __init__(self) -> None:
        import h5py  # noqa: F401

        pages = Path("/proc/self/statm")
        self._idle_bytes = (
            int(pages.read_text().split()[0]) * mmap.PAGESIZE if pages.exists() else 0
        )

    def wait(self) -> None:
        """End this process when the next request does not come."""
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.alarm(IDLE_SECONDS)

    def work(self, size: int, *, opening: bool) -> None:
        """End this process, or refuse it memory, when a request of so many bytes takes too much."""
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


def entries(group: Any, depth: int, path: str = "") -> Iterator[dict[str, Any]]:
    """What is in a group: paths, and of datasets with values their shapes and types."""
    import h5py

    for key in group:
        name = path + (key if isinstance(key, str) else str(key))  # bytes where it is not UTF-8
        if not isinstance(group.get(key, getlink=True), h5py.HardLink):
            raise ConfigError(f"{shown(name)} is a link, and links are not followed.")
        found = group[key]
        if isinstance(found, h5py.Dataset):
            _check_dataset(found, shown(name))
            if found.shape is not None:
                yield {"path": name, "shape": list(found.shape), "dtype": found.dtype.str}
                continue
        yield {"path": name}
        if isinstance(found, h5py.Group) and depth > 1:
            yield from entries(found, depth - 1, f"{name}/")


def rows(dataset: Any, start: int, stop: int) -> bytes:
    """Rows of a dataset of numbers, as they are in memory."""
    values = dataset[start:stop]
    if values.dtype.kind not in NUMBERS:
        raise ConfigError("it does not hold numbers.")
    data: bytes = values.tobytes()
    return data


def _check_dataset(dataset: Any, place: str) -> None:
    import h5py

    plist = dataset.id.get_create_plist()
    if plist.get_external_count():
        raise ConfigError(f"{place} has its values in another file, which is not opened.")
    if plist.get_layout() == h5py.h5d.VIRTUAL:
        raise ConfigError(f"{place} is a virtual dataset of other files, which are not opened.")
    for index in range(plist.get_nfilters()):
        code = plist.get_filter(index)[0]
        if code not in _FILTERS:
            raise ConfigError(f"{place} uses HDF5 filter {code}: store it with gzip or without.")

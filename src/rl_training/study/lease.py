"""Leases: permissions to train a run, without which a worker is killed, even while it is frozen.

A worker on another machine sends heartbeats and trains only while they are acknowledged. The kernel
kills it `seconds` after the last heartbeat that was acknowledged, whether the process runs, hangs
or is stopped. So a coordinator that has received no heartbeat for longer than that can give the run
to another worker, although it cannot reach the first one. Only the rates of the clocks matter, not
what they show.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable

from rl_training.errors import TrainingError

BEATS = 6
"""Heartbeats for each length of a lease."""

_BOOTTIME = 7
_ABSOLUTE = 1
_SIGKILL = 9


class _Event(ctypes.Structure):
    """A `struct sigevent`, which is 64 bytes long."""

    _fields_ = [
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("padding", ctypes.c_byte * 48),
    ]


class _Timer(ctypes.Structure):
    """A `struct itimerspec`."""

    _fields_ = [
        ("interval_seconds", ctypes.c_long),
        ("interval_nanoseconds", ctypes.c_long),
        ("seconds", ctypes.c_long),
        ("nanoseconds", ctypes.c_long),
    ]


def boot_time() -> float:
    """Return the seconds since the machine has started, including those in which it slept."""
    return time.clock_gettime(_BOOTTIME)


class KillTimer:
    """Kills this process at a time that can be moved; the kernel does so, so nothing prevents it.

    SIGKILL also ends a process that was stopped, before it runs another instruction.
    """

    def __init__(self) -> None:
        if sys.platform != "linux":
            raise TrainingError("Leases require Linux: run the workers of a cluster on Linux")
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._timer = ctypes.c_void_p()
        event = _Event(signal=_SIGKILL)
        self._call(self._libc.timer_create(_BOOTTIME, ctypes.byref(event), self._pointer))

    @property
    def _pointer(self) -> object:
        return ctypes.byref(self._timer)

    def set(self, moment: float) -> None:
        """Kill this process at this `boot_time`."""
        whole = int(moment)
        timer = _Timer(0, 0, whole, int((moment - whole) * 1e9))
        self._call(self._libc.timer_settime(self._timer, _ABSOLUTE, ctypes.byref(timer), None))

    def _call(self, result: int) -> None:
        if result != 0:
            code = ctypes.get_errno()
            raise TrainingError(f"The system gives no timer for a lease ({os.strerror(code)})")


class Lease:
    """The lease of this process: sends heartbeats, and is renewed by each acknowledgment."""

    def __init__(self, seconds: float, send: Callable[[int], None]) -> None:
        """Start the lease.

        Args:
            seconds: How long a heartbeat counts after it was sent.
            send: Sends a heartbeat with a number.
        """
        self._seconds = seconds
        self._send = send
        self._timer = KillTimer()
        self._granted = threading.Event()
        self._sent: dict[int, float] = {}
        self._timer.set(boot_time() + seconds)
        threading.Thread(target=self._beat, daemon=True).start()

    def wait(self) -> None:
        """Wait for the first acknowledgment, before which nothing may be written.

        A job may have been delayed on its way until the run was given to another worker. In that
        case nobody acknowledges, and this process is killed here.
        """
        self._granted.wait()

    def acknowledged(self, number: int) -> None:
        """Renew the lease: the coordinator has received this heartbeat."""
        sent = self._sent.get(number)
        if sent is None:
            return
        for older in [n for n in list(self._sent) if n <= number]:
            del self._sent[older]
        self._timer.set(sent + self._seconds)
        self._granted.set()

    def _beat(self) -> None:
        number = 0
        while True:
            number += 1
            self._sent[number] = boot_time()
            self._send(number)
            time.sleep(self._seconds / BEATS)

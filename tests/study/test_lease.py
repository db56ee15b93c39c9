"""Leases: the kernel ends a process whose heartbeats are not acknowledged."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tests.faults.processes import wait_until_gone

SECONDS = 1.2
PROGRAM = f"""
import sys, threading
from rl_training.study.lease import Lease
lease = Lease({SECONDS}, lambda number: print(number, flush=True))
threading.Thread(target=lambda: (lease.wait(), print("granted", flush=True)), daemon=True).start()
for line in sys.stdin:
    lease.acknowledged(int(line))
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="leases require Linux")
Process = subprocess.Popen[str]


@pytest.fixture
def start() -> Iterator[Callable[[], Process]]:
    started: list[Process] = []

    def start_process() -> Process:
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield start_process
    for process in started:
        process.kill()
        process.communicate()


def read(process: Process) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def acknowledge(process: Process, number: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{number}\n")
    process.stdin.flush()


def test_a_process_without_acknowledgments_is_killed(start: Callable[[], Process]) -> None:
    process = start()
    assert read(process) == "1"
    began = time.monotonic()
    assert process.wait(timeout=10) == -signal.SIGKILL
    assert 0.8 * SECONDS < time.monotonic() - began < SECONDS + 1.0
    assert process.stdout is not None
    assert "granted" not in process.stdout.read()


def test_acknowledgments_keep_a_process_alive(start: Callable[[], Process]) -> None:
    process = start()
    began, lines = time.monotonic(), []
    while time.monotonic() < began + 3 * SECONDS:
        lines.append(read(process))
        if lines[-1] != "granted":
            acknowledge(process, lines[-1])
    assert process.poll() is None
    assert "granted" in lines
    assert process.wait(timeout=10) == -signal.SIGKILL  # they stay away


def test_only_the_time_of_a_heartbeat_counts_not_that_of_its_acknowledgment(
    start: Callable[[], Process],
) -> None:
    process = start()
    first = read(process)
    began = time.monotonic()
    while time.monotonic() < began + 0.8 * SECONDS:
        read(process)
    acknowledge(process, first)
    acknowledge(process, "99")  # it was never sent
    assert process.wait(timeout=10) == -signal.SIGKILL
    assert time.monotonic() - began < 1.5 * SECONDS


def test_a_stopped_process_is_killed(start: Callable[[], Process]) -> None:
    """It does not run a single instruction more."""
    process = start()
    acknowledge(process, read(process))
    assert read(process)
    os.kill(process.pid, signal.SIGSTOP)
    assert wait_until_gone({process.pid}, 10) == set()
    assert process.wait() == -signal.SIGKILL

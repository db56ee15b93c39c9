"""A worker process: train the work that a coordinator sends, and report what happens.

The first line that a worker receives is a job, or a population of jobs. Later lines are requests to
stop, and every line back is an event. If the coordinator dies, the socket closes, and the worker
saves a checkpoint and exits.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rl_training.boundary.writing import open_log
from rl_training.study.jobs import ACKNOWLEDGED, Beat, Event, Job, parse_stop_line
from rl_training.study.lease import Lease
from rl_training.study.population_worker import train_population
from rl_training.study.populations import Population
from rl_training.study.worker import StopRequest, train_job

GRACE_SECONDS = 60.0
"""How long a worker may take to save a checkpoint after the coordinator has died."""


class Requests:
    """Requests of the coordinator to stop one run or all of them."""

    def __init__(self, keys: Iterable[str]) -> None:
        self.by_key = {key: StopRequest() for key in keys}

    def receive(self, line: str) -> None:
        """Handle a line from `stop_line`."""
        reason, wanted = parse_stop_line(line)
        for key, request in self.by_key.items():
            if wanted in (None, key):
                request.set(reason)

    def interrupt(self) -> None:
        """Request that all runs stop so that they can be resumed."""
        for request in self.by_key.values():
            request.interrupt()


def serve(connection: socket.socket) -> int:
    """Train what a socket receives, and send events to it; return the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the coordinator decides what Ctrl-C means
    lines = connection.makefile("rb")
    line = lines.readline()
    if not line:  # the coordinator has already died
        return 1
    work = parse_work(line)
    jobs = [work] if isinstance(work, Job) else work.jobs
    first = jobs[0]
    requests = Requests(job.key for job in jobs)
    signal.signal(signal.SIGTERM, lambda *_: requests.interrupt())
    sending = threading.Lock()

    def report(event: Event) -> None:
        with sending, suppress(OSError):  # `_listen` notices a dead coordinator
            connection.sendall(event.to_json().encode() + b"\n")

    lease = None
    if first.lease is not None:
        lease = Lease(first.lease, lambda number: report(Beat(first.key, number)))
    threading.Thread(target=_listen, args=(lines, requests, lease), daemon=True).start()
    if lease is not None:
        lease.wait()
    _print_to(first.log)
    _limit_gpu(first)
    if isinstance(work, Job):
        report(train_job(work, report, requests.by_key[work.key]))
    else:
        train_population(work, report, requests.by_key)
    return 0


def parse_work(line: bytes) -> Job | Population:
    """Read the work of a process."""
    data = json.loads(line)
    return Population.from_dict(data) if "rows" in data else Job.from_dict(data)


def _listen(lines: Any, requests: Requests, lease: Lease | None) -> None:
    """Wait for requests to stop; when the coordinator dies, stop and exit."""
    with suppress(OSError):
        for line in lines:
            text = line.decode().strip()
            if lease is not None and text.startswith(ACKNOWLEDGED):
                lease.acknowledged(int(text.removeprefix(ACKNOWLEDGED)))
            else:
                requests.receive(text)
    requests.interrupt()
    time.sleep(GRACE_SECONDS)
    os._exit(1)


def _print_to(log: Path) -> None:
    """Redirect standard output and standard error to a file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    stream = open_log(log)
    for standard in (sys.stdout, sys.stderr):
        standard.flush()
    for descriptor in (1, 2):
        os.dup2(stream.fileno(), descriptor)


def _limit_gpu(job: Job) -> None:
    """Use the assigned GPU, and only the assigned share of its memory."""
    if job.gpu is None:
        return
    os.environ["CUDA_VISIBLE_DEVICES"] = job.gpu
    if job.resources.gpus < 1:
        import torch

        torch.cuda.set_per_process_memory_fraction(job.resources.gpus)


def main() -> None:
    """Run a worker with the socket whose descriptor is the first argument."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.set_inheritable(False)
    sys.exit(serve(connection))


if __name__ == "__main__":
    main()

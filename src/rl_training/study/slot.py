"""A slot: a place on a node of a cluster where one run at a time is trained.

A slot has the resources of one run. It starts a new process for every run, like the local executor,
and passes on what the process reports. The executor of the cluster calls `exchange` again and again
while a run is active.
"""

from __future__ import annotations

import os
import platform
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from rl_training.study.jobs import Event, Job
from rl_training.study.launching import ForkServer, Launcher
from rl_training.study.local_executor import LocalExecutor
from rl_training.study.resources import Budget
from rl_training.study.shared_storage import Token

ENOUGH = 2.0**20
"""Number of cores that is never reached: the cluster has counted them."""


@dataclass(frozen=True)
class Welcome:
    """The first message of a slot."""

    node: str
    """Id of the node."""
    host: str
    """Name of the machine."""
    answer: str
    """Name under which the slot has answered the token; several slots of a node do so at once."""
    problem: str | None = None
    """Why runs cannot be trained there."""


@dataclass(frozen=True)
class Order:
    """What a slot should do."""

    job: str | None = None
    """A job to start, as JSON."""
    lines: tuple[str, ...] = ()
    """Lines for the worker: acknowledgments and requests to stop."""
    kill: bool = False
    """Whether to end the worker without a checkpoint."""
    seconds: float = 0.0
    """How long to wait for events."""


@dataclass(frozen=True)
class Reply:
    """What has happened in a slot since the last order."""

    events: Sequence[Event]
    is_busy: bool
    """Whether a worker is still running."""


class Slot:
    """Trains one run at a time in a process of its own."""

    def __init__(
        self,
        token: Token,
        *,
        node: str,
        folder: str,
        gpus: Sequence[str] = (),
        launcher: Launcher | None = None,
    ) -> None:
        """Create a slot.

        Args:
            token: Is answered to show that this machine sees the folder of the study.
            node: Id of the node.
            folder: Working directory of the workers; if it does not exist here, the study's folder.
            gpus: The GPUs of the slot, as in CUDA_VISIBLE_DEVICES.
            launcher: Starts the workers.
        """
        name = f"{node}-{secrets.token_hex(4)}"
        self._welcome = Welcome(node, platform.node(), name, token.answer(name))
        self.folder = folder if os.path.isdir(folder) else token.study
        """Working directory of the workers."""
        launcher = launcher or ForkServer(self.folder)
        self._executor = LocalExecutor(Budget(ENOUGH, 0, list(gpus)), launcher)

    def welcome(self) -> Welcome:
        """Return where the slot is."""
        return self._welcome

    def exchange(self, order: Order) -> Reply:
        """Do what an order says, then wait for events."""
        executor = self._executor
        if order.job is not None:
            executor.submit(Job.from_json(order.job))
        for line in order.lines:
            executor.send(line)
        if order.kill:
            executor.kill()
        events = () if executor.is_idle else executor.wait(order.seconds)
        return Reply(tuple(events), is_busy=not executor.is_idle)

    def close(self) -> None:
        """End the worker, which saves a checkpoint."""
        self._executor.close()

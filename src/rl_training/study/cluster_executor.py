"""The executor for clusters: slots on nodes, heartbeats, and runs whose node is lost.

The cluster itself is a `Cluster`, such as `study/ray_cluster.py`. What is decided here is the same
for each: a slot is requested for a run, kept for further runs with the same needs, and given back
when it is idle. A worker trains only while its heartbeats are acknowledged (`study/lease.py`). When
they stay away, the lease is allowed to expire, the run is taken from its worker
(`study/fencing.py`), and the coordinator starts it elsewhere.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from rl_training.errors import ConfigError
from rl_training.runtime.stop_reason import StopReason
from rl_training.study.fencing import fence, set_epoch
from rl_training.study.jobs import ACKNOWLEDGED, Beat, Busy, Ended, Event, Job, Started
from rl_training.study.records import RunStatus
from rl_training.study.resources import Budget, Resources, size_text
from rl_training.study.shared_storage import ADVICE, Token
from rl_training.study.slot import Order, Reply, Welcome
from rl_training.study.worker import describe_attempt

LEASE_SECONDS = 60.0
"""How long a worker trains without an acknowledgment of its heartbeats."""
MARGIN = 1.25
"""A run is given to another worker after this multiple of the lease, as clocks may differ."""
EXCHANGE_SECONDS = 1.0
"""How long a slot waits for events before it replies."""
IMPORT_SECONDS = 600.0
"""How long the first heartbeat of a worker may take, while it imports the package."""
IDLE_SECONDS = 5.0
"""How long a slot is kept without a run."""
NODES_SECONDS = 5.0
"""How long the list of nodes is used."""
SUSPECT_SECONDS = 600.0
"""How long no runs are started on a node that was lost."""
KILL_SECONDS = 5.0
"""How long the second Ctrl-C waits until all workers were killed."""


class SlotLostError(Exception):
    """A slot does not exist any more."""


@dataclass(frozen=True)
class Node:
    """A machine of a cluster."""

    id: str
    name: str
    cores: float
    memory: int
    """In bytes; 0 for no limit."""
    gpus: int = 0

    def budget(self) -> Budget:
        """Return what the node has."""
        return Budget(self.cores, self.memory, [str(number) for number in range(self.gpus)])


class Cluster(Protocol):
    """What the executor needs of a cluster; handles and calls are opaque, and calls hashable."""

    def connect(self) -> None:
        """Connect; raise a ConfigError if there is no cluster."""

    def nodes(self) -> list[Node]:
        """Return the nodes that are alive."""

    def probe(self, token: Token, nodes: Sequence[Node]) -> dict[str, str | None]:
        """Let nodes answer a token; return what is wrong with each node, by its id."""

    def start(
        self, need: Resources, token: Token, folder: str, avoid: Sequence[str]
    ) -> tuple[Any, Any]:
        """Request a slot, not on the nodes ``avoid``; return a handle, and a call of `welcome`."""

    def call(self, handle: Any, order: Order) -> Any:
        """Call `exchange` of a slot, and return the call without waiting for it."""

    def wait(self, calls: Sequence[Any], seconds: float) -> Sequence[Any]:
        """Wait for the first of some calls, perhaps none, and return all that are done."""

    def result(self, call: Any) -> Welcome | Reply:
        """Return the result of a call that is done; raise a SlotLostError if there is none."""

    def end(self, handle: Any) -> None:
        """End a slot, or withdraw the request for it; its worker saves a checkpoint."""

    def close(self) -> None:
        """Disconnect."""


@dataclass(eq=False)
class _Slot:
    """A slot, as the executor sees it."""

    handle: Any
    need: Resources
    call: Any
    """The call that is not done yet; None if the slot is idle."""
    job: Job | None = None
    """The run that it trains, or will train."""
    welcome: Welcome | None = None
    """None until the slot exists."""
    answered: float = 0.0
    """Time of its last reply."""
    dispatched: float = 0.0
    """Time at which the job was sent."""
    heard: float | None = None
    """Time at which the last heartbeat of the worker arrived."""
    has_started: bool = False
    """Whether the worker has the lock of the run."""
    lines: list[str] = field(default_factory=list)
    """Lines for the worker, which the next order contains."""

    @property
    def is_idle(self) -> bool:
        return self.call is None


@dataclass(frozen=True)
class _Lost:
    """A run whose worker cannot be reached, but may still train."""

    job: Job
    until: float
    """Time after which its lease has expired."""
    reason: str
    has_started: bool
    """Whether the worker has the lock of the run."""


class ClusterExecutor:
    """Trains each run in a process of its own on some node of a cluster."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        lease: float = LEASE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create an executor; it connects when it is used.

        Args:
            cluster: The cluster.
            lease: How many seconds a worker trains without an acknowledgment of its heartbeats. A
                run of a lost node is started elsewhere after 1.25 times as long.
            clock: Returns the time in seconds.
        """
        if not lease > 0:
            raise ConfigError(f"lease = {lease}: should be more than 0 seconds.")
        self._cluster = cluster
        self._lease = lease
        self._clock = clock
        self._slots: list[_Slot] = []
        self._lost: list[_Lost] = []
        self._events: list[Event] = []
        """Events that do not come from a slot."""
        self._token: Token | None = None
        self._is_connected = False
        self._nodes: list[Node] = []
        self._nodes_at = float("-inf")
        self._suspects: dict[str, float] = {}
        """Nodes that were lost, with the time at which they are used again."""

    @property
    def patience(self) -> float:
        """Seconds without a heartbeat after which a run is started elsewhere."""
        return MARGIN * self._lease

    # --- What the cluster has -------------------------------------------------------------

    def prepare(self, study: Path) -> None:
        """Check that all nodes see the folder of a study.

        Raises:
            ConfigError: A node does not, or has another version of the package.
        """
        if self._token is not None:
            self._token.remove()
        self._token = token = Token.create(study)
        nodes = self._some_nodes()
        problems = self._cluster.probe(token, nodes)
        for node in nodes:
            self._check_answer(node.name, node.id, problems.get(node.id))

    def _check_answer(self, name: str, answer: str, problem: str | None) -> None:
        """Raise a ConfigError if a node has a problem, or has answered in another folder."""
        assert self._token is not None
        if problem is None and not self._token.was_answered(answer):
            problem = f"has another folder at {self._token.study}: {ADVICE}"
        if problem is not None:
            raise ConfigError(f"Node {name} {problem}")

    def check(self, need: Resources, what: str) -> None:
        """Raise a ConfigError if a job with these needs would never fit."""
        nodes = self._some_nodes()
        if any(node.budget().at_once(need) for node in nodes):
            return
        most = {
            "cpus": (need.cpus, max(node.cores for node in nodes), "{:g} cores"),
            "gpus": (need.gpus, max(node.gpus for node in nodes), "{:g} of a GPU"),
            "memory": (need.memory, max(node.memory for node in nodes), ""),
        }
        for key, (needed, available, text) in most.items():
            if needed > available and (key != "memory" or available):
                wanted = text.format(needed) if text else f"{size_text(needed)} of memory"
                has = size_text(available) if key == "memory" else f"{available:g}"
                raise ConfigError(
                    f"{what} needs {wanted}, but no node of the cluster has more than {has}: add "
                    f"a larger node, or set resources.{key}."
                )
        raise ConfigError(
            f"{what} needs {need.cpus:g} cores, {need.gpus:g} GPUs and {size_text(need.memory)} of "
            "memory, but no node of the cluster has all of them: add a larger node, or set "
            "resources."
        )

    def at_once(self, need: Resources) -> int:
        """Return how many jobs with these needs fit at the same time."""
        return sum(node.budget().at_once(need) for node in self._usable_nodes())

    def _some_nodes(self) -> list[Node]:
        """Return the nodes on which runs may start; raise a ConfigError if there are none."""
        nodes = self._usable_nodes()
        if not nodes:
            raise ConfigError("The cluster has no nodes: start some, then try again.")
        return nodes

    def _usable_nodes(self) -> list[Node]:
        """Return the nodes on which runs may start."""
        if not self._is_connected:
            self._cluster.connect()
            self._is_connected = True
        now = self._clock()
        if now >= self._nodes_at + NODES_SECONDS:
            self._nodes, self._nodes_at = self._cluster.nodes(), now
        self._suspects = {node: until for node, until in self._suspects.items() if until > now}
        return [node for node in self._nodes if node.id not in self._suspects]

    def _fits(self, need: Resources) -> bool:
        """Return whether there is room for another slot."""
        budgets = {node.id: node.budget() for node in self._usable_nodes()}
        for number, slot in enumerate(self._slots):
            where = slot.welcome.node if slot.welcome is not None else None
            _take(budgets, f"slot {number}", slot.need, where)
        return _take(budgets, "new", need, None)

    # --- Starting -------------------------------------------------------------------------

    def submit(self, job: Job) -> bool:
        """Start a job if there is room for it now; return whether it was started.

        The cluster may be in use by others. If so, the job waits for its slot.
        """
        for slot in self._slots:
            if slot.is_idle and slot.need == job.resources:
                self._dispatch(slot, job)
                return True
        if not self._fits(job.resources):
            for slot in [slot for slot in self._slots if slot.is_idle]:  # others need the room
                self._remove(slot)
            if not self._fits(job.resources):
                return False
        assert self._token is not None
        avoid = list(self._suspects)
        handle, call = self._cluster.start(job.resources, self._token, os.getcwd(), avoid)
        self._slots.append(_Slot(handle, job.resources, call, job))
        return True

    def _dispatch(self, slot: _Slot, job: Job) -> None:
        """Send a job to a slot, whose worker waits until its first heartbeat is acknowledged."""
        slot.job = job = replace(job, lease=self._lease, epoch=secrets.token_hex(16))
        set_epoch(job)
        slot.dispatched = slot.answered = self._clock()
        slot.heard, slot.has_started = None, False
        slot.lines.clear()
        self._call(slot, job.to_json())

    def _call(self, slot: _Slot, job: str | None = None) -> None:
        order = Order(job, tuple(slot.lines), seconds=EXCHANGE_SECONDS)
        slot.lines.clear()
        slot.call = self._cluster.call(slot.handle, order)

    # --- Events ---------------------------------------------------------------------------

    def wait(self, seconds: float) -> Sequence[Event]:
        """Return the events since the last call; wait for the first one for up to ``seconds``."""
        calls = {slot.call: slot for slot in self._slots if slot.call is not None}
        if self._events:
            seconds = 0.0
        for call in self._cluster.wait(list(calls), seconds):
            self._events += self._receive(calls[call])
        self._hand_over()
        self._find_lost()
        self._events += self._expired()
        self._release_idle()
        events, self._events = self._events, []
        return events

    def _receive(self, slot: _Slot) -> Sequence[Event]:
        """Handle the result of a slot's call."""
        call, slot.call = slot.call, None
        slot.answered = self._clock()
        try:
            reply = self._cluster.result(call)
        except SlotLostError as error:
            where = "a node" if slot.welcome is None else f"node {slot.welcome.host}"
            self._lose(slot, f"{where} was lost ({error})")
            return []
        if isinstance(reply, Welcome):
            self._enter(slot, reply)
            return []
        return list(self._handle(slot, reply))

    def _enter(self, slot: _Slot, welcome: Welcome) -> None:
        """Use a slot that exists now."""
        slot.welcome = welcome
        self._check_answer(welcome.host, welcome.answer, welcome.problem)
        if slot.job is not None:
            self._dispatch(slot, slot.job)

    def _handle(self, slot: _Slot, reply: Reply) -> Iterator[Event]:
        """Acknowledge heartbeats, yield other events, and ask for more while there is a worker."""
        for event in reply.events:
            if isinstance(event, Beat):
                slot.heard = slot.answered
                slot.lines.append(f"{ACKNOWLEDGED}{event.number}")
                continue
            slot.has_started |= isinstance(event, Started)
            if isinstance(event, Ended | Busy):
                slot.job = None
            yield event
        if reply.is_busy:
            self._call(slot)

    def _hand_over(self) -> None:
        """Give runs that wait for a new slot to slots that have become idle."""
        for slot in [slot for slot in self._slots if slot.is_idle]:
            for other in self._slots:
                if other.welcome is None and other.job is not None and other.need == slot.need:
                    self._remove(other)
                    self._dispatch(slot, other.job)
                    break

    # --- Losses ---------------------------------------------------------------------------

    def _find_lost(self) -> None:
        """Give up slots that do not reply, or whose worker sends no heartbeats."""
        now = self._clock()
        for slot in list(self._slots):
            if slot.welcome is None or slot.job is None:
                continue
            silent = now - (slot.heard if slot.heard is not None else slot.answered)
            if silent > self.patience:
                self._suspect(slot.welcome.node)
                self._lose(slot, f"node {slot.welcome.host} sent no heartbeat for {silent:.0f} s")
            elif slot.heard is None and now - slot.dispatched > IMPORT_SECONDS:
                self._lose(slot, f"a worker on {slot.welcome.host} did not start")

    def _suspect(self, node: str) -> None:
        """Start no runs on a node for some time."""
        self._suspects[node] = self._clock() + SUSPECT_SECONDS
        self._nodes_at = float("-inf")
        for slot in list(self._slots):
            if slot.is_idle and slot.welcome is not None and slot.welcome.node == node:
                self._remove(slot)

    def _lose(self, slot: _Slot, reason: str) -> None:
        """Give up a slot; its run, if any, ends when its worker cannot train any more."""
        self._remove(slot)
        self._nodes_at = float("-inf")
        if slot.job is None:
            return
        # Without an acknowledgment, the worker has not begun.
        until = self._clock() if slot.heard is None else slot.heard + self.patience
        self._lost.append(_Lost(slot.job, until, reason, slot.has_started))

    def _expired(self) -> Iterator[Event]:
        """Yield the ends of lost runs whose lease has expired."""
        now = self._clock()
        expired = [lost for lost in self._lost if lost.until <= now]
        self._lost = [lost for lost in self._lost if lost.until > now]
        for lost in expired:
            job = lost.job
            fence(job, holds_locks=lost.has_started)
            yield describe_attempt(job.key, job.run_dir, RunStatus.FAILED, reason=lost.reason)

    def _remove(self, slot: _Slot) -> None:
        self._slots.remove(slot)
        self._cluster.end(slot.handle)

    def _release_idle(self) -> None:
        """Give back slots that have had no run for some time."""
        oldest = self._clock() - IDLE_SECONDS
        for slot in [slot for slot in self._slots if slot.is_idle and slot.answered < oldest]:
            self._remove(slot)

    # --- Ending ---------------------------------------------------------------------------

    def stop(self, reason: StopReason, key: str | None = None) -> None:
        """Request that one job or all jobs save a checkpoint and end."""
        for slot in list(self._slots):
            job = slot.job
            if job is None or key not in (None, job.key):
                continue
            if slot.welcome is not None:
                slot.lines.append(str(reason))
                continue
            self._remove(slot)  # it has not begun
            self._events.append(
                describe_attempt(job.key, job.run_dir, RunStatus.INTERRUPTED, reason=str(reason))
            )

    def kill(self) -> None:
        """End all jobs immediately, without a checkpoint."""
        busy = [slot for slot in self._slots if slot.welcome is not None and slot.job is not None]
        calls = {self._cluster.call(slot.handle, Order(kill=True)) for slot in busy}
        deadline = time.monotonic() + KILL_SECONDS
        while calls and time.monotonic() < deadline:
            calls -= set(self._cluster.wait(list(calls), deadline - time.monotonic()))

    def release(self) -> None:
        """Give back everything that is held for further jobs."""
        for slot in list(self._slots):
            self._remove(slot)
        if self._token is not None:
            self._token.remove()
            self._token = None
        self._lost.clear()
        self._events.clear()

    def close(self) -> None:
        """End everything that the executor has started."""
        self.release()
        if self._is_connected:
            self._cluster.close()
            self._is_connected = False


def _take(budgets: dict[str, Budget], name: str, need: Resources, node: str | None) -> bool:
    """Reserve resources on a node, or on the first one that has enough; return whether it had."""
    where = list(budgets.values()) if node is None else [budgets[node]] if node in budgets else []
    for budget in where:
        with suppress(LookupError):
            budget.take(name, need)
            return True
    return False

"""A cluster in simulated time, whose nodes can be cut off, frozen or killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_training.study.cluster_executor import Node, SlotLostError
from rl_training.study.jobs import ACKNOWLEDGED, Beat, Ended, Event, Job, Progress, Started
from rl_training.study.lease import BEATS
from rl_training.study.records import RunStatus
from rl_training.study.resources import Resources
from rl_training.study.shared_storage import Token
from rl_training.study.slot import Order, Reply, Welcome
from tests.study.simulated import HOST

TICK = 0.25


@dataclass(eq=False)
class FakeNode:
    """A node and what has happened to it."""

    facts: Node
    is_cut: bool = False
    """Nothing arrives there or from there, but its processes continue."""
    is_frozen: bool = False
    """Its processes do not run, except that the kernel ends those whose lease expires."""
    is_dead: bool = False
    """The cluster has lost it, but its processes may continue."""
    problem: str | None = None

    @property
    def is_reachable(self) -> bool:
        return not (self.is_cut or self.is_frozen)


@dataclass(eq=False)
class FakeWorker:
    """A worker: sends heartbeats, and trains once the first one is acknowledged."""

    job: Job
    began: float
    duration: float
    events: list[Event] = field(default_factory=list)
    sent: dict[int, float] = field(default_factory=dict)
    expires: float = 0.0
    trained: float | None = None
    """Seconds of training; None before the first acknowledgment."""
    stop: str | None = None
    is_alive: bool = True

    def __post_init__(self) -> None:
        assert self.job.lease is not None
        self.lease = self.job.lease
        self.expires = self.began + self.lease

    def obey(self, line: str, now: float) -> None:
        if not line.startswith(ACKNOWLEDGED):
            self.stop = line
            return
        self.expires = self.sent[int(line.removeprefix(ACKNOWLEDGED))] + self.lease
        if self.trained is None:
            self.trained = 0.0
            self.events.append(Started(self.job.key, 1, HOST))

    def run(self, now: float) -> None:
        """Run for one tick."""
        last = max(self.sent.values(), default=float("-inf"))
        if now >= last + self.lease / BEATS:
            self.sent[len(self.sent) + 1] = now
            self.events.append(Beat(self.job.key, len(self.sent)))
        if self.trained is None:
            return
        self.trained += TICK
        self.events.append(Progress(self.job.key, int(self.trained), 100, "steps"))
        status = RunStatus.FINISHED if self.trained >= self.duration else None
        status = RunStatus.INTERRUPTED if self.stop and status is None else status
        if status is not None:
            self.events.append(Ended(self.job.key, status, step=100, reason=self.stop))
            self.is_alive = False


@dataclass(eq=False)
class FakeSlot:
    node: FakeNode | None
    """None while the cluster has no room for it."""
    need: Resources
    worker: FakeWorker | None = None
    is_ended: bool = False

    @property
    def answer(self) -> str:
        """Name under which the slot answers the token."""
        return f"slot-{id(self)}"


@dataclass(eq=False)
class FakeCall:
    slot: FakeSlot
    order: Order | None
    """None for `welcome`."""
    until: float
    was_received: bool = False


class FakeCluster:
    """A cluster in simulated time."""

    def __init__(self, nodes: int = 3, cores: float = 1.0, duration: float = 10.0) -> None:
        self.now = 0.0
        self.duration = duration
        self.fake_nodes = [
            FakeNode(Node(f"id{number}", f"node{number}", cores, 0)) for number in range(nodes)
        ]
        self.slots: list[FakeSlot] = []
        self.workers: list[FakeWorker] = []
        self.is_connected = False
        self.most_at_once: Counter[str] = Counter()
        """Largest number of workers that have trained each run at the same time."""
        self.answers_elsewhere = False

    # --- The interface ------------------------------------------------------------------

    def connect(self) -> None:
        assert not self.is_connected
        self.is_connected = True

    def nodes(self) -> list[Node]:
        return [node.facts for node in self.fake_nodes if not node.is_dead]

    def probe(self, token: Token, nodes: Sequence[Node]) -> dict[str, str | None]:
        here = token
        if self.answers_elsewhere:
            here = Token(str(Path(token.study) / "another"), token.text)
            here.file.parent.mkdir(parents=True)
            here.file.write_text(token.text)
        problems = {node.facts.id: node.problem for node in self.fake_nodes}
        return {node.id: problems[node.id] or here.answer(node.id) for node in nodes}

    def start(
        self, need: Resources, token: Token, folder: str, avoid: Sequence[str]
    ) -> tuple[Any, Any]:
        slot = FakeSlot(self._place(need, avoid), need)
        self.slots.append(slot)
        if slot.node is not None:
            assert token.answer(slot.answer) is None
        return slot, FakeCall(slot, None, self.now + 2 * TICK)

    def _place(self, need: Resources, avoid: Sequence[str]) -> FakeNode | None:
        for node in self.fake_nodes:
            used = sum(s.need.cpus for s in self.slots if s.node is node and not s.is_ended)
            room = used + need.cpus <= node.facts.cores
            if room and node.facts.id not in avoid and not node.is_dead:
                return node
        return None

    def call(self, handle: FakeSlot, order: Order) -> FakeCall:
        return FakeCall(handle, order, self.now + order.seconds)

    def wait(self, calls: Sequence[FakeCall], seconds: float) -> Sequence[FakeCall]:
        deadline = self.now + seconds
        while True:
            done = [call for call in calls if self._is_done(call)]
            if done or self.now >= deadline:
                return done
            self.tick()

    def result(self, call: FakeCall) -> Welcome | Reply:
        node, worker = call.slot.node, call.slot.worker
        assert node is not None
        if node.is_dead:
            raise SlotLostError("its machine died")
        if call.order is None:
            return Welcome(node.facts.id, node.facts.name, call.slot.answer, node.problem)
        events = () if worker is None else tuple(worker.events)
        if worker is not None:
            worker.events.clear()
        return Reply(events, is_busy=worker is not None and worker.is_alive)

    def end(self, handle: FakeSlot) -> None:
        handle.is_ended = True

    def close(self) -> None:
        assert self.is_connected
        self.is_connected = False

    # --- Time ---------------------------------------------------------------------------

    def tick(self) -> None:
        """Let time pass for all workers."""
        self.now += TICK
        training: Counter[str] = Counter()
        for slot in self.slots:
            worker = slot.worker
            if worker is None or not worker.is_alive or slot.node is None:
                continue
            if self.now >= worker.expires:
                worker.is_alive = False
                worker.events.append(Ended(worker.job.key, RunStatus.FAILED, reason="SIGKILL"))
            elif not slot.node.is_frozen:
                worker.run(self.now)
            training[worker.job.key] += worker.is_alive and worker.trained is not None
        self.most_at_once |= training

    def _is_done(self, call: FakeCall) -> bool:
        node = call.slot.node
        if node is None:
            return False
        if node.is_dead:
            return True
        if not node.is_reachable or call.slot.is_ended:
            return False
        self._receive(call)
        worker = call.slot.worker
        return self.now >= call.until or bool(worker and worker.events)

    def _receive(self, call: FakeCall) -> None:
        """Let an order arrive at its slot."""
        if call.was_received or call.order is None:
            return
        call.was_received = True
        if call.order.job is not None:
            job = Job.from_json(call.order.job)
            call.slot.worker = FakeWorker(job, self.now, self.duration)
            self.workers.append(call.slot.worker)
        worker = call.slot.worker
        if worker is None:
            return
        for line in call.order.lines:
            worker.obey(line, self.now)
        if call.order.kill:
            worker.is_alive = False

"""The executor for clusters: slots, leases and lost nodes, in simulated time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rl_training.boundary.locking import hold_lock, is_held
from rl_training.errors import ConfigError
from rl_training.runtime.stop_reason import StopReason
from rl_training.study import cluster_executor
from rl_training.study.cluster_executor import ClusterExecutor, Node
from rl_training.study.jobs import Busy, Ended, Event, Job, Started
from rl_training.study.records import LOCKS, RunStatus
from rl_training.study.resources import Resources
from tests.study.fake_cluster import TICK, FakeCluster, FakeNode

LEASE = 6.0
SIGTERM = StopReason.parse("signal: SIGTERM")


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., ClusterExecutor]:
    """Return a function that makes an executor for a simulated cluster and a study."""

    def make_executor(cluster: FakeCluster) -> ClusterExecutor:
        return executor_for(cluster, tmp_path / "study")

    return make_executor


def executor_for(cluster: FakeCluster, study: Path) -> ClusterExecutor:
    executor = ClusterExecutor(cluster, lease=LEASE, clock=lambda: cluster.now)
    study.mkdir(exist_ok=True)
    executor.prepare(study)
    return executor


def job(study: Path, number: int, cpus: float = 1.0) -> Job:
    return Job(str(study), f"sac/task/seed{number}", {}, Resources(cpus), is_named=True)


def jobs(study: Path, count: int) -> list[Job]:
    return [job(study, number) for number in range(count)]


def train(
    executor: ClusterExecutor,
    cluster: FakeCluster,
    wanted: Sequence[Job],
    at: Callable[[float], object] = lambda now: None,
    limit: float = 500.0,
) -> list[Event]:
    """Train jobs like the coordinator: those that fail are submitted again."""
    queue, active, events = deque(wanted), dict[str, Job](), list[Event]()
    while queue or active:
        assert cluster.now < limit, events[-5:]
        at(cluster.now)
        while queue and executor.submit(queue[0]):
            started = queue.popleft()
            active[started.key] = started
        if not active:
            cluster.tick()
        for event in executor.wait(TICK):
            events.append(event)
            if isinstance(event, Ended | Busy):
                ended = active.pop(event.key)
                if not (isinstance(event, Ended) and event.status.has_ended):
                    queue.append(ended)
    return events


def ends(events: Sequence[Event]) -> list[tuple[str, RunStatus]]:
    return [(e.key, e.status) for e in events if isinstance(e, Ended)]


def test_all_runs_are_trained(make: Callable[..., Any], tmp_path: Path) -> None:
    cluster = FakeCluster(nodes=3)
    executor = make(cluster)
    wanted = jobs(tmp_path / "study", 8)
    events = train(executor, cluster, wanted)
    assert sorted(ends(events)) == [(job.key, RunStatus.FINISHED) for job in wanted]
    assert sum(isinstance(event, Started) for event in events) == 8
    assert len(cluster.slots) == 3  # a slot is used again
    assert max(cluster.most_at_once.values()) == 1
    assert cluster.now < 8 / 3 * 10.0 + 10.0
    executor.close()
    assert all(slot.is_ended for slot in cluster.slots)
    assert not cluster.is_connected
    assert not list((tmp_path / "study" / LOCKS).glob("shared-*"))


def test_idle_slots_are_given_back(make: Callable[..., Any], tmp_path: Path) -> None:
    cluster = FakeCluster(nodes=2)
    executor = make(cluster)
    train(executor, cluster, jobs(tmp_path / "study", 2))
    cluster.now += cluster_executor.IDLE_SECONDS + 1
    executor.submit(job(tmp_path / "study", 7))
    executor.wait(TICK)
    assert sum(slot.is_ended for slot in cluster.slots) == 1


def test_a_run_takes_a_slot_that_becomes_idle_before_its_own_exists(
    make: Callable[..., Any], tmp_path: Path
) -> None:
    """The cluster is smaller than it seems, for example because others use it."""
    cluster = FakeCluster(nodes=1, duration=3.0)
    executor = make(cluster)
    hidden = FakeNode(Node("hidden", "hidden", 1.0, 0))
    cluster.nodes = lambda: [cluster.fake_nodes[0].facts, hidden.facts]  # type: ignore[method-assign]
    cluster.now += cluster_executor.NODES_SECONDS
    train(executor, cluster, jobs(tmp_path / "study", 2))
    first, second = cluster.workers
    assert second.began < first.began + 3.0 + cluster_executor.IDLE_SECONDS
    assert cluster.slots[1].is_ended


def test_other_needs_get_the_room_of_idle_slots(make: Callable[..., Any], tmp_path: Path) -> None:
    cluster = FakeCluster(nodes=1, cores=2.0)
    executor = make(cluster)
    study = tmp_path / "study"
    small, large = job(study, 0, 1.0), job(study, 1, 2.0)
    events = train(executor, cluster, [small, large])
    assert ends(events) == [(small.key, RunStatus.FINISHED), (large.key, RunStatus.FINISHED)]
    first, second = cluster.workers
    assert second.began < first.began + cluster.duration + 4.0 < cluster_executor.IDLE_SECONDS + 10


@pytest.mark.parametrize("fault", ["is_cut", "is_frozen"])
def test_a_run_whose_heartbeats_stay_away_moves_to_another_node(
    make: Callable[..., Any], tmp_path: Path, fault: str
) -> None:
    cluster = FakeCluster(nodes=2, duration=20.0)
    executor = make(cluster)

    def at(now: float) -> None:
        if now >= 5.0:
            setattr(cluster.fake_nodes[0], fault, True)

    events = train(executor, cluster, jobs(tmp_path / "study", 2), at)
    failed = [event for event in events if isinstance(event, Ended) and not event.status.has_ended]
    (failure,) = failed
    assert failure.key == "sac/task/seed0"
    assert failure.status is RunStatus.FAILED
    assert failure.can_retry
    assert failure.reason == "node node0 sent no heartbeat for 8 s"
    assert max(cluster.most_at_once.values()) == 1
    assert {s.node for s in cluster.slots} == {cluster.fake_nodes[0], cluster.fake_nodes[1]}
    first, *_, last = [w for w in cluster.workers if w.job.key == failure.key]
    assert last.began > first.expires
    assert last.job.epoch != first.job.epoch


def test_a_run_of_a_dead_node_waits_until_its_lease_has_expired(
    make: Callable[..., Any], tmp_path: Path
) -> None:
    """The node may be alive, although the cluster says that it is dead."""
    cluster = FakeCluster(nodes=3, duration=20.0)
    executor = make(cluster)

    def at(now: float) -> None:
        cluster.fake_nodes[0].is_dead = now >= 5.0

    events = train(executor, cluster, jobs(tmp_path / "study", 2), at)
    reasons = [e.reason for e in events if isinstance(e, Ended) and not e.status.has_ended]
    assert reasons == ["node node0 was lost (its machine died)"]
    lost, _, again = cluster.workers
    assert again.job.key == lost.job.key
    assert again.began > lost.expires


def test_a_job_that_arrives_late_does_not_train(make: Callable[..., Any], tmp_path: Path) -> None:
    """The order is on its way to a frozen node when the run is given to another one."""
    cluster = FakeCluster(nodes=2, duration=30.0)
    executor = make(cluster)
    node = cluster.fake_nodes[0]

    def at(now: float) -> None:
        node.is_frozen = bool(cluster.slots) and now < 25.0 and cluster.now >= 2 * TICK

    cluster.slots.clear()
    events = train(executor, cluster, jobs(tmp_path / "study", 1), at)
    assert ends(events)[-1] == ("sac/task/seed0", RunStatus.FINISHED)
    assert max(cluster.most_at_once.values()) == 1
    assert {slot.node for slot in cluster.slots} == set(cluster.fake_nodes)


FAULTS = st.lists(
    st.tuples(
        st.floats(0, 60),
        st.integers(0, 2),
        st.sampled_from(["is_cut", "is_frozen", "is_dead"]),
        st.floats(0.5, 40),
    ),
    max_size=6,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(faults=FAULTS)
def test_no_run_is_ever_trained_twice_at_the_same_time(
    faults: list[tuple[float, int, str, float]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Nodes are cut off, freeze, die and come back at any time."""
    study = tmp_path_factory.mktemp("cluster") / "study"
    cluster = FakeCluster(nodes=3, duration=8.0)
    executor = executor_for(cluster, study)

    def at(now: float) -> None:
        for number, node in enumerate(cluster.fake_nodes):
            for fault in ("is_cut", "is_frozen", "is_dead"):
                active = any(
                    begin <= now < begin + length
                    for begin, where, what, length in faults
                    if (where, what) == (number, fault)
                )
                setattr(node, fault, active or (fault == "is_dead" and node.is_dead))
        if all(node.is_dead for node in cluster.fake_nodes):
            cluster.fake_nodes[0].is_dead = False

    events = train(executor, cluster, jobs(study, 5), at, limit=5000.0)
    finished = [key for key, status in ends(events) if status is RunStatus.FINISHED]
    assert sorted(finished) == [f"sac/task/seed{number}" for number in range(5)]
    assert set(cluster.most_at_once.values()) == {1}


def test_stopping(make: Callable[..., Any], tmp_path: Path) -> None:
    """Requests reach workers; runs that have no slot yet end at once."""
    cluster = FakeCluster(nodes=1, duration=100.0)
    executor = make(cluster)
    cluster.fake_nodes.append(type(cluster.fake_nodes[0])(cluster.fake_nodes[0].facts))
    first, second = jobs(tmp_path / "study", 2)
    assert executor.submit(first)
    while not any(isinstance(event, Started) for event in executor.wait(TICK)):
        pass
    assert not executor.submit(second)
    executor.stop(SIGTERM, "sac/task/seed1")  # it is not active
    executor.stop(SIGTERM)
    deadline = cluster.now + 2 * cluster_executor.EXCHANGE_SECONDS
    events: list[Event] = []
    while not ends(events):
        assert cluster.now <= deadline
        events += executor.wait(TICK)
    assert ends(events) == [(first.key, RunStatus.INTERRUPTED)]


def test_stopping_before_the_slot_exists(make: Callable[..., Any], tmp_path: Path) -> None:
    cluster = FakeCluster(nodes=1)
    executor = make(cluster)
    (only,) = jobs(tmp_path / "study", 1)
    assert executor.submit(only)
    executor.stop(SIGTERM)
    (ended,) = executor.wait(TICK)
    assert isinstance(ended, Ended)
    assert (ended.status, ended.reason) == (RunStatus.INTERRUPTED, "signal: SIGTERM")
    assert not cluster.workers
    assert cluster.slots[0].is_ended


def test_killing(make: Callable[..., Any], tmp_path: Path) -> None:
    cluster = FakeCluster(nodes=2, duration=100.0)
    executor = make(cluster)
    for wanted in jobs(tmp_path / "study", 2):
        assert executor.submit(wanted)
    for _ in range(20):
        executor.wait(TICK)
    assert [worker.is_alive for worker in cluster.workers] == [True, True]
    executor.kill()
    assert [worker.is_alive for worker in cluster.workers] == [False, False]


def test_locks_of_a_lost_worker_are_removed(make: Callable[..., Any], tmp_path: Path) -> None:
    """A file system may hold the locks of a machine that is gone for a long time."""
    cluster = FakeCluster(nodes=2, duration=20.0)
    executor = make(cluster)
    (only,) = jobs(tmp_path / "study", 1)
    with hold_lock(only.lock, what=tmp_path, busy=""):
        assert executor.submit(only)
        while not any(isinstance(event, Started) for event in executor.wait(TICK)):
            pass
        cluster.fake_nodes[0].is_frozen = True
        assert is_held(only.lock)
        while not ends(executor.wait(TICK)):
            assert is_held(only.lock)
        assert not is_held(only.lock)
        assert not only.epoch_file.exists()


@pytest.mark.parametrize(
    ("need", "message"),
    [
        (Resources(cpus=3), "needs 3 cores, but no node of the cluster has more than 1: add a"),
        (Resources(gpus=0.5), "needs 0.5 of a GPU, but no node of the cluster has more than 0:"),
    ],
)
def test_a_run_that_fits_nowhere(make: Callable[..., Any], need: Resources, message: str) -> None:
    executor = make(FakeCluster(nodes=2))
    with pytest.raises(ConfigError, match=f"^A run of sac {message}"):
        executor.check(need, "A run of sac")
    assert executor.at_once(Resources(0.5)) == 4
    assert executor.at_once(need) == 0


def test_nodes_that_do_not_share_the_folder(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("rl_training.study.shared_storage.PATIENCE_SECONDS", 0.0)
    cluster = FakeCluster(nodes=2)
    cluster.answers_elsewhere = True
    with pytest.raises(ConfigError, match=r"^Node node0 has another folder at .*study: choose a"):
        executor_for(cluster, tmp_path / "study")


def test_a_node_with_a_problem(tmp_path: Path) -> None:
    cluster = FakeCluster(nodes=2)
    cluster.fake_nodes[1].problem = "has rl-training 0.0.1"
    with pytest.raises(ConfigError, match=r"^Node node1 has rl-training 0\.0\.1"):
        executor_for(cluster, tmp_path / "study")


def test_a_cluster_without_nodes(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^The cluster has no nodes: start some, then"):
        executor_for(FakeCluster(nodes=0), tmp_path / "study")


def test_an_unusable_lease() -> None:
    with pytest.raises(ConfigError, match=r"^lease = 0: should be more than 0 seconds\."):
        ClusterExecutor(FakeCluster(), lease=0)

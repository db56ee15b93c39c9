"""A Ray cluster on this machine, whose nodes can be killed and frozen."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rl_training.study.cluster_executor import _Slot
from rl_training.study.ray_cluster import LOOPBACK_VARIABLE, RayExecutor

os.environ[LOOPBACK_VARIABLE] = "0"  # before the import of Ray
# The default is 15, with which hardly anything is trained while the machine is busy.
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - as Ray spells it

import ray
from ray.cluster_utils import Cluster

LOOPBACK = "127.0.0.1"


@contextmanager
def ray_cluster(nodes: int = 3, cores: float = 1, **options: Any) -> Iterator[Cluster]:
    """Start a cluster whose nodes listen on the loopback interface only."""
    arguments = {"num_cpus": cores, "node_ip_address": LOOPBACK, **options}
    cluster = Cluster(
        initialize_head=True, head_node_args={**arguments, "include_dashboard": False}
    )
    try:
        for _ in range(nodes - 1):
            cluster.add_node(**arguments)
        yield cluster
    finally:
        ray.shutdown()
        for node in [*cluster.worker_nodes, cluster.head_node]:
            signal_node(node, signal.SIGCONT)
        cluster.shutdown()


def processes(root: int) -> list[int]:
    """Return a process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def node_processes(node: Any) -> list[int]:
    """Return all processes of a node, with the workers that train its runs."""
    return [
        pid for info in node.all_processes.get("raylet", ()) for pid in processes(info.process.pid)
    ]


def signal_node(node: Any, number: signal.Signals) -> list[int]:
    """Send a signal to all processes of a node, as if the whole machine had stopped or died."""
    pids = node_processes(node)
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
    return pids


def training_slots(executor: RayExecutor) -> dict[str, _Slot]:
    """Return the slots whose worker trains, by the id of their node."""
    return {
        slot.welcome.node: slot
        for slot in executor._slots
        if slot.welcome is not None and slot.has_started
    }

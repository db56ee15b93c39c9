"""Studies on a real Ray cluster: three nodes, of which one is killed and one freezes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from rl_training.errors import ConfigError
from rl_training.study.coordinator import StudyState
from rl_training.study.index import StudyIndex, StudyRun
from rl_training.study.jobs import Progress
from rl_training.study.local_executor import LocalExecutor
from rl_training.study.records import RunStatus
from rl_training.study.resources import Budget, Resources
from rl_training.study.study import Study
from tests.faults.processes import wait_until_gone
from tests.study.small import assert_equal_studies, small_description, write_study

if find_spec("ray") is None:
    pytest.skip("needs the extra ray", allow_module_level=True)

from rl_training.study.ray_cluster import RayExecutor
from tests.study.ray_nodes import (
    node_processes,
    ray_cluster,
    signal_node,
    training_slots,
)

pytestmark = pytest.mark.slow

SETTINGS: dict[str, Any] = {"total_timesteps": 3000, "checkpoint_interval": 100}
LEASE = 8.0


def description() -> dict[str, Any]:
    return small_description(algos=("sac",), seeds=4, settings=SETTINGS)


@pytest.fixture(scope="module")
def local_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same study, trained on this machine."""
    folder = tmp_path_factory.mktemp("local") / "study"
    executor = LocalExecutor(Budget(2, 0))
    assert Study.load(description()).run(folder, executor=executor, progress=False).is_complete
    executor.close()
    return folder


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster for tests that do not damage it."""
    with ray_cluster(nodes=2) as cluster:
        yield cluster


class Saboteur:
    """Kills one node and freezes another one when runs are trained on both."""

    def __init__(self, cluster: Any, executor: RayExecutor) -> None:
        self.cluster = cluster
        self.executor = executor
        self.lines: list[str] = []
        self.victims: list[int] = []
        """Processes of the frozen node."""
        self.frozen: Any = None
        self.frozen_workers: set[int] = set()

    def message(self, text: str) -> None:
        self.lines.append(text)

    def evaluated(self, run: StudyRun, step: int, metrics: Mapping[str, float]) -> None:
        pass

    def changed(self, state: StudyState) -> None:
        if self.frozen is not None:
            return
        running = training_slots(self.executor)
        nodes = [node for node in self.cluster.worker_nodes if node.node_id in running]
        progress = [p for p in state.active.values() if isinstance(p, Progress) and p.done > 200]
        if len(nodes) < 2 or len(progress) < 3:
            return
        dead, self.frozen = nodes
        signal_node(dead, signal.SIGKILL)
        self.victims = signal_node(self.frozen, signal.SIGSTOP)


def test_a_killed_and_a_frozen_node(tmp_path: Path, local_study: Path) -> None:
    folder = tmp_path / "study"
    with ray_cluster(nodes=3) as cluster:
        executor = RayExecutor(cluster.address, lease=LEASE)
        saboteur = Saboteur(cluster, executor)
        study = Study.load(description())
        result = study.run(folder, executor=executor, watchers=[saboteur], progress=False)
        assert saboteur.frozen is not None
        assert result.is_complete
        reasons = [failure.reason for run in result.runs for failure in run.failures]
        assert len(reasons) == 2, reasons
        assert sum("sent no heartbeat" in reason for reason in reasons) >= 1, reasons
        assert_equal_studies(folder, local_study)
        # When the frozen node is back, nothing on it writes to its run.
        before = {p: p.stat().st_mtime_ns for p in folder.rglob("*")}
        signal_node(saboteur.frozen, signal.SIGCONT)
        time.sleep(5.0)
        assert {p: p.stat().st_mtime_ns for p in folder.rglob("*")} == before
        executor.close()
    assert_no_trace_of_ray(folder, local_study)


def assert_no_trace_of_ray(folder: Path, local_study: Path) -> None:
    """Check that run folders have the same entries and text as those of local runs."""
    for run in StudyIndex.open(folder):
        reference = local_study / "runs" / run.key
        names = {path.name for path in run.path.iterdir()}
        assert names == {path.name for path in reference.iterdir()}
        info, expected = (json.loads((p / "run.json").read_text()) for p in (run.path, reference))
        assert info.keys() == expected.keys()
        assert (run.path / "config.yaml").read_text().replace(str(folder), "") == (
            reference / "config.yaml"
        ).read_text().replace(str(local_study), "")
        for file in (p for p in run.path.rglob("*.json*") if p.is_file()):
            assert "raylet" not in file.read_text()
    assert not list((folder / "locks").glob("*.epoch"))


def test_ctrl_c_saves_checkpoints_and_the_study_continues(
    cluster: Any, tmp_path: Path, local_study: Path
) -> None:
    file = write_study(tmp_path / "study.yaml", algos=("sac",), seeds=4, settings=SETTINGS)
    out = tmp_path / "study"
    command = [sys.executable, "-m", "rl_training", "study", "run", str(file), "--out", str(out)]
    command += ["--executor", "ray", "--address", cluster.address]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while len(list(out.glob("runs/*/*/seed*/checkpoints/step_000000[3-9]*"))) < 2:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "will save a checkpoint" in errors
    again = f"study run {out} --executor ray --address {cluster.address}"
    assert f"Interrupted. Continue with: rl-training {again}" in output
    statuses = [run.status for run in StudyIndex.open(out)]
    assert statuses.count(RunStatus.INTERRUPTED) == 2, statuses
    subprocess.run([sys.executable, "-m", "rl_training", *again.split()], check=True)
    assert_equal_studies(out, local_study)


def test_workers_save_and_exit_when_the_coordinator_is_killed(
    cluster: Any, tmp_path: Path, local_study: Path
) -> None:
    file = write_study(tmp_path / "study.yaml", algos=("sac",), seeds=4, settings=SETTINGS)
    out = tmp_path / "study"
    command = [sys.executable, "-m", "rl_training", "study", "run", str(file), "--out", str(out)]
    command += ["--executor", "ray", "--address", cluster.address]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(list(out.glob("runs/*/*/seed*/checkpoints/step_000000[3-9]*"))) < 2:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.2)
    process.kill()
    process.wait()
    again = [sys.executable, "-m", "rl_training", "study", "run", str(out), *command[-4:]]
    subprocess.run(again, check=True)
    assert_equal_studies(out, local_study)


def test_another_version_of_ray(cluster: Any, tmp_path: Path) -> None:
    program = (
        "import ray, sys; ray.__version__ = '2.0.0'\n"
        "from rl_training.study.ray_cluster import RayExecutor\n"
        "RayExecutor(sys.argv[1]).prepare('.')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, cluster.address],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    last = done.stderr.strip().splitlines()[-1]
    expected = "The cluster runs another version of Ray or Python than this command (Ray 2.0.0):"
    assert expected in last


def test_auto_without_a_cluster(tmp_path: Path) -> None:
    environment = os.environ | {"RAY_TMPDIR": str(tmp_path)}
    environment.pop("RAY_ADDRESS", None)
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "rl_training",
                "study",
                "run",
                "sac/pendulum",
                "--out",
                "study",
            ),
            *("--executor", "ray", "--address", "127.0.0.1:7"),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("Error: No Ray cluster answers at 127.0.0.1:7: start Ray on the")


NODE_PROGRAM = """
import os, time
from ray._private.node import Node
from ray._private.parameter import RayParams
parameters = RayParams(
    num_cpus=1, num_gpus=0, object_store_memory=150 * 2**20, node_ip_address="127.0.0.1",
    gcs_address=os.environ["ADDRESS"], redis_address=os.environ["ADDRESS"], node_manager_port=0,
    min_worker_port=0, max_worker_port=0, include_log_monitor=False,
)
Node(parameters, head=False, shutdown_at_exit=True, spawn_reaper=False)
time.sleep(600)
"""
"""Joins a cluster, like `Cluster.add_node`."""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs mount namespaces")
def test_a_node_that_does_not_share_the_folder(tmp_path: Path) -> None:
    """The second node has another file system at the same path."""
    with ray_cluster(nodes=1) as cluster:
        inside = f'mount -t tmpfs none {tmp_path} && exec {sys.executable} -c "$PROGRAM"'
        node = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", inside],
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            env=os.environ | {"PROGRAM": NODE_PROGRAM, "ADDRESS": cluster.address},
        )
        try:
            executor = RayExecutor(cluster.address)
            deadline = time.monotonic() + 60
            while executor.at_once(Resources()) < 2:
                assert time.monotonic() < deadline
                time.sleep(1.0)
            with pytest.raises(ConfigError, match=r"does not see .*study: choose a folder with"):
                Study.load(description()).run(tmp_path / "study", executor=executor)
            executor.close()
        finally:
            os.killpg(node.pid, signal.SIGTERM)
            node.wait(timeout=30)


def test_processes_are_gone(tmp_path: Path) -> None:
    """Closing the executor ends everything that it has started on the nodes."""
    with ray_cluster(nodes=1, cores=2) as cluster:
        before = set(node_processes(cluster.head_node))
        executor = RayExecutor(cluster.address)
        study = Study.load(small_description(algos=("sac",), seeds=2))
        assert study.run(tmp_path / "study", executor=executor, progress=False).is_complete
        executor.close()
        left = {
            pid
            for pid in set(node_processes(cluster.head_node)) - before
            if b"rl_training" in Path(f"/proc/{pid}/cmdline").read_bytes()
        }
        assert wait_until_gone(left, 10) == set()

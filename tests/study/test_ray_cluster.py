"""Connecting to Ray: errors, with a module in its place. The real one is in the slow tests."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from rl_training.cli.options import cluster_address
from rl_training.errors import ConfigError
from rl_training.study.ray_cluster import RayCluster, RayExecutor
from rl_training.study.resources import Resources
from rl_training.study.study import RunOptions, Study
from tests.study.small import small_description


class FakeRay(ModuleType):
    """The part of Ray that is used to connect."""

    __version__ = "2.60.0"

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__("ray")
        self.error = error
        self.options: dict[str, Any] = {}
        self.was_shut_down = False
        self.is_ready = False

    def is_initialized(self) -> bool:
        return self.is_ready

    def init(self, **options: Any) -> None:
        self.options = options
        if self.error is not None:
            raise self.error

    def shutdown(self) -> None:
        self.was_shut_down = True

    def nodes(self) -> list[dict[str, Any]]:
        facts = {"NodeManagerAddress": "10.0.0.1", "NodeManagerHostname": "gpu1", "Alive": True}
        resources = {"CPU": 8.0, "GPU": 2.0, "memory": 1e9, "node:10.0.0.1": 1.0}
        return [
            {"NodeID": "a", "Resources": resources, **facts},
            {"NodeID": "b", "Resources": {}, **facts, "Alive": False},
            {"NodeID": "c", "Resources": {}, **facts, "NodeManagerHostname": ""},
        ]


def use(monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> FakeRay:
    fake = FakeRay(error)
    monkeypatch.setitem(sys.modules, "ray", fake)
    return fake


def run_study(folder: Path, address: str = "auto", **options: Any) -> None:
    study = Study.load(small_description(algos=("sac",), seeds=1))
    study.train_runs(folder / "study", RunOptions(address=address, progress=False, **options))


def test_without_ray(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'rl-training\[ray\]'\.$"):
        run_study(tmp_path)
    assert not (tmp_path / "study").exists()


def test_without_a_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use(monkeypatch, ConnectionError("Could not find any running Ray instance."))
    with pytest.raises(ConfigError, match=r"^There is no Ray cluster that this machine"):
        run_study(tmp_path)
    assert not (tmp_path / "study").exists()


def test_an_address_at_which_nothing_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch)
    for address in ("127.0.0.1:1", "127.0.0.1:99999"):
        with pytest.raises(ConfigError, match=f"^No Ray cluster answers at {address}: start Ray"):
            RayCluster(address).connect()
    assert not fake.options


def test_another_version_of_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    error = RuntimeError(
        "Version mismatch: The cluster was started with:\n    Ray: 2.40.0\n    Python: 3.11.7\n"
        "This process on node 10.0.0.2 was started with:\n    Ray: 2.60.0"
    )
    use(monkeypatch, error)
    with pytest.raises(ConfigError) as caught:
        RayCluster("auto").connect()
    text = str(caught.value)
    assert text.startswith("The cluster runs another version of Ray or Python than this command")
    assert "Ray: 2.40.0" in text
    assert "\n" not in text


def test_other_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, RuntimeError("no authentication token\nwas found"))
    expected = r"^The Ray cluster at auto cannot be used \(no authentication token was found\):"
    with pytest.raises(ConfigError, match=expected):
        RayCluster("auto").connect()


@pytest.mark.parametrize("address", ["ray://10.0.0.1:10001", "", None])
def test_unusable_addresses(address: Any) -> None:
    with pytest.raises(ConfigError, match=r"should be auto or HOST:PORT of the cluster's head\."):
        RayExecutor(address)


def test_nodes_and_their_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch)
    executor = RayExecutor()
    assert executor.at_once(Resources(cpus=2)) == 4
    assert executor.at_once(Resources(cpus=2, gpus=1)) == 2
    assert executor.at_once(Resources(cpus=1, memory=400_000_000)) == 2
    with pytest.raises(ConfigError, match="needs 9 cores, but no node of the cluster has more"):
        executor.check(Resources(cpus=9), "A run of sac")
    assert fake.options == {"address": "auto", "log_to_driver": False, "logging_level": "ERROR"}
    executor.close()
    assert fake.was_shut_down


def test_a_connection_of_the_user_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch)
    fake.is_ready = True
    executor = RayExecutor()
    assert executor.at_once(Resources()) == 8
    executor.close()
    assert not fake.options
    assert not fake.was_shut_down


def test_limits_of_this_machine_are_rejected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(monkeypatch)
    expected = r"^cores = 2 limits this machine, not a cluster: .*resources\.cpus\.$"
    with pytest.raises(ConfigError, match=expected):
        run_study(tmp_path, cores=2)


def test_options_of_the_command_line() -> None:
    assert cluster_address("local", None) is None
    assert cluster_address("ray", None) == "auto"
    assert cluster_address("ray", "10.0.0.1:6379") == "10.0.0.1:6379"
    with pytest.raises(
        ConfigError, match=r"^--executor 'slurm': should be local, population or ray"
    ):
        cluster_address("slurm", None)
    with pytest.raises(ConfigError, match=r"^--address 'auto': add --executor ray"):
        cluster_address("local", "auto")


def test_a_request_for_a_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Ray is asked for: the resources of a run, and no node that was lost."""
    found: dict[str, Any] = {}
    fake = use(monkeypatch)

    def remote(actor: type) -> Any:
        handle = SimpleNamespace(welcome=SimpleNamespace(remote=lambda: "call"))

        def options(**chosen: Any) -> Any:
            found.update(chosen, actor=actor.__name__)
            return SimpleNamespace(remote=lambda *_: handle)

        return SimpleNamespace(options=options)

    fake.remote = remote  # type: ignore[attr-defined]
    cluster = RayCluster("auto")
    cluster.connect()
    need = Resources(cpus=2.0, gpus=0.5, memory=10**9)
    _, call = cluster.start(need, None, "/", ["a", "b"])  # type: ignore[arg-type]
    assert call == "call"
    assert found == {
        "actor": "RaySlot",
        "max_restarts": 0,
        "num_cpus": 2.0,
        "num_gpus": 0.5,
        "memory": 10**9,
        "label_selector": {"ray.io/node-id": "!in(a,b)"},
    }

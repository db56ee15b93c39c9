"""Studies on Ray clusters (https://docs.ray.io), with the extra ``ray``."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from rl_training.errors import ConfigError
from rl_training.study.cluster_executor import (
    LEASE_SECONDS,
    ClusterExecutor,
    Node,
    SlotLostError,
)
from rl_training.study.resources import Resources
from rl_training.study.shared_storage import Token
from rl_training.study.slot import Order, Reply, Slot, Welcome
from rl_training.text import error_text, one_line, shorten, shown
from rl_training.version import __version__

AUTO = "auto"
"""The cluster to which this machine belongs."""
LOOPBACK = ("127.0.0.1", "localhost")
LOOPBACK_VARIABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""If it is 0 when Ray is imported, Ray uses the loopback interface, on all systems. Otherwise it
replaces a loopback address by another address of the machine, at which nothing may listen."""
PROBE_SECONDS = 120.0
"""How long a node may take to answer; the first process on a node may have to be started."""
CONNECT_SECONDS = 5.0
_HINT = (
    "start Ray on the nodes (ray start --head, then ray start --address=HEAD:6379), and run this "
    "command on one of them."
)


class RayExecutor(ClusterExecutor):
    """Trains each run in a process of its own on some node of a Ray cluster.

    Example::

        Study(["sac/pendulum"]).run("/shared/study", executor=RayExecutor(address="auto"))
    """

    def __init__(self, address: str = AUTO, *, lease: float = LEASE_SECONDS) -> None:
        """Create an executor; it connects when it is used.

        Args:
            address: Address of the cluster's head, such as ``10.0.0.1:6379``; ``auto`` for the
                cluster to which this machine belongs.
            lease: How many seconds a run continues without contact to this process. A run on a
                lost node is resumed elsewhere after 1.25 times as long.
        """
        super().__init__(RayCluster(address), lease=lease)


def require_ray() -> ModuleType:
    """Return Ray; raise an error with the install line if it is missing."""
    try:
        import ray
    except ImportError:
        raise ConfigError(
            "The executor for Ray clusters requires Ray: install it on every node with pip "
            "install 'rl-training[ray]'."
        ) from None
    module: ModuleType = ray
    return module


class RaySlot(Slot):
    """A slot that knows its node and its GPUs from Ray."""

    def __init__(self, token: Token, folder: str) -> None:
        """Create a slot; see `Slot`."""
        context = require_ray().get_runtime_context()
        gpus = context.get_accelerator_ids().get("GPU", ())
        super().__init__(token, node=context.get_node_id(), folder=folder, gpus=gpus)


class RayCluster:
    """What the executor needs of Ray."""

    def __init__(self, address: str) -> None:
        if not isinstance(address, str) or not address or address.startswith("ray://"):
            raise ConfigError(
                f"address = {shown(address)}: should be auto or HOST:PORT of the cluster's head. "
                "Run the command on a node of the cluster, not through a Ray client."
            )
        self._address = address
        self._ray: Any = None
        self._is_own = False
        """Whether this object has made the connection."""

    def connect(self) -> None:
        """Connect; raise a ConfigError if there is no cluster."""
        host = self._address.rpartition(":")[0]
        if host in LOOPBACK:
            os.environ.setdefault(LOOPBACK_VARIABLE, "0")
        ray = self._ray = require_ray()
        if ray.is_initialized():
            return
        self._check_address()
        try:
            ray.init(address=self._address, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            raise ConfigError(self._problem(error)) from None
        self._is_own = True

    def _check_address(self) -> None:
        """Fail early if nothing listens at the address: Ray would try for minutes."""
        host, _, port = self._address.rpartition(":")
        if not host or not port.isdigit():
            return
        try:
            socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
        except (OSError, OverflowError):
            raise ConfigError(f"No Ray cluster answers at {self._address}: {_HINT}") from None

    def _problem(self, error: Exception) -> str:
        text = one_line(str(error))
        if "ersion mismatch" in text:
            return (
                f"The cluster runs another version of Ray or Python than this command (Ray "
                f"{self._ray.__version__}): install the same versions on every node. "
                f"({shorten(text, 300)})"
            )
        if isinstance(error, ConnectionError):
            where = "" if self._address == AUTO else f" at {self._address}"
            return f"There is no Ray cluster{where} that this machine belongs to: {_HINT}"
        return f"The Ray cluster at {self._address} cannot be used ({shorten(text, 300)}): {_HINT}"

    def nodes(self) -> list[Node]:
        """Return the nodes that are alive."""
        return [_node(facts) for facts in self._ray.nodes() if facts["Alive"]]

    def probe(self, token: Token, nodes: Sequence[Node]) -> dict[str, str | None]:
        """Let nodes answer a token; return what is wrong with each node, by its id."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        ray = self._ray
        task = ray.remote(num_cpus=0, max_retries=0)(_answer)
        calls = {
            task.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False)
            ).remote(token, node.id): node.id
            for node in nodes
        }
        done, late = ray.wait(list(calls), num_returns=len(calls), timeout=PROBE_SECONDS)
        problems: dict[str, str | None] = {
            calls[call]: f"did not answer within {PROBE_SECONDS:.0f} seconds: restart or remove it."
            for call in late
        }
        for call in done:
            try:
                problems[calls[call]] = ray.get(call)
            except Exception as error:  # such as an import that fails there
                problems[calls[call]] = (
                    f"cannot run rl-training ({_last_line(error)}): install version {__version__} "
                    "on every node."
                )
        return problems

    def start(
        self, need: Resources, token: Token, folder: str, avoid: Sequence[str]
    ) -> tuple[Any, Any]:
        """Request a slot, not on the nodes ``avoid``; return a handle, and a call of `welcome`."""
        options: dict[str, Any] = {"num_cpus": need.cpus, "num_gpus": need.gpus}
        if need.memory:
            options["memory"] = need.memory
        if avoid:
            options["label_selector"] = {"ray.io/node-id": f"!in({','.join(avoid)})"}
        actor = self._ray.remote(RaySlot)
        handle = actor.options(max_restarts=0, **options).remote(token, folder)
        return handle, handle.welcome.remote()

    def call(self, handle: Any, order: Order) -> Any:
        """Call `exchange` of a slot, and return the call without waiting for it."""
        return handle.exchange.remote(order)

    def wait(self, calls: Sequence[Any], seconds: float) -> Sequence[Any]:
        """Wait for the first of some calls, perhaps none, and return all that are done."""
        if not calls:
            time.sleep(seconds)
            return []
        done, rest = self._ray.wait(list(calls), timeout=seconds)
        if done and rest:
            more, _ = self._ray.wait(rest, num_returns=len(rest), timeout=0)
            done += more
        found: Sequence[Any] = done
        return found

    def result(self, call: Any) -> Welcome | Reply:
        """Return the result of a call that is done; raise a SlotLostError if there is none."""
        exceptions = self._ray.exceptions
        try:
            result: Welcome | Reply = self._ray.get(call)
        except exceptions.RayActorError as error:
            raise SlotLostError(_death(error)) from None
        except exceptions.RayError as error:
            raise SlotLostError(f"its slot failed ({_last_line(error)})") from None
        return result

    def end(self, handle: Any) -> None:
        """End a slot, or withdraw the request for it; its worker saves a checkpoint."""
        self._ray.kill(handle)

    def close(self) -> None:
        """Disconnect."""
        if self._is_own:
            self._ray.shutdown()
            self._is_own = False


def _answer(token: Token, node: str) -> str | None:
    """Answer a token on a node."""
    return token.answer(node)


def _node(facts: dict[str, Any]) -> Node:
    resources = facts["Resources"]
    name = facts.get("NodeManagerHostname") or facts["NodeManagerAddress"]
    return Node(
        id=facts["NodeID"],
        name=f"{name} ({facts['NodeManagerAddress']})",
        cores=float(resources.get("CPU", 0.0)),
        memory=int(resources.get("memory", 0)),
        gpus=int(resources.get("GPU", 0)),
    )


def _death(error: Exception) -> str:
    """Say in a few words why a slot cannot be reached."""
    text = one_line(str(error))
    told = ("unavailable", "its node has died", "worker process has died", "init() failed")
    return next((words for words in told if words in text.lower()), shorten(text, 200))


def _last_line(error: Exception) -> str:
    """Return the most telling line of an error of another process."""
    lines = [line for line in error_text(error).splitlines() if line.strip()]
    return shorten(one_line(lines[-1]), 200) if lines else type(error).__name__

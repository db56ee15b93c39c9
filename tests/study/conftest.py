"""A fork server that all tests of a process share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rl_training.study.launching import ForkServer
from rl_training.study.local_executor import LocalExecutor
from rl_training.study.resources import Budget
from rl_training.study.study import Study
from tests.study.small import small_description


class SharedServer(ForkServer):
    """A fork server that outlives its executors."""

    def close(self) -> None:
        """Keep the server."""

    def end(self) -> None:
        """End the server."""
        super().close()

    @property
    def pid(self) -> int:
        """Process of the server."""
        assert self._server is not None
        return self._server.pid


@pytest.fixture(scope="session")
def fork_server() -> Iterator[SharedServer]:
    server = SharedServer()
    yield server
    server.end()


@pytest.fixture
def make_executor(fork_server: SharedServer) -> Iterator[Callable[..., LocalExecutor]]:
    """Return a function that makes an executor with two cores."""
    made: list[LocalExecutor] = []

    def make(cores: float = 2) -> LocalExecutor:
        made.append(LocalExecutor(Budget(cores, 0), fork_server))
        return made[-1]

    yield make
    for executor in made:
        executor.kill()
        executor.close()


@pytest.fixture(scope="session")
def reference_study(fork_server: SharedServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished study: SAC and TD3, two seeds each."""
    folder = tmp_path_factory.mktemp("reference") / "study"
    executor = LocalExecutor(Budget(2, 0), fork_server)
    result = Study.load(small_description()).run(folder, executor=executor, progress=False)
    assert result.is_complete
    executor.close()
    return folder

"""Fixtures: the server that runs commands under the guard, and the ordinary runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.bases import Bases, make_bases
from tests.hostile.sandbox import Sandbox, Workspace


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    server = Sandbox(tmp_path_factory.mktemp("caches"))
    yield server
    server.close()


@pytest.fixture(scope="session")
def bases(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Bases:
    return make_bases(sandbox, tmp_path_factory.mktemp("bases"))


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path).make()

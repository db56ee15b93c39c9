"""The synthetic task, which exists only in these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tuning.synthetic import register, unregister


@pytest.fixture(autouse=True, scope="package")
def _synthetic_task() -> Iterator[None]:
    register()
    yield
    unregister()

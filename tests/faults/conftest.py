"""The server that forks command lines, and an uninterrupted reference run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from rl_training.runtime.checkpointing import step_name
from tests.faults.injection import Event
from tests.faults.runs import RUN_NAME, TOTAL, write_config
from tests.faults.zygote import Zygote, shared_zygote


@dataclass(frozen=True)
class Reference:
    """An uninterrupted run."""

    run_dir: Path
    events: list[Event]
    """All its changes on disk, in order."""


@pytest.fixture(scope="session")
def zygote() -> Zygote:
    return shared_zygote()


@pytest.fixture(scope="session")
def reference(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    folder = tmp_path_factory.mktemp("reference")
    outcome = zygote.run("train", "-c", write_config(folder), watch=folder)
    assert outcome.status == 0, outcome.err
    return Reference(folder / RUN_NAME, outcome.events)


@pytest.fixture(scope="session")
def interrupted(
    zygote: Zygote, reference: Reference, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A run that was killed while its last checkpoint was written; copy it before damaging it."""
    folder = tmp_path_factory.mktemp("interrupted")
    part = f"{step_name(TOTAL)}/state.json"
    at = next(n for n, event in enumerate(reference.events) if event.path.endswith(part))
    outcome = zygote.run("train", "-c", write_config(folder), watch=folder, at=at, action="kill")
    assert outcome.status == -9, outcome.err
    return folder / RUN_NAME

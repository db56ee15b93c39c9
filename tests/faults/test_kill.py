"""SIGKILL at any time: the resumed run equals an uninterrupted one.

Kills at every change on disk are in test_every_call.py.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from rl_training.runtime.checkpointing import step_name
from tests.faults.conftest import Reference
from tests.faults.injection import Event
from tests.faults.runs import (
    RUN_NAME,
    TOTAL,
    assert_equal_runs,
    assert_no_leftovers,
    folder_names,
    write_config,
)
from tests.faults.zygote import Outcome, Zygote


def _is_run(path: Path) -> bool:
    return (path / "config.yaml").is_file()


def _continue(zygote: Zygote, folder: Path) -> Outcome:
    """Resume the run, or start it again if there is none yet."""
    if _is_run(folder / RUN_NAME):
        return zygote.run("resume", folder / RUN_NAME)
    return zygote.run("train", "-c", folder / "config.yaml")


def _kill_and_continue(
    zygote: Zygote, reference: Reference, folder: Path, at: int, action: str
) -> Event:
    """Kill a run at an event, resume and compare; return the event."""
    folder.mkdir()
    killed = zygote.run("train", "-c", write_config(folder), watch=folder, at=at, action=action)
    assert killed.status == -signal.SIGKILL, killed.err
    assert len(killed.events) == at + 1
    continued = _continue(zygote, folder)
    assert continued.status == 0, f"after {killed.events[-1]}: {continued.err}"
    assert_equal_runs(folder / RUN_NAME, reference.run_dir)
    assert_no_leftovers(folder / RUN_NAME)
    assert folder_names(folder / RUN_NAME) == folder_names(reference.run_dir)
    return killed.events[-1]


def _last(reference: Reference, name: str, part: str) -> int:
    """Return the number of the last event of a kind inside a save, whose path contains ``part``."""
    return max(
        n
        for n, event in enumerate(reference.events)
        if event.saving and event.name == name and part in event.path
    )


def _first(reference: Reference, name: str, part: str) -> int:
    return next(
        n
        for n, event in enumerate(reference.events)
        if event.saving and event.name == name and part in event.path
    )


DELICATE: dict[str, Callable[[Reference], tuple[int, str]]] = {
    "before the first save": lambda r: (_first(r, "mkdir", "checkpoints"), "kill"),
    "during the first save": lambda r: (_first(r, "open", "manifest.json"), "kill"),
    "before the best pointer is written": lambda r: (_last(r, "rename", "/best"), "kill"),
    "in the middle of a segment": lambda r: (_last(r, "open", "/replay/.tmp-") + 1, "tear"),
    "in the middle of the state": lambda r: (_last(r, "open", "state.json") + 1, "tear"),
    "before the last folder is renamed": lambda r: (
        _last(r, "rename", f"/{step_name(TOTAL)}"),
        "kill",
    ),
    "before the last pointer is written": lambda r: (_last(r, "rename", "/last"), "kill"),
    "while the oldest checkpoint is removed": lambda r: (_last(r, "remove", "state.json"), "kill"),
    "before its rows are removed": lambda r: (_last(r, "remove", ".npy"), "kill"),
}
"""Points at which a kill is most likely to cause damage."""


@pytest.mark.parametrize("instant", DELICATE)
def test_kill_at_a_critical_point_changes_nothing(
    zygote: Zygote, reference: Reference, tmp_path: Path, instant: str
) -> None:
    at, action = DELICATE[instant](reference)
    assert _kill_and_continue(zygote, reference, tmp_path / "run", at, action).saving


def test_kill_at_a_random_event_changes_nothing(
    zygote: Zygote, reference: Reference, tmp_path: Path
) -> None:
    _kill_after(zygote, reference, tmp_path, random.Random().uniform(0.05, 0.3))


def _kill_after(zygote: Zygote, reference: Reference, folder: Path, seconds: float) -> int:
    """Kill the process after ``seconds``; return its status."""
    config = write_config(folder)
    killed = zygote.start("train", "-c", config, watch=folder).wait(kill_after=seconds)
    if killed.status != 0:  # a fast machine may have finished
        assert killed.status == -signal.SIGKILL, killed.err
        continued = _continue(zygote, folder)
        assert continued.status == 0, f"{seconds} s, {killed.events[-1:]}: {continued.err}"
    assert_equal_runs(folder / RUN_NAME, reference.run_dir)
    return killed.status


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_kill_at_a_random_time_changes_nothing(
    zygote: Zygote, reference: Reference, tmp_path: Path
) -> None:
    """These kills come from outside the process, at any instruction."""
    rng = random.Random()
    statuses = []
    for number in range(30):
        folder = tmp_path / str(number)
        folder.mkdir()
        statuses.append(_kill_after(zygote, reference, folder, rng.uniform(0.02, 0.4)))
    assert statuses.count(-signal.SIGKILL) >= 15


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_repeated_kills_change_nothing(
    zygote: Zygote, reference: Reference, tmp_path: Path
) -> None:
    rng = random.Random(3)
    kills = 0
    while True:
        folder = tmp_path / RUN_NAME
        fresh = ("train", "-c", write_config(tmp_path))
        command = ("resume", folder) if _is_run(folder) else fresh
        outcome = zygote.run(*command, watch=tmp_path, at=rng.randrange(20, 120), action="kill")
        if outcome.status == 0:
            break
        assert outcome.status == -signal.SIGKILL, outcome.err
        kills += 1
    assert kills >= 5
    assert_equal_runs(tmp_path / RUN_NAME, reference.run_dir)
    assert_no_leftovers(tmp_path / RUN_NAME)

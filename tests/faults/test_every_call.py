"""SIGKILL and a full disk at every change that a command makes on disk.

Each kill is in a separate command, which is then resumed. The result must equal that of an
uninterrupted command bit for bit. Run with ``make test-slow``.
"""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rl_training.runtime.checkpointing import list_steps
from tests.faults.injection import Event
from tests.faults.runs import (
    RUN_NAME,
    assert_equal_runs,
    assert_no_leftovers,
    copy_run,
    folder_names,
    write_config,
)
from tests.faults.zygote import Outcome, Zygote

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

TINY: dict[str, Any] = {
    "total_timesteps": 16,
    "checkpoint_interval": 4,
    "log_interval": 4,
    "eval_interval": 8,
    "hidden_sizes": [4],
    "batch_size": 4,
    "learning_starts": 4,
    "buffer_capacity": 100,
    "train_frequency": ...,
    "keep_checkpoints": 2,
    "env_kwargs": {"max_episode_steps": 5},
}
"""Five checkpoints, of which the first three are removed, and two evaluations."""
SAMPLED = 80
"""Number of kills in a case that is not killed at every change."""
LEAST_KILLS = 1000


@dataclass(frozen=True)
class Case:
    """A command that creates or continues the only run in a folder."""

    name: str
    argv: Callable[[Path], Sequence[str | Path]]
    """Return the command, and prepare its folder."""
    everywhere: bool = False
    """Whether it is killed at every change."""


@dataclass
class Tally:
    """Results of the kills and full disks of a case."""

    kills: int = 0
    full: int = 0
    nameless: int = 0
    """Kills before the run had a name, after which the command was started again."""
    lost: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    inexact: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, other: Tally) -> None:
        """Add the numbers of another case."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def __str__(self) -> str:
        return (
            f"{self.kills} kills ({self.nameless} before the run had a name) and {self.full} full "
            f"disks in {self.seconds:.0f} s: {len(self.refused)} refused, {len(self.lost)} lost, "
            f"{len(self.inexact)} inexact"
        )


# --- The cases ----------------------------------------------------------------


@pytest.fixture(scope="module")
def cases(
    zygote: Zygote, recorded: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Case]:
    """Return all cases, with the runs that they continue."""
    folder = tmp_path_factory.mktemp("sources")
    data = {"dataset_kind": "npz", "dataset_path": str(recorded), "sampling": "epochs"}
    intervals = {"total_timesteps": 60, "eval_interval": 40, "checkpoint_interval": 20}
    no_collection = {"learning_starts": ..., "buffer_capacity": ...}
    configs: dict[str, dict[str, Any]] = {
        "offline": TINY | data | intervals | no_collection | {"algo": "iql"},
        "her": TINY | {"algo": "her", "env_id": "rl_training/PointGoal-v0"},
        "rlpd": TINY | data | {"algo": "rlpd", "num_critics": 2, "offline_pretrain_updates": 6},
        "vector": TINY | {"num_envs": 2, "tensorboard": True},
    }

    def trains(name: str, *, everywhere: bool = False) -> Case:
        changes = configs.get(name, TINY)

        def argv(folder: Path) -> Sequence[str | Path]:
            return "train", "-c", write_config(folder, **changes)

        return Case(name, argv, everywhere)

    source = _source(zygote, folder / "offline", trains("offline"))
    whole = _source(zygote, folder / "train", trains("train"))
    interrupted = _interrupted(zygote, folder / "interrupted", trains("train"))
    steps = ("total_timesteps=8", "learning_starts=4", "checkpoint_interval=4", "eval_interval=4")
    older = list_steps(whole)[-2]
    found = [
        trains("train", everywhere=True),
        Case("resume", lambda folder: ("resume", copy_run(interrupted, folder)), True),
        Case("finetune", lambda f: ("finetune", source, f"output_dir={f}", *steps), True),
        Case("branch", lambda f: ("resume", older, f"output_dir={f}", "total_timesteps=20")),
        *(trains(name) for name in configs),
    ]
    return {case.name: case for case in found}


def _source(zygote: Zygote, folder: Path, case: Case) -> Path:
    """Create a run to continue."""
    folder.mkdir()
    done = zygote.run(*case.argv(folder))
    assert done.status == 0, done.err
    run_dir = run_in(folder)
    assert run_dir is not None
    return run_dir


def _interrupted(zygote: Zygote, folder: Path, case: Case) -> Path:
    """Create a run that was killed while updating its pointer to the second-to-last checkpoint."""
    folder.mkdir()
    probe = folder / "probe"
    probe.mkdir()
    events = zygote.run(*case.argv(probe), watch=probe).events
    at = [n for n, event in enumerate(events) if event.path.endswith("checkpoints/last")][-2]
    shutil.rmtree(probe)
    killed = zygote.run(*case.argv(folder), watch=folder, at=at, action="kill")
    assert killed.status == -signal.SIGKILL
    assert list((folder / RUN_NAME).rglob(".tmp-*"))
    return folder / RUN_NAME


def run_in(folder: Path) -> Path | None:
    """Return the run in a folder, if it has a name."""
    found = [path for path in folder.iterdir() if path.is_dir() and path.name[0] != "."]
    assert len(found) < 2
    return found[0] if found else None


# --- One kill, one full disk --------------------------------------------------


@dataclass(frozen=True)
class Whole:
    """Result of an uninterrupted case."""

    case: Case
    run_dir: Path
    events: list[Event]

    def points(self) -> Iterator[tuple[int, str]]:
        """Yield each change to be killed at, and also the partial states of a written file."""
        written = {event.path for event in self.events if event.name == "open"}
        for number, event in enumerate(self.events):
            yield number, "kill"
            if event.name == "write":
                yield number, "tear"
            elif event.name == "sync" and event.path in written - {_metrics(event.path)}:
                yield number, "tear"
                yield number, "empty"


def _metrics(path: str) -> str:
    """Keep earlier lines; only the appended line is truncated."""
    return path if path.endswith("metrics.jsonl") else ""


def _expect(zygote: Zygote, case: Case, folder: Path) -> Whole:
    folder.mkdir()
    done = zygote.run(*case.argv(folder), watch=folder)
    assert done.status == 0, done.err
    run_dir = run_in(folder)
    assert run_dir is not None
    return Whole(case, run_dir, done.events)


def _kill(zygote: Zygote, whole: Whole, folder: Path, at: int, action: str, tally: Tally) -> None:
    """Kill the command at a change, resume and compare."""
    folder.mkdir()
    argv = whole.case.argv(folder)
    killed = zygote.run(*argv, watch=folder, at=at, action=action)
    assert killed.status == -signal.SIGKILL, killed.err
    assert len(killed.events) == at + 1
    where = f"{whole.case.name}: {action} at {at}, {killed.events[-1]}"
    tally.kills += 1
    run_dir = run_in(folder)
    if run_dir is None:
        tally.nameless += 1
    else:
        saved = [_step(event.path) for event in killed.events[:at] if event.name == "rename"]
        left = [_step(str(path)) for path in (run_dir / "checkpoints").iterdir()]
        if max(left) < max(saved, default=-1):
            tally.lost.append(where)
    _continue(zygote, whole, folder, argv, where, tally)


def _step(path: str) -> int:
    """Return the step of a checkpoint folder, or -1 for other paths."""
    name = Path(path).name.removeprefix(".tmp-swap-")
    return int(name.removeprefix("step_")) if name.startswith("step_") else -1


def _fill(zygote: Zygote, whole: Whole, folder: Path, at: int, tally: Tally) -> None:
    """Simulate a full disk from a change on; then free space, resume and compare."""
    folder.mkdir()
    argv = whole.case.argv(folder)
    stopped = zygote.run(*argv, watch=folder, at=at, action="full")
    assert stopped.status in (1, 2), stopped
    assert "No space left on device" in stopped.error_line()
    where = f"{whole.case.name}: full at {at}, {whole.events[at]}"
    tally.full += 1
    _continue(zygote, whole, folder, argv, where, tally)


def _continue(
    zygote: Zygote,
    whole: Whole,
    folder: Path,
    argv: Sequence[str | Path],
    where: str,
    tally: Tally,
) -> None:
    run_dir = run_in(folder)
    done: Outcome = zygote.run(*(argv if run_dir is None else ("resume", run_dir)))
    run_dir = run_in(folder)
    if done.status != 0 or run_dir is None:
        tally.refused.append(f"{where}: {done.err}")
        return
    try:
        assert_equal_runs(run_dir, whole.run_dir)
        assert_no_leftovers(run_dir)
        assert _names(run_dir) == _names(whole.run_dir)
    except AssertionError as error:
        tally.inexact.append(f"{where}: {str(error)[:300]}")
    shutil.rmtree(folder)


def _names(run_dir: Path) -> set[str]:
    """Return all files; TensorBoard has one more for each session."""
    return {name for name in folder_names(run_dir) if "tfevents" not in name}


# --- The tests ----------------------------------------------------------------


@pytest.fixture(scope="module")
def totals(request: pytest.FixtureRequest) -> Iterator[dict[str, Tally]]:
    """Collect the results by case; the sum is printed at the end."""
    found: dict[str, Tally] = {}
    yield found
    total = Tally()
    for tally in found.values():
        total.add(tally)
    capture = request.config.pluginmanager.get_plugin("capturemanager")
    assert capture is not None
    with capture.global_and_fixture_disabled():
        print("", *(f"{name}: {tally}" for name, tally in found.items()), f"all: {total}", sep="\n")


NAMES = ["train", "resume", "finetune", "branch", "offline", "her", "rlpd", "vector"]


@pytest.mark.parametrize("name", NAMES)
def test_kill_or_full_disk_at_every_change_loses_nothing(
    zygote: Zygote,
    cases: dict[str, Case],
    totals: dict[str, Tally],
    tmp_path: Path,
    name: str,
) -> None:
    began = time.perf_counter()
    whole = _expect(zygote, cases[name], tmp_path / "whole")
    points = list(whole.points())
    full = [n for n, event in enumerate(whole.events) if event.needs_room]
    if not whole.case.everywhere:
        rng = random.Random(name)
        points, full = rng.sample(points, SAMPLED), rng.sample(full, SAMPLED // 6)
    tally = totals.setdefault(name, Tally())
    for at, action in points:
        _kill(zygote, whole, tmp_path / f"{at}-{action}", at, action, tally)
    for at in full:
        _fill(zygote, whole, tmp_path / f"{at}-full", at, tally)
    tally.seconds = time.perf_counter() - began
    assert (tally.refused, tally.lost, tally.inexact) == ([], [], [])


def test_number_of_kills(totals: dict[str, Tally]) -> None:
    if totals.keys() != set(NAMES):
        pytest.skip("not all cases were run")
    assert sum(tally.kills for tally in totals.values()) >= LEAST_KILLS

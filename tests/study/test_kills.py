"""SIGKILL of coordinators and workers at random times: the same numbers as an undisturbed study."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rl_training.boundary.journal import read_journal
from rl_training.study.index import StudyIndex
from rl_training.study.records import INDEX_FILE
from tests.faults.processes import wait_until_gone
from tests.study.small import assert_equal_studies, write_study

KILLS = 20
SETTINGS = {
    "total_timesteps": 3000,
    "train_frequency": 1,
    "checkpoint_interval": 200,
    "eval_interval": 1000,
    "log_interval": 500,
    "engine": "eager",
}


class Coordinator:
    """A process that runs the study, as a user would start it."""

    def __init__(self, file: Path, folder: Path) -> None:
        self._index = folder / INDEX_FILE
        self._known = len(self.events())
        command = [sys.executable, "-m", "rl_training", "study", "run", str(file)]
        self._log = folder.with_suffix(".log").open("a")
        self.process = subprocess.Popen(
            [*command, "--out", str(folder), "--cores", "2"],
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def events(self) -> list[dict[str, Any]]:
        """Return all starts of runs that are recorded."""
        if not self._index.exists():
            return []
        return [row for row in read_journal(self._index) if row and row["kind"] == "started"]

    def workers(self) -> list[int]:
        """Return the workers that this process has started and that still run."""
        return [pid for event in self.events()[self._known :] if is_worker(pid := event["pid"])]

    def has_ended(self) -> bool:
        if self.process.poll() is None:
            return False
        self._log.close()
        return True


def is_worker(pid: object) -> bool:
    with suppress(OSError):
        return b"study.launching" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_twenty_kills_change_nothing(tmp_path: Path) -> None:
    options = {"algos": ("sac", "td3", "ddpg"), "settings": SETTINGS, "name": "killed"}
    file = write_study(tmp_path / "study.yaml", retries=KILLS, **options)
    reference, folder = tmp_path / "reference", tmp_path / "killed"
    undisturbed = Coordinator(file, reference)
    assert undisturbed.process.wait() == 0

    choose, killed = random.Random(0), {"coordinator": 0, "worker": 0}
    coordinator = Coordinator(file, folder)
    while sum(killed.values()) < KILLS:
        if coordinator.has_ended():
            assert coordinator.process.returncode == -signal.SIGKILL, "raise total_timesteps"
            coordinator = Coordinator(file, folder)  # while earlier workers still save
        workers = coordinator.workers()
        if not workers:
            time.sleep(0.05)
            continue
        time.sleep(choose.uniform(0, 0.5))
        victim = choose.choice(list(killed))
        with suppress(ProcessLookupError):
            os.kill(coordinator.process.pid if victim == "coordinator" else workers[-1], 9)
            killed[victim] += 1
        if victim == "coordinator":
            coordinator.process.wait()
            if choose.random() < 0.5:  # workers exit when the coordinator dies
                assert not wait_until_gone(set(workers), 60)

    while not coordinator.has_ended() or coordinator.process.returncode == -signal.SIGKILL:
        if coordinator.process.poll() == -signal.SIGKILL:
            coordinator = Coordinator(file, folder)
        time.sleep(0.1)
    assert coordinator.process.returncode == 0, (tmp_path / "killed.log").read_text()
    assert min(killed.values()) >= 5, killed
    assert_equal_studies(folder, reference)
    attempts = sum(run.attempts for run in StudyIndex.open(folder))
    assert attempts > KILLS / 2
    print(f"{killed}, {attempts} attempts of {len(StudyIndex.open(folder))} runs")

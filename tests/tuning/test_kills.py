"""Tunings in processes of their own, which are killed with SIGKILL at random times."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from rl_training.boundary.journal import read_journal
from rl_training.boundary.yaml_codec import dump_yaml
from rl_training.runtime.logging import read_metrics
from rl_training.study.index import StudyIndex, index_files
from rl_training.tuning.trials import TrialIndex, TrialStatus
from tests.tuning.simulated import METRIC, outcomes
from tests.tuning.synthetic import CONFIG, SPACE

ROOT = Path(__file__).parents[2]


class Process:
    """A process that tunes the synthetic task, as a user would start it."""

    def __init__(self, out: Path, **options: Any) -> None:
        self._out, self._options = out, options
        for name, content in (("config", CONFIG), ("space", SPACE)):
            (out.parent / f"{name}.yaml").write_text(dump_yaml(dict(content)))
        self.start()

    def start(self) -> None:
        """Start the process, or start it again with the same command."""
        folder = self._out.parent
        command = [sys.executable, "-m", "rl_training", "--import", "tests.tuning.registered"]
        command += ["tune", str(folder / "config.yaml"), "--space", str(folder / "space.yaml")]
        for name, value in {"cores": 1, "retries": 50, "out": self._out, **self._options}.items():
            command += [f"--{name}", str(value)]
        name = str(self._options.get("shard", "1/1")).replace("/", "-")
        with (folder / f"{self._out.name}-{name}.log").open("a") as log:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.began = time.monotonic()

    def wait(self) -> None:
        """Wait until the tuning is complete; start it again if it was killed."""
        while (code := self.process.wait()) == -signal.SIGKILL:
            self.start()
        assert code == 0, self._out


def records(folder: Path) -> list[dict[str, Any]]:
    """Return all records of a tuning."""
    files = index_files(folder) if (folder / "index.jsonl").exists() else []
    return [row for file in files for row in read_journal(file) if row is not None]


def newest_worker(folder: Path) -> int | None:
    """Return a worker that is training."""
    pids = [row["pid"] for row in records(folder) if row["kind"] == "started"]
    for pid in reversed(pids[-6:]):
        with suppress(OSError):
            if b"study.launching" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return int(pid)
    return None


def count(folder: Path, status: TrialStatus | None = None) -> int:
    """Return the number of trials with a status; by default, of all."""
    if not (folder / "index.jsonl").exists():
        return 0
    index = TrialIndex.open(folder)
    return len(index if status is None else index.with_status(status))


def kill_at_random(folder: Path, processes: list[Process], kills: int, trials: int) -> Counter[str]:
    """Kill processes and workers, spread over the trials; start killed processes again."""
    choose, killed = random.Random(0), Counter[str]()
    while killed.total() < kills:
        for process in processes:
            if process.process.poll() is not None:
                assert process.process.returncode == -signal.SIGKILL, "it has ended too early"
                process.start()
        due = trials * killed.total() / kills  # so that kills hit all parts of the search
        if count(folder) < max(due, 1) or count(folder) == count(folder, TrialStatus.FAILED):
            time.sleep(0.1)
            continue
        time.sleep(choose.uniform(0, 0.5))
        victim = choose.choice(["process", "process", "worker"])
        worker = newest_worker(folder)
        if victim == "worker" and worker is not None:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
                killed[victim] += 1
        elif victim == "process":
            process = choose.choice(processes)
            if process.process.poll() is None and time.monotonic() - process.began > 5:
                process.process.kill()
                process.process.wait()
                killed[victim] += 1
    return killed


def assert_nothing_is_lost_or_repeated(folder: Path, trials: int) -> None:
    found = Counter((row["kind"], row["number"]) for row in records(folder) if "number" in row)
    wanted = {(kind, number) for kind in ("trial", "outcome") for number in range(trials)}
    assert found == Counter(wanted)
    assert count(folder, TrialStatus.OPEN) == count(folder, TrialStatus.FAILED) == 0
    outcomes_of_runs: dict[str, list[Any]] = {}
    for row in records(folder):
        if row["kind"] == "ended" and row["status"] in ("finished", "stopped"):
            outcomes_of_runs.setdefault(row["run"], []).append((row["step"], row["results"]))
    for found_twice in outcomes_of_runs.values():  # two processes may report one end
        assert all(outcome == found_twice[0] for outcome in found_twice)
    for run in StudyIndex.open(folder):
        rows = read_metrics(run.path) if run.attempts else ()
        steps = [row["step"] for row in rows if METRIC in row]
        assert steps == sorted(set(steps)), run.key


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("more", [{}, {"executor": "population", "parallel": 5}], ids=str)
def test_one_worker_is_reproduced_exactly_after_kills(tmp_path: Path, more: dict[str, Any]) -> None:
    options = {"trials": 15, "seeds": 2, **more}
    reference, folder = tmp_path / "reference", tmp_path / "killed"
    Process(reference, **options).wait()
    process = Process(folder, **options)
    killed = kill_at_random(folder, [process], 6, 14)
    process.wait()
    assert outcomes(folder) == outcomes(reference)
    assert_nothing_is_lost_or_repeated(folder, 15)
    results = [
        {key: dict(run.results) for key, run in StudyIndex.open(each).runs.items()}
        for each in (folder, reference)
    ]
    ended = [
        {k: v for k, v in found.items() if k.startswith(("best", "base"))} for found in results
    ]
    assert ended[0] == ended[1]
    assert (folder / "best.yaml").exists()
    print(dict(killed))


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_three_workers_lose_and_repeat_nothing(tmp_path: Path) -> None:
    """100 trials by three processes with one storage and ten kills."""
    trials, folder, storage = 100, tmp_path / "tuning", tmp_path / "optuna.log"
    options = {"trials": trials, "seeds": 2, "parallel": 6, "storage": storage}
    processes = [Process(folder, shard=f"{number}/3", **options) for number in (1, 2, 3)]
    killed = kill_at_random(folder, processes, 10, 90)
    for process in processes:
        process.wait()
    assert_nothing_is_lost_or_repeated(folder, trials)
    copied = optuna.load_study(
        study_name="tuning", storage=JournalStorage(JournalFileBackend(str(storage)))
    ).trials
    index = TrialIndex.open(folder)
    assert [trial.number for trial in copied] == list(range(trials))
    assert [dict(trial.params) for trial in copied] == [trial.params for trial in index]
    assert {trial.state.name for trial in copied} == {"COMPLETE", "PRUNED"}
    shards = {file.name for file in index_files(folder)}
    assert len(shards) == 4  # the plan, and the events of each process
    alone = tmp_path / "alone"
    Process(alone, **options | {"storage": tmp_path / "alone.log"}).wait()
    assert json.dumps(outcomes(folder), default=str) == json.dumps(outcomes(alone), default=str)
    print(dict(killed))

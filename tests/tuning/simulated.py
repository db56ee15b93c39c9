"""An executor that trains nothing: it writes what runs of the synthetic task would write."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.boundary.yaml_codec import dump_yaml
from rl_training.errors import ConfigError
from rl_training.runtime.stop_reason import StopReason
from rl_training.study.index import StudyIndex
from rl_training.study.jobs import Ended, Evaluated, Event, Job, Started
from rl_training.study.records import RunStatus
from rl_training.study.resources import Resources
from rl_training.tuning.trials import TrialIndex
from rl_training.tuning.tuning import Tuning
from tests.study.simulated import HOST
from tests.tuning.synthetic import CONFIG, OPTIMUM, SPACE

EVALUATIONS = 6
METRIC = "eval_return_mean"


def synthetic_return(x: float, y: float, seed: int, progress: float = 1.0) -> float:
    """Return what a run with these settings scores, after a share of its budget."""
    noise = np.random.default_rng([seed, 17]).normal(size=2) * 0.05
    distance = (x + noise[0] - OPTIMUM[0]) ** 2 + (y + noise[1] - OPTIMUM[1]) ** 2
    return -float(distance) - 3 * (1 - progress)


class SimulatedExecutor:
    """Pretends to train: ``slots`` runs at once, whose events come in a random order.

    A run is interrupted by `stop` and continues where it was, and `at_event` may raise an exception
    to simulate a kill.
    """

    def __init__(
        self,
        slots: int = 1,
        order: int = 0,
        *,
        at_event: Callable[[], object] = lambda: None,
        outcome: Callable[[Job], Ended | None] = lambda job: None,
        fits: Callable[[str], bool] = lambda what: True,
    ) -> None:
        self.submitted: list[str] = []
        self.stopped: list[str] = []
        self.most_active = 0
        self._slots = slots
        self._rng = random.Random(order)
        self._active: dict[str, tuple[Job, int]] = {}
        self._at_event = at_event
        self._outcome = outcome
        self._fits = fits

    def prepare(self, study: Path) -> None:
        pass

    def check(self, need: Resources, what: str) -> None:
        if not self._fits(what):
            raise ConfigError(f"{what} needs too much memory.")

    def at_once(self, need: Resources) -> int:
        return self._slots

    def submit(self, job: Job) -> bool:
        if len(self._active) >= self._slots:
            return False
        assert job.key not in self._active, "a run is trained twice at the same time"
        self.submitted.append(job.key)
        self._active[job.key] = (job, -1)
        self.most_active = max(self.most_active, len(self._active))
        return True

    def wait(self, seconds: float) -> Sequence[Event]:
        if not self._active:
            return []
        self._at_event()
        key = self._rng.choice(sorted(self._active))
        job, count = self._active[key]
        fixed = self._outcome(job)
        if fixed is not None:
            del self._active[key]
            return [fixed]
        if count < 0:
            self._active[key] = (job, len(written(job)))
            return [Started(key, 1, HOST)]
        if count < EVALUATIONS:
            value = evaluate(job, count)
            self._active[key] = (job, count + 1)
            return [Evaluated(key, step_of(count), {METRIC: value})]
        del self._active[key]
        value = evaluate(job, EVALUATIONS - 1, write=False)
        write_run(job, "completed")
        return [
            Ended(key, RunStatus.FINISHED, step=60, seconds=1.0, results={"last_return": value})
        ]

    def stop(self, reason: StopReason, key: str | None = None) -> None:
        for active, (job, _) in list(self._active.items()):
            if key not in (None, active):
                continue
            self.stopped.append(active)
            status = RunStatus.INTERRUPTED if reason.is_signal else RunStatus.STOPPED
            write_run(job, "interrupted" if reason.is_signal else "stopped")
            self._outcome_of(active, Ended(active, status, reason=str(reason)))

    def _outcome_of(self, key: str, ended: Ended) -> None:
        before = self._outcome
        self._outcome = lambda job: ended if job.key == key else before(job)

    def kill(self) -> None:
        self._active.clear()

    def release(self) -> None:
        pass

    def close(self) -> None:
        pass


def step_of(number: int) -> int:
    return 10 * (number + 1)


def written(job: Job) -> list[str]:
    """Return the lines of a run's metrics."""
    file = job.run_dir / "metrics.jsonl"
    return file.read_text().splitlines() if file.exists() else []


def evaluate(job: Job, number: int, *, write: bool = True) -> float:
    kwargs = job.config["algo_kwargs"]
    progress = (number + 1) / EVALUATIONS
    value = synthetic_return(kwargs["x"], kwargs["y"], job.config["seed"], progress)
    if write:
        if not job.run_dir.exists():
            write_run(job, "running")
        with (job.run_dir / "metrics.jsonl").open("a") as stream:
            stream.write(json.dumps({"step": step_of(number), METRIC: value}) + "\n")
    return value


def write_run(job: Job, state: str) -> None:
    job.run_dir.mkdir(parents=True, exist_ok=True)
    config = job.config | {"output_dir": str(job.run_dir.parent)}
    (job.run_dir / "config.yaml").write_text(dump_yaml(config))
    (job.run_dir / "run.json").write_text(json.dumps({"state": state}))


# --- Tunings ------------------------------------------------------------------------------


def tuning(**changes: Any) -> Tuning:
    """Return a tuning of the synthetic task."""
    options: dict[str, Any] = {"space": SPACE, "trials": 12, "seeds": 2}
    return Tuning(changes.pop("config", CONFIG), **options | changes)


def outcomes(folder: Path) -> list[tuple[Any, ...]]:
    """Return everything about the trials of a tuning that must be reproducible."""
    return [
        (
            *(trial.number, trial.params, trial.origin, trial.known, trial.status),
            *(trial.value, list(trial.scores), dict(trial.points)),
        )
        for trial in TrialIndex.open(folder)
    ]


def trained_runs(folder: Path) -> set[str]:
    return {run.key for run in StudyIndex.open(folder) if run.status.has_ended}

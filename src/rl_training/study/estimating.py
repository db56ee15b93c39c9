"""Estimate how long a study takes and how much disk space it needs (`study run --dry-run`)."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rl_training.algorithms.config import CollectionConfig
from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.memory import learner_bytes, plan_learner
from rl_training.runtime.stop_reason import StopReason
from rl_training.study.executor import Executor
from rl_training.study.index import StudyIndex, StudyRun
from rl_training.study.jobs import Busy, Ended, Event, Job, Progress
from rl_training.study.planning import CheckedKind, PlannedGroup, check_kinds, group_kind
from rl_training.study.records import LOCKS

CALIBRATION_SECONDS = 5.0
"""How long the speed of a method is measured, after its first update."""
MAX_CALIBRATION_SECONDS = 60.0
MAX_CALIBRATIONS = 20
LOG_ROW_BYTES = 2_000
"""Size of one entry of the metrics, in ``metrics.jsonl`` and TensorBoard."""


@dataclass(frozen=True)
class Speed:
    """What a calibration has measured about a method."""

    start: float
    """Seconds until the first step."""
    steps_per_second: float
    evaluation: float
    """Seconds of an evaluation."""

    def seconds(self, config: TrainConfig) -> float:
        """Return the estimated time of a run."""
        steps, interval = config.last_step, config.parts.controls.eval_interval
        evaluations = steps // interval + (steps % interval > 0) if interval else 1
        return self.start + steps / self.steps_per_second + evaluations * self.evaluation


@dataclass(frozen=True)
class GroupEstimate:
    """The runs of one label on one task that are left, and what each of them takes."""

    label: str
    task: str
    seeds: int
    left: int
    """Number of runs that have not ended."""
    steps: int
    seconds: float | None
    """Estimated time of a run; None if unknown."""
    disk: int
    """Estimated size of a run in bytes."""
    basis: str
    """Where the time comes from: ``finished runs``, ``a calibration`` or ``unknown``."""


@dataclass(frozen=True)
class StudyEstimate:
    """Estimates for all runs of a plan."""

    groups: tuple[GroupEstimate, ...]
    at_once: int
    """Number of runs that are trained at the same time; 0 if one does not fit on this machine."""
    problems: tuple[str, ...] = ()
    """Why times are unknown, such as a GPU that this machine does not have."""

    @property
    def left(self) -> int:
        """Number of runs that have not ended."""
        return sum(group.left for group in self.groups)

    @property
    def seconds(self) -> float | None:
        """Estimated time of everything that is left; None if part of it is unknown."""
        known = [group for group in self.groups if group.left]
        if any(group.seconds is None for group in known):
            return None
        work = sum(group.left * (group.seconds or 0.0) for group in known)
        longest = max((group.seconds or 0.0 for group in known), default=0.0)
        return max(work / max(1, self.at_once), longest)

    @property
    def disk(self) -> int:
        """Estimated disk space of everything that is left."""
        return sum(group.left * group.disk for group in self.groups)

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "runs": sum(group.seeds for group in self.groups),
            "left": self.left,
            "at_once": self.at_once,
            "seconds": self.seconds,
            "disk_bytes": self.disk,
            "problems": list(self.problems),
            "groups": [vars(group) for group in self.groups],
        }


def estimate(
    groups: Sequence[PlannedGroup],
    index: StudyIndex | None,
    executor: Executor,
    *,
    imports: Sequence[str] = (),
    is_named: bool = True,
) -> StudyEstimate:
    """Estimate time and disk space, from finished runs if there are any, else by calibration.

    Args:
        groups: The groups of a plan.
        index: The index of the study, if it has already started.
        executor: Trains the calibrations.
        imports: Modules that workers import first.
        is_named: Whether the user has specified the configs in this session.
    """
    runs: dict[tuple[str, str], list[StudyRun]] = {}
    for run in index or ():
        runs.setdefault((run.label, run.task), []).append(run)
    finished = {place: [r for r in known if r.status.has_ended] for place, known in runs.items()}
    unknown = [group for group in groups if not finished.get((group.label, group.task))]
    kinds = check_kinds(unknown)
    fitting = [group for group in unknown if _problem(group, executor) is None]
    speeds = calibrate(fitting, executor, imports, is_named=is_named)
    estimates = []
    for group in groups:
        ended = finished.get((group.label, group.task), [])
        seconds, basis = _time(group, ended, speeds)
        disk = _mean([folder_size(run.path) for run in ended])
        seeds = {run.seed for run in ended}
        estimates.append(
            GroupEstimate(
                label=group.label,
                task=group.task,
                seeds=len(group.seeds),
                left=sum(seed not in seeds for seed in group.seeds),
                steps=group.config.last_step,
                seconds=seconds,
                disk=int(disk) if disk else run_bytes(group.config, kinds[group_kind(group)]),
                basis=basis,
            )
        )
    left = [group for group, found in zip(groups, estimates, strict=True) if found.left]
    together = min((executor.at_once(group.resources) for group in left), default=1)
    problems = [problem for group in left if (problem := _problem(group, executor))]
    problems += [
        f"The time of {group.label} on {group.task} is unknown: its speed could not be measured "
        "in a short run."
        for group in fitting
        if _method(group) not in speeds
    ]
    return StudyEstimate(tuple(estimates), together, tuple(dict.fromkeys(problems)))


def _problem(group: PlannedGroup, executor: Executor) -> str | None:
    """Return why a run does not fit on this machine, or None if it does."""
    try:
        executor.check(group.resources, f"A run of {group.label}")
    except ConfigError as error:
        return str(error)
    return None


def _time(
    group: PlannedGroup, ended: Sequence[StudyRun], speeds: dict[str, Speed]
) -> tuple[float | None, str]:
    measured = _mean([run.seconds for run in ended if run.seconds > 0])
    if measured is not None:
        return measured, "finished runs"
    speed = speeds.get(_method(group))
    return (None, "unknown") if speed is None else (speed.seconds(group.config), "a calibration")


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def folder_size(folder: Path) -> int:
    """Return the size of all files in a folder; links are not followed."""
    sizes = (
        os.lstat(os.path.join(parent, name)).st_size
        for parent, _, names in os.walk(folder)
        for name in names
    )
    return sum(sizes)


def run_bytes(config: TrainConfig, kind: CheckedKind) -> int:
    """Return the approximate size of a run's folder: checkpoints, replay and metrics."""
    learner, controls = plan_learner(config, kind.spec), config.parts.controls
    saves = config.last_step // config.checkpoint_interval if config.checkpoint_interval else 0
    kept = min(controls.keep_checkpoints, saves + 1) + 1  # and the best one
    size = kept * learner_bytes(learner) if learner is not None else 0
    settings = config.parts.algorithm
    if isinstance(settings, CollectionConfig):
        rows = min(settings.buffer_capacity, config.budget)
        size += config.replay_class.num_bytes(rows, kind.spec)
    return size + (config.last_step // config.log_interval + 1) * LOG_ROW_BYTES


# --- Calibration ------------------------------------------------------------------------


def _method(group: PlannedGroup) -> str:
    """Return a key for groups of the same speed: the label and task without a grid's values."""
    config = group.config
    return f"{config.algo} {group.task} {config.parts.algorithm.batch_size} {config.num_envs}"


def calibrate(
    groups: Sequence[PlannedGroup],
    executor: Executor,
    imports: Sequence[str] = (),
    *,
    is_named: bool = True,
) -> dict[str, Speed]:
    """Measure the speed of each method for a few seconds, in a temporary folder."""
    methods = {_method(group): group for group in reversed(groups)}
    chosen = dict(list(methods.items())[:MAX_CALIBRATIONS])
    with tempfile.TemporaryDirectory(prefix="rl-training-") as folder:
        (Path(folder) / LOCKS).mkdir()
        waiting = {
            f"calibration/{number}/seed0": (method, group)
            for number, (method, group) in enumerate(chosen.items())
        }
        jobs = {
            key: replace(_job(folder, key, group), imports=tuple(imports), is_named=is_named)
            for key, (_, group) in waiting.items()
        }
        measured = _Calibration(executor, jobs).run()
    return {waiting[key][0]: speed for key, speed in measured.items()}


def _job(folder: str, key: str, group: PlannedGroup) -> Job:
    """Return the job of a calibration: the same config, but evaluated soon."""
    config = group.settings | {"seed": group.seeds[0]}
    settings = group.config.parts.algorithm
    if group.config.parts.controls.eval_interval:
        begin = settings.learning_starts if isinstance(settings, CollectionConfig) else 0
        soon = min(group.config.last_step, begin + group.config.online_from + 100)
        config["algo_kwargs"] = config["algo_kwargs"] | {"eval_interval": soon}
    return Job(folder, key, config, group.resources, is_named=False)


class _Calibration:
    """Runs jobs until their speed is known."""

    def __init__(self, executor: Executor, jobs: dict[str, Job]) -> None:
        self._executor = executor
        self._waiting = list(jobs.values())
        self._begun: dict[str, float] = {}
        self._first_step: dict[str, float] = {}
        self._learning: dict[str, float] = {}
        self._last: dict[str, Progress] = {}

    def run(self) -> dict[str, Speed]:
        """Return the speed of each job that could be measured."""
        while self._waiting or self._begun:
            while self._waiting and self._executor.submit(self._waiting[0]):
                self._begun[self._waiting.pop(0).key] = time.monotonic()
            for event in self._executor.wait(0.25):
                self._handle(event)
            for key, began in self._begun.items():
                if time.monotonic() - began > MAX_CALIBRATION_SECONDS:
                    self._stop(key)
        return {
            key: Speed(self._first_step[key], last.speed, last.evaluation_seconds or 0.0)
            for key, last in self._last.items()
            if last.speed
        }

    def _handle(self, event: Event) -> None:
        now = time.monotonic()
        if isinstance(event, Ended | Busy):
            self._begun.pop(event.key, None)
        if not isinstance(event, Progress) or event.key not in self._begun:
            return
        self._first_step.setdefault(event.key, now - self._begun[event.key])
        if not event.is_learning:  # collecting alone is much faster
            return
        began = self._learning.setdefault(event.key, now)
        if event.speed:
            self._last[event.key] = event
        # The first evaluation may take longer than the calibration.
        if event.key in self._last and now - began >= CALIBRATION_SECONDS:
            self._stop(event.key)

    def _stop(self, key: str) -> None:
        self._executor.stop(StopReason.parse("signal: SIGTERM"), key)

"""Train one run of a study, and report what happens.

`job_steps` is the same for every executor. `study/serving.py` connects it to a coordinator.
"""

from __future__ import annotations

import errno
import os
import time
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rl_training.api.progress import Meter
from rl_training.api.resuming import ENDED_STATES
from rl_training.api.training import continued_session, new_session, record_result
from rl_training.boundary.locking import LockedError, hold_lock
from rl_training.boundary.reading import sha256_of
from rl_training.boundary.terminal import print_stderr
from rl_training.errors import ConfigError, RLTrainingError
from rl_training.experiment.config import TrainConfig, make_config, name_config, saved_config
from rl_training.experiment.run_directory import (
    CONFIG_FILE,
    is_locked,
    is_run,
    read_config_file,
    read_run_info,
    remove_abandoned_run_dirs,
)
from rl_training.experiment.task import Task, check_config
from rl_training.experiment.user_imports import import_user_module
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.checkpointing import list_steps
from rl_training.runtime.logging import read_metrics
from rl_training.runtime.session import Session
from rl_training.runtime.signals import stop_on_signals
from rl_training.runtime.stop_reason import StopKind, StopReason
from rl_training.runtime.training_loop import TrainResult, training_result, training_steps
from rl_training.study.differences import Difference, first_difference
from rl_training.study.fencing import CHECK_SECONDS, Fence
from rl_training.study.hosts import describe_host
from rl_training.study.jobs import (
    Busy,
    Ended,
    Evaluated,
    Event,
    Job,
    Progress,
    Started,
    Warned,
)
from rl_training.study.records import RunStatus
from rl_training.text import error_text, shown

REPORT_SECONDS = 1.0
"""Time between two reports of progress."""

RESULTS = ("best_return", "last_return", "best_loss", "last_loss")
"""Entries of ``run.json`` that the index keeps."""

Report = Callable[[Event], None]


class StopRequest:
    """A request to stop a run, which may come from another thread at any time."""

    def __init__(self) -> None:
        self.reason: StopReason | None = None

    def set(self, reason: StopReason) -> None:
        """Request a stop; the first reason is kept."""
        self.reason = self.reason or reason

    def interrupt(self) -> None:
        """Request a stop after which the run can be resumed."""
        self.set(StopReason(StopKind.SIGNAL, "SIGTERM"))


class _Reporter(Callback):
    """Reports the progress of a run, and stops it on request."""

    def __init__(self, key: str, report: Report, stop: StopRequest, fence: Fence) -> None:
        self._key = key
        self._report = report
        self._fence = fence
        self._stop = stop
        self._meter = Meter()
        self._next = 0.0
        self._now = 0.0

    def on_start(self, session: Session) -> None:
        self._now = time.perf_counter()
        session.checkpoints.before_commit = self._fence.check
        self._meter.start(session, self._now)
        self._show(session)
        self._check_stop(session)

    def on_step(self, session: Session) -> None:
        self._fence.check(every=CHECK_SECONDS)
        self._check_stop(session)
        self._now = now = time.perf_counter()
        if now >= self._next:
            self._next = now + REPORT_SECONDS
            self._meter.add(session, now)
            self._show(session)

    def on_evaluation(self, session: Session, metrics: Mapping[str, float]) -> None:
        self._meter.exclude_evaluation(time.perf_counter() - self._now)
        self._fence.check()
        self._report(Evaluated(self._key, session.state.step, dict(metrics)))
        self._show(session)

    def _check_stop(self, session: Session) -> None:
        if self._stop.reason is not None:
            session.state.request_stop(self._stop.reason)

    def _show(self, session: Session) -> None:
        report = self._meter.report(session)
        stage = report.stage
        self._report(
            Progress(
                self._key,
                done=stage.done,
                total=stage.total,
                unit=stage.unit,
                phase=stage.phase,
                speed=report.speed,
                left=report.left,
                results=report.results,
                is_learning=session.state.updates > 0,
                evaluation_seconds=self._meter.evaluation_seconds,
            )
        )


# --- Training ---------------------------------------------------------------------------


JobSteps = Generator[tuple[Session, int | None], None, Ended | Busy]
"""The steps of a job: yields its session with the number of updates that the caller runs next, or
None while environments step in other processes, and returns how the attempt ended."""


def train_job(job: Job, report: Report, stop: StopRequest) -> Ended | Busy:
    """Start or continue a run, and return how the attempt ended."""
    steps = job_steps(job, report, stop)
    try:
        with stop_on_signals(stop.set):
            session, updates = next(steps)
            while True:
                try:
                    session.engine.run(updates or 0)
                except Exception as error:
                    session, updates = steps.throw(error)
                else:
                    session, updates = next(steps)
    except StopIteration as ended:
        outcome: Ended | Busy = ended.value
        return outcome


def job_steps(job: Job, report: Report, stop: StopRequest) -> JobSteps:
    """Start or continue a run; the caller runs its updates."""
    lock = job.lock
    try:
        lock.parent.mkdir(exist_ok=True)
        with hold_lock(lock, what=Path(job.study), busy=job.key):
            if is_run(job.run_dir) and is_locked(job.run_dir):  # by another command
                return Busy(job.key)
            fence = Fence(job)
            fence.begin()
            report(Started(job.key, os.getpid(), describe_host(gpu=job.gpu is not None)))
            ended = yield from _attempt(job, report, stop, fence)
            if ended.status.has_ended and job.fqe_updates is not None:
                ended = _with_estimate(job, ended)
            if ended.status.has_ended:
                # Who waits for this lock looks at the run first, which is complete now.
                fence.end()
                lock.unlink(missing_ok=True)
            return ended
    except LockedError:
        return Busy(job.key)
    except (RLTrainingError, OSError) as error:
        return describe_failure(job, error)


def _attempt(
    job: Job, report: Report, stop: StopRequest, fence: Fence
) -> Generator[tuple[Session, int | None], None, Ended]:
    def warn(text: str) -> None:
        print_stderr(f"Warning: {text}")
        report(Warned(job.key, text))

    try:
        remove_abandoned_run_dirs(job.run_dir.parent, job.run_dir.name)
        for module in job.imports:
            import_user_module(module)
        reporter = _Reporter(job.key, report, stop, fence)
        opened = _open_session(job, reporter, warn)
        if opened is None:
            return describe_ended(job.key, job.run_dir)
        with opened as session:
            yield session, 0  # nothing has happened yet
            for updates in training_steps(session):
                yield session, updates
                if updates is not None:
                    session.count_updates(updates)
            result = record_result(session, training_result(session))
        return _outcome(job, result)
    except RLTrainingError as error:
        return describe_failure(job, error)
    except Exception as error:  # an environment or a module of the user may raise anything
        traceback.print_exc()
        return describe_failure(job, error)


def _open_session(
    job: Job, reporter: Callback, warn: Callable[[str], None]
) -> AbstractContextManager[Session] | None:
    """Return the session of a run that starts or continues.

    It is None for a run that has ended but nobody has recorded that.
    """
    if not is_run(job.run_dir):
        name = job.run_dir.name
        return new_session(job_task(job), [reporter], origin=job.origin, name=name, on_warning=warn)
    config = check_run_config(job.run_dir, job.config)
    if read_run_info(job.run_dir).get("state") in ENDED_STATES:
        return None
    if job.is_named:
        name_config(config)
    return continued_session(job.run_dir, (), [reporter], on_warning=warn)


def job_task(job: Job) -> Task:
    """Return the checked config of a run that starts."""
    data = job.config | {"output_dir": str(job.run_dir.parent)}
    config = make_config(data) if job.is_named else saved_config(data)
    if job.is_named:
        name_config(config)
    return check_config(config.resolved())


def check_run_config(run_dir: Path, planned: Mapping[str, Any]) -> TrainConfig:
    """Return the config of a run folder; reject it if it is not the planned one."""
    try:
        saved = read_config_file(run_dir).resolved()
    except ConfigError as error:
        raise ConfigError(changed_run(run_dir, str(error))) from None
    wanted = saved_config(planned).resolved()
    change = first_difference(wanted.to_dict(), saved.to_dict())
    if change is None and saved.seed != wanted.seed:
        change = Difference("seed", wanted.seed, saved.seed)
    if change is not None:
        what = f"{change.key} is {shown(change.now)}, but was planned as {shown(change.before)}"
        raise ConfigError(changed_run(run_dir, what))
    return saved


def changed_run(run_dir: Path, what: str) -> str:
    """Return the error for a run folder that was changed outside the study."""
    return (
        f"{run_dir} was changed outside the study ({what}): restore it, or move it away to train "
        "this run again."
    )


def _outcome(job: Job, result: TrainResult) -> Ended:
    if result.stop.is_signal:
        return describe_attempt(
            job.key, job.run_dir, RunStatus.INTERRUPTED, reason=result.stop_reason
        )
    return describe_ended(job.key, job.run_dir)


def describe_ended(key: str, run_dir: Path) -> Ended:
    """Return the outcome of a run whose ``run.json`` says that it has ended."""
    info = read_run_info(run_dir)
    status = RunStatus.FINISHED if info.get("state") == "completed" else RunStatus.STOPPED
    reason = info.get("stop_reason") if status is RunStatus.STOPPED else None
    return describe_attempt(
        key,
        run_dir,
        status,
        reason=str(reason) if reason else None,
        config_sha256=sha256_of(run_dir / CONFIG_FILE),
    )


def _with_estimate(job: Job, ended: Ended) -> Ended:
    """Add the value of the last policy, estimated from the run's data, to the results."""
    from rl_training.api.checkpoints import evaluate_checkpoint

    try:
        found = evaluate_checkpoint(job.run_dir, fqe=True, fqe_updates=job.fqe_updates)
    except RLTrainingError as error:
        return describe_failure(job, error)
    return replace(ended, results=ended.results | {"fqe": found["fqe_value"]})


def describe_failure(job: Job, error: Exception) -> Ended:
    """Return the outcome of an attempt that ended with an error."""
    expected = isinstance(error, RLTrainingError)
    full = is_disk_full(error)
    return describe_attempt(
        job.key,
        job.run_dir,
        RunStatus.INTERRUPTED if full else RunStatus.FAILED,
        reason=str(error) if expected else error_text(error),
        can_retry=not isinstance(error, ConfigError),
        disk_is_full=full,
    )


def is_disk_full(error: BaseException | None) -> bool:
    """Return whether an error was caused by a full disk or a quota."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__ or error.__context__
    return False


def describe_attempt(key: str, run_dir: Path, status: RunStatus, **facts: Any) -> Ended:
    """Return the outcome of an attempt, with the progress and the results in the run's folder."""
    info, steps, seconds = read_run_info(run_dir), [], 0.0
    with suppress(RLTrainingError, OSError):  # the folder may be damaged, which is the outcome
        steps = list_steps(run_dir)
        for row in read_metrics(run_dir):
            seconds = float(row.get("time/seconds", seconds))
    found = {name: info.get(name) for name in RESULTS if name in info}
    return Ended(
        key,
        status,
        step=int(steps[-1].name.removeprefix("step_")) if steps else 0,
        seconds=max(0.0, seconds),
        results={
            name: value if isinstance(value, int | float) else None for name, value in found.items()
        },
        **facts,
    )

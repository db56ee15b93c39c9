"""The folder of a study: add a plan to it, lock it, and record what happens to its runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_training.boundary.journal import Journal
from rl_training.boundary.locking import LockedError, hold_lock
from rl_training.boundary.reading import sha256_of
from rl_training.boundary.writing import sync_folder, write_atomically
from rl_training.boundary.yaml_codec import dump_yaml
from rl_training.errors import ConfigError, TrainingError
from rl_training.experiment.config import saved_config
from rl_training.experiment.run_directory import CONFIG_FILE, is_run, now
from rl_training.study.config import StudyConfig, make_study_config, read_mapping
from rl_training.study.differences import first_difference
from rl_training.study.hosts import host_id
from rl_training.study.index import Failure, StudyGroup, StudyIndex, StudyRun
from rl_training.study.jobs import Ended, Started
from rl_training.study.naming import folder_name
from rl_training.study.planning import PlannedGroup, StudyPlan
from rl_training.study.records import (
    FORMAT,
    INDEX_FILE,
    LOCKS,
    LOGS,
    STUDY_FILE,
    TUNING_FILE,
    EndedRecord,
    GroupRecord,
    HeaderRecord,
    HostRecord,
    LostRecord,
    Record,
    ResourcesRecord,
    RunStatus,
    SeedsRecord,
    SessionRecord,
    StartedRecord,
    run_key,
)
from rl_training.study.worker import changed_run, check_run_config
from rl_training.text import reason, shown
from rl_training.version import __version__

PLAN_SECONDS = 60.0
"""How long to wait for other shards that add their plan at the same moment."""


@dataclass(frozen=True)
class Shard:
    """A part of the runs: number ``number`` of ``count``."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Parse ``3/16``."""
        number, slash, count = text.partition("/")
        if not (slash and number.isdigit() and count.isdigit()):
            raise ConfigError(f"shard = {shown(text)}: write it as NUMBER/COUNT, such as 3/16.")
        if not 1 <= int(number) <= int(count) <= 99_999:
            raise ConfigError(
                f"shard = {shown(text)}: the number should be from 1 to {count}, and the count at "
                "most 99,999."
            )
        return cls(int(number), int(count))

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    @property
    def file(self) -> str:
        """Name of the index file to which the shard writes."""
        return f"index-{self.number}-of-{self.count}.jsonl"

    def of(self, runs: Sequence[StudyRun]) -> list[StudyRun]:
        """Return the shard's runs, of all runs of a study in the order of their planning."""
        return list(runs[self.number - 1 :: self.count])


# --- Opening ----------------------------------------------------------------------------


def is_study(folder: Path) -> bool:
    """Return whether a folder is a study."""
    return (folder / STUDY_FILE).is_file() or (folder / INDEX_FILE).is_file()


def read_description(folder: Path) -> StudyConfig | None:
    """Return the description in the folder of a study, or None if there is none."""
    file = folder / STUDY_FILE
    if not os.path.lexists(file):
        return None
    return make_study_config(read_mapping(file, follow_links=False), str(file))


def check_folder(folder: Path, name: str | None) -> None:
    """Reject a folder that cannot hold the study ``name``; None stands for any name."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder: choose another one with --out.")
    if (folder / TUNING_FILE).is_file():
        raise ConfigError(f"{folder} is a tuning: continue it with rl-training tune {folder}")
    if not is_study(folder):
        if {entry.name for entry in folder.iterdir()} - {LOCKS, LOGS, f".tmp-{STUDY_FILE}"}:
            raise ConfigError(
                f"{folder} contains other files and is not a study: choose another folder with "
                "--out."
            )
        return
    known = study_name(folder)
    if name is not None and known is not None and known != name:
        raise ConfigError(
            f"{folder} belongs to the study {shown(known)}, not to {shown(name)}: choose another "
            "folder with --out."
        )


def study_name(folder: Path) -> str | None:
    """Return the name of a study in a folder."""
    description = read_description(folder)
    if description is not None and description.name is not None:
        return description.name
    if (folder / INDEX_FILE).is_file():
        return StudyIndex.open(folder).name or None
    return None


@contextmanager
def report_failed_writes(folder: Path) -> Iterator[None]:
    """Turn a failed write to a study into an error that says how to continue."""
    try:
        yield
    except OSError as error:
        raise TrainingError(
            f"{folder} cannot be written ({reason(error)}). Nothing that was finished is lost: fix "
            "this, then run the same command again."
        ) from error


@contextmanager
def open_session(
    folder: Path,
    plan: StudyPlan | None,
    *,
    shard: Shard | None = None,
    command: Sequence[str] = (),
    git: dict[str, Any] | None = None,
    host: dict[str, Any] | None = None,
) -> Iterator[StudySession]:
    """Add a plan to a study, and hold the lock under which its events are recorded.

    Raises:
        ConfigError: Another process runs the study, or the plan contradicts it.
    """
    name = plan.description.name if plan is not None else None
    check_folder(folder, name)
    with ExitStack() as held:
        with report_failed_writes(folder):
            (folder / LOCKS).mkdir(parents=True, exist_ok=True)
            sync_folder(folder)
        with lock_plan(folder):
            check_folder(folder, name)
            index = StudyIndex(folder)
            if (folder / INDEX_FILE).is_file():
                index.reload()
            whole = held if shard is None else None
            _add_plan(index, plan, whole)
            if shard is not None:
                lock_index(held, folder, shard.file, f"Shard {shard} of {folder}")
            index.reload()
        session = StudySession(index, Journal(folder / (shard.file if shard else INDEX_FILE)))
        held.callback(session.close)
        session.begin(command, git, host or {})
        yield session


def lock_plan(folder: Path) -> AbstractContextManager[None]:
    """Hold the lock under which a plan is changed."""
    busy = f"{folder} is being changed by another process: try again."
    return hold_lock(folder / LOCKS / "plan.lock", what=folder, busy=busy, wait=PLAN_SECONDS)


def lock_index(held: ExitStack, folder: Path, file: str, what: str) -> None:
    """Hold the lock of an index file until ``held`` is closed.

    Raises:
        LockedError: Another process holds it.
    """
    lock = folder / LOCKS / f"{file.removesuffix('.jsonl')}.lock"
    busy = (
        f"{what} is being run by another process{_last_session(folder / file)}: wait for it or "
        "stop it. Several processes can share a study with --shard."
    )
    held.enter_context(hold_lock(lock, what=folder, busy=busy))


def _last_session(file: Path) -> str:
    """Describe the process that has written to an index file last."""
    if not file.is_file():
        return ""
    index = StudyIndex(file.parent)
    index.reload()
    last = index.sessions[-1:]
    return f" (process {last[0].pid} on {last[0].host})" if last else ""


def _add_plan(index: StudyIndex, plan: StudyPlan | None, held: ExitStack | None) -> None:
    """Add the runs that are missing; ``held`` keeps the lock of the index, or None releases it."""
    folder, records = index.path, list(_new_records(index, plan)) if plan is not None else []
    with ExitStack() as stack:
        try:
            if held is not None or records:
                lock_index(held or stack, folder, INDEX_FILE, str(folder))
        except LockedError as error:
            if held is not None:
                raise
            raise ConfigError(f"{error} Until then, no runs can be added.") from None
        with report_failed_writes(folder):
            if plan is not None:
                description = plan.description
                text = dump_yaml(description.to_dict()).encode()
                if description != _description_or_none(folder):
                    write_atomically(folder / STUDY_FILE, text)
                    sync_folder(folder)
            journal = Journal(folder / INDEX_FILE)
            journal.append(record.line() for record in records)
            journal.close()


def _description_or_none(folder: Path) -> StudyConfig | None:
    """Return the description in a folder; None if there is none or it cannot be read."""
    try:
        return read_description(folder)
    except ConfigError:
        return None


# --- Adding a plan ----------------------------------------------------------------------


def _new_records(index: StudyIndex, plan: StudyPlan) -> Iterator[Record]:
    """Yield what a plan adds to an index; reject contradictions before anything is written."""
    known = {(group.label, group.task): group for group in index.groups.values()}
    if not index.name:
        yield HeaderRecord(
            format=FORMAT, name=plan.description.name or index.path.name, created=now()
        )
    labels = {group.label: group.folder.partition("/")[0] for group in index.groups.values()}
    tasks = {
        (group.label, group.task): group.folder.partition("/")[2] for group in index.groups.values()
    }
    for group in plan.groups:
        old = known.get((group.label, group.task))
        if old is None:
            yield _group_record(group, labels, tasks)
        else:
            yield from _more(index, old, group)


def _group_record(
    group: PlannedGroup, labels: dict[str, str], tasks: dict[tuple[str, str], str]
) -> GroupRecord:
    """Return the record of a new group, in a folder that no other group has."""
    if group.label not in labels:
        labels[group.label] = folder_name(group.label, labels.values())
    taken = [folder for (label, _), folder in tasks.items() if label == group.label]
    tasks[group.label, group.task] = folder_name(group.task, taken)
    return GroupRecord(
        label=group.label,
        task=group.task,
        folder=f"{labels[group.label]}/{tasks[group.label, group.task]}",
        config=group.settings,
        seeds=list(group.seeds),
        resources=group.resources.to_record(),
    )


def _more(index: StudyIndex, old: StudyGroup, new: PlannedGroup) -> Iterator[Record]:
    """Yield what changes for a group that the study already has."""
    difference = first_difference(old.config, new.settings)
    if difference is not None:  # perhaps only because an older version did not have the key
        before = saved_config(old.config).resolved().to_dict()
        now_ = saved_config(new.settings).resolved().to_dict()
        difference = first_difference(before, now_)
    if difference is not None:
        raise ConfigError(
            f"{index.path} already has {shown(new.label)} on {shown(new.task)} with "
            f"{difference.key} = {shown(difference.before)}, which is now "
            f"{shown(difference.now)}: results of different settings never share a label, so use "
            "another label or another folder."
        )
    seeds = [seed for seed in new.seeds if run_key(old.folder, seed) not in index.runs]
    if seeds:
        yield SeedsRecord(folder=old.folder, seeds=seeds)
    resources = new.resources.to_record()
    if resources != old.resources:
        yield ResourcesRecord(folder=old.folder, resources=resources)


def planned_runs(index: StudyIndex, plan: StudyPlan) -> list[StudyRun]:
    """Return the runs of a plan in an index that contains it."""
    folders = {(group.label, group.task): group.folder for group in index.groups.values()}
    wanted = {
        run_key(folders[group.label, group.task], seed)
        for group in plan.groups
        for seed in group.seeds
    }
    return [run for key, run in index.runs.items() if key in wanted]


# --- Recording --------------------------------------------------------------------------


class StudySession:
    """The index of a study together with the journal to which this process appends."""

    def __init__(self, index: StudyIndex, journal: Journal) -> None:
        self.index = index
        self._journal = journal
        self._active: set[str] = set()
        """Runs whose start was recorded, but not their end."""

    def begin(
        self, command: Sequence[str], git: dict[str, Any] | None, host: dict[str, Any]
    ) -> None:
        """Record this process."""
        session = SessionRecord(
            command=list(command),
            pid=os.getpid(),
            host=str(host.get("hostname", "")),
            time=now(),
            version=__version__,
            git=git,
        )
        self.append(*self._new_host(host), session)

    def started(self, run: StudyRun, event: Started) -> None:
        """Record the start of an attempt."""
        run.attempts += 1
        self._active.add(run.key)
        run.status, run.reason, run.host = RunStatus.RUNNING, None, host_id(event.host)
        self.append(
            *self._new_host(event.host),
            StartedRecord(
                run=run.key, attempt=run.attempts, host=run.host, pid=event.pid, time=now()
            ),
        )

    def ended(self, run: StudyRun, event: Ended) -> None:
        """Record the end of an attempt."""
        if run.key not in self._active:  # the worker died before it reported its start
            run.attempts += 1
        self._active.discard(run.key)
        run.status, run.reason, run.results = event.status, event.reason, event.results
        run.step, run.seconds = event.step, event.seconds
        run.config_sha256 = event.config_sha256
        if event.status is RunStatus.FAILED:
            run.failures.append(Failure(run.attempts, event.reason or "unknown", event.step))
        record = EndedRecord.model_validate(
            {
                "run": run.key,
                "attempt": run.attempts,
                "status": event.status.value,
                "time": now(),
                "step": event.step,
                "seconds": event.seconds,
                "reason": event.reason,
                "results": event.results,
                "config_sha256": event.config_sha256,
            }
        )
        self.append(record)

    def lost(self, run: StudyRun) -> None:
        """Record that the folder of an ended run was deleted, so that it is trained again."""
        run.status = RunStatus.PLANNED
        self.append(LostRecord(run=run.key, attempt=max(run.attempts, 1)))

    def _new_host(self, facts: dict[str, Any]) -> list[HostRecord]:
        if not facts or host_id(facts) in self.index.hosts:
            return []
        self.index.hosts[host_id(facts)] = facts
        return [HostRecord(id=host_id(facts), facts=facts)]

    def append(self, *records: Record) -> None:
        """Append records and sync them to disk."""
        with report_failed_writes(self.index.path):
            self._journal.append(record.line() for record in records)

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()


# --- Checking ---------------------------------------------------------------------------


def check_run_folders(runs: Sequence[StudyRun]) -> list[StudyRun]:
    """Reject run folders that were changed outside the study; return ended runs without a folder.

    Raises:
        ConfigError: A folder has another config, or is not a run.
    """
    missing = []
    for run in runs:
        exists = os.path.lexists(run.path)
        if run.status.has_ended and not exists:
            missing.append(run)
        elif exists and not is_run(run.path):
            raise ConfigError(
                f"{run.path} is not a run of the study: move it away, then try again."
            )
        elif run.status.has_ended:
            if run.config_sha256 not in (None, sha256_of(run.path / CONFIG_FILE)):
                check_run_config(run.path, run.config)  # which says what has changed
                raise ConfigError(changed_run(run.path, f"{CONFIG_FILE} was edited"))
        elif exists:
            check_run_config(run.path, run.config)
    return missing

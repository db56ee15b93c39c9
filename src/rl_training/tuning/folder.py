"""The folder of a tuning: the folder of a study, to which trials are added as they are proposed."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from rl_training.boundary.journal import Journal
from rl_training.boundary.writing import sync_folder, write_atomically
from rl_training.boundary.yaml_codec import dump_yaml
from rl_training.config_model import validated
from rl_training.errors import ConfigError
from rl_training.experiment.run_directory import now
from rl_training.study.folder import (
    Shard,
    StudySession,
    lock_index,
    lock_plan,
    report_failed_writes,
)
from rl_training.study.index import StudyIndex, StudyRun
from rl_training.study.naming import folder_name
from rl_training.study.planning import PlannedGroup
from rl_training.study.records import (
    FORMAT,
    INDEX_FILE,
    LOCKS,
    LOGS,
    TUNING_FILE,
    GroupRecord,
    HeaderRecord,
    Record,
)
from rl_training.text import shown
from rl_training.tuning.config import FIXED_KEYS, TuningConfig, TuningPlan
from rl_training.tuning.space import Params
from rl_training.tuning.trials import (
    OutcomeRecord,
    PriorRecord,
    Trial,
    TrialIndex,
    TrialRecord,
    TuningRecord,
)

# --- Checking ---------------------------------------------------------------------------


def read_tuning(folder: Path) -> tuple[TrialIndex, TuningConfig]:
    """Return the trials and the description of a tuning.

    Raises:
        ConfigError: The folder is not a tuning.
    """
    if not (folder / INDEX_FILE).is_file():
        problem = "is not a tuning: it has no" if folder.is_dir() else "is not a folder with an"
        raise ConfigError(f"{folder} {problem} {INDEX_FILE}. Start one with: rl-training tune")
    index = TrialIndex.open(folder)
    if index.description is None:
        raise ConfigError(
            f"{folder} is a study, but not a tuning: continue it with rl-training study run."
        )
    try:
        return index, validated(TuningConfig, index.description)
    except ConfigError as error:
        raise ConfigError(f"{folder / INDEX_FILE}: {error}") from None


def check_tuning_folder(folder: Path) -> None:
    """Reject a folder that contains something else than a tuning."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder: choose another one with --out.")
    if (folder / INDEX_FILE).is_file():
        read_tuning(folder)
    elif {entry.name for entry in folder.iterdir()} - {LOCKS, LOGS}:
        raise ConfigError(
            f"{folder} contains other files and is not a tuning: choose another folder with --out."
        )


def check_same_tuning(folder: Path, old: TuningConfig, new: TuningConfig) -> None:
    """Reject a description that differs from the one in a folder.

    Raises:
        ConfigError: Trials of the two could not be compared, or not be reproduced.
    """
    before, now_ = (_flat({key: getattr(d, key) for key in FIXED_KEYS}) for d in (old, new))
    for key in sorted(before.keys() | now_.keys()):
        was, is_now = (shown(d[key]) if key in d else "not set" for d in (before, now_))
        if was != is_now:
            name = key.removeprefix("set.")
            raise ConfigError(
                f"{folder} is a tuning in which {name} is {was}, but here it is {is_now}: choose "
                "another folder with --out."
            )


def _flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested mappings as one, with keys such as ``set.learning_rate``."""
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = list(value) if isinstance(value, tuple) else value
    return flat


# --- Recording --------------------------------------------------------------------------


class TuningSession(StudySession):
    """The index of a tuning, to which this process adds trials and events."""

    def __init__(
        self, index: StudyIndex, trials: TrialIndex, journal: Journal, *, is_shared: bool = False
    ) -> None:
        """Create a session; ``is_shared`` if other processes may add trials as well."""
        super().__init__(index, journal)
        self.trials = trials
        self.is_shared = is_shared

    @contextmanager
    def planning(self, busy: Collection[str] = ()) -> Iterator[None]:
        """Hold the right to add trials and outcomes; other processes' changes are read first.

        Args:
            busy: Keys of the runs that this process is training, which are not read again.
        """
        if not self.is_shared:
            yield
            return
        with lock_plan(self.index.path):
            self.refresh(busy)
            yield

    def refresh(self, busy: Collection[str] = ()) -> None:
        """Read what other processes have recorded."""
        fresh, own = StudyIndex.open(self.index.path), self.index
        for folder, group in fresh.groups.items():
            own.groups.setdefault(folder, group)
        for key, run in fresh.runs.items():
            known = own.runs.setdefault(key, run)
            if known is not run and key not in busy:
                for entry in fields(StudyRun):
                    if entry.name not in ("study", "group", "seed"):
                        setattr(known, entry.name, getattr(run, entry.name))
        own.hosts.update(fresh.hosts)
        self.trials = TrialIndex.open(self.index.path)

    def add_trial(
        self, number: int, params: Params, origin: str, known: int, group: PlannedGroup
    ) -> None:
        """Record a trial and its runs, before any of them starts."""
        record = self._group_record(group)
        self._plan(
            TrialRecord.model_validate(
                {
                    "number": number,
                    "params": params,
                    "origin": origin,
                    "known": known,
                    "folder": record.folder,
                    "time": now(),
                }
            ),
            record,
        )

    def add_outcome(self, record: OutcomeRecord) -> None:
        """Record how a trial has ended."""
        self._plan(record)

    def add_groups(self, groups: Sequence[PlannedGroup]) -> list[StudyRun]:
        """Record runs that do not belong to a trial, unless they are known; return them."""
        records = [self._group_record(group) for group in groups]
        self._plan(*(record for record in records if record.folder not in self.index.groups))
        return [
            run
            for record in records
            for run in self.index
            if run.group.folder == record.folder and run.seed in record.seeds
        ]

    def restore_group(self, trial: Trial, group: PlannedGroup) -> None:
        """Record the runs of a trial again if a kill has cut off their line."""
        if trial.folder not in self.index.groups:
            self._plan(self._group_record(group))

    def _group_record(self, group: PlannedGroup) -> GroupRecord:
        return GroupRecord(
            label=group.label,
            task=group.task,
            folder=f"{group.label}/{folder_name(group.task, ())}",
            config=group.settings,
            seeds=list(group.seeds),
            resources=group.resources.to_record(),
        )

    def _plan(self, *records: Record) -> None:
        """Append records to the plan."""
        if self.is_shared:
            journal = Journal(self.index.path / INDEX_FILE)
            with report_failed_writes(self.index.path):
                journal.append(record.line() for record in records)
            journal.close()
        else:
            self.append(*records)
        for record in records:
            self.index.add_plan(record)
            self.trials.add(record)


@contextmanager
def open_tuning(
    folder: Path,
    plan: TuningPlan,
    *,
    priors: Sequence[PriorRecord] = (),
    shard: Shard | None = None,
    command: Sequence[str] = (),
    git: dict[str, Any] | None = None,
    host: dict[str, Any] | None = None,
) -> Iterator[TuningSession]:
    """Start or continue a tuning in a folder, and hold the lock of its index.

    Raises:
        ConfigError: Another process runs the tuning, or the folder has another one.
    """
    check_tuning_folder(folder)
    with ExitStack() as held:
        with report_failed_writes(folder):
            (folder / LOCKS).mkdir(parents=True, exist_ok=True)
            sync_folder(folder)
        with lock_plan(folder), ExitStack() as brief:
            check_tuning_folder(folder)
            lock_index(held if shard is None else brief, folder, INDEX_FILE, str(folder))
            _write_description(folder, plan.description, priors)
            if shard is not None:
                lock_index(held, folder, shard.file, f"Shard {shard} of {folder}")
        session = TuningSession(
            StudyIndex.open(folder),
            TrialIndex.open(folder),
            Journal(folder / (shard.file if shard else INDEX_FILE)),
            is_shared=shard is not None,
        )
        held.callback(session.close)
        session.begin(command, git, host or {})
        yield session


def _write_description(
    folder: Path, description: TuningConfig, priors: Sequence[PriorRecord]
) -> None:
    """Record what is tuned, unless that is already recorded."""
    index, plain = TrialIndex.open(folder), description.to_plain()
    records: list[Record] = []
    if index.description is None:
        name = description.name or folder.resolve().name
        records += [HeaderRecord(format=FORMAT, name=name, created=now()), *priors]
    if index.description != plain:
        id_ = index.id or secrets.token_hex(8)
        records.append(TuningRecord(id=id_, description=plain))
    if not records:
        return
    with report_failed_writes(folder):
        journal = Journal(folder / INDEX_FILE)
        journal.append(record.line() for record in records)
        journal.close()
        write_atomically(folder / TUNING_FILE, dump_yaml(plain).encode())
        sync_folder(folder)

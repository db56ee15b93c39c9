"""The index of a study: which runs it has, and what is known about each of them.

The index is a journal (`boundary/journal.py`): lines are only appended, so it survives a kill at
any byte. ``index.jsonl`` has the plan and the events of ordinary sessions; every shard appends to
a file of its own. They are merged here. The order of the events of a run is the order of its
attempts, so clocks do not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_training.boundary.locking import is_held
from rl_training.errors import ConfigError
from rl_training.study.records import (
    INDEX_FILE,
    RUNS,
    SHARD_INDEX,
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
    lock_file,
    read_records,
    run_key,
)

MAX_RUNS = 1_000_000


@dataclass(slots=True)
class StudyGroup:
    """The runs of one label on one task, which differ only in their seeds."""

    label: str
    task: str
    folder: str
    """Relative to ``runs``."""
    config: dict[str, Any]
    """The resolved config, without `seed` and `output_dir`."""
    resources: dict[str, float | int]

    @property
    def threads(self) -> int | None:
        """Number of threads of each run, fixed when the study was planned."""
        threads = (self.config.get("algo_kwargs") or {}).get("num_threads")
        return threads if isinstance(threads, int) else None


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed attempt."""

    attempt: int
    reason: str
    step: int
    """Step of the newest checkpoint at that time."""


@dataclass(slots=True)
class StudyRun:
    """One run of a study, as far as the index knows it."""

    study: Path
    group: StudyGroup
    seed: int
    status: RunStatus = RunStatus.PLANNED
    attempts: int = 0
    """Number of the last attempt; 0 if it was never started."""
    failures: list[Failure] = field(default_factory=list)
    step: int = 0
    """Step of the newest checkpoint at the end of the last attempt."""
    seconds: float = 0.0
    """Training time so far, over all attempts."""
    reason: str | None = None
    """Why it stopped, was interrupted or failed."""
    results: Mapping[str, float | int | None] = field(default_factory=dict)
    """`best_return`, `last_return`, … at the end of the last attempt."""
    host: str | None = None
    """Id of the machine of the last attempt (`StudyIndex.hosts`)."""
    config_sha256: str | None = None

    @property
    def label(self) -> str:
        """Name of the method that is compared."""
        return self.group.label

    @property
    def task(self) -> str:
        """Name of the environment or dataset."""
        return self.group.task

    @property
    def threads(self) -> int | None:
        """Number of threads, fixed when the study was planned."""
        return self.group.threads

    @property
    def config(self) -> dict[str, Any]:
        """The resolved config, without `output_dir`."""
        return {**self.group.config, "seed": self.seed}

    @property
    def key(self) -> str:
        """Folder of the run, relative to ``runs``."""
        return run_key(self.group.folder, self.seed)

    @property
    def path(self) -> Path:
        """Folder of the run, which exists once it has started."""
        return self.study / RUNS / self.key

    @property
    def lock(self) -> Path:
        """The lock that a worker holds while it trains the run."""
        return lock_file(self.study, self.key)


@dataclass
class StudyIndex:
    """Everything that is recorded about a study; a snapshot, which `reload` brings up to date."""

    path: Path
    """Folder of the study."""
    name: str = ""
    created: str = ""
    groups: dict[str, StudyGroup] = field(default_factory=dict)
    """Groups of runs by folder."""
    runs: dict[str, StudyRun] = field(default_factory=dict)
    """All runs by key, in the order in which they were planned."""
    hosts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Facts about the machines that have run a part of the study."""
    sessions: list[SessionRecord] = field(default_factory=list)
    """The commands that have run the study."""
    damaged_lines: int = 0
    """Number of torn or damaged lines, which are skipped."""

    @classmethod
    def open(cls, path: str | Path) -> StudyIndex:
        """Read the index of a study.

        Raises:
            ConfigError: The folder is not a study, or its index cannot be read.
        """
        folder = Path(path)
        if not (folder / INDEX_FILE).is_file():
            problem = "is not a study: it has no" if folder.is_dir() else "is not a folder with an"
            raise ConfigError(
                f"{folder} {problem} {INDEX_FILE}. Start a study with: rl-training study run"
            )
        index = cls(folder)
        index.reload()
        return index

    def reload(self) -> None:
        """Read all journals again."""
        self.reload_from(index_files(self.path))

    def reload_from(self, files: Iterable[Path]) -> None:
        """Read some of the journals again."""
        fresh = StudyIndex(self.path)
        events = _Events()
        for file in files:
            for record in read_records(file):
                if record is None:
                    fresh.damaged_lines += 1
                elif isinstance(record, StartedRecord | EndedRecord | LostRecord):
                    events.add(record)
                else:
                    fresh.add_plan(record)
        for key, run in fresh.runs.items():
            events.apply(key, run)
        vars(self).update(vars(fresh))

    def add_plan(self, record: Record) -> None:
        """Add a record that is not an event."""
        match record:
            case HeaderRecord():
                self.name, self.created = record.name, record.created
            case GroupRecord():
                self._add_group(record)
            case SeedsRecord():
                self._add_seeds(record.folder, record.seeds)
            case ResourcesRecord() if record.folder in self.groups:
                self.groups[record.folder].resources = record.resources
            case HostRecord():
                self.hosts[record.id] = record.facts
            case SessionRecord():
                self.sessions.append(record)

    def _add_group(self, record: GroupRecord) -> None:
        if record.folder not in self.groups:
            self.groups[record.folder] = StudyGroup(
                label=record.label,
                task=record.task,
                folder=record.folder,
                config=record.config,
                resources=record.resources,
            )
        self._add_seeds(record.folder, record.seeds)

    def _add_seeds(self, folder: str, seeds: Iterable[int]) -> None:
        group = self.groups.get(folder)
        if group is None:  # the line of the group is damaged; planning adds it again
            return
        for seed in seeds:
            self.runs.setdefault(run_key(folder, seed), StudyRun(self.path, group, seed))
        if len(self.runs) > MAX_RUNS:
            raise ConfigError(f"{self.path} has more than {MAX_RUNS:,} runs.")

    def __iter__(self) -> Iterator[StudyRun]:
        return iter(self.runs.values())

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def labels(self) -> list[str]:
        """All labels, in the order in which they were planned."""
        return list(dict.fromkeys(group.label for group in self.groups.values()))

    @property
    def tasks(self) -> list[str]:
        """All tasks, in the order in which they were planned."""
        return list(dict.fromkeys(group.task for group in self.groups.values()))


def index_files(study: Path) -> list[Path]:
    """Return the journals of a study, with the plan first."""
    shards = (entry for entry in study.iterdir() if SHARD_INDEX.fullmatch(entry.name))
    return [study / INDEX_FILE, *sorted(shards)]


class _Events:
    """The events of all runs, in any order, and the state that follows from them."""

    def __init__(self) -> None:
        self._started: dict[str, dict[int, StartedRecord]] = {}
        self._ended: dict[str, dict[int, EndedRecord]] = {}
        self._lost: dict[str, int] = {}

    def add(self, record: StartedRecord | EndedRecord | LostRecord) -> None:
        if isinstance(record, LostRecord):
            self._lost[record.run] = max(record.attempt, self._lost.get(record.run, 0))
            return
        if isinstance(record, StartedRecord):
            self._started.setdefault(record.run, {})[record.attempt] = record
            return
        known = self._ended.setdefault(record.run, {})
        before = known.get(record.attempt)
        # Two processes may report the same attempt; the one in which it was complete counts.
        if before is None or not RunStatus(before.status).has_ended:
            known[record.attempt] = record

    def apply(self, key: str, run: StudyRun) -> None:
        """Set the state of a run."""
        started, ended = self._started.get(key, {}), self._ended.get(key, {})
        lost = self._lost.get(key, 0)
        run.attempts = max(started.keys() | ended.keys(), default=0)
        run.failures = [
            Failure(attempt, record.reason or "unknown", record.step)
            for attempt, record in sorted(ended.items())
            if record.status == RunStatus.FAILED.value
        ]
        counting = {attempt: record for attempt, record in ended.items() if attempt > lost}
        complete = [a for a, record in counting.items() if RunStatus(record.status).has_ended]
        last = max(complete or counting, default=0)
        if last:
            _set_outcome(run, counting[last])
        if started:
            run.host = started[max(started)].host
        if not complete and run.attempts > max(last, lost):
            run.reason = None
            run.status = RunStatus.RUNNING if is_held(run.lock) else RunStatus.INTERRUPTED


def _set_outcome(run: StudyRun, record: EndedRecord) -> None:
    run.status = RunStatus(record.status)
    run.step, run.seconds = record.step, record.seconds
    run.reason, run.results = record.reason, record.results
    run.config_sha256 = record.config_sha256

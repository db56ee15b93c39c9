"""Trials of a tuning, and what the index records about them.

A tuning is a folder like a study: its trials are groups of ordinary runs. The same journal has more
lines: the description of the tuning, each trial with its settings before any of its runs start, and
each outcome.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from rl_training.errors import ConfigError
from rl_training.study.index import StudyIndex, StudyRun
from rl_training.study.records import (
    INDEX_FILE,
    TRIAL_PREFIX,
    Folder,
    Record,
    Text,
    read_records,
    run_key,
)

MAX_TRIALS = 100_000
Number = Annotated[int, Field(ge=0, lt=MAX_TRIALS)]


class TrialStatus(str, Enum):
    """State of a trial."""

    OPEN = "open"
    """Its runs have not ended."""
    COMPLETE = "complete"
    PRUNED = "pruned"
    """It was stopped early, because it was worse than others."""
    FAILED = "failed"
    """One of its runs failed."""


class TuningRecord(Record):
    """What is tuned; a later line replaces earlier ones."""

    kind = "tuning"
    id: Text
    """Tells tunings apart, for storages."""
    description: dict[str, Any]


class PriorRecord(Record):
    """A trial of an earlier tuning from which this one learns."""

    kind = "prior"
    params: dict[str, Any]
    status: Literal["complete", "pruned", "failed"]
    value: float | None = None
    points: dict[str, float] = Field(default_factory=dict)
    source: str


class TrialRecord(Record):
    """A trial, recorded before its runs start."""

    kind = "trial"
    number: Number
    params: dict[str, Any]
    origin: Literal["config", "warm start", "sampler"]
    known: Annotated[int, Field(ge=0)]
    """Number of trials whose outcomes were known to the sampler; the pruner uses the same ones."""
    folder: Folder
    """Folder of its group of runs."""
    time: Text


class OutcomeRecord(Record):
    """How a trial has ended."""

    kind = "outcome"
    number: Number
    status: Literal["complete", "pruned", "failed"]
    value: float | None = None
    scores: list[float] = Field(default_factory=list)
    """Score of each seed that has ended."""
    points: dict[str, float] = Field(default_factory=dict)
    reason: str | None = None
    time: Text


RECORDS: dict[str, type[Record]] = {
    model.kind: model for model in (TuningRecord, PriorRecord, TrialRecord, OutcomeRecord)
}


@dataclass
class Trial:
    """A trial: settings, and what has become of them."""

    number: int
    params: dict[str, Any]
    origin: str
    known: int
    """Number of trials whose outcomes were known when it was proposed."""
    folder: str
    status: TrialStatus = TrialStatus.OPEN
    value: float | None = None
    """Aggregate of the scores; of a pruned trial, at the point at which it was stopped."""
    scores: Sequence[float] = ()
    points: Mapping[int, float] = field(default_factory=dict)
    reason: str | None = None

    @property
    def label(self) -> str:
        """Label of its runs."""
        return trial_label(self.number)

    def run_keys(self, seeds: Sequence[int]) -> list[str]:
        """Return the keys of its runs."""
        return [run_key(self.folder, seed) for seed in seeds]


def trial_label(number: int) -> str:
    """Return the label of a trial's runs."""
    return f"{TRIAL_PREFIX}{number:04d}"


@dataclass
class Prior:
    """A trial of an earlier tuning."""

    params: dict[str, Any]
    status: TrialStatus
    value: float | None
    points: Mapping[int, float]
    source: str


@dataclass
class TrialIndex:
    """Everything that the index of a tuning has in addition to that of a study."""

    path: Path
    id: str = ""
    description: dict[str, Any] | None = None
    """Description of the tuning; None if the folder is not a tuning."""
    trials: list[Trial] = field(default_factory=list)
    """All trials by number."""
    priors: list[Prior] = field(default_factory=list)

    @classmethod
    def open(cls, folder: Path) -> TrialIndex:
        """Read the trials of a tuning; a folder without an index has none.

        Raises:
            ConfigError: The index was not written by a tuning.
        """
        index = cls(folder)
        file = folder / INDEX_FILE
        if file.is_file():
            for record in read_records(file, RECORDS):
                if record is not None:
                    index.add(record)
        return index

    def add(self, record: Record) -> None:
        """Add a record."""
        match record:
            case TuningRecord():
                self.id, self.description = record.id, record.description
            case PriorRecord():
                self.priors.append(
                    Prior(
                        params=record.params,
                        status=TrialStatus(record.status),
                        value=record.value,
                        points=_points(record.points, self.path),
                        source=record.source,
                    )
                )
            case TrialRecord():
                self._add_trial(record)
            case OutcomeRecord():
                self._add_outcome(record)

    def _add_trial(self, record: TrialRecord) -> None:
        if record.number < len(self.trials):
            return  # two processes have recorded the same proposal
        if record.number > len(self.trials):
            raise ConfigError(
                f"{self.path} has trial {record.number}, but not trial {len(self.trials)}: its "
                f"{INDEX_FILE} is damaged, so restore it from a backup or start a new tuning."
            )
        self.trials.append(
            Trial(
                number=record.number,
                params=record.params,
                origin=record.origin,
                known=min(record.known, record.number),
                folder=record.folder,
            )
        )

    def _add_outcome(self, record: OutcomeRecord) -> None:
        if record.number >= len(self.trials):
            return  # the line of the trial is damaged, which is reported for the next one
        trial = self.trials[record.number]
        if trial.status is TrialStatus.OPEN:
            trial.status = TrialStatus(record.status)
            trial.value, trial.scores = record.value, record.scores
            trial.points, trial.reason = _points(record.points, self.path), record.reason

    def __iter__(self) -> Iterator[Trial]:
        return iter(self.trials)

    def __len__(self) -> int:
        return len(self.trials)

    def with_status(self, *statuses: TrialStatus) -> list[Trial]:
        """Return the trials in these states."""
        return [trial for trial in self.trials if trial.status in statuses]


def _points(points: Mapping[str, float], folder: Path) -> dict[int, float]:
    try:
        return {int(point): value for point, value in points.items()}
    except ValueError:
        raise ConfigError(
            f"{folder}: a point of a trial has no number, so its {INDEX_FILE} was not written by "
            "a tuning."
        ) from None


def is_tuning(folder: Path) -> bool:
    """Return whether a folder is a tuning."""
    return TrialIndex.open(folder).description is not None


def trial_runs(index: StudyIndex, trial: Trial, seeds: Sequence[int]) -> list[StudyRun]:
    """Return the runs of a trial in the order of its seeds."""
    return [index.runs[key] for key in trial.run_keys(seeds)]

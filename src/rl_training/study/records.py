"""The lines of a study's index, and the names of its files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rl_training.boundary.journal import read_journal
from rl_training.config_model import LARGEST_INT, sentence
from rl_training.errors import ConfigError

FORMAT = 1
"""Version of the index; a later version must read all earlier ones."""

STUDY_FILE = "study.yaml"
INDEX_FILE = "index.jsonl"
"""The plan, and the events of all runs that no shard has run."""
TUNING_FILE = "tuning.yaml"
"""The description in the folder of a tuning, which has an index like a study."""
TRIAL_PREFIX = "trial-"
"""Start of the labels of a tuning's trials."""
RUNS = "runs"
LOCKS = "locks"
LOGS = "logs"
SHARD_INDEX = re.compile(r"index-([1-9][0-9]{0,4})-of-([1-9][0-9]{0,4})\.jsonl")
"""The events of the runs of one shard."""

_PART = r"[A-Za-z0-9+=,_-][A-Za-z0-9.+=,_-]{0,120}"
_STRICT = ConfigDict(strict=True)

Seed = Annotated[int, Field(ge=0, lt=LARGEST_INT)]
Text = Annotated[str, Field(min_length=1, max_length=1000)]
Folder = Annotated[str, Field(pattern=rf"^{_PART}/{_PART}$")]
"""Folder of a label and a task, relative to ``runs``."""
RunKey = Annotated[str, Field(pattern=rf"^{_PART}/{_PART}/seed[0-9]{{1,40}}$")]
"""Folder of a run, relative to ``runs``."""


class RunStatus(str, Enum):
    """State of a run of a study."""

    PLANNED = "planned"
    RUNNING = "running"
    FINISHED = "finished"
    """It reached its budget."""
    STOPPED = "stopped"
    """It ended early on its own, by `early_stopping` or a callback."""
    INTERRUPTED = "interrupted"
    """A signal or a kill ended it; it will be resumed."""
    FAILED = "failed"

    @property
    def has_ended(self) -> bool:
        """Whether the run is complete, so that it is never started again."""
        return self in (RunStatus.FINISHED, RunStatus.STOPPED)


class Record(BaseModel):
    """A line of the index."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, **_STRICT)

    kind: ClassVar[str]

    def line(self) -> dict[str, Any]:
        """Return the record as plain data, with its kind first."""
        return {"kind": self.kind, **self.model_dump(exclude_none=True)}


class HeaderRecord(Record):
    """The first line of a study."""

    kind = "study"
    format: Annotated[int, Field(ge=1)]
    name: Text
    created: Text


class GroupRecord(Record):
    """The runs of one label on one task, which differ only in their seeds."""

    kind = "group"
    label: Text
    task: Text
    folder: Folder
    config: dict[str, Any]
    """The resolved config, without `seed` and `output_dir`."""
    seeds: list[Seed]
    resources: dict[str, float | int]


class SeedsRecord(Record):
    """More seeds for a group."""

    kind = "seeds"
    folder: Folder
    seeds: list[Seed]


class ResourcesRecord(Record):
    """Changed resources of a group."""

    kind = "resources"
    folder: Folder
    resources: dict[str, float | int]


class HostRecord(Record):
    """A machine that has run a part of the study."""

    kind = "host"
    id: Text
    facts: dict[str, Any]


class SessionRecord(Record):
    """A process that has run the study or a shard of it."""

    kind = "session"
    command: list[str]
    pid: int
    host: str
    time: Text
    version: Text
    git: dict[str, Any] | None = None


class StartedRecord(Record):
    """A worker has started an attempt to train a run."""

    kind = "started"
    run: RunKey
    attempt: Annotated[int, Field(ge=1)]
    host: Text
    pid: int
    time: Text


class EndedRecord(Record):
    """An attempt to train a run has ended."""

    kind = "ended"
    run: RunKey
    attempt: Annotated[int, Field(ge=1)]
    status: Literal["finished", "stopped", "interrupted", "failed"]
    time: Text
    step: Annotated[int, Field(ge=0)] = 0
    """Step of the newest checkpoint."""
    seconds: Annotated[float, Field(ge=0)] = 0.0
    """Training time of the run so far, over all attempts."""
    reason: str | None = None
    """Why the run failed, stopped or was interrupted."""
    results: dict[str, float | int | None] = {}
    """`best_return`, `last_return` and others, as in ``run.json``."""
    config_sha256: str | None = None
    """SHA-256 of the ``config.yaml`` of a run that has ended."""


class LostRecord(Record):
    """The folder of an ended run was deleted, so the run is planned again."""

    kind = "lost"
    run: RunKey
    attempt: Annotated[int, Field(ge=1)]
    """The last attempt that no longer counts."""


RECORDS: dict[str, type[Record]] = {
    model.kind: model
    for model in (
        *(HeaderRecord, GroupRecord, SeedsRecord, ResourcesRecord, HostRecord, SessionRecord),
        *(StartedRecord, EndedRecord, LostRecord),
    )
}


def read_records(
    file: Path, models: Mapping[str, type[Record]] = RECORDS
) -> Iterator[Record | None]:
    """Yield the records of an index file; None for a damaged line.

    Records of kinds that are not in ``models`` are skipped.

    Raises:
        ConfigError: A line is intact, but is not a record that a study writes.
    """
    for number, data in enumerate(read_journal(file), start=1):
        if data is None:
            yield None
            continue
        model = models.get(str(data.get("kind")))
        if model is None:
            continue
        try:
            record = model.model_validate(data)
        except ValidationError as error:
            raise ConfigError(
                f"{file}, record {number}, was not written by a study: {sentence(error, model)}"
            ) from None
        if isinstance(record, HeaderRecord) and record.format > FORMAT:
            raise ConfigError(
                f"{file} has format {record.format}, but this version reads formats up to "
                f"{FORMAT}: install a newer version of rl-training."
            )
        yield record


def run_key(folder: str, seed: int) -> str:
    """Return the folder of a run, relative to ``runs``."""
    return f"{folder}/seed{seed}"


def lock_file(study: Path, key: str) -> Path:
    """Return the lock that a worker holds while it trains a run."""
    return study / LOCKS / f"{key.replace('/', '.')}.lock"


def epoch_file(study: Path, key: str) -> Path:
    """Return the file with the epoch of the worker that may write to a run (`fencing.py`)."""
    return study / LOCKS / f"{key.replace('/', '.')}.epoch"

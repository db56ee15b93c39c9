"""Jobs for workers, and the events that workers report.

Both are plain data, so that an executor can send them to another process or machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rl_training.runtime.stop_reason import StopReason
from rl_training.study.records import LOGS, RUNS, RunStatus, epoch_file, lock_file
from rl_training.study.resources import Resources


@dataclass(frozen=True)
class Job:
    """A run of a study that a worker starts or continues."""

    study: str
    """Folder of the study."""
    key: str
    """Folder of the run, relative to ``runs``."""
    config: dict[str, Any]
    """The planned config, without `output_dir`."""
    resources: Resources
    is_named: bool
    """Whether the user has specified the config in this session, so that its environment may be
    created with any arguments."""
    imports: tuple[str, ...] = ()
    """Modules to import first, such as ones that register environments."""
    origin: dict[str, Any] = field(default_factory=dict)
    """Facts for the ``run.json`` of a new run."""
    gpu: str | None = None
    """The GPU to use, as in CUDA_VISIBLE_DEVICES."""
    fqe_updates: int | None = None
    """If set, estimate the value of the last policy by fitted Q evaluation with these updates."""
    lease: float | None = None
    """Seconds after which a worker on another machine is killed if no heartbeat is acknowledged."""
    epoch: str | None = None
    """Text by which a worker on another machine knows whether the run is still its own."""

    @property
    def run_dir(self) -> Path:
        """Folder of the run."""
        return Path(self.study) / RUNS / self.key

    @property
    def lock(self) -> Path:
        """The lock that a worker holds while it trains the run."""
        return lock_file(Path(self.study), self.key)

    @property
    def epoch_file(self) -> Path:
        """The file with the epoch of the worker that may write to the run."""
        return epoch_file(Path(self.study), self.key)

    @property
    def log(self) -> Path:
        """The file to which a worker prints."""
        return Path(self.study) / LOGS / f"{self.key}.log"

    def to_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Job:
        """Read what `to_json` returned."""
        return cls.from_dict(json.loads(text))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Job:
        """Read the contents of the line that `to_json` returned."""
        resources, imports = Resources(**data["resources"]), tuple(data["imports"])
        return cls(**{**data, "resources": resources, "imports": imports})


# --- Events -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Event:
    """Something that happened to a run."""

    key: str

    def to_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps({"event": type(self).__name__, **asdict(self)})


@dataclass(frozen=True)
class Started(Event):
    """A worker holds the run's lock and starts or resumes it."""

    pid: int
    host: dict[str, Any]
    """Facts about the machine."""


@dataclass(frozen=True)
class Progress(Event):
    """How far a run is."""

    done: int
    total: int
    unit: str
    phase: str = ""
    speed: float | None = None
    left: float | None = None
    """Estimated seconds left."""
    results: tuple[str, ...] = ()
    """Returns or losses, as text."""
    is_learning: bool = False
    """Whether updates have begun."""
    evaluation_seconds: float | None = None
    """Mean time of an evaluation."""


@dataclass(frozen=True)
class Evaluated(Event):
    """An evaluation during training."""

    step: int
    metrics: dict[str, float]


@dataclass(frozen=True)
class Warned(Event):
    """A warning of a run."""

    text: str


@dataclass(frozen=True)
class Beat(Event):
    """A heartbeat of a worker with a lease, which its executor acknowledges."""

    number: int


@dataclass(frozen=True)
class Busy(Event):
    """Another process is training the run."""


@dataclass(frozen=True)
class Ended(Event):
    """The end of an attempt."""

    status: RunStatus
    step: int = 0
    """Step of the newest checkpoint."""
    seconds: float = 0.0
    """Training time of the run so far, over all attempts."""
    reason: str | None = None
    results: dict[str, float | int | None] = field(default_factory=dict)
    config_sha256: str | None = None
    can_retry: bool = True
    """Whether another attempt could succeed."""
    disk_is_full: bool = False


ACKNOWLEDGED = "ack "
"""Beginning of a line to a worker that acknowledges a heartbeat; its number follows."""


def stop_line(reason: StopReason, key: str | None = None) -> str:
    """Return a line to a worker that stops one of its runs, or all of them."""
    return str(reason) if key is None else f"{key}\t{reason}"


def parse_stop_line(line: str) -> tuple[StopReason, str | None]:
    """Read what `stop_line` returned."""
    key, _, reason = line.rpartition("\t")
    return StopReason.parse(reason), key or None


EVENTS: dict[str, type[Event]] = {
    event.__name__: event for event in (Started, Progress, Evaluated, Warned, Beat, Busy, Ended)
}


def parse_event(text: str | bytes) -> Event:
    """Read what `Event.to_json` returned."""
    data: Mapping[str, Any] = json.loads(text)
    values = {key: value for key, value in data.items() if key != "event"}
    if "status" in values:
        values["status"] = RunStatus(values["status"])
    return EVENTS[data["event"]](**values)

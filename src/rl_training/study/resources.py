"""What a run needs of a machine, and what a machine has."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from rl_training.boundary.reading import read_text
from rl_training.config_model import ConfigModel
from rl_training.errors import ConfigError

_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_GRAIN = 10**6
"""Resources are counted in integers of this size, since ten tenths must be one."""

CGROUP = Path("/sys/fs/cgroup")


def parse_size(value: Any) -> int:
    """Return a number of bytes, such as 2147483648 for ``2GiB``.

    Raises:
        ValueError: It is not a size.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or float(match[1]) <= 0:
        raise ValueError("should be a size, such as 2GiB or 500MB")
    base = 1024 if match[3] else 1000
    return max(1, int(float(match[1]) * base ** _UNITS[match[2].lower()]))


def size_text(size: float) -> str:
    """Format a number of bytes, such as ``1.5 GiB``."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" or size >= 100 else f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} TiB"


class ResourcesConfig(ConfigModel):
    """What each run needs; null is chosen when the study is planned."""

    cpus: float | None = Field(default=None, gt=0, le=65_536)
    """Cores; null means one per thread."""
    gpus: float | None = Field(default=None, ge=0, le=1)
    """Share of a GPU and of its memory; null means a whole one if `device` is a GPU, else 0."""
    memory: int | None = Field(default=None, gt=0)
    """Memory, such as 2GiB; null means an estimate."""

    @field_validator("memory", mode="before")
    @classmethod
    def _parse_size(cls, value: Any) -> Any:
        return None if value is None else parse_size(value)

    def updated(self, other: ResourcesConfig) -> ResourcesConfig:
        """Return these settings with those that ``other`` sets."""
        given = {key: value for key, value in other.model_dump().items() if value is not None}
        return self.model_copy(update=given)


@dataclass(frozen=True)
class Resources:
    """What one run needs."""

    cpus: float = 1.0
    gpus: float = 0.0
    memory: int = 0
    """In bytes; 0 if unknown."""

    def to_record(self) -> dict[str, float | int]:
        """Return plain data for the index."""
        return asdict(self)

    @classmethod
    def from_record(cls, data: Mapping[str, float | int]) -> Resources:
        """Read what `to_record` returned; unusable values become the defaults."""
        cpus, gpus, memory = (data.get(key, 0) for key in ("cpus", "gpus", "memory"))
        return cls(
            cpus=float(cpus) if 0 < cpus <= 65_536 else 1.0,
            gpus=min(max(float(gpus), 0.0), 1.0),
            memory=int(memory) if 0 < memory < 2**63 else 0,
        )


@dataclass
class Budget:
    """What a machine has for a study, and which part of it is in use.

    `take` reserves resources for a run and `give_back` returns them, so that the runs that share
    the machine never need more than it has.
    """

    cores: float
    memory: int
    """In bytes; 0 for no limit."""
    gpus: list[str] = field(default_factory=list)
    """Names of the GPUs as in CUDA_VISIBLE_DEVICES."""

    def __post_init__(self) -> None:
        self._cores = _grains(self.cores)
        self._memory = self.memory
        self._gpus = {gpu: _GRAIN for gpu in self.gpus}
        self._taken: dict[str, tuple[Resources, str | None]] = {}

    def check(self, need: Resources, what: str) -> None:
        """Reject a run that does not fit even if it is alone."""
        problems = {
            "cpus": (need.cpus > self.cores, f"{need.cpus:g} cores", f"{self.cores:g}"),
            "gpus": (need.gpus > 0 and not self.gpus, f"{need.gpus:g} of a GPU", "no GPU"),
            "memory": (
                0 < self.memory < need.memory,
                f"{size_text(need.memory)} of memory",
                size_text(self.memory),
            ),
        }
        for key, (too_much, needed, available) in problems.items():
            if too_much:
                option = {"cpus": "--cores", "gpus": "--gpus", "memory": "--memory"}[key]
                raise ConfigError(
                    f"{what} needs {needed}, but this machine has {available}: use a larger "
                    f"machine, set resources.{key}, or set {option} if you know better."
                )

    def take(self, key: str, need: Resources) -> str | None:
        """Reserve resources and return the GPU of the run, or None if it has none.

        Raises:
            LookupError: There is not enough left.
        """
        memory = need.memory if self.memory else 0
        if _grains(need.cpus) > self._cores or memory > self._memory:
            raise LookupError(key)
        gpu = None
        if need.gpus > 0:
            gpu = max(self._gpus, key=lambda name: self._gpus[name], default=None)
            if gpu is None or self._gpus[gpu] < _grains(need.gpus):
                raise LookupError(key)
            self._gpus[gpu] -= _grains(need.gpus)
        self._cores -= _grains(need.cpus)
        self._memory -= memory
        self._taken[key] = (need, gpu)
        return gpu

    def give_back(self, key: str) -> None:
        """Return the resources of a run."""
        need, gpu = self._taken.pop(key)
        self._cores += _grains(need.cpus)
        self._memory += need.memory if self.memory else 0
        if gpu is not None:
            self._gpus[gpu] += _grains(need.gpus)

    def at_once(self, need: Resources) -> int:
        """Return how many runs with these needs fit on the machine."""
        rooms = [_grains(self.cores) // _grains(need.cpus)]
        if self.memory and need.memory:
            rooms.append(self.memory // need.memory)
        if need.gpus > 0:
            rooms.append(len(self.gpus) * (_GRAIN // _grains(need.gpus)))
        return min(rooms)


def _grains(amount: float) -> int:
    return max(1, round(amount * _GRAIN)) if amount else 0


def machine_budget(
    cores: float | None = None, memory: int | None = None, gpus: int | None = None
) -> Budget:
    """Return what this machine has, with the values that the user sets instead."""
    import torch

    from rl_training.experiment.machine import available_memory, usable_cores

    if cores is None:
        cores = min(usable_cores(), _cgroup_cores())
    if memory is None:
        memory = min(available_memory(torch.device("cpu")), _cgroup_memory())
    return Budget(cores, memory, _visible_gpus(gpus))


def _visible_gpus(wanted: int | None) -> list[str]:
    import torch

    count = torch.cuda.device_count()
    listed = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    names = listed[:count] if listed else [str(number) for number in range(count)]
    if wanted is not None and wanted > len(names):
        raise ConfigError(f"--gpus {wanted}: this machine has {len(names) or 'no'} usable GPUs.")
    return names if wanted is None else names[:wanted]


def _cgroup_cores() -> float:
    """Return the limit of a container in cores, or infinity."""
    quota, _, period = _cgroup_text("cpu.max").partition(" ")
    limited = quota.isdigit() and period.isdigit() and int(period) > 0
    return max(1.0, int(quota) // int(period)) if limited else float("inf")


def _cgroup_memory() -> int:
    """Return the limit of a container in bytes, or a number larger than any memory."""
    limit = _cgroup_text("memory.max")
    return int(limit) if limit.isdigit() else 2**63


def _cgroup_text(name: str) -> str:
    try:
        return read_text(CGROUP / name, limit=4096).strip()
    except ConfigError:  # not Linux, or no limit
        return ""

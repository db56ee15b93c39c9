"""The description of a study: methods, tasks, settings and seeds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from rl_training.boundary.reading import read_text
from rl_training.boundary.yaml_codec import parse_yaml
from rl_training.config_model import ConfigModel, has_control_characters, validated
from rl_training.errors import ConfigError
from rl_training.experiment.seeds import as_seeds
from rl_training.study.resources import ResourcesConfig
from rl_training.text import shown

DEFAULT_SEEDS = (0, 1, 2, 3, 4)
MAX_LABEL = 100

RESERVED_KEYS = {
    "seed": "use seeds",
    "output_dir": "a study chooses the folders of its runs",
}
"""Config keys that a study sets itself, with the reason."""

Settings = dict[str, Any]
Grid = dict[str, list[Any]]


def check_settings(settings: Settings) -> Settings:
    """Reject config keys that a study sets itself."""
    for key in settings:
        if key in RESERVED_KEYS:
            raise ValueError(f"cannot contain {key}: {RESERVED_KEYS[key]}")
    return settings


def _check_grid(grid: Grid) -> Grid:
    for key, values in grid.items():
        if not values:
            raise ValueError(f"{key} has no values: list at least one")
        if any(value == other for n, value in enumerate(values) for other in values[:n]):
            raise ValueError(f"{key} lists a value twice: {shown(values)}")
    return check_settings(grid)


def check_name(name: str | None) -> str | None:
    """Reject names that are empty, long or not printable."""
    if name is None:
        return None
    if not name.strip() or len(name) > MAX_LABEL or has_control_characters(name):
        raise ValueError(f"should be text of 1 to {MAX_LABEL} characters")
    return name


class RunEntry(ConfigModel):
    """One entry of `runs`: a config, and what to change in it."""

    config: str | dict[str, Any]
    """A packaged config, a YAML file, or a mapping with the keys of a config."""
    label: str | None = None
    """Name of the method in tables and plots; null is chosen from the config and `set`."""
    task: str | None = None
    """Name of the task; null is chosen from the environment and the dataset."""
    env_id: str | list[str] | None = None
    """An environment, or a list of environments to run on."""
    set: Settings = Field(default_factory=dict)
    """Config keys to change."""
    grid: Grid = Field(default_factory=dict)
    """Lists of values by config key; every combination is run."""
    seeds: tuple[int, ...] | None = None
    """A count or a list; null means the seeds of the study."""
    resources: ResourcesConfig = Field(default_factory=ResourcesConfig)
    """What each run needs, if it differs from the study's `resources`."""

    _settings = field_validator("set")(check_settings)
    _grid = field_validator("grid")(_check_grid)
    _names = field_validator("label", "task")(check_name)

    @field_validator("seeds", mode="before")
    @classmethod
    def _count_or_list(cls, value: Any) -> Any:
        return None if value is None else as_seeds(value)

    @property
    def env_ids(self) -> list[str | None]:
        """The environments to run on; None stands for the config's own."""
        if isinstance(self.env_id, list):
            return [*self.env_id] or [None]
        return [self.env_id]


class ExecutionConfig(ConfigModel):
    """How many runs are trained: the settings of studies and tunings alike."""

    threads: int = Field(default=1, gt=0, le=1024)
    """Threads of each run, unless its config sets `num_threads`."""
    retries: int = Field(default=2, ge=0, le=1000)
    """How often a run that fails is tried again from its last checkpoint."""
    resources: ResourcesConfig = Field(default_factory=ResourcesConfig)
    """What each run needs of a machine."""
    executor: Literal["local", "population"] = "local"
    """`local`: a process for each run; `population`: all runs that fit together as one program."""
    members: int | None = Field(default=None, gt=0)
    """Most runs that `population` trains together; null means all that differ only in numbers."""

    @staticmethod
    def in_order(data: Mapping[str, Any]) -> dict[str, Any]:
        """Return plain data with these settings last."""
        last = ExecutionConfig.model_fields
        return dict(sorted(data.items(), key=lambda item: item[0] in last))


class StudyConfig(ExecutionConfig):
    """A study: every run of `runs` with every combination of `grid` and every seed."""

    name: str | None = None
    """Name of the study; null is the name of the file or folder."""
    runs: tuple[RunEntry, ...]
    """Configs to run; text is short for a mapping with `config` only."""
    set: Settings = Field(default_factory=dict)
    """Config keys to change in every run."""
    grid: Grid = Field(default_factory=dict)
    """Lists of values by config key; every combination is run."""
    seeds: tuple[int, ...] = DEFAULT_SEEDS
    """A count or a list."""

    _settings = field_validator("set")(check_settings)
    _grid = field_validator("grid")(_check_grid)
    _name = field_validator("name")(check_name)

    @field_validator("runs", mode="before")
    @classmethod
    def _short_form(cls, runs: Any) -> Any:
        if not isinstance(runs, list | tuple):
            return runs
        if not runs:
            raise ValueError("should list at least one config")
        return [{"config": run} if isinstance(run, str) else run for run in runs]

    @field_validator("seeds", mode="before")
    @classmethod
    def _count_or_list(cls, value: Any) -> Any:
        return as_seeds(value)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for ``study.yaml``, without settings that are not set."""
        data = self.model_dump(exclude_defaults=True)
        data["runs"] = [
            {key: list(v) if isinstance(v, tuple) else v for key, v in run.items()}
            for run in data["runs"]
        ]
        data |= {"seeds": list(self.seeds), "threads": self.threads, "retries": self.retries}
        return self.in_order(data)


def make_study_config(data: Mapping[Any, Any], source: str) -> StudyConfig:
    """Validate the mapping of a study file; errors start with ``source``."""
    for key in data:
        if not isinstance(key, str):
            raise ConfigError(f"{source} has the key {shown(key)}, but keys should be strings.")
    try:
        return validated(StudyConfig, data)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def read_study_file(path: Path) -> StudyConfig:
    """Read a study file."""
    return make_study_config(read_mapping(path), str(path))


def read_mapping(path: Path, *, follow_links: bool = True) -> dict[Any, Any]:
    """Return the mapping in a YAML file."""
    data = parse_yaml(read_text(path, follow_links=follow_links), str(path))
    if not isinstance(data, dict):
        raise ConfigError(f"{path} should contain a mapping of keys to values.")
    return data

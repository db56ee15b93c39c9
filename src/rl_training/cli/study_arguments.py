"""The arguments of `study run`: a study file or folder, or configs and ``key=value`` settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_training.boundary.packaged_configs import config_names
from rl_training.boundary.yaml_codec import parse_yaml
from rl_training.errors import ConfigError, nearest
from rl_training.experiment.seeds import as_seeds
from rl_training.study.config import StudyConfig, read_mapping
from rl_training.study.study import Study
from rl_training.text import shown

YAML = (".yaml", ".yml")
STUDIES = Path("studies")
"""Folder for studies without --out."""


def parse_study_arguments(
    words: Sequence[str],
    *,
    seeds: str | None = None,
    threads: int | None = None,
    retries: int | None = None,
    how: Mapping[str, Any] | None = None,
) -> Study:
    """Return the study that the arguments describe.

    ``how`` has the keys that say how to train, which also apply to runs that are already planned.
    """
    names = [word for word in words if "=" not in word]
    settings = dict(_setting(word) for word in words if "=" in word)
    if not names:
        raise ConfigError(
            "Pass configs (rl-training study run sac/pendulum td3/pendulum --out study), a study "
            "file, or the folder of a study."
        )
    options: dict[str, Any] = {"threads": threads, "retries": retries}
    options = {key: value for key, value in options.items() if value is not None}
    if seeds is not None:
        options["seeds"] = as_seeds(seeds, "--seeds")
    for name in names:
        _check_exists(name)
    sources = [name for name in names if is_study_source(name)]
    if not sources:
        study = Study(names, set=settings, **options)
        assert study.description is not None
        study.description = _changed(study.description, {}, dict(how or {}))
        return study
    if len(names) > 1:
        raise ConfigError(
            f"{shown(sources[0])} is a study, so it cannot be combined with "
            f"{shown(next(name for name in names if name != sources[0]))}: add that to its runs."
        )
    study = Study.load(sources[0])
    if study.description is not None:
        study.description = _changed(study.description, settings, options | dict(how or {}))
    elif settings or options:
        given = next(iter([*settings, *(f"--{key}" for key in options)]))
        raise ConfigError(
            f"{given}: the runs in the folder {sources[0]} are already planned. To add runs, pass "
            "the study file or the configs, and --out."
        )
    return study


def _check_exists(name: str) -> None:
    """Reject a word that is neither a packaged config nor a file or folder."""
    known = config_names()
    if name in known or Path(name).exists():
        return
    if name.endswith(YAML):
        raise ConfigError(f"The file {shown(name)} does not exist.")
    raise ConfigError(
        f"{shown(name)} is not a packaged config, a file or the folder of a study"
        f"{nearest(name, known)}"
    )


def is_study_source(name: str) -> bool:
    """Return whether a word is the folder of a study or a study file, not a config."""
    if name in config_names():
        return False
    path = Path(name)
    if path.is_dir():
        return True
    if path.suffix not in YAML or not path.is_file():
        return False
    return "algo" not in read_mapping(path)


def _setting(word: str) -> tuple[str, Any]:
    key, _, text = word.partition("=")
    if not key:
        raise ConfigError(f"{shown(word)} is not a setting: write key=value.")
    return key, parse_yaml(text, word)


def _changed(
    description: StudyConfig, settings: dict[str, Any], options: dict[str, Any]
) -> StudyConfig:
    """Return a description with the settings of the command line."""
    for key in settings:
        for number, entry in enumerate(description.runs, start=1):
            if key in (entry.set | entry.grid | description.grid):
                raise ConfigError(
                    f"{key}={shown(settings[key])}: run {number} of the study sets {key} as well. "
                    "Change it there."
                )
    if "seeds" in options and any(entry.seeds for entry in description.runs):
        raise ConfigError("--seeds: a run of the study has seeds of its own. Change them there.")
    update = options | {"set": description.set | settings}
    data = {name: getattr(description, name) for name in StudyConfig.model_fields} | update
    return StudyConfig.model_validate(data)


def default_folder(study: Study) -> Path:
    """Return the folder of a study without --out."""
    if study.path is not None:
        return study.path
    if study.description is not None and study.description.name is not None:
        return STUDIES / study.description.name
    raise ConfigError("Pass a folder for the study: --out FOLDER.")

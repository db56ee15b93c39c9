"""The arguments of `tune`: a config or the folder of a tuning, and ``key=value`` settings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_training.boundary.packaged_configs import config_names
from rl_training.boundary.yaml_codec import parse_yaml
from rl_training.errors import ConfigError
from rl_training.experiment.seeds import as_seeds
from rl_training.text import shown
from rl_training.tuning.tuning import Tuning

TUNINGS = Path("tunings")
"""Folder for tunings without --out."""
CHANGEABLE = ("trials", "executor", "members")
"""Options that a tuning accepts again when it continues."""


def parse_tune_arguments(
    words: Sequence[str],
    *,
    config: str | None,
    space: Path | None,
    options: Mapping[str, Any],
) -> Tuning:
    """Return the tuning that the arguments describe."""
    given = {key: value for key, value in options.items() if value is not None}
    settings = dict(_setting(word) for word in words if "=" in word)
    name = _only_name(words, config)
    if name not in config_names() and Path(name).is_dir():
        return _continued(name, given, settings, space)
    if "seeds" in given:
        given["seeds"] = as_seeds(given["seeds"], "--seeds")
    fresh = given.get("validation_seeds")
    if fresh is not None:  # a count of the seeds that follow, or a list
        seeds = as_seeds(fresh, "--validation-seeds")
        given["validation_seeds"] = len(seeds) if str(fresh).strip().isdigit() else seeds
    return Tuning(name, space=space, set=settings, **given)


def _only_name(words: Sequence[str], config: str | None) -> str:
    names = [word for word in words if "=" not in word] + ([] if config is None else [config])
    if not names:
        raise ConfigError(
            "Pass a config (rl-training tune sac/pendulum --trials 50) or the folder of a tuning."
        )
    if len(names) > 1:
        raise ConfigError(
            f"{shown(names[0])} and {shown(names[1])}: a tuning has one config. Compare several "
            "with rl-training study run."
        )
    return names[0]


def _continued(
    folder: str, given: dict[str, Any], settings: dict[str, Any], space: Path | None
) -> Tuning:
    """Return the tuning in a folder, perhaps with more trials."""
    tuning = Tuning.load(folder)
    changes = {key: given.pop(key) for key in CHANGEABLE if key in given}
    extra = [*settings, *(f"--{key.replace('_', '-')}" for key in given)]
    if space is not None:
        extra.append("--space")
    if extra:
        raise ConfigError(
            f"{extra[0]}: the tuning in {folder} is already described. Only --trials "
            "and how it trains can change; for another tuning, pass a config and --out."
        )
    tuning.description = tuning.description.model_copy(update=changes)
    return tuning


def _setting(word: str) -> tuple[str, Any]:
    key, _, text = word.partition("=")
    if not key:
        raise ConfigError(f"{shown(word)} is not a setting: write key=value.")
    return key, parse_yaml(text, word)


def default_folder(tuning: Tuning, words: Sequence[str], config: str | None) -> Path:
    """Return the folder of a tuning without --out."""
    if tuning.path is not None:
        return tuning.path
    name = _only_name(words, config)
    base = name if name in config_names() else Path(name).stem
    return TUNINGS / re.sub(r"[^A-Za-z0-9.-]+", "_", base)

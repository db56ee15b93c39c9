"""Names of methods (labels), tasks and folders in a study."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from rl_training.boundary.packaged_configs import config_names
from rl_training.boundary.yaml_codec import yaml_text
from rl_training.config_model import Trait, keys_with
from rl_training.data.config import DataConfig
from rl_training.study.config import MAX_LABEL, RunEntry

if TYPE_CHECKING:
    from rl_training.experiment.config import TrainConfig

MAX_VALUE = 40
MAX_FOLDER = 80
TRAINING_ENV_KEYS = frozenset({"vectorization", "wrappers", "render_mode"})
"""Entries of `env_kwargs` that change how a method trains, but not its task."""
_DATASET_KEYS = frozenset(keys_with(Trait.DATASET, DataConfig)) - {"dataset_download"}


# --- Labels -----------------------------------------------------------------------------


def base_label(entry: RunEntry, algo: str) -> str:
    """Return the label of an entry without `label`: its algorithm, or the name of its file."""
    if isinstance(entry.config, str) and entry.config not in config_names():
        return PurePath(entry.config).stem
    return algo


def add_settings(label: str, settings: Mapping[str, Any]) -> str:
    """Append settings to a label, such as ``sac learning_rate=0.001``."""
    keys = [key for key in settings if not is_task_key(key) and key != "algo"]
    parts = [
        f"{short}={value_text(settings[key])}"
        for key, short in zip(keys, short_keys(keys), strict=True)
    ]
    return limited(" ".join([label, *parts]), MAX_LABEL)


def short_keys(keys: Sequence[str]) -> list[str]:
    """Return the last part of each key, or the whole key if that is ambiguous."""
    last = [key.rpartition(".")[2] for key in keys]
    return [short if last.count(short) == 1 else key for key, short in zip(keys, last, strict=True)]


def value_text(value: Any) -> str:
    """Return a setting as text of limited length; different values have different texts."""
    return limited(yaml_text(value), MAX_VALUE)


def limited(text: str, most: int) -> str:
    """Return a text, with its end replaced by a hash if it is too long."""
    if len(text) <= most:
        return text
    return f"{text[: most - 9]}-{_hash(text)}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


# --- Tasks ------------------------------------------------------------------------------


def is_task_key(key: str) -> bool:
    """Return whether a config key changes the task rather than the method."""
    first, *rest = key.removeprefix("algo_kwargs.").split(".")
    if first == "env_kwargs":
        return not rest or rest[0] not in TRAINING_ENV_KEYS
    return first == "env_id" or first in _DATASET_KEYS


def task_settings(config: TrainConfig) -> dict[str, Any]:
    """Return the settings that define the task of a run: environment, and data if offline."""
    settings: dict[str, Any] = {"env_id": config.env_id}
    for key, value in config.env_kwargs.items():
        if key not in TRAINING_ENV_KEYS:
            settings[f"env_kwargs.{key}"] = value
    if config.mode == "offline":
        data = config.parts.data.model_dump()
        settings |= {key: data[key] for key in sorted(_DATASET_KEYS)}
    return settings


def task_name(
    config: TrainConfig, varied: Mapping[str, Any], values: Mapping[str, Sequence[Any]]
) -> str:
    """Return the name of a task: the environment, the dataset if offline, and what a grid varies.

    Args:
        config: The config of a run.
        varied: The settings of the run that come from a grid.
        values: All values of the grid.
    """
    data, parts = config.parts.data, [config.env_id or ""]
    keys = {key.removeprefix("algo_kwargs."): key for key in varied if is_task_key(key)}
    if config.mode == "offline" or "dataset_path" in keys or "dataset_id" in keys:
        path = data.dataset_path or data.starter_file
        name = data.dataset_id or ("random" if data.dataset_kind == "random" else None)
        paths = [str(value) for value in values.get(keys.get("dataset_path", ""), [path])]
        parts.append(name or distinct_names(paths)[path])
    covered = ("env_id", "dataset_path", "dataset_id", "dataset_kind")
    others = [keys[key] for key in keys if key not in covered]
    more = [
        f"{short}={value_text(varied[key])}"
        for key, short in zip(others, short_keys(others), strict=True)
    ]
    return limited(" ".join(["/".join(filter(None, parts)), *more]), MAX_LABEL)


def distinct_names(paths: Sequence[str]) -> dict[str, str]:
    """Return the shortest end of each path, without its suffix, that tells them apart."""
    parts = {path: PurePath(path).with_suffix("").parts or (path,) for path in paths}
    for count in range(1, max(map(len, parts.values())) + 1):
        names = {path: "/".join(part[-count:]) for path, part in parts.items()}
        if len(set(names.values())) == len(names):
            return names
    return {path: path for path in paths}


# --- Folders ----------------------------------------------------------------------------


def folder_name(name: str, taken: Collection[str]) -> str:
    """Return a name for a folder that is safe on every system and not ``taken``.

    Names are compared without case, since some file systems ignore it.
    """
    safe = re.sub(r"[^A-Za-z0-9.+=,-]+", "_", name).strip("._-") or "run"
    safe = limited(safe, MAX_FOLDER)
    if safe.lower() not in {other.lower() for other in taken}:
        return safe
    return f"{safe[: MAX_FOLDER - 9]}-{_hash(name)}"

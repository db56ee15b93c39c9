"""What others may see of a run: configs, commands and checkpoints without paths of this machine."""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from pathlib import PureWindowsPath
from typing import Any

from rl_training.boundary import json_codec
from rl_training.boundary.reading import read_bytes
from rl_training.boundary.yaml_codec import parse_yaml, yaml_text
from rl_training.config_model import Trait, keys_with
from rl_training.errors import CheckpointError, ConfigError
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.saved_run import SavedRun
from rl_training.runtime.checkpoint_writer import manifest_bytes
from rl_training.runtime.checkpointing import MANIFEST, MODEL, OPTIMIZERS, STATE

PRIVATE_KEYS = frozenset(keys_with(Trait.LABEL, TrainConfig))
"""Keys that do not affect the result: `output_dir`, `tags`, and `logging` with its servers."""

_PUBLIC = ("algorithm", "env_spec", "step", "device", "num_threads", "versions", "engine")
"""Entries of a manifest that are published as they are."""

_PATH = re.compile(r"(?<![\w.:/\\-])(?:~|(?:file:/*)?/|[A-Za-z]:[\\/]|\\\\)[^\s'\",;=)\]}]*")
_CREDENTIALS = re.compile(r"(?<=://)[^\s/@]+@")


def published_config(config: TrainConfig) -> dict[str, Any]:
    """Return everything in a config that affects the result."""
    kept = {key: value for key, value in config.to_dict().items() if key not in PRIVATE_KEYS}
    return {key: strip_paths(value) for key, value in kept.items()}


def published_command(words: Any) -> str | None:
    """Return the command of a run without the overrides of `PRIVATE_KEYS`.

    ``run.json`` contains it as a list of words. Readers may copy it into a shell, so any other
    value and any other program than this one gives None.
    """
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        return None
    if words[:1] != ["rl-training"]:
        return None
    kept = [word for word in words if re.split("[.=]", word)[0] not in PRIVATE_KEYS]
    return shlex.join(map(_strip_word, kept))


def _strip_word(word: str) -> str:
    """Strip the paths of a word such as ``key=PATH`` or ``key={name: PATH}``."""
    key, sign, value = word.rpartition("=") if "{" not in word else word.partition("=")
    if value.startswith(("{", "[")):
        with suppress(ConfigError):
            return f"{key}{sign}{yaml_text(strip_paths(parse_yaml(value, key)))}"
    return f"{key}{sign}{strip_paths(value)}"


def published_data(checkpoint: SavedRun) -> dict[str, Any]:
    """Return the name, length and hash of the recorded data; empty if there is none."""
    record = checkpoint.manifest.get("dataset")
    if not isinstance(record, dict):
        return {}
    known = {key: record[key] for key in ("source", "rows", "sha256") if key in record}
    return {key: strip_paths(x) for key, x in known.items() if isinstance(x, str | int)}


def published_checkpoint(checkpoint: SavedRun) -> dict[str, bytes]:
    """Return the files of a checkpoint that evaluates, predicts and can be fine-tuned.

    The replay, the state of environments and callbacks, and the keys of `PRIVATE_KEYS` are left
    out, so a resume is not possible.
    """
    manifest = {key: checkpoint.manifest[key] for key in _PUBLIC if key in checkpoint.manifest}
    if "environment" in checkpoint.manifest:
        manifest["environment"] = strip_paths(checkpoint.manifest["environment"])
    if data := published_data(checkpoint):
        manifest["dataset"] = data
    manifest |= {
        "config": published_config(checkpoint.config),
        "published": True,
        "replay": [],
        "restores": {"weights, optimizers": "exactly"},
    }
    sizes = checkpoint.manifest["files"]
    contents = {
        name: read_bytes(checkpoint.path / name, limit=sizes[name]["bytes"], error=CheckpointError)
        for name in (MODEL, OPTIMIZERS)
    }
    trainer = checkpoint.trainer_state().state_dict()
    contents[STATE] = json_codec.dumps({"trainer": strip_paths(trainer)})
    return contents | {MANIFEST: manifest_bytes(manifest, contents)}


def strip_paths(value: Any) -> Any:
    """Return plain data in which each absolute path is replaced with its last part.

    User names and passwords in addresses are removed, too.
    """
    if isinstance(value, dict):
        return {key: strip_paths(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strip_paths(item) for item in value]
    if not isinstance(value, str):
        return value
    if _is_path(value):  # the whole text, which may contain spaces
        return _last_part(value)
    return _PATH.sub(lambda match: _last_part(match.group()), _CREDENTIALS.sub("", value))


def _is_path(text: str) -> bool:
    windows = PureWindowsPath(text)
    return text.startswith(("/", "~", "file:")) or windows.is_absolute()


def _last_part(path: str) -> str:
    """Return the name of a file; a name such as ``/topic`` is not a path of a machine."""
    parts = re.split(r"[\\/]+", path.rstrip("\\/"))
    return parts[-1] if len(parts) > 2 or path.startswith(("~", "file:")) else path

"""Changes of a trained run, made as an attacker would: every digest fits again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from rl_training.runtime.checkpointing import MANIFEST, STATE
from tests.faults.runs import forge, newest

Change = Callable[[Any], Any]


def put(*keys: Any, value: Any) -> Change:
    """Set one entry of nested data that is there, or one more key of a mapping."""

    def change(data: Any) -> Any:
        target = data
        for key in keys[:-1]:
            target = target[key]
        target[keys[-1]] = value
        return data

    return change


def drop(*keys: Any) -> Change:
    """Remove one entry that is there."""

    def change(data: Any) -> Any:
        target = data
        for key in keys[:-1]:
            target = target[key]
        del target[keys[-1]]
        return data

    return change


def change_manifest(run: Path, change: Change) -> None:
    """Alter the newest checkpoint's manifest."""
    forge(newest(run), change)


def change_state(run: Path, change: Change) -> None:
    """Alter the newest checkpoint's state; the change may return other data altogether."""
    file = newest(run) / STATE
    file.write_text(json.dumps(change(json.loads(file.read_bytes()))))
    forge(newest(run))


def change_config(run: Path, change: Change) -> None:
    """Alter the config of a run alike in ``config.yaml`` and in its checkpoint."""
    file = run / "config.yaml"
    config = yaml.safe_load(file.read_text())
    change(config)
    file.write_text(yaml.safe_dump(config))
    change_manifest(run, lambda manifest: change(manifest["config"]))


def read_manifest(run: Path) -> dict[str, Any]:
    """The newest checkpoint's manifest."""
    manifest: dict[str, Any] = json.loads((newest(run) / MANIFEST).read_bytes())
    return manifest


def leaves(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], Any]]:
    """Every value of nested data that is no container, with the keys that lead to it."""
    if isinstance(data, dict):
        return [leaf for key, item in data.items() for leaf in leaves(item, (*path, key))]
    if isinstance(data, list):
        return [leaf for key, item in enumerate(data) for leaf in leaves(item, (*path, key))]
    return [(path, data)]

"""Change a trained run as an attacker would, and recompute every digest."""

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
    """Set an existing entry of nested data, or add a key to a mapping."""

    def change(data: Any) -> Any:
        target = data
        for key in keys[:-1]:
            target = target[key]
        target[keys[-1]] = value
        return data

    return change


def drop(*keys: Any) -> Change:
    """Remove an existing entry of nested data."""

    def change(data: Any) -> Any:
        target = data
        for key in keys[:-1]:
            target = target[key]
        del target[keys[-1]]
        return data

    return change


def change_manifest(run: Path, change: Change) -> None:
    """Change the newest checkpoint's manifest."""
    forge(newest(run), change)


def change_state(run: Path, change: Change) -> None:
    """Change the newest checkpoint's state; the change may also return replacement data."""
    file = newest(run) / STATE
    file.write_text(json.dumps(change(json.loads(file.read_bytes()))))
    forge(newest(run))


def change_config(run: Path, change: Change) -> None:
    """Change a run's config consistently in ``config.yaml`` and in its checkpoint."""
    file = run / "config.yaml"
    config = yaml.safe_load(file.read_text())
    change(config)
    file.write_text(yaml.safe_dump(config))
    change_manifest(run, lambda manifest: change(manifest["config"]))


def read_manifest(run: Path) -> dict[str, Any]:
    """Return the newest checkpoint's manifest."""
    manifest: dict[str, Any] = json.loads((newest(run) / MANIFEST).read_bytes())
    return manifest


def leaves(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], Any]]:
    """Return the leaf values of nested data, each with its path of keys."""
    if isinstance(data, dict):
        return [leaf for key, item in data.items() for leaf in leaves(item, (*path, key))]
    if isinstance(data, list):
        return [leaf for key, item in enumerate(data) for leaf in leaves(item, (*path, key))]
    return [(path, data)]

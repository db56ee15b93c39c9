"""Which checkpoints and replay rows outlive an accident: those set aside, those amid a swap."""

from __future__ import annotations

import os
from pathlib import Path

from rl_training.boundary.reading import read_json
from rl_training.boundary.writing import remove, sync_folder
from rl_training.errors import CheckpointError

MAX_MANIFEST = 64 << 20
ASIDE = "damaged-"
_SWAPPED = ".tmp-swap-"


def set_aside(path: Path) -> Path:
    """Rename a checkpoint that was found damaged; what was set aside before it stays."""
    aside, number = path.with_name(f"{ASIDE}{path.name}"), 1
    while os.path.lexists(aside):
        number += 1
        aside = path.with_name(f"{ASIDE}{path.name}-{number}")
    os.replace(path, aside)
    return aside


def rows_named(path: Path) -> set[str]:
    """The replay rows that a checkpoint names, as far as its manifest can be read.

    One that is damaged or of another format keeps its rows, too: manual recovery needs them.
    """
    try:
        manifest = read_json(path / "manifest.json", limit=MAX_MANIFEST, error=CheckpointError)
        return {name for name in manifest["replay"] if isinstance(name, str)}
    except (CheckpointError, TypeError, KeyError):
        return set()


def rows_set_aside(folder: Path) -> set[str]:
    """The replay rows that checkpoints set aside in ``folder`` name."""
    return set[str]().union(*(rows_named(path) for path in folder.glob(f"{ASIDE}*")))


def swap(path: Path, new: Path) -> None:
    """Put the folder ``new`` in the place of ``path``; `finish_swaps` undoes what a kill left."""
    old = path.with_name(f"{_SWAPPED}{path.name}")
    remove(old)
    os.replace(path, old)
    os.rename(new, path)
    sync_folder(path.parent)
    remove(old)


def finish_swaps(folder: Path) -> None:
    """Give a checkpoint its name back where a kill came before the new one had it."""
    for old in folder.glob(f"{_SWAPPED}*"):
        path = folder / old.name.removeprefix(_SWAPPED)
        if old.is_symlink() or not old.is_dir():  # nothing that a swap leaves
            remove(old)
        elif not os.path.lexists(path):
            os.replace(old, path)

"""Write checkpoints so that a usable one remains if the process is killed at any time.

Everything is written under a temporary name, synced, then renamed.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from rl_training.boundary import json_codec
from rl_training.boundary.reading import read_json
from rl_training.boundary.tensors import tensor_bytes
from rl_training.boundary.writing import (
    TEMPORARY,
    create_file,
    remove,
    sync_folder,
    temporary_name,
    write_atomically,
)
from rl_training.data.replay_buffer import ReplayBuffer, Segmented
from rl_training.errors import CheckpointError
from rl_training.runtime.checkpointing import (
    FORMAT,
    MANIFEST,
    MODEL,
    OPTIMIZER_PREFIX,
    OPTIMIZERS,
    SEGMENT_KINDS,
    STATE,
    Checkpoint,
    list_steps,
    read_pointer,
    step_name,
)

DAMAGED = "damaged-"
_SWAPPED = f"{TEMPORARY}swap-"


def manifest_bytes(facts: dict[str, Any], contents: Mapping[str, bytes]) -> bytes:
    """Return ``manifest.json``: facts about a checkpoint, the hashes of its files, and a digest."""
    files = {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        for name, data in contents.items()
    }
    body = facts | {"format": FORMAT, "files": files}
    body = json.loads(json_codec.dumps(body))  # so that the digest matches what is read back
    body["digest"] = hashlib.sha256(json_codec.dumps(body)).hexdigest()
    return json_codec.dumps(body)


class CheckpointWriter:
    """Writes the checkpoints of a run; replay rows that are already saved are not written again."""

    def __init__(self, run_dir: Path, *, keep: int) -> None:
        self.run_dir = run_dir
        """Folder of the run; a new run's folder is renamed after its first checkpoint."""
        self.last_step: int | None = None
        self.bytes_written = 0
        """Number of bytes written by the latest `save`."""
        self.before_commit: Callable[[], object] = lambda: None
        """Called before a checkpoint becomes visible. Ends the process if it has lost the run."""
        self._keep = keep
        self._segments: dict[str, list[str]] = {}
        """Names of the saved segments, by their list in the manifest."""
        self._references: dict[str, set[str]] = {}
        """Replay files of each checkpoint, by the name of its folder."""
        self._damaged_rows: set[str] = set()
        self._best: Path | None = None

    @property
    def _folder(self) -> Path:
        return self.run_dir / "checkpoints"

    @property
    def _replay(self) -> Path:
        return self.run_dir / "replay"

    def _make_folders(self) -> None:
        """Create the subfolders, but not the run folder, which may have been removed on purpose."""
        for folder in (self._folder, self._replay):
            folder.mkdir(exist_ok=True)
        sync_folder(self.run_dir)

    def attach(self, checkpoint: Checkpoint, *, best_step: int | None = None) -> bool:
        """Continue from a checkpoint; return whether the best checkpoint is in this run.

        Cleans up after a kill: removes incomplete files, updates pointers and applies retention.
        """
        if checkpoint.run_dir != self.run_dir:
            return False
        self._make_folders()
        for folder in (self._folder, self._replay):
            for leftover in folder.glob(f"{TEMPORARY}*"):
                remove(leftover)
        for path in list_steps(self.run_dir):
            if int(path.name.removeprefix("step_")) > checkpoint.step:  # it is damaged
                _set_aside(path)
        damaged = self._folder.glob(f"{DAMAGED}*")
        self._damaged_rows = set[str]().union(*map(_replay_files, damaged))
        self._segments, self.last_step = checkpoint.segments, checkpoint.step
        best = self._folder / step_name(best_step) if best_step is not None else None
        known = (best, read_pointer(self.run_dir, "best"))
        self._best = next((path for path in known if path and path.is_dir()), None)
        for name, target in (("last", checkpoint.path), ("best", self._best)):
            if target is None:
                remove(self._folder / name)  # its target is damaged
            elif read_pointer(self.run_dir, name) != target:
                self._point(name, target)
        self._apply_retention()
        return self._best is not None

    def save(
        self,
        *,
        step: int,
        tensors: dict[str, Tensor],
        state: dict[str, Any],
        storage: ReplayBuffer | None,
        manifest: dict[str, Any],
        best: bool = False,
    ) -> Path:
        """Write a checkpoint, then update the pointers.

        Raises:
            OSError: A write failed; earlier checkpoints are unchanged.
        """
        self.bytes_written = 0
        if self.last_step is None:
            self._make_folders()
        parts = {} if storage is None else storage.segmented()
        segments = {name: self._save_segments(name, part) for name, part in parts.items()}
        optimizers = {n: tensors[n] for n in tensors if n.startswith(OPTIMIZER_PREFIX)}
        model = {n: tensors[n] for n in tensors if n not in optimizers}
        contents = {
            MODEL: tensor_bytes(model),
            OPTIMIZERS: tensor_bytes(optimizers),
            STATE: json_codec.dumps(state),
        }
        body = manifest | {"step": step, "replay": [], **segments}
        path = self._write_folder(step, contents | {MANIFEST: manifest_bytes(body, contents)})
        self._point("last", path)
        if best:
            self._point("best", path)
            self._best = path
        self._segments = segments
        for part in parts.values():
            part.dirty.clear()
        self.last_step = step
        self._references[path.name] = set[str]().union(*segments.values())
        self._apply_retention()
        return path

    def _save_segments(self, kind: str, storage: Segmented) -> list[str]:
        names = list(self._segments.get(kind, ()))
        for index in range(storage.num_segments()):
            if index < len(names) and index not in storage.dirty:
                continue
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, storage.segment(index), allow_pickle=False)
            data = buffer.getvalue()
            name = hashlib.sha256(data).hexdigest()
            write_atomically(self._replay / f"{name}.npy", data)
            self.bytes_written += len(data)
            names[index : index + 1] = [name]
        sync_folder(self._replay)
        return names

    def _write_folder(self, step: int, contents: dict[str, bytes]) -> Path:
        path = self._folder / step_name(step)
        temporary = temporary_name(path)
        remove(temporary)
        temporary.mkdir()
        try:
            for name, data in contents.items():
                with create_file(temporary / name) as stream:
                    stream.write(data)
                self.bytes_written += len(data)
            sync_folder(temporary)
            self.before_commit()
            if path.exists():  # the step was saved before
                swap(path, temporary)
            else:
                os.rename(temporary, path)
        except OSError:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        sync_folder(self._folder)
        return path

    def _point(self, name: str, target: Path) -> None:
        write_atomically(self._folder / name, f"{target.name}\n".encode())
        sync_folder(self._folder)

    def _apply_retention(self) -> None:
        """Remove all but the newest checkpoints and the best, then unused replay files."""
        steps = list_steps(self.run_dir)
        keep = {*steps[-self._keep :], self._best}
        for path in steps:
            if path not in keep:
                # A partly removed checkpoint must not be visible.
                hidden = self._folder / f"{TEMPORARY}old-{path.name}"
                remove(hidden)
                os.replace(path, hidden)
                remove(hidden)
                self._references.pop(path.name, None)
            elif path.name not in self._references:
                self._references[path.name] = _replay_files(path)
        used = self._damaged_rows.union(*self._references.values())
        for file in self._replay.glob("*.npy"):
            if file.stem not in used:
                file.unlink()


def _set_aside(path: Path) -> None:
    """Rename a damaged checkpoint to a free name."""
    aside, number = path.with_name(f"{DAMAGED}{path.name}"), 1
    while os.path.lexists(aside):
        number += 1
        aside = path.with_name(f"{DAMAGED}{path.name}-{number}")
    os.replace(path, aside)


def _replay_files(path: Path) -> set[str]:
    """Return the replay files that a checkpoint refers to, if its manifest can be read.

    The files of a checkpoint that is damaged or has another format are kept for manual recovery.
    """
    try:
        manifest = read_json(path / MANIFEST, error=CheckpointError)
        names = [name for kind in SEGMENT_KINDS for name in manifest.get(kind, ())]
        return {name for name in names if isinstance(name, str)}
    except (CheckpointError, TypeError, AttributeError):
        return set()


def swap(path: Path, new: Path) -> None:
    """Replace the folder ``path`` with ``new``; `recover_swaps` undoes an interrupted swap."""
    old = path.with_name(f"{_SWAPPED}{path.name}")
    remove(old)
    os.replace(path, old)
    os.rename(new, path)
    sync_folder(path.parent)
    remove(old)


def recover_swaps(folder: Path) -> None:
    """Restore the old checkpoint if the process was killed during a swap."""
    for old in folder.glob(f"{_SWAPPED}*"):
        path = folder / old.name.removeprefix(_SWAPPED)
        if old.is_symlink() or not old.is_dir():  # not created by a swap
            remove(old)
        elif not os.path.lexists(path):
            os.replace(old, path)

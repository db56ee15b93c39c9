"""What is in a checkpoint, how it is written so that no instant is unsafe, and how it is trusted.

``checkpoints/step_000010000/`` holds ``manifest.json``, ``model.safetensors``,
``optimizers.safetensors`` and ``state.json``; replay rows are immutable files in ``replay/``, named
by their content and shared by the run's checkpoints. ``checkpoints/last`` and ``best`` are one-line
pointers. Everything is written under a temporary name, synced, then renamed. Nothing is pickled.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from rl_training.boundary import json_codec
from rl_training.boundary.npy import read_npy
from rl_training.boundary.reading import open_file, read_bytes, read_json, read_text, sha256_of
from rl_training.boundary.tensors import read_tensors, tensor_bytes
from rl_training.boundary.text import shorten, shown
from rl_training.boundary.writing import (
    create_file,
    remove,
    sync_folder,
    temporary_name,
    write_atomically,
)
from rl_training.errors import CheckpointError
from rl_training.runtime.quarantine import MAX_MANIFEST, rows_named, rows_set_aside, set_aside, swap
from rl_training.runtime.stop_reason import StopReason
from rl_training.types import SegmentedStorage

FORMAT = 1
MANIFEST = "manifest.json"
MODEL = "model.safetensors"
OPTIMIZERS = "optimizers.safetensors"
STATE = "state.json"
FILES = (MODEL, OPTIMIZERS, STATE)
OPTIMIZER_PREFIX = "optimizers."
_STEP_NAME = re.compile(r"step_\d{9,}")
_SHA = re.compile(r"[0-9a-f]{64}")
MAX_STATE = 1 << 30
"""The largest ``state.json``: an environment's arrays are in it."""
_UNREADABLE = (ValueError, TypeError, KeyError, OverflowError, MemoryError, RecursionError)
"""What decoding a made-up file can raise."""


class FormatError(CheckpointError):
    """A checkpoint that is whole, but not for this version to read."""


def step_name(step: int) -> str:
    """The folder's name for a step."""
    return f"step_{step:09d}"


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint on disk."""

    path: Path
    manifest: dict[str, Any]

    @property
    def step(self) -> int:
        """The step at which it was written."""
        return int(self.manifest["step"])

    @property
    def run_dir(self) -> Path | None:
        """The run that it belongs to; None for a self-contained copy."""
        parent = self.path.parent
        inside = parent.name == "checkpoints" and _STEP_NAME.fullmatch(self.path.name)
        return parent.parent if inside else None

    def replay_dir(self) -> Path:
        """Where its replay rows are: in the run, or beside the manifest in a copy."""
        return (self.run_dir or self.path) / "replay"

    def tensors(self, *names: str) -> dict[str, Tensor]:
        """The tensors of the named files, in one mapping."""
        tensors: dict[str, Tensor] = {}
        for name in names:
            size = self.manifest["files"][name]["bytes"]
            tensors |= read_tensors(self.path / name, limit=size)
        return tensors

    def state(self) -> dict[str, Any]:
        """The counters, generators and running episodes of ``state.json``."""
        data = read_bytes(self.path / STATE, limit=MAX_STATE, error=CheckpointError)
        try:
            state: dict[str, Any] = json_codec.loads(data)
        except _UNREADABLE as error:
            reason = shorten(f"{type(error).__name__}: {error}", 200)
            raise CheckpointError(f"{self.path / STATE} cannot be read: {reason}") from None
        if not isinstance(state, dict) or not isinstance(state.get("trainer"), dict):
            raise CheckpointError(f"{self.path / STATE} does not hold a run's state")
        return state

    def updates(self) -> int:
        """Gradient updates that its learner had made."""
        updates = self.state()["trainer"].get("updates")
        if type(updates) is not int or updates < 0:
            raise CheckpointError(f"{self.path / STATE} does not tell the updates made")
        return updates

    def stop_reason(self) -> StopReason | None:
        """Why the run stopped here, if it did."""
        reason = self.state()["trainer"].get("stop_reason")
        return StopReason.parse(reason) if isinstance(reason, str) else None

    def restore_storage(self, storage: SegmentedStorage, state: dict[str, Any]) -> None:
        """Put counters and rows back into a replay buffer."""
        storage.load_state_dict(state)
        names = self.manifest["replay"]
        if len(names) != storage.num_segments():
            raise CheckpointError(
                f"{self.path} lists {len(names)} replay segments, but its counters need "
                f"{storage.num_segments()}"
            )
        for index, name in enumerate(names):
            rows = read_npy(self.replay_dir() / f"{name}.npy", error=CheckpointError)
            storage.load_segment(index, rows)
            if not np.isfinite(rows).all():
                raise CheckpointError(f"replay segment {index} holds values that are not finite")


# --- Reading ------------------------------------------------------------------


def open_checkpoint(path: Path, *, replay: bool = False) -> Checkpoint:
    """Verify a checkpoint's files against its manifest, and its replay rows if asked.

    Raises:
        CheckpointError: A file is missing, altered or a link; named.
        FormatError: The checkpoint is of another format.
    """
    manifest = _read_manifest(path)
    for name in FILES:
        entry = manifest["files"][name]
        _verify(path / name, entry["sha256"], entry["bytes"])
    checkpoint = Checkpoint(path, manifest)
    if replay:
        folder = checkpoint.replay_dir()
        if folder.is_symlink():
            raise CheckpointError(f"{folder} is a link, and links are not followed")
        for name in manifest["replay"]:
            _verify(folder / f"{name}.npy", name)
    return checkpoint


def _read_manifest(path: Path) -> dict[str, Any]:
    if path.is_symlink() or not path.is_dir():
        raise CheckpointError(f"{path} is not a checkpoint folder")
    file = path / MANIFEST
    manifest = read_json(file, limit=MAX_MANIFEST, error=CheckpointError)
    try:
        digest = manifest.pop("digest")
        body = json_codec.dumps(manifest)
    except (*_UNREADABLE, AttributeError) as error:
        raise CheckpointError(f"{file} is damaged ({type(error).__name__})") from None
    # First the digest, which every format has: an altered number is damage, not another format.
    if digest != hashlib.sha256(body).hexdigest():
        raise CheckpointError(f"{file} was altered: its digest does not match")
    version = manifest.get("format")
    if type(version) is not int or version != FORMAT:
        raise FormatError(
            f"{file} has checkpoint format {shown(version)}, and this version of "
            f"rl-training reads {FORMAT}: use the version that wrote it"
        )
    _check_manifest(file, manifest)
    if _STEP_NAME.fullmatch(path.name) and path.name != step_name(manifest["step"]):
        raise CheckpointError(f"{file} is of step {manifest['step']}, unlike its folder's name")
    return manifest  # type: ignore[no-any-return]


def _check_manifest(file: Path, manifest: dict[str, Any]) -> None:
    """Check that the names inside cannot lead out of the folder and the fields are what we read."""
    replay, step = manifest.get("replay"), manifest.get("step")
    sound = (
        type(step) is int
        and step >= 0
        and isinstance(manifest.get("config"), dict)
        and isinstance(manifest.get("env_spec"), dict)
        and isinstance(manifest.get("files"), dict)
        and set(manifest["files"]) == set(FILES)
        and all(_is_entry(entry) for entry in manifest["files"].values())
        and isinstance(replay, list)
        and all(isinstance(name, str) and _SHA.fullmatch(name) for name in replay)
    )
    if not sound:
        raise CheckpointError(f"{file} does not have the fields of a checkpoint's manifest")


def _is_entry(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and set(entry) == {"sha256", "bytes"}
        and isinstance(entry["sha256"], str)
        and _SHA.fullmatch(entry["sha256"]) is not None
        and type(entry["bytes"]) is int
        and entry["bytes"] >= 0
    )


def _verify(file: Path, sha256: str, size: int | None = None) -> None:
    with open_file(file, error=CheckpointError) as stream:
        present = os.fstat(stream.fileno()).st_size
    if size is not None and present != size:
        raise CheckpointError(f"{file} has {present} bytes instead of {size}")
    if sha256_of(file, error=CheckpointError) != sha256:
        raise CheckpointError(f"{file} was altered: its contents do not match the manifest")


def load_tensors(module: nn.Module, checkpoint: Checkpoint, *files: str) -> None:
    """Copy a checkpoint's tensors into a module, in place; names and shapes must agree."""
    saved = checkpoint.tensors(*files)
    own = {
        name: tensor
        for name, tensor in module.state_dict().items()
        if (OPTIMIZERS if name.startswith(OPTIMIZER_PREFIX) else MODEL) in files
    }
    for name in sorted(own.keys() | saved.keys()):
        if name not in own or name not in saved or not _same_form(own[name], saved[name]):
            misfit = f"does not fit this learner: see tensor {shown(name)}"
            raise CheckpointError(f"{checkpoint.path} {misfit}")
        own[name].copy_(saved[name])


def _same_form(own: Tensor, saved: Tensor) -> bool:
    return own.shape == saved.shape and own.dtype == saved.dtype


def _checkpoints(run_dir: Path) -> Path:
    folder = run_dir / "checkpoints"
    if folder.is_symlink():
        raise CheckpointError(f"{folder} is a link, and links are not followed")
    return folder


def list_steps(run_dir: Path) -> list[Path]:
    """The run's checkpoint folders, oldest first."""
    folder = _checkpoints(run_dir)
    found = [p for p in folder.iterdir() if _STEP_NAME.fullmatch(p.name)] if folder.is_dir() else []
    return sorted(found, key=lambda p: int(p.name.removeprefix("step_")))


def read_pointer(run_dir: Path, name: str) -> Path | None:
    """Where ``last`` or ``best`` points; None if it is absent or not a checkpoint's name."""
    file = _checkpoints(run_dir) / name
    try:
        target = read_text(file, limit=100, error=CheckpointError).strip()
    except CheckpointError:
        return None
    return file.parent / target if _STEP_NAME.fullmatch(target) else None


# --- Writing ------------------------------------------------------------------


class CheckpointWriter:
    """Writes a run's checkpoints; each costs what is new since the last."""

    def __init__(self, run_dir: Path, *, keep: int) -> None:
        self.run_dir = run_dir
        """May change: a new run's folder is renamed once it has its first checkpoint."""
        self.last_step: int | None = None
        self.bytes_written = 0
        """Bytes that the latest `save` wrote."""
        self._keep = keep
        self._segments: list[str] = []
        self._references: dict[str, set[str]] = {}
        """The replay rows of each checkpoint, by its folder's name."""
        self._rows_aside: set[str] = set()
        self._best: Path | None = None

    @property
    def _folder(self) -> Path:
        return self.run_dir / "checkpoints"

    @property
    def _replay(self) -> Path:
        return self.run_dir / "replay"

    def _make_folders(self) -> None:
        """Make the run's folders, but never the run's own: it may have been removed on purpose."""
        for folder in (self._folder, self._replay):
            folder.mkdir(exist_ok=True)
        sync_folder(self.run_dir)

    def attach(self, checkpoint: Checkpoint, *, best_step: int | None = None) -> bool:
        """Continue from a checkpoint, of this run or another's; tells whether the best is here.

        What a kill left undone is done: half-written files go, pointers and retention catch up.
        """
        if checkpoint.run_dir != self.run_dir:
            return False
        self._make_folders()
        for folder in (self._folder, self._replay):
            for leftover in folder.glob(".tmp-*"):  # what a kill left half-written
                remove(leftover)
        for path in list_steps(self.run_dir):
            if int(path.name.removeprefix("step_")) > checkpoint.step:  # found damaged
                set_aside(path)
        self._rows_aside = rows_set_aside(self._folder)
        self._segments, self.last_step = list(checkpoint.manifest["replay"]), checkpoint.step
        best = self._folder / step_name(best_step) if best_step is not None else None
        known = (best, read_pointer(self.run_dir, "best"))
        self._best = next((path for path in known if path and path.is_dir()), None)
        for name, target in (("last", checkpoint.path), ("best", self._best)):
            if target is None:
                remove(self._folder / name)  # what it named was found damaged
            elif read_pointer(self.run_dir, name) != target:
                self._point(name, target)
        self._retain()
        return self._best is not None

    def save(
        self,
        *,
        step: int,
        tensors: dict[str, Tensor],
        state: dict[str, Any],
        storage: SegmentedStorage | None,
        manifest: dict[str, Any],
        best: bool = False,
    ) -> Path:
        """Write one checkpoint, then move the pointers to it.

        Raises:
            OSError: A write failed; the earlier checkpoints are untouched.
        """
        self.bytes_written = 0
        if self.last_step is None:
            self._make_folders()
        segments = self._save_segments(storage) if storage is not None else []
        contents = {
            MODEL: _tensor_bytes(tensors, optimizers=False),
            OPTIMIZERS: _tensor_bytes(tensors, optimizers=True),
            STATE: json_codec.dumps(state),
        }
        body = manifest | {
            "format": FORMAT,
            "step": step,
            "replay": segments,
            "files": {
                name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
                for name, data in contents.items()
            },
        }
        body = json.loads(json_codec.dumps(body))  # as it will be read back
        body["digest"] = hashlib.sha256(json_codec.dumps(body)).hexdigest()
        path = self._write_folder(step, contents | {MANIFEST: json_codec.dumps(body)})
        self._point("last", path)
        if best:
            self._point("best", path)
            self._best = path
        self._segments = segments
        if storage is not None:
            storage.dirty.clear()
        self.last_step = step
        self._references[path.name] = set(segments)
        self._retain()
        return path

    def _save_segments(self, storage: SegmentedStorage) -> list[str]:
        names = list(self._segments)
        for index in range(storage.num_segments()):
            if index < len(names) and index not in storage.dirty:
                continue
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, storage.segment(index), allow_pickle=False)
            data = buffer.getvalue()
            name = hashlib.sha256(data).hexdigest()
            write_atomically(self._replay / f"{name}.npy", data)
            self.bytes_written += len(data)
            names[index:] = [name, *names[index + 1 :]]
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
            if path.exists():  # saved twice in one step
                swap(path, temporary)
            else:
                os.rename(temporary, path)
        except OSError:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        sync_folder(self._folder)
        return path

    def _discard(self, path: Path) -> None:
        """Remove a checkpoint so that no instant shows a part of it."""
        hidden = self._folder / f".tmp-old-{path.name}"
        remove(hidden)
        os.replace(path, hidden)
        remove(hidden)
        self._references.pop(path.name, None)

    def _point(self, name: str, target: Path) -> None:
        write_atomically(self._folder / name, f"{target.name}\n".encode())
        sync_folder(self._folder)

    def _retain(self) -> None:
        """Remove checkpoints beyond the newest few and the best, then rows that none refers to."""
        steps = list_steps(self.run_dir)
        keep = {*steps[-self._keep :], self._best}
        for path in steps:
            if path not in keep:
                self._discard(path)
            elif path.name not in self._references:
                self._references[path.name] = rows_named(path)
        used = self._rows_aside.union(*self._references.values())
        for file in self._replay.glob("*.npy"):
            if file.stem not in used:
                file.unlink()


def copy_checkpoint(checkpoint: Checkpoint, destination: Path) -> Path:
    """A self-contained copy, its replay rows beside the manifest."""
    if destination.exists():
        raise CheckpointError(f"{destination} exists already: choose another path")
    destination.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_name(destination)
    remove(temporary)
    (temporary / "replay").mkdir(parents=True)
    for name in (MANIFEST, *FILES):
        shutil.copyfile(checkpoint.path / name, temporary / name)
    for name in set(checkpoint.manifest["replay"]):
        source = checkpoint.replay_dir() / f"{name}.npy"
        shutil.copyfile(source, temporary / "replay" / source.name)
    os.rename(temporary, destination)
    return destination


def _tensor_bytes(tensors: dict[str, Tensor], *, optimizers: bool) -> bytes:
    chosen = (n for n in tensors if n.startswith(OPTIMIZER_PREFIX) == optimizers)
    return tensor_bytes({name: tensors[name] for name in chosen})

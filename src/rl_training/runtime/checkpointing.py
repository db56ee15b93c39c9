"""Checkpoint format, and verification of checkpoints before they are read.

``checkpoints/step_000010000/`` contains ``manifest.json``, ``model.safetensors``,
``optimizers.safetensors`` and ``state.json``; replay rows are immutable files in ``replay/``, named
by their content and shared by the run's checkpoints. ``checkpoints/last`` and ``best`` are one-line
pointers. No file is pickled. `checkpoint_writer` writes checkpoints.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import ConfigDict, Field, NonNegativeInt, TypeAdapter, ValidationError
from torch import Tensor, nn
from typing_extensions import NotRequired, TypedDict

from rl_training.boundary import json_codec
from rl_training.boundary.npy import read_npy
from rl_training.boundary.reading import open_file, read_bytes, read_json, read_text, sha256_of
from rl_training.boundary.tensors import read_tensors
from rl_training.boundary.values import report_state_errors
from rl_training.boundary.writing import remove, temporary_name
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.errors import CheckpointError
from rl_training.runtime.stop_reason import StopReason
from rl_training.runtime.trainer_state import TrainerState
from rl_training.text import error_text, shown

FORMAT = 1
MANIFEST = "manifest.json"
MODEL = "model.safetensors"
OPTIMIZERS = "optimizers.safetensors"
STATE = "state.json"
FILES = MODEL, OPTIMIZERS, STATE
OPTIMIZER_PREFIX = "optimizers."
SEGMENT_KINDS = ("replay", "frames")
"""Lists in a manifest that name files in the folder ``replay``: rows, and images of rows."""
_STEP_NAME = re.compile(r"step_\d{9,}")
MAX_STATE = 1 << 30
"""Largest size of ``state.json``, which contains the arrays of environments."""
_UNREADABLE = (ValueError, TypeError, KeyError, OverflowError, MemoryError, RecursionError)
"""Exceptions that decoding an invalid file can raise."""

_FileName = Literal["model.safetensors", "optimizers.safetensors", "state.json"]
_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _FileEntry(TypedDict):
    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]
    sha256: _Sha256
    bytes: NonNegativeInt


class _Manifest(TypedDict):
    """Fields of every manifest; file names in it cannot point outside the run folder."""

    step: NonNegativeInt
    config: dict[str, Any]
    env_spec: dict[str, Any]
    files: Annotated[dict[_FileName, _FileEntry], Field(min_length=3)]
    replay: list[_Sha256]
    frames: NotRequired[list[_Sha256]]


class FormatError(CheckpointError):
    """The checkpoint is complete, but in a format that this version does not read."""


def step_name(step: int) -> str:
    """Return the folder name of a step."""
    return f"step_{step:09d}"


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint on disk."""

    path: Path
    manifest: dict[str, Any]

    @property
    def step(self) -> int:
        """Step at which the checkpoint was written."""
        return int(self.manifest["step"])

    @property
    def run_dir(self) -> Path | None:
        """Folder of the run; None for a self-contained copy."""
        parent = self.path.parent
        inside = parent.name == "checkpoints" and _STEP_NAME.fullmatch(self.path.name)
        return parent.parent if inside else None

    @property
    def segments(self) -> dict[str, list[str]]:
        """Names of the files with the replay's rows and images, in order."""
        return {kind: list(self.manifest.get(kind, ())) for kind in SEGMENT_KINDS}

    @property
    def segment_names(self) -> list[str]:
        """Names of all files with rows or images; equal contents have one file."""
        return list(dict.fromkeys(name for names in self.segments.values() for name in names))

    def replay_dir(self) -> Path:
        """Return the folder of the replay files: in the run, or inside a self-contained copy."""
        return (self.run_dir or self.path) / "replay"

    def tensors(self, *names: str) -> dict[str, Tensor]:
        """Read the tensors of the given files."""
        files = self.manifest["files"]
        parts = (read_tensors(self.path / name, limit=files[name]["bytes"]) for name in names)
        return {name: tensor for part in parts for name, tensor in part.items()}

    def state(self) -> dict[str, Any]:
        """Read ``state.json``: counters, generators and running episodes."""
        data = read_bytes(self.path / STATE, limit=MAX_STATE, error=CheckpointError)
        try:
            state: dict[str, Any] = json_codec.loads(data)
        except _UNREADABLE as error:
            raise CheckpointError(
                f"{self.path / STATE} cannot be read: {error_text(error)}"
            ) from None
        if not isinstance(state, dict) or not isinstance(state.get("trainer"), dict):
            raise CheckpointError(f"{self.path / STATE} does not contain the state of a run")
        return state

    def trainer_state(self) -> TrainerState:
        """Return the counters, the last evaluation and the best result."""
        state = TrainerState()
        with report_state_errors(self.path / STATE):
            state.load_state_dict(self.state()["trainer"])
        return state

    def updates(self) -> int:
        """Return the number of gradient updates so far."""
        updates = self.state()["trainer"].get("updates")
        if type(updates) is not int or updates < 0:
            raise CheckpointError(f"{self.path / STATE} does not record the number of updates")
        return updates

    def stop_reason(self) -> StopReason | None:
        """Return why the run stopped here; None if it did not stop."""
        reason = self.state()["trainer"].get("stop_reason")
        return StopReason.parse(reason) if isinstance(reason, str) else None

    def restore_storage(self, storage: ReplayBuffer, state: dict[str, Any]) -> None:
        """Restore the counters, rows and images of a replay buffer."""
        storage.load_state_dict(state)
        parts = storage.segmented()
        for kind, names in self.segments.items():
            needed = parts[kind].num_segments() if kind in parts else 0
            if len(names) != needed:
                raise CheckpointError(
                    f"{self.path} lists {len(names)} {kind} segments, but its counters require "
                    f"{needed}"
                )
            for index, name in enumerate(names):
                contents = read_npy(self.replay_dir() / f"{name}.npy", error=CheckpointError)
                parts[kind].load_segment(index, contents)
                if not np.isfinite(contents).all():
                    raise CheckpointError(
                        f"{kind} segment {index} contains values that are not finite"
                    )


# --- Reading ------------------------------------------------------------------


def open_checkpoint(path: Path, *, replay: bool = False) -> Checkpoint:
    """Verify a checkpoint's files, and optionally its replay rows, against its manifest.

    Raises:
        CheckpointError: A file is missing, altered or a link.
        FormatError: The checkpoint has another format.
    """
    manifest = _read_manifest(path)
    for name in FILES:
        entry = manifest["files"][name]
        _verify(path / name, entry["sha256"], entry["bytes"])
    checkpoint = Checkpoint(path, manifest)
    if replay:
        folder = checkpoint.replay_dir()
        if folder.is_symlink():
            raise CheckpointError(
                f"{folder} is a link, which is not followed: replace it with the real folder"
            )
        for name in checkpoint.segment_names:
            _verify(folder / f"{name}.npy", name)
    return checkpoint


def _read_manifest(path: Path) -> dict[str, Any]:
    if path.is_symlink() or not path.is_dir():
        raise CheckpointError(f"{path} is not a checkpoint folder")
    file = path / MANIFEST
    manifest = read_json(file, error=CheckpointError)
    try:
        digest = manifest.pop("digest")
        body = json_codec.dumps(manifest)
    except (*_UNREADABLE, AttributeError) as error:
        raise CheckpointError(f"{file} is damaged ({type(error).__name__})") from None
    # Every format has a digest, so it is checked first: an altered version number is damage.
    if digest != hashlib.sha256(body).hexdigest():
        raise CheckpointError(f"{file} was altered: its digest does not match")
    version = manifest.get("format")
    if type(version) is not int or version != FORMAT:
        raise FormatError(
            f"{file} has checkpoint format {shown(version)}, but this version of "
            f"rl-training reads format {FORMAT}: use the version that wrote it"
        )
    try:
        TypeAdapter(_Manifest).validate_python(manifest, strict=True)
    except ValidationError:
        problem = "has missing or invalid fields"
        raise CheckpointError(f"{file} {problem}") from None
    if _STEP_NAME.fullmatch(path.name) and path.name != step_name(manifest["step"]):
        raise CheckpointError(
            f"{file} is from step {manifest['step']}, which does not match its folder name"
        )
    return manifest  # type: ignore[no-any-return]


def _verify(file: Path, sha256: str, size: int | None = None) -> None:
    with open_file(file, error=CheckpointError) as stream:
        present = os.fstat(stream.fileno()).st_size
    if size is not None and present != size:
        raise CheckpointError(f"{file} has {present} bytes instead of {size}")
    if sha256_of(file, error=CheckpointError) != sha256:
        raise CheckpointError(f"{file} was altered: its contents do not match the manifest")


def load_tensors(module: nn.Module, checkpoint: Checkpoint, *files: str) -> None:
    """Copy a checkpoint's tensors into a module in place; names and shapes must match."""
    saved = checkpoint.tensors(*files)
    own = {
        name: tensor
        for name, tensor in module.state_dict().items()
        if (OPTIMIZERS if name.startswith(OPTIMIZER_PREFIX) else MODEL) in files
    }
    for name in sorted(own.keys() | saved.keys()):
        here, there = own.get(name), saved.get(name)
        if here is None or there is None or (here.shape, here.dtype) != (there.shape, there.dtype):
            mismatch = f"does not match this learner: tensor {shown(name)} differs"
            raise CheckpointError(f"{checkpoint.path} {mismatch}")
        here.copy_(there)


def _checkpoints(run_dir: Path) -> Path:
    folder = run_dir / "checkpoints"
    if folder.is_symlink():
        raise CheckpointError(
            f"{folder} is a link, which is not followed: replace it with the real folder"
        )
    return folder


def list_steps(run_dir: Path) -> list[Path]:
    """Return the checkpoint folders of a run, oldest first."""
    folder = _checkpoints(run_dir)
    found = [p for p in folder.iterdir() if _STEP_NAME.fullmatch(p.name)] if folder.is_dir() else []
    return sorted(found, key=lambda p: int(p.name.removeprefix("step_")))


def read_pointer(run_dir: Path, name: str) -> Path | None:
    """Return the target of ``last`` or ``best``; None if it is missing or not a checkpoint."""
    file = _checkpoints(run_dir) / name
    try:
        target = read_text(file, limit=100, error=CheckpointError).strip()
    except CheckpointError:
        return None
    return file.parent / target if _STEP_NAME.fullmatch(target) else None


def copy_checkpoint(checkpoint: Checkpoint, destination: Path) -> Path:
    """Make a self-contained copy, including the replay."""
    if destination.exists():
        raise CheckpointError(f"{destination} already exists: choose another path")
    destination.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_name(destination)
    remove(temporary)
    (temporary / "replay").mkdir(parents=True)
    for name in (MANIFEST, *FILES):
        shutil.copyfile(checkpoint.path / name, temporary / name)
    for name in checkpoint.segment_names:
        source = checkpoint.replay_dir() / f"{name}.npy"
        shutil.copyfile(source, temporary / "replay" / source.name)
    os.rename(temporary, destination)
    return destination

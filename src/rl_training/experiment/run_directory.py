"""Run folders: making them, locking them, listing them, finding their checkpoints."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from rl_training.boundary.reading import MAX_TEXT, read_json, read_text
from rl_training.boundary.writing import TEMPORARY, sync_folder, write_atomically
from rl_training.boundary.yaml_codec import dump_yaml, parse_yaml
from rl_training.errors import CheckpointError, ConfigError, RLTrainingError
from rl_training.experiment.config import TrainConfig, saved_config
from rl_training.runtime.checkpointing import (
    Checkpoint,
    FormatError,
    list_steps,
    open_checkpoint,
    read_pointer,
)
from rl_training.runtime.logging import METRICS_FILE
from rl_training.text import shown

CONFIG_FILE = "config.yaml"
RUN_FILE = "run.json"
LOCK_FILE = ".lock"
ABANDONED_SECONDS = 3600.0
_HIDDEN = re.compile(r"\.tmp-.+-[0-9a-f]{8}")
_FIRST_FILES = (CONFIG_FILE, RUN_FILE, METRICS_FILE)
_FIRST_ENTRIES = {*_FIRST_FILES, *(f"{TEMPORARY}{name}" for name in _FIRST_FILES)} | {
    *("checkpoints", "replay")
}
"""What a run's folder can hold before it has its name."""


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextmanager
def create_run(config: TrainConfig) -> Iterator[Path]:
    """A hidden folder under `output_dir` for a new run, until `name_run` gives it its name.

    What fails before that removes it: no part of a run is ever seen.
    """
    with reporting_output_dir(config):
        parent = Path(config.output_dir)
        parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned_run_dirs(parent)
        folder = parent / f"{TEMPORARY}{_name(config)}-{secrets.token_hex(4)}"
        folder.mkdir()
    try:
        with reporting_output_dir(config):
            write_config(folder, config)
            write_run_info(folder, {"state": "created", "created": now()})
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)  # not there any more where it has its name
        raise


def name_run(folder: Path, config: TrainConfig) -> Path:
    """Rename a new run's hidden folder to the first name that is free, and make that durable."""
    base, number = _name(config), 1
    with reporting_output_dir(config):
        sync_folder(folder)
        while True:
            path = folder.with_name(base if number == 1 else f"{base}_{number}")
            try:
                os.rename(folder, path)  # never replaces a folder with files in it
                break
            except OSError:
                if not path.exists():
                    raise
                number += 1
        sync_folder(path.parent)
    return path


def _name(config: TrainConfig) -> str:
    environment = re.sub(r"[^A-Za-z0-9.-]+", "-", config.env_id or "data")
    suffix = "_finetuned" if config.finetunes else ""
    return f"{config.algo}_{environment}_seed{config.seed}{suffix}"


@contextmanager
def reporting_output_dir(config: TrainConfig) -> Iterator[None]:
    """Raise a failed write to a new run as one sentence."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"output_dir {shown(config.output_dir)} cannot be written ({error.strerror or error}): "
            "choose another with output_dir=PATH."
        ) from None


def remove_abandoned_run_dirs(parent: Path) -> None:
    """Remove what kills left of runs that had no name yet, an hour after the last change.

    A folder with anything in it that a new run does not have stays.
    """
    for folder in parent.glob(f"{TEMPORARY}*"):
        with suppress(OSError):
            young = time.time() - folder.lstat().st_mtime < ABANDONED_SECONDS
            if young or folder.is_symlink() or not _HIDDEN.fullmatch(folder.name):
                continue
            if {entry.name for entry in folder.iterdir()} <= _FIRST_ENTRIES:
                shutil.rmtree(folder)


def folder_of(run_dir: Path) -> Path:
    """The folder that a run is in, also where the run is given as ``.`` or ``..``."""
    named = run_dir.name not in ("", "..")
    return run_dir.parent if named else Path(os.path.abspath(run_dir)).parent


def write_config(run_dir: Path, config: TrainConfig) -> None:
    """Save the resolved config."""
    write_atomically(run_dir / CONFIG_FILE, dump_yaml(config.to_dict()).encode())


def read_config_file(run_dir: Path) -> TrainConfig:
    """The resolved config of a run."""
    file = run_dir / CONFIG_FILE
    data = parse_yaml(read_text(file), str(file))
    if not isinstance(data, dict):
        raise ConfigError(f"{file} must hold a mapping of keys to values.")
    return saved_config(data)


def write_run_info(run_dir: Path, changes: dict[str, Any]) -> None:
    """Update ``run.json``: state, times, counters, versions."""
    info = read_run_info(run_dir) | changes | {"updated": now()}
    write_atomically(run_dir / RUN_FILE, (json.dumps(info, indent=1) + "\n").encode())


def read_run_info(run_dir: Path) -> dict[str, Any]:
    """What ``run.json`` says; empty if it is not there or damaged."""
    try:
        info = read_json(run_dir / RUN_FILE, limit=MAX_TEXT)
    except ConfigError:
        return {}
    return info if isinstance(info, dict) else {}


def refuse_links(run_dir: Path) -> None:
    """Refuse a run whose files are not its own: writing to it would write elsewhere."""
    for entry in run_dir.iterdir():
        if entry.is_symlink() or not (entry.is_file() or entry.is_dir()):
            raise CheckpointError(f"{entry} is a link, and links are not followed")


@contextmanager
def lock_run(run_dir: Path) -> Iterator[None]:
    """Hold the run for this process; a kill releases it."""
    file = run_dir / LOCK_FILE
    if file.is_symlink() or (file.exists() and not file.is_file()):
        raise ConfigError(f"{file} is not a regular file: remove it, then try again.")
    lock = FileLock(file)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise ConfigError(f"{run_dir} is being trained by another process.") from None
    except OSError as error:
        raise ConfigError(f"{run_dir} cannot be written ({error}).") from None
    try:
        yield
    finally:
        lock.release()


def is_locked(run_dir: Path) -> bool:
    """Whether a process is training this run now; creates no file to find that out.

    A lock that may not be opened counts as held: ``run.json`` is all that can be known then.
    """
    file = run_dir / LOCK_FILE
    if file.is_symlink() or not file.is_file():
        return False
    try:
        with lock_run(run_dir):
            return False
    except ConfigError:
        return True


# --- Finding ------------------------------------------------------------------


@dataclass(frozen=True)
class RunRow:
    """One run in a listing."""

    path: Path
    algo: str
    env_id: str | None
    seed: int
    step: int
    total_timesteps: int
    best_return: float | None
    last_return: float | None
    best_loss: float | None
    last_loss: float | None
    """On rows that were held out, where the run has some."""
    state: str


def is_run(path: Path) -> bool:
    """Whether a folder is a run's."""
    return (path / CONFIG_FILE).is_file() and (path / RUN_FILE).is_file()


def list_runs(folder: Path) -> list[RunRow]:
    """The runs below a folder, by name; folders that are not runs are passed over."""
    if not folder.is_dir():
        raise ConfigError(f"There is no folder {str(folder)!r}.")
    rows = []
    for path in sorted(p.parent for p in folder.rglob(RUN_FILE)):
        if path.name.startswith(".tmp-") or not is_run(path):
            continue
        info = read_run_info(path)
        try:
            config = read_config_file(path)
        except (RLTrainingError, OSError):
            continue
        state = str(info.get("state", "unknown"))
        if state in ("created", "running") and not is_locked(path):
            state = "killed"
        rows.append(
            RunRow(
                path=path,
                algo=config.algo,
                env_id=config.env_id,
                seed=config.seed,
                step=int(_number(info.get("step")) or 0),
                total_timesteps=config.last_step if config.total_timesteps else 0,
                best_return=_number(info.get("best_return")),
                last_return=_number(info.get("last_return")),
                best_loss=_number(info.get("best_loss")),
                last_loss=_number(info.get("last_loss")),
                state=state,
            )
        )
    return rows


def _number(value: Any) -> float | None:
    """What ``run.json`` says, where it is a number that a run can have."""
    known = isinstance(value, int | float) and abs(value) <= sys.float_info.max
    return value if known else None


def locate(path: Path, *, best: bool = False) -> Path:
    """The checkpoint folder that a run (its last, or its best) or a checkpoint means."""
    if not path.exists():
        raise ConfigError(f"There is no run or checkpoint {str(path)!r}.")
    if is_run(path):
        found = read_pointer(path, "best" if best else "last")
        if best and found is None:
            raise ConfigError(f"{path} has no best checkpoint: it was never evaluated.")
        steps = list_steps(path)
        found = found or (steps[-1] if steps else None)
        if found is None:
            raise ConfigError(f"{path} has no checkpoint yet.")
        return found
    if best:
        raise ConfigError(f"--best needs a run, but {path} is not one.")
    if not (path / "manifest.json").exists():
        raise ConfigError(f"{str(path)!r} is neither a run nor a checkpoint.")
    return Path(os.path.abspath(path))  # its folder tells whether it is part of a run


def newest_sound_checkpoint(run_dir: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint whose every file is whole; None for a run that has none yet.

    Raises:
        FormatError: One on the way is of another format: newer than this version, not damaged.
    """
    steps = list_steps(run_dir)
    problem = ""
    for path in reversed(steps):
        try:
            checkpoint = open_checkpoint(path, replay=True)
        except FormatError:
            raise
        except CheckpointError as error:
            problem = str(error)
            warn(f"{problem}; falling back to the checkpoint before it.")
            continue
        return checkpoint
    if steps:
        raise CheckpointError(f"No checkpoint of {run_dir} is whole: {problem}.")
    return None

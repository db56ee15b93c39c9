"""Run folders: create, lock and list them, and find their checkpoints."""

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

from rl_training.boundary.locking import hold_lock, is_held
from rl_training.boundary.reading import MAX_TEXT, read_json, read_text
from rl_training.boundary.writing import TEMPORARY, remove, sync_folder, write_atomically
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
from rl_training.text import shorten, shown

CONFIG_FILE = "config.yaml"
RUN_FILE = "run.json"
LOCK_FILE = ".lock"
ABANDONED_SECONDS = 3600.0
_HIDDEN = re.compile(r"\.tmp-.+-[0-9a-f]{8}")
_FIRST_FILES = (CONFIG_FILE, RUN_FILE, METRICS_FILE)
_FIRST_ENTRIES = {*_FIRST_FILES, *(f"{TEMPORARY}{name}" for name in _FIRST_FILES)} | {
    *("checkpoints", "replay")
}
"""Entries that a run folder may contain before it is renamed."""


def now() -> str:
    """Return the current UTC time, to the second."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextmanager
def create_run(config: TrainConfig, name: str | None = None) -> Iterator[Path]:
    """Create a hidden folder for a new run under `output_dir`; `name_run` renames it.

    If anything fails before that, the folder is removed, so that incomplete runs never appear.
    """
    with report_output_dir_errors(config):
        parent = Path(config.output_dir)
        parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned_run_dirs(parent)
        folder = parent / f"{TEMPORARY}{name or _name(config)}-{secrets.token_hex(4)}"
        folder.mkdir()
    try:
        with report_output_dir_errors(config):
            write_config(folder, config)
            write_run_info(folder, {"state": "created", "created": now()})
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)  # it does not exist if it was renamed
        raise


def name_run(folder: Path, config: TrainConfig, name: str | None = None) -> Path:
    """Rename the hidden folder of a new run to ``name``, or to the first free name; sync it."""
    base, number = name or _name(config), 1
    with report_output_dir_errors(config):
        sync_folder(folder)
        while True:
            path = folder.with_name(base if number == 1 else f"{base}_{number}")
            try:
                os.rename(folder, path)  # never replaces a folder that is not empty
                break
            except OSError:
                if not path.exists():
                    raise
                if name is not None:
                    raise ConfigError(f"{path} already exists: move it away.") from None
                number += 1
        sync_folder(path.parent)
    return path


def _name(config: TrainConfig) -> str:
    environment = re.sub(r"[^A-Za-z0-9.-]+", "-", (config.env_id or "data").strip("<()>"))
    suffix = "_finetuned" if config.finetunes else ""
    return f"{config.algo}_{environment}_seed{config.seed}{suffix}"


@contextmanager
def report_output_dir_errors(config: TrainConfig) -> Iterator[None]:
    """Turn a failed write to a new run into a ConfigError."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"output_dir {shown(config.output_dir)} cannot be written ({error.strerror or error}): "
            "choose another folder with output_dir=PATH."
        ) from None


def remove_abandoned_run_dirs(parent: Path, name: str | None = None) -> None:
    """Remove hidden folders of killed runs that have not changed for an hour.

    With ``name``, only those of one run are removed, whatever their age; the caller must know that
    no process is starting this run. A folder that contains anything other than the files of a new
    run is kept.
    """
    for folder in parent.glob(f"{TEMPORARY}*"):
        with suppress(OSError):
            young = time.time() - folder.lstat().st_mtime < ABANDONED_SECONDS
            if folder.is_symlink() or not _HIDDEN.fullmatch(folder.name):
                continue
            own = name is not None and folder.name.rpartition("-")[0] == f"{TEMPORARY}{name}"
            wanted = own if name is not None else not young
            if wanted and {entry.name for entry in folder.iterdir()} <= _FIRST_ENTRIES:
                shutil.rmtree(folder)


def parent_folder(run_dir: Path) -> Path:
    """Return the parent folder of a run, even if the run is given as ``.`` or ``..``."""
    named = run_dir.name not in ("", "..")
    return run_dir.parent if named else Path(os.path.abspath(run_dir)).parent


def write_config(run_dir: Path, config: TrainConfig) -> None:
    """Save the resolved config."""
    write_atomically(run_dir / CONFIG_FILE, dump_yaml(config.to_dict()).encode())


def read_config_file(run_dir: Path) -> TrainConfig:
    """Read the resolved config of a run."""
    file = run_dir / CONFIG_FILE
    data = parse_yaml(read_text(file), str(file))
    if not isinstance(data, dict):
        raise ConfigError(f"{file} should contain a mapping of keys to values.")
    return saved_config(data)


def write_run_info(run_dir: Path, changes: dict[str, Any]) -> None:
    """Update ``run.json``: state, times, counters, versions."""
    info = read_run_info(run_dir) | changes | {"updated": now()}
    write_atomically(run_dir / RUN_FILE, (json.dumps(info, indent=1) + "\n").encode())


def read_run_info(run_dir: Path) -> dict[str, Any]:
    """Read ``run.json``; return an empty mapping if it is missing or damaged."""
    try:
        info = read_json(run_dir / RUN_FILE, limit=MAX_TEXT)
    except ConfigError:
        return {}
    return info if isinstance(info, dict) else {}


def reject_links(run_dir: Path) -> None:
    """Reject a run that contains links, since writing to it could change other files."""
    for entry in run_dir.iterdir():
        if entry.is_symlink() or not (entry.is_file() or entry.is_dir()):
            raise CheckpointError(
                f"{entry} is a link or a special file: remove it, then resume again"
            )


@contextmanager
def lock_run(run_dir: Path) -> Iterator[None]:
    """Lock the run for this process; the lock is released even if the process is killed."""
    busy = f"{run_dir} is being trained by another process: stop that process first."
    with hold_lock(run_dir / LOCK_FILE, what=run_dir, busy=busy):
        yield


def is_locked(run_dir: Path) -> bool:
    """Return whether a process is training this run, without creating a lock file.

    A lock that cannot be opened counts as held, so that ``run.json`` is trusted.
    """
    return is_held(run_dir / LOCK_FILE)


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
    """Loss on held-out rows, if the run has any."""
    state: str
    updated: str | None = None
    """Time of the last write to ``run.json``, in UTC."""
    tags: tuple[str, ...] = ()


def is_run(path: Path) -> bool:
    """Return whether a folder is a run."""
    return (path / CONFIG_FILE).is_file() and (path / RUN_FILE).is_file()


def list_runs(folder: Path) -> list[RunRow]:
    """Return the runs below a folder, sorted by name; other folders are skipped."""
    if not folder.is_dir():
        raise ConfigError(f"The folder {str(folder)!r} does not exist.")
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
                updated=_text(info.get("updated")),
                tags=config.tags,
            )
        )
    return rows


def _number(value: Any) -> float | None:
    """Return a value of ``run.json`` if it is a finite number, otherwise None."""
    known = isinstance(value, int | float) and abs(value) <= sys.float_info.max
    return value if known else None


def _text(value: Any) -> str | None:
    return shorten(value) if isinstance(value, str) else None


def delete_run(path: Path) -> None:
    """Delete a run folder and everything in it; links are removed, not followed.

    Raises:
        ConfigError: The path is not a run folder, is a link, is being trained, or cannot be
            deleted.
    """
    check_deletable(path)
    folder = Path(os.path.abspath(path))
    with report_failed_delete(folder), lock_run(folder):
        # The files that mark a run are removed last, so that the deletion can be repeated.
        last = (folder / CONFIG_FILE, folder / RUN_FILE)
        for entry in folder.iterdir():
            if entry not in last and entry.name != LOCK_FILE:
                remove(entry)
        for entry in last:
            remove(entry)
    with report_failed_delete(folder):
        remove(folder)


def check_deletable(path: Path) -> None:
    """Raise an error if a path is not a run that can be deleted now."""
    if path.is_symlink():
        raise ConfigError(
            f"{path} is a link: delete its target instead, or remove the link yourself."
        )
    if not path.exists():
        raise ConfigError(f"The run {str(path)!r} does not exist.")
    if not is_run(path):
        raise ConfigError(
            f"{path} is not a run folder: it does not have both {CONFIG_FILE} and {RUN_FILE}."
        )
    inside = next((p.parent for p in path.rglob(RUN_FILE) if p.parent != path), None)
    if inside is not None:
        raise ConfigError(f"{path} contains another run, {inside}: move or delete that run first.")
    if is_locked(path):
        raise ConfigError(f"{path} is being trained by another process: stop that process first.")


@contextmanager
def report_failed_delete(folder: Path) -> Iterator[None]:
    """Turn a failed deletion into a ConfigError."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{folder} cannot be deleted ({error.strerror or error}).") from None


def runs_hint(path: Path) -> str:
    """Return the end of a sentence about a folder that is not a run but contains runs, or ''."""
    of_study = "runs/*/*/*"
    if not path.is_dir() or not any(map(is_run, (*path.iterdir(), *path.glob(of_study)))):
        return ""
    return f", but a folder of runs. Pass one of them; rl-training runs {path} lists them"


def locate(path: Path, *, best: bool = False) -> Path:
    """Return the folder of a checkpoint, or of the last or best checkpoint of a run."""
    if not path.exists():
        raise ConfigError(f"The run or checkpoint {str(path)!r} does not exist.")
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
        raise ConfigError(f"--best requires a run, but {path} is not a run.")
    if not (path / "manifest.json").exists():
        raise ConfigError(f"{str(path)!r} is neither a run nor a checkpoint{runs_hint(path)}.")
    return Path(os.path.abspath(path))  # the parent shows whether it is part of a run


def newest_intact_checkpoint(run_dir: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    """Return the newest checkpoint whose files are all intact; None if there is no checkpoint.

    Raises:
        FormatError: A newer checkpoint has another format, which does not count as damage.
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
            warn(f"{problem}; falling back to an older checkpoint.")
            continue
        return checkpoint
    if steps:
        raise CheckpointError(f"{run_dir} has no intact checkpoint: {problem}.")
    return None

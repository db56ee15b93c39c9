"""Follow, stop and detach sessions of a study that other processes run."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rl_training.boundary.locking import is_held
from rl_training.boundary.reading import read_text
from rl_training.boundary.writing import open_log
from rl_training.errors import ConfigError, TrainingError
from rl_training.study.coordinator import StudyState, Watcher
from rl_training.study.display import StudyDisplay
from rl_training.study.index import StudyIndex, index_files
from rl_training.study.live import MessageReader, read_progress
from rl_training.study.records import LOCKS, LOGS, SessionRecord
from rl_training.text import counted, shorten

POLL_SECONDS = 0.5
START_SECONDS = 300.0
"""How long a detached session may take until it trains."""
STOP_SECONDS = 120.0
"""How long a session may take to save all checkpoints."""
DETACHED_LOG = ".detached.log"
"""What a detached session prints, in the folder ``logs``."""


@dataclass(frozen=True)
class RunningSession:
    """A session that holds the lock of its index."""

    lock: Path
    record: SessionRecord


def running_sessions(study: Path) -> list[RunningSession]:
    """Return the sessions that run a study or a shard of it now."""
    found = []
    for file in index_files(study):
        lock = study / LOCKS / f"{file.name.removesuffix('.jsonl')}.lock"
        if is_held(lock):
            index = StudyIndex(study)
            index.reload_from([file])
            if index.sessions:
                found.append(RunningSession(lock, index.sessions[-1]))
    return found


def attach(study: Path, watchers: Sequence[Watcher] | None = None) -> StudyIndex:
    """Show the progress of a study that other processes run, until none does; return its index."""
    StudyIndex.open(study)
    if not running_sessions(study):
        raise ConfigError(
            f"Nothing runs {study} now. Show its state with: rl-training study status {study}"
        )
    if watchers is not None:
        return _follow(study, watchers)
    with closing(StudyDisplay()) as display:
        return _follow(study, [display])


def _follow(study: Path, watchers: Sequence[Watcher]) -> StudyIndex:
    reader, state = MessageReader(study), StudyState([])
    while True:
        is_running = bool(running_sessions(study))
        index = StudyIndex.open(study)
        state.runs = list(index)
        active, state.more = read_progress(study)
        state.active = {key: progress for key, progress in active.items() if key in index.runs}
        lines = reader.new_lines()
        for watcher in watchers:
            for line in lines:
                watcher.message(line)
            watcher.changed(state)
        if not is_running:
            return index
        time.sleep(POLL_SECONDS)


def stop(study: Path) -> int:
    """Stop all sessions of a study on this machine, and return how many there were.

    Raises:
        ConfigError: A session runs on another machine.
        TrainingError: A session does not end.
    """
    StudyIndex.open(study)
    sessions = running_sessions(study)
    for session in sessions:
        if session.record.host != platform.node():
            raise ConfigError(
                f"{study} is being run on {session.record.host}: run this command there."
            )
    for session in sessions:
        os.kill(session.record.pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while any(is_held(session.lock) for session in sessions):
        if time.monotonic() > deadline:
            raise TrainingError(
                f"{study} is still being run after {STOP_SECONDS:.0f} seconds, perhaps because a "
                "run evaluates: wait for it, or try again"
            )
        time.sleep(POLL_SECONDS)
    return len(sessions)


def detach(study: Path, words: Sequence[str]) -> int:
    """Run a command in the background, and return its process when it trains.

    Args:
        study: Folder of the study.
        words: The arguments of ``rl-training``, without ``--detach``.

    Raises:
        TrainingError: The command has failed.
    """
    log = study / LOGS / DETACHED_LOG
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    reader = MessageReader(study)
    with open_log(log) as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "rl_training", *words],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and not reader.new_lines():
        if time.monotonic() > deadline:
            break
        time.sleep(POLL_SECONDS)
    if process.poll():
        lines = [line for line in read_text(log).splitlines() if line.strip()]
        why = shorten(lines[-1], 500) if lines else f"exit code {process.returncode}"
        raise TrainingError(why.removeprefix("Error: "))
    return process.pid


def ended_line(index: StudyIndex) -> str:
    """Say how a study has ended."""
    done = sum(run.status.has_ended for run in index)
    return f"{done} of {counted(len(index), 'run')} finished."

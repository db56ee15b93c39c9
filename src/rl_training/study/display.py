"""The display of a study: a live table in terminals, lines in logs."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from rl_training.api.progress import UNKNOWN, join_fitting
from rl_training.boundary.terminal import guarded, plain_console, print_stderr
from rl_training.study.coordinator import StudyState
from rl_training.study.index import StudyRun
from rl_training.study.jobs import Progress
from rl_training.study.records import RunStatus
from rl_training.text import counted, duration, error_text, one_line

REFRESH_SECONDS = 0.5
PLAIN_SECONDS = 30.0
"""Time between two summaries in a log."""
MAX_ROWS = 40
MAX_BAR = 20


class StudyDisplay:
    """Shows the runs of a study; errors of the display never stop the study."""

    def __init__(self, stream: TextIO | None = None) -> None:
        """Create a display; nothing is printed before the first message or change."""
        output = guarded(sys.stderr) if stream is None else stream
        self._console = plain_console(output, force_jupyter=False)
        self._is_live = self._console.is_terminal and not self._console.is_dumb_terminal
        self._live: Live | None = None
        self._state: StudyState | None = None
        self._next = time.monotonic() + PLAIN_SECONDS
        self._has_failed = False

    def message(self, text: str) -> None:
        """Print a line above the table."""
        self._guard(lambda: self._console.print(one_line(text), soft_wrap=True))

    def changed(self, state: StudyState) -> None:
        """Refresh the table, or print a summary from time to time."""
        self._state = state
        self._guard(self._refresh)

    def evaluated(self, run: StudyRun, step: int, metrics: Mapping[str, float]) -> None:
        """Do nothing: the reports of progress have the returns."""

    def close(self) -> None:
        """Restore the terminal."""
        self._guard(self._stop)

    def _guard(self, draw: Callable[[], object]) -> None:
        if self._has_failed:
            return
        try:
            draw()
        except Exception as error:
            self._has_failed = True
            print_stderr(
                f"Warning: the display failed ({error_text(error)}). The study continues without "
                "it."
            )

    def _refresh(self) -> None:
        if self._state is None:
            return
        if self._is_live:
            if self._live is None:
                self._live = Live(
                    console=self._console,
                    get_renderable=self._render,
                    refresh_per_second=1 / REFRESH_SECONDS,
                    transient=True,
                )
                self._live.start()
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + PLAIN_SECONDS
            self._console.print(summary_line(self._state), soft_wrap=True)
            for key, progress in self._state.active.items():
                line = "  ".join(("", key, *progress_parts(progress)))
                self._console.print(line, soft_wrap=True)

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _render(self) -> Text:
        assert self._state is not None
        return live_table(self._state, self._console)


def summary_line(state: StudyState) -> str:
    """Return counts of the runs by state, the elapsed time and the time left."""
    done = state.count(RunStatus.FINISHED, RunStatus.STOPPED)
    total = len(state.runs) + state.more
    finished = f"{done} of up to {total}" if state.more else f"{done}/{total}"
    parts = [f"{finished} runs finished", f"{len(state.active)} running"]
    failed = state.count(RunStatus.FAILED) - sum(
        state_run.status is RunStatus.FAILED and state_run.key in state.active
        for state_run in state.runs
    )
    if failed:
        parts.append(f"{failed} failed")
    if state.waiting:
        parts.append(f"{len(state.waiting)} trained by other processes")
    parts.append(f"elapsed {duration(time.monotonic() - state.began)}")
    left = time_left(state)
    parts.append(f"left {UNKNOWN if left is None else duration(left)}")
    return ", ".join(parts)


def time_left(state: StudyState) -> float | None:
    """Estimate the seconds until all runs have ended, from the progress of the running ones.

    Runs that have not started are expected to take as long as the average running one.
    """
    reports = [progress for progress in state.active.values() if progress is not None]
    known = [
        (p.left, p.total / p.speed)
        for p in reports
        if p.left is not None and p.speed and math.isfinite(p.left)
    ]
    if not known:
        return None
    pending = state.more + sum(
        not run.status.has_ended
        and run.status is not RunStatus.FAILED
        and run.key not in state.active
        for run in state.runs
    )
    whole = sum(total for _, total in known) / len(known)
    remaining = sum(left for left, _ in known) + pending * whole
    return max(remaining / len(known), max(left for left, _ in known))


def progress_parts(progress: Progress | None) -> tuple[str, ...]:
    """Return how far a run is, the time left and its returns."""
    if progress is None:
        return ("starting",)
    left = UNKNOWN if progress.left is None else duration(progress.left)
    count = f"{progress.phase}{progress.done:,}/{progress.total:,} {progress.unit}"
    return (count, f"left {left}", *progress.results)


def live_table(state: StudyState, console: Console) -> Text:
    """Return a summary and a line for each running run, as many as fit."""
    width = max(20, console.width - 1)
    rows = max(1, min(MAX_ROWS, console.height - 3))
    text = Text(no_wrap=True)
    text.append(summary_line(state)[:width], "bold")
    active = list(state.active.items())
    names = max((len(key) for key, _ in active[:rows]), default=0)
    ascii_only = not console.encoding.startswith("utf")
    for key, progress in active[:rows]:
        text.append("\n")
        name = min(names, width // 3)
        text.append(key[:name].ljust(name) + "  ")
        room = width - name - 2
        for part, style in _bar(progress, min(MAX_BAR, room // 3), ascii_only=ascii_only):
            text.append(part, style)
            room -= len(part)
        text.append(join_fitting(progress_parts(progress), room))
    if len(active) > rows:
        text.append(f"\n… and {counted(len(active) - rows, 'more run')}")
    return text


def _bar(progress: Progress | None, width: int, *, ascii_only: bool) -> Iterator[tuple[str, str]]:
    if progress is None or width < 4:
        return
    share = min(1.0, progress.done / progress.total) if progress.total else 1.0
    filled = math.floor(width * share)
    done, rest = ("#", "-") if ascii_only else ("━", "─")
    yield done * filled, "green"
    yield rest * (width - filled) + "  ", "bright_black"

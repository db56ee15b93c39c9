"""The live display of a training run: a bar in terminals and notebooks, lines in logs."""

from __future__ import annotations

import html
import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from rl_training.boundary.terminal import guarded, plain_console, print_stderr
from rl_training.experiment.machine import threads_from_environment, usable_cores
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.session import Session
from rl_training.text import duration, error_text, one_line, printable

REFRESH_SECONDS = 0.25
PLAIN_SECONDS = 10.0
"""Time between two lines of a log."""
WINDOW_SECONDS = 30.0
"""The speed is the mean over this time, so that it reflects the current phase of the run."""

MAX_BAR = 60
UNKNOWN = "–"
LABELS = {
    "loss/critic": "critic loss",
    "loss/q": "Q loss",
    "loss/value": "value loss",
    "loss/actor": "actor loss",
    "policy/alpha": "alpha",
    "policy/epsilon": "epsilon",
    "policy/entropy": "entropy",
    "q/mean": "Q",
}
"""Labels of the displayed metrics, most important first."""


@contextmanager
def progress_display(progress: bool | None) -> Iterator[list[Callback]]:
    """Yield the callbacks for a ``progress`` argument; they are closed when the block ends."""
    if not wants_display(progress):
        yield []
        return
    display = ProgressCallback()
    try:
        yield [display]
    finally:
        display.close()


def wants_display(progress: bool | None) -> bool:
    """Return whether to show a display; None means in a terminal or a notebook only."""
    if progress is not None:
        return progress
    # A program without a console has no standard error.
    return in_notebook() or (sys.stderr is not None and sys.stderr.isatty())


def in_notebook() -> bool:
    """Return whether this is a Jupyter kernel, without importing IPython."""
    get_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get_shell is not None and hasattr(get_shell(), "kernel")


class ProgressCallback(Callback):
    """Shows steps, speed, time left, returns and losses while a run trains.

    Terminals and notebooks show a live bar. Other outputs get a line every ten seconds. If the
    display fails, training continues without it.
    """

    def __init__(self, stream: TextIO | None = None, *, settings: str = "") -> None:
        """Create the display; ``settings`` is text to print when the run starts."""
        self._settings = settings
        self._view: _View = _choose_view(stream)
        self._failed = False
        self._next = 0.0
        self._now = 0.0
        self._meter = Meter()
        self._shown_step: int | None = None
        self._hinted = False

    def on_start(self, session: Session) -> None:
        """Open the display."""
        self._draw(lambda: self._start(session))

    def on_step(self, session: Session) -> None:
        """Refresh the display, at most once per interval."""
        self._now = now = time.perf_counter()
        if now >= self._next:
            self._next = now + min(self._view.interval, 1.0)
            self._draw(lambda: self._refresh(session))

    def on_evaluation(self, session: Session, metrics: Mapping[str, float]) -> None:
        """Show an evaluation as soon as it is available."""
        self._draw(lambda: self._show_evaluation(session))

    def on_message(self, session: Session, text: str) -> None:
        """Print a message above the bar."""
        self._draw(lambda: self._view.message(one_line(text)))

    def on_end(self, session: Session) -> None:
        """Show the final state and close the display."""
        self._draw(lambda: self._finish(session))
        self.close()

    def close(self) -> None:
        """Restore the terminal; also needed after an error."""
        self._draw(self._view.close)

    def _draw(self, draw: Callable[[], None]) -> None:
        """Call a part of the display, whose errors must never stop the run."""
        if self._failed:
            return
        try:
            draw()
        except Exception as error:
            self._failed = True
            print_stderr(
                f"Warning: the progress display failed ({error_text(error)}). Training continues "
                "without it."
            )

    def _start(self, session: Session) -> None:
        self._now = time.perf_counter()
        self._next = self._now
        self._meter.start(session, self._now)
        if self._settings:
            self._view.message(printable(self._settings, keep="\n"))
        manifest = session.manifest
        where = manifest["config"]["env_id"] or manifest["dataset"]["source"]
        for line in (
            f"Training {manifest['algorithm']} on {where}: {manifest['device']}, "
            f"{_threads(manifest)}, {session.engine.mode} updates",
            f"Run folder: {session.checkpoints.run_dir}",
        ):
            self._view.message(printable(line, keep=""))
        self._view.start(self._meter.report(session))

    def _refresh(self, session: Session) -> None:
        self._meter.add(session, self._now)
        if self._view.is_due(self._now):
            self._show(session)
        if not self._hinted and _is_overloaded(session.manifest):
            self._hinted = True
            self._view.message(
                "This machine is running more processes than it has cores. With num_threads=1, "
                "runs that share a machine are often several times faster."
            )

    def _show_evaluation(self, session: Session) -> None:
        self._meter.exclude_evaluation(time.perf_counter() - self._now)
        self._show(session)

    def _finish(self, session: Session) -> None:
        if self._shown_step != session.state.step or self._view.is_live:
            self._show(session)

    def _show(self, session: Session) -> None:
        self._shown_step = session.state.step
        self._view.show(self._meter.report(session))


# --- Measuring ------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    """Progress of a phase of a run: pretraining in updates, collection in environment steps."""

    done: int
    total: int
    unit: str
    phase: str = ""

    @classmethod
    def of(cls, session: Session) -> Stage:
        """Return the current stage of a session."""
        step, settings = session.state.step, session.settings
        if session.collector is None:
            return cls(step, settings.total_timesteps, "updates")
        start, first = settings.online_from, settings.first_step
        if step < start:
            return cls(step - first, start - first, "updates", "pretraining ")
        return cls(step - start, settings.total_timesteps - start, "steps")

    @property
    def text(self) -> str:
        """Text such as ``step 400/1,000`` or ``pretraining 1,200/5,000 updates``."""
        if self.phase:
            return f"{self.phase}{self.done:,}/{self.total:,} {self.unit}"
        return f"{self.unit[:-1]} {self.done:,}/{self.total:,}"


@dataclass(frozen=True)
class Report:
    """Contents of a display at one moment."""

    stage: Stage
    started: float
    speed: float | None
    """Steps or updates per second, without evaluations."""
    left: float | None
    """Estimated seconds left, including evaluations."""
    results: tuple[str, ...]
    """Returns or held-out losses of the policy."""
    metrics: tuple[str, ...]
    """Means over the updates of the last log entry."""

    def times(self) -> tuple[str, ...]:
        """Return the speed, the elapsed time and the time left."""
        speed = UNKNOWN if self.speed is None else _rate(self.speed)
        return (
            f"{speed} {self.stage.unit}/s",
            f"elapsed {duration(time.perf_counter() - self.started)}",
            f"left {UNKNOWN if self.left is None else duration(self.left)}",
        )


class Meter:
    """Measures the recent speed of a run, and collects what a report needs."""

    def __init__(self) -> None:
        self._started = 0.0
        self._excluded = 0.0
        self._evaluations = 0
        self._samples: deque[tuple[float, int]] = deque()
        self._pace: tuple[Any, ...] = ()

    def start(self, session: Session, now: float) -> None:
        """Start measuring."""
        self._started = now
        self.add(session, now)

    def add(self, session: Session, now: float) -> None:
        """Record the current step; clear the window when the cost of a step changes."""
        learns = session.state.updates > 0
        pace = (Stage.of(session).phase, learns, session.engine.preparation_seconds)
        if pace != self._pace:
            self._pace = pace
            self._samples.clear()
        clock = now - self._excluded
        self._samples.append((clock, session.state.step))
        while clock - self._samples[0][0] > WINDOW_SECONDS and len(self._samples) > 2:
            self._samples.popleft()

    def exclude_evaluation(self, seconds: float) -> None:
        """Exclude the time of an evaluation from the speed."""
        self._excluded += seconds
        self._evaluations += 1

    @property
    def evaluation_seconds(self) -> float | None:
        """Mean time of an evaluation; None before the first one."""
        return self._excluded / self._evaluations if self._evaluations else None

    def report(self, session: Session) -> Report:
        """Return the current progress and results."""
        stage, speed = Stage.of(session), self._speed()
        return Report(
            stage=stage,
            started=self._started,
            speed=speed,
            left=self._left(session, stage, speed),
            results=tuple(_results(session)),
            metrics=tuple(_metrics(session.last_log)),
        )

    def _speed(self) -> float | None:
        (began, first), (now, last) = self._samples[0], self._samples[-1]
        return (last - first) / (now - began) if now > began and last > first else None

    def _left(self, session: Session, stage: Stage, speed: float | None) -> float | None:
        steps = stage.total - stage.done
        if speed is None or steps <= 0:
            return 0.0 if steps <= 0 else None
        seconds, interval = steps / speed, session.settings.eval_interval
        if self.evaluation_seconds is not None and interval > 0:
            seconds += (steps // interval) * self.evaluation_seconds
        return seconds


def _results(session: Session) -> Iterator[str]:
    """Yield the recent training return, and the last and best evaluation."""
    state = session.state
    if session.evaluator is None and session.validation is not None:
        loss = state.evaluation.get("eval_loss")
        yield f"held-out loss {UNKNOWN if loss is None else _number(loss)}"
        return
    if session.collector is not None:
        yield f"return {_return(session.collector.recent_return)}"
    if session.evaluator is not None:
        yield f"eval {_return(state.evaluation.get('eval_return_mean'))}"
        if state.best_return is not None:
            yield f"best {_return(state.best_return)}"


def _metrics(logged: Mapping[str, float]) -> Iterator[str]:
    others = (key for key in logged if key.startswith("loss/") and key not in LABELS)
    for key in (*LABELS, *others):
        if key in logged:
            label = LABELS.get(key, f"{key.removeprefix('loss/')} loss")
            yield f"{label} {_number(logged[key])}"


def _threads(manifest: Mapping[str, Any]) -> str:
    """Describe the number of threads, and whether OMP_NUM_THREADS set it."""
    chosen, count = manifest["config"]["algo_kwargs"].get("num_threads"), manifest["num_threads"]
    given = chosen is None and threads_from_environment() is not None
    return f"{count} thread{'' if count == 1 else 's'}{' (OMP_NUM_THREADS)' if given else ''}"


def _is_overloaded(manifest: Mapping[str, Any]) -> bool:
    """Return whether other processes compete for the cores, with the default number of threads."""
    chosen = manifest["config"]["algo_kwargs"].get("num_threads") or threads_from_environment()
    if chosen is not None or manifest["num_threads"] == 1 or manifest["device"] != "cpu":
        return False
    try:
        return os.getloadavg()[0] >= usable_cores() + 1
    except (AttributeError, OSError):  # not available on this system
        return False


# --- Views ----------------------------------------------------------------------


class _View(Protocol):
    """An output for reports."""

    is_live: bool

    @property
    def interval(self) -> float: ...
    def message(self, text: str) -> None: ...
    def start(self, report: Report) -> None: ...
    def is_due(self, now: float) -> bool: ...
    def show(self, report: Report) -> None: ...
    def close(self) -> None: ...


def _choose_view(stream: TextIO | None) -> _View:
    if stream is None and in_notebook():
        return _NotebookView()
    output = guarded(sys.stderr) if stream is None else stream
    console = plain_console(output, force_jupyter=False)
    if console.is_terminal and not console.is_dumb_terminal:
        return _TerminalView(console)
    return _LogView(console)


class _LogView:
    """Prints one line at a time, without control characters."""

    is_live = False

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next = 0.0

    @property
    def interval(self) -> float:
        return PLAIN_SECONDS

    def message(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)

    def start(self, report: Report) -> None:
        self._next = time.perf_counter() + PLAIN_SECONDS

    def is_due(self, now: float) -> bool:
        return now >= self._next

    def show(self, report: Report) -> None:
        self._next = time.perf_counter() + PLAIN_SECONDS
        parts = (report.stage.text, *report.times(), *report.results, *report.metrics)
        self.message("  ".join(parts))

    def close(self) -> None:
        pass


class _TerminalView:
    """A bar and two lines of numbers, redrawn in place."""

    interval = REFRESH_SECONDS
    is_live = True

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._report: Report | None = None

    def message(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)

    def start(self, report: Report) -> None:
        self._report = report
        # Its thread keeps updating the elapsed time during an evaluation.
        self._live = Live(
            console=self._console,
            get_renderable=self._render,
            refresh_per_second=1 / REFRESH_SECONDS,
            redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
        )
        self._live.start(refresh=True)

    def is_due(self, now: float) -> bool:
        return True

    def show(self, report: Report) -> None:
        self._report = report

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()  # draws once more
            self._live = None

    def _render(self) -> Text:
        if self._report is None:
            return Text("")
        plain = not self._console.encoding.startswith("utf")
        return terminal_text(self._report, self._console.width - 1, ascii_only=plain)


def terminal_text(report: Report, width: int, *, ascii_only: bool = False) -> Text:
    """Return up to three lines of at most ``width`` characters, without parts that do not fit."""
    stage = report.stage
    count = f"{stage.phase}{stage.done:,}/{stage.total:,} {stage.unit}"
    share = min(1.0, stage.done / stage.total) if stage.total else 1.0
    percent = f"{math.floor(100 * share):3d}%"
    text = Text(count[:width], no_wrap=True)
    room = min(MAX_BAR, width - len(count) - len(percent) - 2)
    if room >= 4:
        filled = math.floor(room * share)
        done, rest = ("#", "-") if ascii_only else ("━", "─")
        text.append(" ")
        text.append(done * filled, "green")
        text.append(rest * (room - filled), "bright_black")
        text.append(f" {percent}")
    for parts in ((*report.times(), *report.results), report.metrics):
        line = join_fitting(parts, width)
        if line:
            text.append(f"\n{line}")
    return text


def join_fitting(parts: tuple[str, ...], width: int) -> str:
    """Join as many of the first parts as fit on a line."""
    line = ""
    for part in parts:
        longer = f"{line}  {part}" if line else part
        if len(longer) > width:
            break
        line = longer
    return line


class _NotebookView:
    """An HTML bar that is updated in place, in the output of a notebook cell."""

    interval = REFRESH_SECONDS
    is_live = True

    def __init__(self) -> None:
        self._handle: Any = None

    def message(self, text: str) -> None:
        print(text, flush=True)

    def start(self, report: Report) -> None:
        from IPython.display import display

        self._handle = display(notebook_bundle(report), raw=True, display_id=True)

    def is_due(self, now: float) -> bool:
        return True

    def show(self, report: Report) -> None:
        if self._handle is not None:
            self._handle.update(notebook_bundle(report), raw=True)

    def close(self) -> None:
        self._handle = None


def notebook_bundle(report: Report) -> dict[str, str]:
    """Return a report as HTML, and as text for front ends without HTML."""
    stage = report.stage
    lines = (
        f"{stage.phase}{stage.done:,}/{stage.total:,} {stage.unit}",
        "  ".join((*report.times(), *report.results)),
        "  ".join(report.metrics),
    )
    first, *others = (html.escape(line).replace("  ", " &nbsp; ") for line in lines)
    bar = (
        f'<progress value="{stage.done}" max="{max(1, stage.total)}" '
        'style="width: 24em; vertical-align: middle"></progress>'
    )
    rows = "".join(f"<div>{line}</div>" for line in others if line)
    return {
        "text/html": f'<div style="font-family: monospace"><div>{bar} {first}</div>{rows}</div>',
        "text/plain": "\n".join(line for line in lines if line),
    }


# --- Numbers --------------------------------------------------------------------


def _return(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.1f}"


def _number(value: float) -> str:
    """Format a number with about four digits."""
    size = abs(value)
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    if size >= 1e6 or size < 1e-3:
        return f"{value:.2e}"
    digits = max(0, 3 - math.floor(math.log10(size))) if size >= 1 else 4
    return f"{value:,.{min(digits, 4)}f}"


def _rate(speed: float) -> str:
    return f"{speed:,.0f}" if speed >= 10 else f"{speed:.2g}"

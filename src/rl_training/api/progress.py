"""The live display of a training: steps or updates, speed, time left, returns or losses."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TextIO

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from rl_training.boundary.terminal import guarded, plain_console
from rl_training.boundary.yaml_codec import dump_yaml
from rl_training.experiment.machine import threads_of_environment, usable_cores
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.session import Session
from rl_training.text import one_line, printable

REFRESH_SECONDS = 0.1
PLAIN_SECONDS = 10.0


class ProgressCallback(Callback):
    """A bar on a terminal; a line now and then where there is none."""

    def __init__(
        self, stream: TextIO | None = None, *, config: Mapping[str, Any] | None = None
    ) -> None:
        self._config = config
        self.console = plain_console(guarded(sys.stderr) if stream is None else stream)
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._next = 0.0
        self._began = 0.0
        self._first_step = 0
        self._phase: str | None = None
        self._hinted = False

    def on_start(self, session: Session) -> None:
        """Open the display."""
        self._began, self._first_step = time.perf_counter(), session.state.step
        self._next = self._began
        if self._config is not None:
            self._print(dump_yaml(self._config), keep="\n")
        manifest = session.manifest
        where = manifest["config"]["env_id"] or manifest["dataset"]["source"]
        self._print(
            f"{manifest['algorithm']} on {where}: {manifest['device']}, "
            f"{_threads(manifest)}, {session.engine.mode} updates, "
            f"in {session.checkpoints.run_dir}"
        )
        if not self.console.is_terminal:
            return
        self._bar = Progress(
            TextColumn("{task.fields[phase]}{task.completed:,.0f}/{task.total:,.0f}", markup=False),
            TextColumn("{task.fields[unit]}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[speed]} {task.fields[unit]}/s", markup=False),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[result]}", markup=False),
            console=self.console,
            transient=False,
        )
        self._task = self._bar.add_task("train", phase="", unit="", speed="", result="")
        self._show(session)
        self._bar.start()

    def on_step(self, session: Session) -> None:
        """Refresh, not more often than an eye can follow."""
        now = time.perf_counter()
        if now < self._next:
            return
        self._next = now + (REFRESH_SECONDS if self._bar else PLAIN_SECONDS)
        self._show(session)
        if not self._hinted and _is_crowded(session.manifest):
            self._hinted = True
            self.on_message(
                session,
                "More is running here than there are cores: with num_threads=1 runs that share a "
                "machine are often several times faster.",
            )

    def on_evaluation(self, session: Session, metrics: Mapping[str, float]) -> None:
        """Show an evaluation as soon as it is there."""
        self._show(session)

    def on_message(self, session: Session, text: str) -> None:
        """Show it above the bar."""
        self._print(one_line(text))

    def on_end(self, session: Session) -> None:
        """Close the display."""
        self._show(session)
        self.close()

    def close(self) -> None:
        """Leave the terminal as it was; also after an error."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _show(self, session: Session) -> None:
        place, step = Place.of(session), session.state.step
        if self._phase not in (None, place.phase):  # steps cost something else than updates
            self._began = time.perf_counter() - session.engine.preparation_seconds
            self._first_step = step
        self._phase = place.phase
        seconds = time.perf_counter() - self._began - session.engine.preparation_seconds
        speed = (step - self._first_step) / seconds if seconds > 0 else 0.0
        result = _result(session)
        if self._bar is not None and self._task is not None:
            self._bar.update(
                self._task,
                completed=place.done,
                total=place.total,
                phase=place.phase,
                unit=place.unit,
                speed=f"{speed:,.0f}",
                result=result,
            )
            return
        left = (place.total - place.done) / speed if speed > 0 else 0.0
        self._print(f"{place.text}  {speed:,.0f} {place.unit}/s  {left:,.0f} s left  {result}")

    def _print(self, text: str, *, keep: str = "") -> None:
        self.console.print(printable(text, keep=keep), soft_wrap=True)


@dataclass(frozen=True)
class Place:
    """How far a phase of a run is: pretraining in updates, collection in environment steps."""

    done: int
    total: int
    unit: str
    phase: str = ""

    @classmethod
    def of(cls, session: Session) -> Place:
        """Where a session is."""
        step, settings = session.state.step, session.settings
        if session.collector is None:
            return cls(step, settings.total_timesteps, "updates")
        begin, first = settings.online_from, settings.first_step
        if step < begin:
            return cls(step - first, begin - first, "updates", "pretraining ")
        return cls(step - begin, settings.total_timesteps - begin, "steps")

    @property
    def text(self) -> str:
        """In words: ``step 400/1,000``, ``pretraining 1,200/5,000 updates``."""
        if self.phase:
            return f"{self.phase}{self.done:,}/{self.total:,} {self.unit}"
        return f"{self.unit[:-1]} {self.done:,}/{self.total:,}"


def _threads(manifest: Mapping[str, Any]) -> str:
    """How many, and who says so if that is the environment."""
    chosen = manifest["config"]["algo_kwargs"].get("num_threads")
    given = chosen is None and threads_of_environment() is not None
    return f"{manifest['num_threads']} threads{' (OMP_NUM_THREADS)' if given else ''}"


def _is_crowded(manifest: Mapping[str, Any]) -> bool:
    """Whether threads that nobody chose wait for each other, since others use the cores too."""
    chosen = manifest["config"]["algo_kwargs"].get("num_threads") or threads_of_environment()
    if chosen is not None or manifest["num_threads"] == 1 or manifest["device"] != "cpu":
        return False
    try:
        return os.getloadavg()[0] >= usable_cores() + 1
    except (AttributeError, OSError):  # a system that does not count waiting processes
        return False


def _result(session: Session) -> str:
    """The latest training episode's return, where there is one, and the latest evaluation."""
    evaluation = session.state.evaluation
    if session.evaluator is None and session.validation is not None:
        loss = evaluation.get("eval_loss")
        return f"held-out loss {'–' if loss is None else f'{loss:.4g}'}"
    text = f"eval {_number(evaluation.get('eval_return_mean'))}"
    if session.collector is None:
        return text
    return f"return {_number(session.collector.last_return)}  {text}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}"

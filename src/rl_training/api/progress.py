"""The live display of a training: steps, speed, time left, returns."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, TextIO

import yaml
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from rl_training.runtime.callbacks import Callback
from rl_training.runtime.trainer import Session

REFRESH_SECONDS = 0.1
PLAIN_SECONDS = 10.0


class ProgressCallback(Callback):
    """A bar on a terminal; a line now and then where there is none."""

    def __init__(
        self, stream: TextIO | None = None, *, config: Mapping[str, Any] | None = None
    ) -> None:
        self._config = config
        self.console = Console(file=stream, stderr=stream is None)
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._next = 0.0
        self._began = 0.0
        self._first_step = 0

    def on_start(self, session: Session) -> None:
        """Open the display."""
        self._began, self._first_step = time.perf_counter(), session.state.step
        self._next = self._began
        if self._config is not None:
            text = yaml.safe_dump(self._config, sort_keys=False, allow_unicode=True)
            self.console.print(text, highlight=False, markup=False, soft_wrap=True)
        manifest = session.manifest
        self.console.print(
            f"{manifest['algorithm']} on {manifest['config']['env_id']}: {manifest['device']}, "
            f"{manifest['num_threads']} threads, {session.engine.mode} updates, "
            f"in {session.checkpoints.run_dir}",
            highlight=False,
            soft_wrap=True,
        )
        if not self.console.is_terminal:
            return
        self._bar = Progress(
            TextColumn("{task.completed:,.0f}/{task.total:,.0f} steps"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[speed]} steps/s"),
            TimeRemainingColumn(compact=True),
            TextColumn("return {task.fields[last]}  eval {task.fields[evaluation]}"),
            console=self.console,
            transient=False,
        )
        self._task = self._bar.add_task(
            "train",
            total=session.settings.total_timesteps,
            completed=session.state.step,
            speed="–",
            last="–",
            evaluation="–",
        )
        self._bar.start()

    def on_step(self, session: Session) -> None:
        """Refresh, not more often than an eye can follow."""
        now = time.perf_counter()
        if now < self._next:
            return
        self._next = now + (REFRESH_SECONDS if self._bar else PLAIN_SECONDS)
        self._show(session)

    def on_evaluation(self, session: Session, metrics: Mapping[str, float]) -> None:
        """Show an evaluation as soon as it is there."""
        self._show(session)

    def on_message(self, session: Session, text: str) -> None:
        """Show it above the bar."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

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
        state = session.state
        seconds = time.perf_counter() - self._began - session.engine.preparation_seconds
        speed = (state.step - self._first_step) / seconds if seconds > 0 else 0.0
        last = _number(session.collector.last_return)
        evaluation = _number(state.evaluation.get("eval_return_mean"))
        if self._bar is not None and self._task is not None:
            self._bar.update(
                self._task,
                completed=state.step,
                speed=f"{speed:,.0f}",
                last=last,
                evaluation=evaluation,
            )
            return
        total = session.settings.total_timesteps
        left = (total - state.step) / speed if speed > 0 else 0.0
        self.console.print(
            f"step {state.step:,}/{total:,}  {speed:,.0f} steps/s  {left:,.0f} s left  "
            f"return {last}  eval {evaluation}",
            highlight=False,
            soft_wrap=True,
        )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}"

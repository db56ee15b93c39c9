"""The training loop, online and offline, and its result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rl_training.algorithms.config import CollectionConfig, MixingConfig
from rl_training.runtime.checkpointing import read_pointer
from rl_training.runtime.collector import Collector
from rl_training.runtime.engine import BLOCK
from rl_training.runtime.session import Session
from rl_training.runtime.signals import stop_on_signals
from rl_training.runtime.stop_reason import StopKind, StopReason


@dataclass(frozen=True)
class TrainResult:
    """Result of a training run that finished, stopped or was interrupted."""

    run_dir: Path
    checkpoint_path: Path
    best_checkpoint_path: Path | None
    stop: StopReason
    metrics: dict[str, Any]
    signal: str | None = None
    """Name of the signal that arrived during the run, even if the run ended with that step."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data, with paths as text."""
        best = self.best_checkpoint_path
        return {
            "run_dir": str(self.run_dir),
            "checkpoint_path": str(self.checkpoint_path),
            "best_checkpoint_path": None if best is None else str(best),
            "stop_reason": self.stop_reason,
            "metrics": self.metrics,
        }

    @property
    def stop_reason(self) -> str:
        """Why the run ended, as text."""
        return str(self.stop)

    @property
    def interrupted_by(self) -> str | None:
        """Name of the signal that ended the run, if any."""
        return self.stop.detail if self.stop.is_signal else None


def run_session(session: Session) -> TrainResult:
    """Train offline until `online_from`, then online; always end with a checkpoint."""
    with stop_on_signals(session.state.request_stop) as received:
        for updates in training_steps(session):
            if updates is not None:
                session.learn(updates)
    return training_result(session, received.name)


def training_steps(session: Session) -> Iterator[int | None]:
    """Yield how many updates are due; the caller runs them before the next item.

    None means that environments are stepping in other processes, and the caller may do something
    else in the meantime.

    Everything else that happens in a run is done in between: collecting, logging, evaluating and
    saving. Therefore many runs can take turns in one process, with their updates as one program.
    """
    session.logger.open_files()
    for callback in session.callbacks:
        callback.on_start(session)
    if session.checkpoints.last_step is None:
        session.save_initial()
    session.run_pending_evaluation()
    yield from offline_steps(session)
    if session.collector is not None:
        yield from online_steps(session, session.collector)
    # A signal that arrives at the end of a step leaves that step unsaved.
    if session.checkpoints.last_step != session.state.step:
        session.save()
    for callback in session.callbacks:
        callback.on_end(session)


def training_result(session: Session, signal: str | None = None) -> TrainResult:
    """Return the result of a run that has ended; ``signal`` is one that arrived, if any."""
    state = session.state
    comparison: dict[str, float | None] = {}
    if state.return_before is not None:
        comparison = {
            "return_before": state.return_before,
            "return_lowest": state.return_lowest,
            "return_after": state.evaluation["eval_return_mean"],
        }
    assert session.checkpoint_path is not None
    return TrainResult(
        run_dir=session.checkpoints.run_dir,
        checkpoint_path=session.checkpoint_path,
        best_checkpoint_path=read_pointer(session.checkpoints.run_dir, "best"),
        stop=state.stop or StopReason(StopKind.REQUESTED),
        metrics={
            **session.last_log,
            "step": state.step,
            "updates": state.updates,
            **({"episodes": session.collector.episodes} if session.collector else {}),
            **session.budgets(),
            "best_return": state.best_return,
            "best_loss": state.best_loss,
            "best_step": state.best_step,
            **state.evaluation,
            **comparison,
        },
        signal=signal,
    )


def updates_due(step: int, before: int, config: CollectionConfig) -> int:
    """Return the number of updates for the transitions collected in (before, step].

    There are `gradient_updates_per_step` updates for every `train_frequency` transitions after
    `learning_starts`.
    """

    def periods(at: int) -> int:
        return max(0, at - config.learning_starts) // config.train_frequency

    return (periods(step) - periods(before)) * config.gradient_updates_per_step


def online_steps(session: Session, collector: Collector) -> Iterator[int | None]:
    """Collect transitions, and yield the number of updates after each step.

    While environments step in processes, it yields None.
    """
    state, config = session.state, session.algorithm.config
    assert isinstance(config, CollectionConfig)
    begin = session.settings.online_from
    random_until = config.learning_starts
    if isinstance(config, MixingConfig) and not config.random_play:
        random_until = 0

    def request(step: int) -> None:
        session.algorithm.explore_at(step - begin)
        collector.request_actions(random=step - begin < random_until)

    while not state.should_stop:
        before = state.step
        session.schedule_learning_rates(before)
        if not collector.has_actions:
            request(before)
        collector.send_actions(before)
        if collector.steps_in_processes:
            yield None
        early = None
        if collector.explorer.lag:  # so that environments can step during this step's updates
            early = partial(request, before + collector.num_envs)
        state.step += collector.finish_step(before, request=early)
        yield updates_due(state.step - begin, before - begin, config)
        session.after_step(before)


def next_stop(step: int, intervals: tuple[int, ...], total: int) -> int:
    """Return the step at which to pause: the end of a block, an interval or the run."""
    ends = [(step // every + 1) * every for every in (BLOCK, *intervals) if every > 0]
    return min(total, *ends)


def offline_steps(session: Session) -> Iterator[int]:
    """Yield numbers of updates on recorded data; a step is an update.

    The learning rate changes only at multiples of `BLOCK`, so that the result depends neither on
    the intervals nor on where the run was stopped.
    """
    state, settings = session.state, session.settings
    intervals = settings.log_interval, settings.eval_interval, settings.checkpoint_interval
    while not state.should_stop and state.step < settings.online_from:
        before = state.step
        session.schedule_learning_rates(before - before % BLOCK)
        state.step = next_stop(before, intervals, settings.online_from)
        yield state.step - before
        session.after_step(before)

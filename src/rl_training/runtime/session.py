"""A session: the parts of one run, and logging, evaluation and saving between its steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_training.algorithms.base import Algorithm
from rl_training.algorithms.optimizers import FlatAdam
from rl_training.boundary.values import StateError, explaining_misfits, refuse_unknown
from rl_training.boundary.writing import write_failed
from rl_training.data import MixedSampler
from rl_training.errors import EnvError, TrainingError
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.checkpoint_writer import CheckpointWriter
from rl_training.runtime.checkpointing import (
    MODEL,
    OPTIMIZERS,
    STATE,
    Checkpoint,
    load_tensors,
)
from rl_training.runtime.collector import Collector
from rl_training.runtime.engine import Engine
from rl_training.runtime.evaluation import Evaluator, Policy, Validation
from rl_training.runtime.logging import MetricsLogger
from rl_training.runtime.schedules import Schedule
from rl_training.runtime.stop_reason import COMPLETED
from rl_training.runtime.trainer_state import TrainerState

STATE_PARTS = frozenset({"trainer", "engine", "callbacks", "metrics_rows", "storage", "collector"})
"""What ``state.json`` holds."""


@dataclass(frozen=True)
class LoopSettings:
    """How long a run is, and how often it logs, evaluates and saves."""

    total_timesteps: int
    """The step at which the run ends."""
    log_interval: int
    checkpoint_interval: int
    eval_interval: int
    eval_episodes: int
    evaluates: bool = True
    """Whether there are episodes to play or held-out rows."""
    eager_checks: bool = True
    """Check that metrics are finite after each step, not only when logging and saving."""
    first_step: int = 0
    """Where the run began; above 0 for fine-tuning."""
    online_from: int = 0
    """The step at which collection begins; the last step of a run without an environment."""
    compares: bool = False
    """Whether to evaluate before the first step, to compare returns afterwards."""


@dataclass
class Session:
    """The parts of one run, and what happens between its steps.

    An offline run has no collector, a run without an environment has no evaluator, and a run
    without held-out rows has no validation.
    """

    algorithm: Algorithm
    engine: Engine
    policy: Policy
    checkpoints: CheckpointWriter
    logger: MetricsLogger
    schedule: Schedule
    settings: LoopSettings
    manifest: dict[str, Any]
    collector: Collector | None = None
    evaluator: Evaluator | None = None
    validation: Validation | None = None
    callbacks: Sequence[Callback] = ()
    state: TrainerState = field(default_factory=TrainerState)
    checkpoint_path: Path | None = None
    last_log: Mapping[str, float] = field(default_factory=dict)
    restored_callbacks: dict[str, Any] = field(default_factory=dict)
    """The callback states of the checkpoint that was restored, by name."""

    def schedule_learning_rates(self, step: int) -> None:
        """Apply the schedule's factor at ``step``."""
        if not self.schedule.is_constant:
            self.algorithm.scale_learning_rates(self._factor(step))

    def _factor(self, step: int) -> float:
        return self.schedule.factor(max(0, step - self.settings.first_step))

    def learn(self, updates: int) -> None:
        """Make updates; offline to online, count them and end pretraining when it is over."""
        self.engine.run(updates)
        mixed, state = self.engine.sampler, self.state
        if not isinstance(mixed, MixedSampler):
            return
        if mixed.pretraining:
            state.pretraining_updates += updates
        else:
            state.online_updates += updates
        from_dataset, from_replay = mixed.rows(self.algorithm.config.batch_size)
        state.offline_rows += updates * from_dataset
        state.online_rows += updates * from_replay
        begin = self.settings.online_from
        state.env_steps = max(0, state.step - begin)
        if mixed.pretraining and state.step >= begin:
            mixed.pretraining = False

    @property
    def own_steps(self) -> int:
        """Steps as `total_timesteps` counts them: environment steps, or updates offline.

        Steps of a fine-tuning's source and updates before collection do not count.
        """
        begin = self.settings.online_from if self.collector is not None else 0
        return max(0, self.state.step - begin)

    def budgets(self) -> dict[str, float]:
        """What each phase of an offline-to-online run has used so far; empty for other runs."""
        if not isinstance(self.engine.sampler, MixedSampler):
            return {}
        state = self.state
        return {
            "env_steps": state.env_steps,
            "updates/pretraining": state.pretraining_updates,
            "updates/online": state.online_updates,
            "rows/offline": state.offline_rows,
            "rows/online": state.online_rows,
        }

    def after_step(self, before: int) -> None:
        """Call callbacks, then log, evaluate and save, each when its interval has passed."""
        state, settings = self.state, self.settings
        state.updates = self.engine.updates
        if settings.eager_checks:
            self.check_finite()
        for callback in self.callbacks:
            callback.on_step(self)
        if state.step >= settings.total_timesteps:
            state.complete()

        def passed(interval: int) -> bool:
            """Whether a multiple of ``interval`` is in (before, step]; never for 0."""
            return interval > 0 and before // interval != state.step // interval

        interrupted = state.stop is not None and state.stop.is_signal
        if passed(settings.log_interval) or (state.should_stop and not interrupted):
            self.log()
        improved = False
        finished = state.stop == COMPLETED and settings.evaluates
        if passed(settings.eval_interval) or finished:
            improved = self._evaluate_or_save()
        if passed(settings.checkpoint_interval) or improved or state.should_stop:
            self.save(best=improved)

    def say(self, text: str) -> None:
        """Pass a message to the callbacks."""
        for callback in self.callbacks:
            callback.on_message(self, text)

    def check_finite(self) -> None:
        """Raise an error that names the step if a metric is not finite."""
        with self._naming_step():
            self.engine.check_finite()

    @contextmanager
    def _naming_step(self) -> Iterator[None]:
        try:
            yield
        except EnvError as error:
            raise EnvError(f"at step {self.state.step}, {error}") from error
        except TrainingError as error:
            raise TrainingError(f"{error} at step {self.state.step}") from None

    def log(self) -> None:
        """Write the means since the last log."""
        self.check_finite()
        metrics: dict[str, float] = {"updates": self.state.updates, **self.budgets()}
        if self.collector is not None:
            metrics |= {"episodes": self.collector.episodes, **self.collector.pop_metrics()}
        metrics |= self.engine.pop_metrics()
        if not self.schedule.is_constant:
            metrics["learning_rate_factor"] = self._factor(self.state.step)
        self.logger.write(self.state.step, metrics)
        self.last_log = dict(metrics)
        for callback in self.callbacks:
            callback.on_log(self, metrics)

    def evaluate(self) -> bool:
        """Evaluate the current policy; returns whether it is the best so far."""
        state = self.state
        state.evaluation_owed = True
        metrics: dict[str, float] = {}
        with self._naming_step():
            if self.evaluator is not None and self.settings.eval_episodes:
                played = self.evaluator.evaluate(self.policy, self.settings.eval_episodes)
                metrics |= played.metrics()
            if self.validation is not None:
                metrics |= self.validation.evaluate(self.algorithm)
        improved = state.record_evaluation(metrics, compares=self.settings.compares)
        steps = {"env_steps": state.env_steps} if self.budgets() else {}
        self.logger.write(state.step, steps | metrics)
        for callback in self.callbacks:
            callback.on_evaluation(self, metrics)
        return improved

    def _evaluate_or_save(self) -> bool:
        """Evaluate; if that fails, save what was learned before raising the error."""
        try:
            return self.evaluate()
        except Exception:
            if self.state.evaluation_owed:
                try:
                    self.save()
                except Exception as second:  # the first error is the one that counts
                    self.say(f"No checkpoint of step {self.state.step} either: {second}")
            raise

    def evaluate_owed(self) -> None:
        """Make the evaluation that is still due at the checkpoint's step."""
        if self.state.evaluation_owed and self.settings.evaluates:
            self.save(best=self.evaluate())
        self.state.evaluation_owed = False

    def begin(self) -> None:
        """Save before anything can fail, so that a run can be resumed from its first moment.

        If returns are compared, the evaluation before the first step is due at this checkpoint.
        """
        wanted = self.settings.compares and self.state.return_before is None
        self.state.evaluation_owed |= wanted
        # Callbacks may have no state before their `on_start`.
        self.save(callbacks=self.restored_callbacks)

    def move_to(self, run_dir: Path) -> None:
        """Continue in a folder that was renamed after `begin`."""
        assert self.checkpoint_path is not None
        self.checkpoints.run_dir = self.logger.run_dir = run_dir
        self.checkpoint_path = run_dir / "checkpoints" / self.checkpoint_path.name

    def adopt(self, checkpoint: Checkpoint) -> None:
        """Start with another run's learner, at the learning rates of this run's config."""
        load_tensors(self.algorithm, checkpoint, MODEL, OPTIMIZERS)
        for optimizer in self.algorithm.optimizers.values():
            assert isinstance(optimizer, FlatAdam)
            optimizer.scale_learning_rate(1.0)
        self.state.step = checkpoint.step
        self.engine.updates = self.state.updates = checkpoint.updates()

    def save(self, *, best: bool = False, callbacks: dict[str, Any] | None = None) -> None:
        """Write a checkpoint, unless it would hold values that are not finite.

        ``callbacks`` are the states of the callbacks; by default, the callbacks give them.
        """
        if callbacks is None:
            states = {name: item.state_dict() for name, item in self._named_callbacks()}
            callbacks = {name: state for name, state in states.items() if state}
        self.check_finite()
        tensors = self.algorithm.state_dict()
        for name, tensor in tensors.items():
            if not tensor.isfinite().all():
                raise TrainingError(f"{name} is not finite at step {self.state.step}")
        state: dict[str, Any] = {
            "trainer": self.state.state_dict(),
            "engine": self.engine.state_dict(),
            "callbacks": callbacks,
            "metrics_rows": self.logger.rows_at(self.state.step),
        }
        restores = {"weights, optimizers, generators": "exactly"}
        if self.collector is not None:
            state["storage"] = self.collector.buffer.state_dict()
            state["collector"] = self.collector.state_dict()
            failure = state["collector"]["environments_error"]
            environments = f"at an episode's start: {failure}" if failure else "exactly"
            exact = "weights, optimizers, replay, generators"
            restores = {exact: "exactly", "environments": environments}
        try:
            self.logger.sync()  # a durable checkpoint needs the lines before it
            self.checkpoint_path = self.checkpoints.save(
                step=self.state.step,
                tensors=tensors,
                state=state,
                storage=self.collector.buffer if self.collector is not None else None,
                manifest=self.manifest | {"engine": self.engine.mode, "restores": restores},
                best=best,
            )
        except OSError as error:
            raise self._write_failed(error) from error

    def _write_failed(self, error: OSError) -> TrainingError:
        what = f"the checkpoint at step {self.state.step}"
        advice = f"; the last complete one is {self.checkpoint_path}: make room, then resume"
        if self.checkpoints.last_step is None:
            what, advice = "the first checkpoint", ": make room, then start again"
        return write_failed(what, self.checkpoints.run_dir, error, advice=advice)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore every part from a checkpoint, tensors in place."""
        load_tensors(self.algorithm, checkpoint, MODEL, OPTIMIZERS)
        state = checkpoint.state()
        with explaining_misfits(checkpoint.path / STATE):
            refuse_unknown(state, STATE_PARTS, "it")
            self.state.load_state_dict(state["trainer"])
            if self.state.step != checkpoint.step:
                raise StateError(f"step {self.state.step} is not the manifest's {checkpoint.step}")
            self.engine.load_state_dict(state["engine"])
            if self.collector is not None:
                checkpoint.restore_storage(self.collector.buffer, state["storage"])
            for name, callback in self._named_callbacks():
                if name in state["callbacks"]:
                    self.restored_callbacks[name] = state["callbacks"][name]
                    callback.load_state_dict(state["callbacks"][name])
            if self.collector is not None:
                self.collector.load_state_dict(state["collector"], self.state.step)
        self.checkpoint_path = checkpoint.path
        try:
            if not self.checkpoints.attach(checkpoint, best_step=self.state.best_step):
                # The best checkpoint is not in this folder, or damaged.
                self.state.best_return = self.state.best_loss = self.state.best_step = None
        except OSError as error:
            raise self._write_failed(error) from error

    def _named_callbacks(self) -> list[tuple[str, Callback]]:
        """Callbacks with the names of their states: the class, and a number within it."""
        names = [type(callback).__name__ for callback in self.callbacks]
        numbered = [f"{name}-{names[:i].count(name) + 1}" for i, name in enumerate(names)]
        return list(zip(numbered, self.callbacks, strict=True))

    def close(self) -> None:
        """Release environments and files."""
        for part in (self.collector, self.evaluator, self.logger):
            if part is not None:
                part.close()

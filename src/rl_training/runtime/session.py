"""A session: the parts of a run, and logging, evaluation and saving between its steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_training.algorithms.base import Algorithm
from rl_training.algorithms.optimizers import FlatAdam
from rl_training.boundary.values import StateError, reject_unknown, report_state_errors
from rl_training.boundary.writing import write_error
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
"""Keys of ``state.json``."""


@dataclass(frozen=True)
class LoopSettings:
    """Length of a run, and its intervals for logging, evaluation and saving."""

    total_timesteps: int
    """Step at which the run ends."""
    log_interval: int
    checkpoint_interval: int
    eval_interval: int
    eval_episodes: int
    has_evaluation: bool = True
    """Whether the run evaluates, on episodes or on held-out rows."""
    eager_checks: bool = True
    """Whether to check after each step that metrics are finite, not only before logging."""
    first_step: int = 0
    """Step at which the run starts; above 0 for fine-tuning."""
    online_from: int = 0
    """Step at which collection starts; the last step if the run does not collect."""
    compare_returns: bool = False
    """Whether to evaluate before the first step, to compare with later returns."""


@dataclass
class Session:
    """The parts of a run, and everything that happens between its steps.

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
    """Callback states of the restored checkpoint, by name."""

    def schedule_learning_rates(self, step: int) -> None:
        """Set the learning rates for ``step``."""
        if not self.schedule.is_constant:
            self.algorithm.scale_learning_rates(self._factor(step))

    def _factor(self, step: int) -> float:
        return self.schedule.factor(max(0, step - self.settings.first_step))

    def learn(self, updates: int) -> None:
        """Run updates; for offline-to-online runs, also count them and end pretraining."""
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

        Steps of the source of fine-tuning and updates before collection do not count.
        """
        begin = self.settings.online_from if self.collector is not None else 0
        return max(0, self.state.step - begin)

    def budgets(self) -> dict[str, float]:
        """Return the budget used by each phase of an offline-to-online run, or an empty mapping."""
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
        finished = state.stop == COMPLETED and settings.has_evaluation
        if passed(settings.eval_interval) or finished:
            improved = self._evaluate_or_save()
        if passed(settings.checkpoint_interval) or improved or state.should_stop:
            self.save(best=improved)

    def say(self, text: str) -> None:
        """Pass a message to the callbacks."""
        for callback in self.callbacks:
            callback.on_message(self, text)

    def check_finite(self) -> None:
        """Raise an error with the step if a metric is not finite."""
        with self._add_step():
            self.engine.check_finite()

    @contextmanager
    def _add_step(self) -> Iterator[None]:
        try:
            yield
        except EnvError as error:
            raise EnvError(f"at step {self.state.step}, {error}") from error
        except TrainingError as error:
            raise TrainingError(f"{error} at step {self.state.step}") from None

    def log(self) -> None:
        """Log the mean of each metric since the last call."""
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
        """Evaluate the current policy; return whether it is the best so far."""
        state = self.state
        state.evaluation_owed = True
        metrics: dict[str, float] = {}
        with self._add_step():
            if self.evaluator is not None and self.settings.eval_episodes:
                played = self.evaluator.evaluate(self.policy, self.settings.eval_episodes)
                metrics |= played.metrics()
            if self.validation is not None:
                metrics |= self.validation.evaluate(self.algorithm)
        improved = state.record_evaluation(metrics, compare_returns=self.settings.compare_returns)
        steps = {"env_steps": state.env_steps} if self.budgets() else {}
        self.logger.write(state.step, steps | metrics)
        for callback in self.callbacks:
            callback.on_evaluation(self, metrics)
        return improved

    def _evaluate_or_save(self) -> bool:
        """Evaluate; if that fails, save a checkpoint before raising the error."""
        try:
            return self.evaluate()
        except Exception:
            if self.state.evaluation_owed:
                try:
                    self.save()
                except Exception as second:  # the first error is raised
                    self.say(
                        f"The checkpoint at step {self.state.step} could not be saved either: "
                        f"{second}"
                    )
            raise

    def run_pending_evaluation(self) -> None:
        """Run the evaluation that was due when the checkpoint was saved."""
        if self.state.evaluation_owed and self.settings.has_evaluation:
            self.save(best=self.evaluate())
        self.state.evaluation_owed = False

    def save_initial(self) -> None:
        """Save the initial state before anything can fail, so that the run can be resumed.

        If returns are compared, the evaluation before the first step is marked as due.
        """
        wanted = self.settings.compare_returns and self.state.return_before is None
        self.state.evaluation_owed |= wanted
        # Callbacks may not have a state before `on_start`.
        self.save(callbacks=self.restored_callbacks)

    def move_to(self, run_dir: Path) -> None:
        """Use the new path of a folder that was renamed after `save_initial`."""
        assert self.checkpoint_path is not None
        self.checkpoints.run_dir = self.logger.run_dir = run_dir
        self.checkpoint_path = run_dir / "checkpoints" / self.checkpoint_path.name

    def adopt(self, checkpoint: Checkpoint) -> None:
        """Start with the learner of another run, but with the learning rates of this config."""
        load_tensors(self.algorithm, checkpoint, MODEL, OPTIMIZERS)
        for optimizer in self.algorithm.optimizers.values():
            assert isinstance(optimizer, FlatAdam)
            optimizer.scale_learning_rate(1.0)
        self.state.step = checkpoint.step
        self.engine.updates = self.state.updates = checkpoint.updates()

    def save(self, *, best: bool = False, callbacks: dict[str, Any] | None = None) -> None:
        """Write a checkpoint; raise an error if a value is not finite.

        ``callbacks`` are the states of the callbacks, by default their current states.
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
            self.logger.sync()  # a checkpoint depends on the lines before it
            self.checkpoint_path = self.checkpoints.save(
                step=self.state.step,
                tensors=tensors,
                state=state,
                storage=self.collector.buffer if self.collector is not None else None,
                manifest=self.manifest | {"engine": self.engine.mode, "restores": restores},
                best=best,
            )
        except OSError as error:
            raise self._write_error(error) from error

    def _write_error(self, error: OSError) -> TrainingError:
        what = f"the checkpoint at step {self.state.step}"
        advice = f"; the last complete one is {self.checkpoint_path}: free disk space, then resume"
        if self.checkpoints.last_step is None:
            what, advice = "the first checkpoint", ": free disk space, then start again"
        return write_error(what, self.checkpoints.run_dir, error, advice=advice)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore every part from a checkpoint; tensors are modified in place."""
        load_tensors(self.algorithm, checkpoint, MODEL, OPTIMIZERS)
        state = checkpoint.state()
        with report_state_errors(checkpoint.path / STATE):
            reject_unknown(state, STATE_PARTS, "it")
            self.state.load_state_dict(state["trainer"])
            if self.state.step != checkpoint.step:
                raise StateError(
                    f"step {self.state.step} differs from step {checkpoint.step} of the manifest"
                )
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
                # The best checkpoint is damaged or not in this folder.
                self.state.best_return = self.state.best_loss = self.state.best_step = None
        except OSError as error:
            raise self._write_error(error) from error

    def _named_callbacks(self) -> list[tuple[str, Callback]]:
        """Return callbacks with unique names: the class and a number."""
        names = [type(callback).__name__ for callback in self.callbacks]
        numbered = [f"{name}-{names[:i].count(name) + 1}" for i, name in enumerate(names)]
        return list(zip(numbered, self.callbacks, strict=True))

    def close(self) -> None:
        """Close environments and files."""
        for part in (self.collector, self.evaluator, self.logger):
            if part is not None:
                part.close()

"""A session: the parts of a run, and logging, evaluation and saving between its steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rl_training.algorithms.base import Algorithm
from rl_training.algorithms.optimizers import FlatAdam
from rl_training.boundary.values import StateError, reject_unknown, report_state_errors
from rl_training.boundary.writing import write_error
from rl_training.data import MixedSampler
from rl_training.errors import ConfigError, EnvError, TrainingError
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
from rl_training.runtime.loggers.video import Film
from rl_training.runtime.logging import MetricsLogger
from rl_training.runtime.schedules import Schedule
from rl_training.runtime.stop_reason import COMPLETED
from rl_training.runtime.trainer_state import TrainerState
from rl_training.text import shown

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


class Progress(NamedTuple):
    """Progress that a checkpoint records, without what only happens because the run ends."""

    callbacks: dict[str, Any]
    """States of the callbacks by name."""
    rows: int
    """Lines of metrics at the checkpoint's step."""


class ReadOnlyMetrics(dict[str, float]):
    """The metrics that a hook receives; they are already written."""

    def _refuse(self, *_arguments: Any, **_options: Any) -> Any:
        raise TypeError(
            "The metrics of a hook are read-only. To log your own, call "
            "session.log({'my/metric': value})."
        )

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[type[dict[str, float]], tuple[dict[str, float]]]:
        """Copies, also in other processes, are ordinary dictionaries."""
        return dict, (dict(self),)


def as_metric(name: Any, value: Any) -> float:
    """Return a metric as a number.

    Raises:
        ConfigError: The name is not text, or the value is not a number.
    """
    if not isinstance(name, str) or not name or name in ("step", "time/seconds"):
        raise ConfigError(
            f"session.log has the name {shown(name)}, but a name should be text other than 'step' "
            "and 'time/seconds', such as 'my/metric'."
        )
    try:
        if isinstance(value, str | bytes) or np.ndim(value) != 0:
            raise TypeError
        return float(value.item() if hasattr(value, "item") else value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise ConfigError(
            f"session.log received {name} = {shown(value)}, but a value should be a single number: "
            "log a mean, or one name per value."
        ) from None


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
    film: Film | None = None
    """Camera of the evaluations; None to record none."""
    restored_callbacks: dict[str, Any] = field(default_factory=dict)
    """Callback states of the restored checkpoint, by name."""
    _not_finite: set[str] = field(default_factory=set)

    def schedule_learning_rates(self, step: int) -> None:
        """Set the learning rates for ``step``."""
        if not self.schedule.is_constant:
            self.algorithm.scale_learning_rates(self._factor(step))

    def _factor(self, step: int) -> float:
        return self.schedule.factor(max(0, step - self.settings.first_step))

    def learn(self, updates: int) -> None:
        """Run updates and count them."""
        self.engine.run(updates)
        self.count_updates(updates)

    def count_updates(self, updates: int) -> None:
        """Count updates of offline-to-online runs by phase and source, and end pretraining."""
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

        ends = state.should_stop and not (state.stop is not None and state.stop.is_signal)
        is_logged, is_evaluated = passed(settings.log_interval), passed(settings.eval_interval)
        improved = False
        if is_logged:
            self.write_log()
        if is_evaluated:
            improved = self._evaluate_or_save()
        before_end = self._progress() if ends else None
        if ends and not is_logged:
            self.write_log(final=True)
        if state.stop == COMPLETED and settings.has_evaluation and not is_evaluated:
            improved = self._evaluate_or_save(before_end)
        if passed(settings.checkpoint_interval) or improved or state.should_stop:
            self.save(best=improved, progress=before_end)

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

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Write your own metrics for the current step, for example from a callback.

        They appear in ``metrics.jsonl`` and in every logger. Values are numbers: Python, NumPy and
        torch scalars. Values that are not finite are left out, with one message per name.

        Raises:
            ConfigError: A name or a value cannot be logged.
        """
        if not isinstance(metrics, Mapping):
            raise ConfigError(
                f"session.log received {shown(metrics)}: pass a mapping, such as "
                "session.log({'my/metric': value})."
            )
        finite: dict[str, float] = {}
        for name, value in metrics.items():
            number = as_metric(name, value)
            if math.isfinite(number):
                finite[name] = number
            elif name not in self._not_finite:
                self._not_finite.add(name)
                self.say(
                    f"{name} is {number} at step {self.state.step}: values that are not finite are "
                    "not logged."
                )
        if finite:
            self.logger.write(self.state.step, finite)

    def write_log(self, *, final: bool = False) -> None:
        """Write the mean of each metric since the last line.

        A ``final`` line is written because the run ends, not because one is due. A run that
        continues drops it, and its next line covers the same steps again.
        """
        self.check_finite()
        metrics: dict[str, float] = {"updates": self.state.updates, **self.budgets()}
        engine, collector = self.engine, self.collector
        if collector is not None:
            played = collector.metrics() if final else collector.pop_metrics()
            metrics |= {"episodes": collector.episodes, **played}
        metrics |= engine.metrics() if final else engine.pop_metrics()
        if not self.schedule.is_constant:
            metrics["learning_rate_factor"] = self._factor(self.state.step)
        self.logger.write(self.state.step, metrics)
        self.last_log = dict(metrics)
        for callback in self.callbacks:
            callback.on_log(self, ReadOnlyMetrics(metrics))

    def evaluate(self) -> bool:
        """Evaluate the current policy; return whether it is the best so far."""
        state = self.state
        state.evaluation_owed = True
        metrics: dict[str, float] = {}
        with self._add_step():
            if self.evaluator is not None and self.settings.eval_episodes:
                metrics |= self._play(self.evaluator)
            if self.validation is not None:
                metrics |= self.validation.evaluate(self.algorithm)
        improved = state.record_evaluation(metrics, compare_returns=self.settings.compare_returns)
        steps = {"env_steps": state.env_steps} if self.budgets() else {}
        self.logger.write(state.step, steps | metrics)
        for callback in self.callbacks:
            callback.on_evaluation(self, ReadOnlyMetrics(metrics))
        return improved

    def _play(self, evaluator: Evaluator) -> dict[str, float]:
        """Play the evaluation episodes and pass their returns and frames to the loggers."""
        step, film = self.state.step, self.film
        played = evaluator.evaluate(self.policy, self.settings.eval_episodes, film)
        self.logger.write_evaluation(step, played.returns)
        frames = None if film is None else film.cut()
        if film is not None and frames is not None:
            self.logger.write_video(step, frames, film.frames_per_second)
        return played.metrics()

    def _evaluate_or_save(self, progress: Progress | None = None) -> bool:
        """Evaluate; if that fails, save a checkpoint before raising the error."""
        try:
            return self.evaluate()
        except Exception:
            if self.state.evaluation_owed:
                try:
                    self.save(progress=progress)
                except Exception as second:  # the first error is raised
                    self.say(
                        f"The checkpoint at step {self.state.step} could not be saved either: "
                        f"{second}"
                    )
            raise

    def run_pending_evaluation(self) -> None:
        """Run the evaluation that was due when the checkpoint was saved.

        The evaluation at the end of a run that now continues is not due any more.
        """
        state, settings = self.state, self.settings
        stride = 1 if self.collector is None else self.collector.num_envs
        interval, is_first = settings.eval_interval, state.step == settings.first_step
        is_scheduled = interval > 0 and state.step % interval < stride
        is_due = is_first or is_scheduled or state.should_stop
        if state.evaluation_owed and settings.has_evaluation and is_due:
            self.save(best=self.evaluate())
        state.evaluation_owed = False

    def save_initial(self) -> None:
        """Save the initial state before anything can fail, so that the run can be resumed.

        If returns are compared, the evaluation before the first step is marked as due.
        """
        wanted = self.settings.compare_returns and self.state.return_before is None
        self.state.evaluation_owed |= wanted
        # Callbacks may not have a state before `on_start`.
        self.save(progress=Progress(self.restored_callbacks, self.logger.rows_at(self.state.step)))

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

    def _progress(self) -> Progress:
        """Return the callbacks' states and the number of lines at this step."""
        states = {name: item.state_dict() for name, item in self._named_callbacks()}
        kept = {name: state for name, state in states.items() if state}
        return Progress(kept, self.logger.rows_at(self.state.step))

    def save(self, *, best: bool = False, progress: Progress | None = None) -> None:
        """Write a checkpoint; raise an error if a value is not finite.

        ``progress`` is what a run that continues from here starts with, by default the current
        one.
        """
        progress = progress or self._progress()
        self.check_finite()
        tensors = self.algorithm.state_dict()
        for name, tensor in tensors.items():
            if not tensor.isfinite().all():
                raise TrainingError(f"{name} is not finite at step {self.state.step}")
        trainer = self.state.state_dict()
        if self.state.stop is not None and self.state.stop.is_signal:
            # A resume continues the run, so this is also what an uninterrupted run would save.
            trainer |= {"should_stop": False, "stop_reason": None}
        state: dict[str, Any] = {
            "trainer": trainer,
            "engine": self.engine.state_dict(),
            "callbacks": progress.callbacks,
            "metrics_rows": progress.rows,
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

"""`train` and `resume`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from signal import Signals
from typing import Any

import torch

from rl_training.algorithms.config import CollectionConfig
from rl_training.api.arguments import ConfigLike, as_path, check_callbacks, with_objects
from rl_training.api.progress import progress_display
from rl_training.api.resuming import changed_config, check_resume, finished_reason
from rl_training.boundary.terminal import print_stderr
from rl_training.boundary.writing import report_failed_writes
from rl_training.data.given_data import DatasetLike
from rl_training.envs import EnvLike
from rl_training.errors import CheckpointError, ConfigError, TrainingError
from rl_training.experiment.build import build_session, versions
from rl_training.experiment.config import TrainConfig, name_config
from rl_training.experiment.git_state import read_git_state
from rl_training.experiment.machine import hardware_name, restore_threads
from rl_training.experiment.memory import report_out_of_memory
from rl_training.experiment.run_directory import (
    RUN_FILE,
    create_run,
    is_run,
    locate,
    lock_run,
    name_run,
    newest_intact_checkpoint,
    read_config_file,
    reject_links,
    report_output_dir_errors,
    write_config,
    write_run_info,
)
from rl_training.experiment.run_envs import PassedEnvs
from rl_training.experiment.saved_run import SavedRun
from rl_training.experiment.starter_data import save_starter
from rl_training.experiment.task import Task, check_config
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.checkpoint_writer import recover_swaps
from rl_training.runtime.checkpointing import Checkpoint, list_steps
from rl_training.runtime.logging import cut_metrics
from rl_training.runtime.session import Session
from rl_training.runtime.stop_reason import COMPLETED
from rl_training.runtime.training_loop import TrainResult, run_session, updates_due


def warn(message: str) -> None:
    """Print a warning to standard error."""
    print_stderr(f"Warning: {message}")


def train(
    config: ConfigLike,
    *,
    env: EnvLike | None = None,
    eval_env: EnvLike | None = None,
    dataset: DatasetLike | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainResult:
    """Train from a config, a mapping, a file or the name of a packaged config.

    Ctrl-C saves a checkpoint and raises `KeyboardInterrupt`; SIGTERM raises ``SystemExit(143)``.

    Args:
        config: The config.
        env: The environment, instead of the config's `env_id`: an id, a `gymnasium.Env`, a class
            or a function that makes one, or a Gymnasium vector environment (docs/environments.md).
        eval_env: The environment to evaluate in; by default, a new one like the training
            environment.
        dataset: Recorded data that replaces the config's own: a path, a Minari id, a mapping of
            arrays, a `TransitionDataset` or a Minari dataset (docs/datasets.md).
        callbacks: Callbacks of the run.
        progress: Whether to show a live display; by default, in a terminal or a notebook only.
    """
    passed, callbacks = PassedEnvs.of(env, eval_env), check_callbacks(callbacks)
    with progress_display(progress) as display:
        result = start_run(config, [*display, *callbacks], passed=passed, dataset=dataset)
    return raise_signal(result)


def raise_signal(result: TrainResult) -> TrainResult:
    """Return the result of a run, or raise what its signal would have raised without the run.

    Otherwise a script would continue after Ctrl-C, for example with its next seed.
    """
    if result.signal == "SIGINT":
        raise KeyboardInterrupt(
            f"The run in {result.run_dir} was interrupted at step {result.metrics['step']}, and a "
            "checkpoint was saved."
        )
    if result.signal is not None:
        raise SystemExit(128 + Signals[result.signal])
    return result


def start_run(
    config: ConfigLike,
    callbacks: Sequence[Callback],
    *,
    passed: PassedEnvs | None = None,
    dataset: DatasetLike | None = None,
    command: Sequence[str] | None = None,
) -> TrainResult:
    """Train in a new run folder, whose ``run.json`` records ``command`` and the git commit."""
    passed = passed or PassedEnvs()
    checked, given = with_objects(config, env=passed.env, dataset=dataset)
    name_config(checked)
    if checked.finetunes:
        raise ConfigError(
            "finetuned_step is set by fine-tuning and cannot be set here: use rl-training "
            "finetune, or finetune() in Python."
        )
    task = check_config(checked.resolved(), passed, given=given)
    recorded = save_starter(task.config)
    if recorded is not None:
        print_stderr(recorded)
    origin: dict[str, Any] = {} if command is None else {"command": list(command)}
    return start_training(task, callbacks, origin=origin | {"git": read_git_state()})


def start_training(
    task: Task,
    callbacks: Sequence[Callback],
    *,
    source: Checkpoint | None = None,
    origin: Mapping[str, Any] | None = None,
    on_warning: Callable[[str], None] = warn,
) -> TrainResult:
    """Create a run folder and train in it, with new weights or with the weights of ``source``."""
    with new_session(task, callbacks, source=source, origin=origin, on_warning=on_warning) as new:
        return train_session(new)


@contextmanager
def new_session(
    task: Task,
    callbacks: Sequence[Callback],
    *,
    source: Checkpoint | None = None,
    origin: Mapping[str, Any] | None = None,
    name: str | None = None,
    on_warning: Callable[[str], None] = warn,
) -> Iterator[Session]:
    """Create a run folder and yield its session, like `start_training`.

    ``name`` is the name of the folder; by default it is made of the algorithm, the environment and
    the seed.
    """
    settings, steps = task.config.parts.algorithm, task.config.budget
    if isinstance(settings, CollectionConfig) and updates_due(steps, 0, settings) == 0:
        on_warning(
            f"learning_starts = {settings.learning_starts}: the run ends after {steps} steps, "
            "before the first update on collected data. Reduce learning_starts or train longer."
        )
    with _new_folder(
        task, callbacks, on_warning, adopted=source, origin=origin, name=name
    ) as session:
        yield session


def resume(
    path: str | Path,
    overrides: Sequence[str] = (),
    *,
    env: EnvLike | None = None,
    eval_env: EnvLike | None = None,
    dataset: DatasetLike | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    on_warning: Callable[[str], None] = warn,
) -> TrainResult:
    """Continue a run from its newest intact checkpoint, in place.

    An older checkpoint of a run, or a self-contained copy, is continued in a new run folder; the
    original run is not changed. Signals have the same effect as in `train`.

    Args:
        path: A run or a checkpoint.
        overrides: ``key=value`` strings.
        env: The environment of the run, if it was passed as an object.
        eval_env: The environment to evaluate in, if it was passed as an object.
        dataset: The run's recorded data, if it was passed as an object or has moved. It must have
            the same rows as before.
        callbacks: Callbacks of the run.
        progress: Whether to show a live display; by default, in a terminal or a notebook only.
        on_warning: Called with each warning.
    """
    passed, callbacks = PassedEnvs.of(env, eval_env), check_callbacks(callbacks)
    with progress_display(progress) as display:
        result = continue_run(
            path,
            overrides,
            [*display, *callbacks],
            passed=passed,
            dataset=dataset,
            on_warning=on_warning,
        )
    return raise_signal(result)


def continue_run(
    path: str | Path,
    overrides: Sequence[str],
    callbacks: Sequence[Callback],
    *,
    passed: PassedEnvs | None = None,
    dataset: DatasetLike | None = None,
    on_warning: Callable[[str], None] = warn,
) -> TrainResult:
    """Continue a run like `resume`; the result says whether a signal ended it."""
    with continued_session(
        path, overrides, callbacks, passed=passed, dataset=dataset, on_warning=on_warning
    ) as session:
        return train_session(session)


@contextmanager
def continued_session(
    path: str | Path,
    overrides: Sequence[str],
    callbacks: Sequence[Callback],
    *,
    passed: PassedEnvs | None = None,
    dataset: DatasetLike | None = None,
    on_warning: Callable[[str], None] = warn,
) -> Iterator[Session]:
    """Yield the session of a run that continues, like `resume`."""
    source, passed = as_path("path", path), passed or PassedEnvs()
    run_dir = _run_to_continue(source)
    if run_dir is None:
        checkpoint = SavedRun.load(source, replay=True)
        config, given = changed_config(checkpoint.config, overrides, dataset)
        task = check_resume(checkpoint, config, passed, on_warning, given=given)
        with _new_folder(task, callbacks, on_warning, resumed=checkpoint) as session:
            yield session
        return
    reject_links(run_dir)
    with lock_run(run_dir):
        with report_failed_writes(run_dir, run_dir):
            recover_swaps(run_dir / "checkpoints")
        found = newest_intact_checkpoint(run_dir, on_warning)
        newest = SavedRun.of(found) if found else None
        base = read_config_file(run_dir)
        config, given = changed_config(base, overrides, dataset)
        if config.output_dir != base.output_dir:
            raise ConfigError(
                "output_dir cannot change when a run is resumed in its own folder: move the folder "
                "instead."
            )
        task = check_resume(newest, config, passed, on_warning, run_dir, given=given)
        with report_failed_writes(run_dir, run_dir):
            write_config(run_dir, task.config)
            _copy_metrics(newest, run_dir, run_dir)
        with _same_folder(task, run_dir, newest, callbacks, on_warning) as session:
            yield session


def _run_to_continue(source: Path) -> Path | None:
    """Return the run to continue in place; None if the source needs a new run folder."""
    if source.exists() and is_run(source):
        return source
    checkpoint = locate(source)
    run_dir = Checkpoint(checkpoint, {}).run_dir
    steps = list_steps(run_dir) if run_dir else []
    newest = run_dir is not None and is_run(run_dir) and steps[-1].name == checkpoint.name
    return run_dir if newest else None


def _copy_metrics(checkpoint: Checkpoint | None, source: Path, run_dir: Path) -> None:
    """Copy the metrics up to the checkpoint from which a run continues."""
    rows = checkpoint.state().get("metrics_rows") if checkpoint else None
    known = rows if type(rows) is int and rows >= 0 else None
    cut_metrics(source, checkpoint.step if checkpoint else -1, run_dir, rows=known)


class _RunInfo(Callback):
    """Keeps ``run.json`` up to date, for listings."""

    def on_log(self, session: Session, metrics: Mapping[str, float]) -> None:
        self.write(session)

    def on_evaluation(self, session: Session, metrics: Mapping[str, float]) -> None:
        self.write(session)

    def write(self, session: Session, **extra: Any) -> None:
        run_dir = session.checkpoints.run_dir
        with report_failed_writes(run_dir / RUN_FILE, run_dir):
            write_run_info(run_dir, self.facts(session) | extra)

    @staticmethod
    def facts(session: Session) -> dict[str, Any]:
        """Return the progress and the results of a session."""
        state = session.state
        facts: dict[str, Any] = {
            "step": state.step,
            "updates": state.updates,
            "best_return": state.best_return,
            "last_return": state.evaluation.get("eval_return_mean"),
        }
        if state.best_loss is not None:
            facts |= {"best_loss": state.best_loss, "last_loss": state.evaluation.get("eval_loss")}
        return facts


@contextmanager
def _new_folder(
    task: Task,
    callbacks: Sequence[Callback],
    on_warning: Callable[[str], None],
    *,
    adopted: Checkpoint | None = None,
    resumed: SavedRun | None = None,
    origin: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Iterator[Session]:
    """Yield a session in a new folder, which gets its final name once it has a checkpoint.

    Therefore a run can always be resumed, and a run that fails to start leaves no files. It starts
    with new weights, with the learner of ``adopted``, or from the state of ``resumed``.
    """
    config, source = task.config, adopted or resumed
    with restore_threads(), create_run(config, name) as folder:
        with report_output_dir_errors(config):
            if origin:
                write_run_info(folder, dict(origin))
            if adopted is not None:
                start = {"checkpoint": str(adopted.path), "step": adopted.step}
                write_run_info(folder, {"finetuned_from": start})
                if adopted.run_dir is not None:
                    cut_metrics(adopted.run_dir, adopted.step, folder)
            if resumed is not None:
                write_run_info(folder, {"branched_from_step": resumed.step})
                if resumed.run_dir is not None:
                    _copy_metrics(resumed, resumed.run_dir, folder)
        session = build_session(
            task,
            folder,
            callbacks=[_RunInfo(), *callbacks],
            start_step=source.step if source else 0,
            saved_engine=resumed.manifest.get("engine") if resumed else None,
            on_warning=on_warning,
        )
        with closing(session):
            _restore_state(session, task, resumed, on_warning)
            if adopted is not None:
                session.adopt(adopted)
            session.save_initial()
            run_dir = name_run(folder, config, name)
            session.move_to(run_dir)
            with lock_run(run_dir), _record_training(session, config, on_warning):
                yield session


@contextmanager
def _same_folder(
    task: Task,
    run_dir: Path,
    resumed: SavedRun | None,
    callbacks: Sequence[Callback],
    on_warning: Callable[[str], None],
) -> Iterator[Session]:
    """Yield a session in a run's folder, from the start if an older version left no checkpoint."""
    with restore_threads(), ExitStack() as stack:
        with _record_failure(run_dir, on_warning):
            session = build_session(
                task,
                run_dir,
                callbacks=[_RunInfo(), *callbacks],
                start_step=resumed.step if resumed else 0,
                saved_engine=resumed.manifest.get("engine") if resumed else None,
                on_warning=on_warning,
            )
            stack.enter_context(closing(session))
            _restore_state(session, task, resumed, on_warning)
            session.logger.open_files()
        with _record_training(session, task.config, on_warning):
            yield session


@contextmanager
def _record_training(
    session: Session, config: TrainConfig, on_warning: Callable[[str], None]
) -> Iterator[None]:
    """Record that a session which was just saved or restored trains, and how that fails."""
    with _record_failure(session.checkpoints.run_dir, on_warning, session):
        _RunInfo().write(
            session,
            state="running",
            fingerprint=config.fingerprint(),
            versions=versions(),
            device=str(session.policy.device),
            hardware=hardware_name(session.policy.device),
            num_threads=torch.get_num_threads(),
            engine=session.engine.mode,
        )
        update = f"batch_size = {session.algorithm.config.batch_size}: an update"
        with report_out_of_memory(update, session.policy.device, TrainingError):
            yield


def train_session(session: Session) -> TrainResult:
    """Train in a session, and record the result in the folder of the run."""
    return record_result(session, run_session(session))


def record_result(session: Session, result: TrainResult) -> TrainResult:
    """Record the result of a session in the folder of the run, and return it."""
    state = "interrupted" if result.stop.is_signal else "stopped"
    state = "completed" if result.stop == COMPLETED else state
    session.logger.outcome = state
    _RunInfo().write(session, state=state, stop_reason=result.stop_reason)
    return result


def _restore_state(
    session: Session,
    task: Task,
    resumed: SavedRun | None,
    on_warning: Callable[[str], None],
) -> None:
    """Restore a session from a checkpoint, if there is one, and report notes and warnings."""
    if task.skipped_evaluation is not None:
        on_warning(task.skipped_evaluation)
    if resumed is None:
        for note in task.notes:
            on_warning(note)
        if task.data is not None:
            source, data = task.data.record["source"], task.data.train
            for note in data.notes:  # guesses are warnings; other notes are shown in the display
                report = on_warning if note in data.guesses else session.say
                report(f"{source}: {note}.")
            for advice in task.advice:
                report = on_warning if advice.warns else session.say
                report(f"{source}: {advice.text}.")
        return
    session.restore(resumed)
    if finished_reason(resumed, task.config) is None:
        session.state.clear_stop()
    if session.collector is not None and session.collector.inexact_restore:
        reason = session.collector.inexact_restore
        on_warning(f"{task.config.env_id} continues with a new episode: {reason}.")
    first, last = session.settings.first_step, session.settings.total_timesteps
    end = session.schedule.zero_from
    if end is not None and first + end < last:  # the budget was extended, but not the schedule
        change = f"schedule_horizon={last - first}"
        whose = "".join(f"{name}'s " for name in session.algorithm.scheduled)
        on_warning(
            f"the {whose}learning rate is 0 after step {first + end}, where its schedule ends, but "
            f"the run continues to step {last}. To keep learning, extend the schedule with "
            f"{change} (in Python, overrides=[{change!r}])."
        )


@contextmanager
def _record_failure(
    run_dir: Path, on_warning: Callable[[str], None], session: Session | None = None
) -> Iterator[None]:
    """Record in ``run.json`` that a run failed or was interrupted, and its progress.

    This covers every exception, including `sys.exit` in a callback, so that the state does not
    remain "running".
    """
    try:
        yield
    except BaseException as error:
        refused = session is None and isinstance(error, ConfigError)
        if refused or not run_dir.is_dir():
            raise
        facts = {} if session is None else _RunInfo.facts(session)
        if isinstance(error, Exception):
            facts |= {"state": "failed", "error": str(error)}
            how = "failed with an error"
        else:
            facts |= {"state": "interrupted", "error": repr(error)}
            if session is not None:
                session.logger.outcome = "interrupted"
            how = f"was interrupted by {type(error).__name__}"
        try:
            write_run_info(run_dir, facts)
            steps = list_steps(run_dir)
        except (OSError, CheckpointError) as second:  # such as a full disk
            warn(f"run.json could not be updated: {second}")
        else:
            then = f"resume it from {steps[-1].name}" if steps else "it has no checkpoint"
            on_warning(f"the run in {run_dir} {how}: {then}.")
        raise

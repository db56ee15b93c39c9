"""Checks before a resume: what may change, and whether there is anything left to train."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rl_training.api.arguments import with_objects
from rl_training.config_model import Trait, keys_with
from rl_training.data.config import DataConfig
from rl_training.data.given_data import DatasetLike, GivenData
from rl_training.envs import name_env
from rl_training.envs.resolving import is_object_label
from rl_training.errors import CheckpointError, ConfigError
from rl_training.experiment.build import versions
from rl_training.experiment.config import (
    TrainConfig,
    apply_overrides,
    check_overrides,
    name_overrides,
    override_key,
)
from rl_training.experiment.machine import choose_device, choose_threads
from rl_training.experiment.run_directory import read_run_info
from rl_training.experiment.run_envs import PassedEnvs
from rl_training.experiment.saved_run import SavedRun
from rl_training.experiment.task import Task, check_config
from rl_training.runtime.control_config import ControlsConfig
from rl_training.runtime.stop_reason import COMPLETED, StopKind
from rl_training.text import shown

RESUMABLE_KEYS = frozenset(keys_with(Trait.MAY_CHANGE, TrainConfig, ControlsConfig, DataConfig))
"""Keys that a resume may change; all others must match the checkpoint."""

ENDED_STATES = ("completed", "stopped")
"""States in ``run.json`` of a run that ended normally."""


def changed_config(
    base: TrainConfig, overrides: Sequence[str], dataset: DatasetLike | None = None
) -> tuple[TrainConfig, GivenData | None]:
    """Apply overrides and return the config, and ``dataset`` if it is an object.

    A budget in steps replaces one in epochs, and vice versa.
    """
    data, overrides = base.to_dict(), check_overrides(overrides)
    keys = {override_key(override) for override in overrides}
    if "num_epochs" in keys and "total_timesteps" not in keys:
        data["total_timesteps"] = None
    if "total_timesteps" in keys and "num_epochs" not in keys:
        data["algo_kwargs"]["num_epochs"] = None
    apply_overrides(data, overrides)
    config, given = with_objects(data, dataset=dataset)
    name_overrides(config, overrides)
    return config.resolved(), given


def check_resume(
    checkpoint: SavedRun | None,
    config: TrainConfig,
    passed: PassedEnvs,
    on_warning: Callable[[str], None],
    run_dir: Path | None = None,
    *,
    given: GivenData | None = None,
) -> Task:
    """Reject changes that contradict the checkpoint, and runs that are finished.

    A run that was killed after its last checkpoint but before it ended can still be resumed.
    """
    if isinstance(passed.env, str):  # the same as the override env_id=ID
        config = config.model_copy(update={"env_id": passed.env})
        name_env(passed.env)
    if checkpoint is None:
        _check_initial_checkpoint(config, run_dir)
        return check_config(config, passed, given=given)
    if checkpoint.manifest.get("published") is True:
        raise ConfigError(
            f"{checkpoint.path} was published without its replay and the state of its run, so it "
            "cannot be resumed: fine-tune it instead (rl-training finetune)."
        )
    old = checkpoint.config
    # Keys that were added after the checkpoint was written have their default values.
    both = old.resolved().to_dict(), config.to_dict()
    before, now = (data.pop("algo_kwargs") | data for data in both)
    for key in sorted(before.keys() | now.keys()):
        may_change = key in RESUMABLE_KEYS
        if key == "env_id":  # an object has to be passed again, in any of its forms
            may_change = is_object_label(old.env_id)
        if not may_change and before.get(key) != now.get(key):
            raise ConfigError(
                f"{key} = {shown(now.get(key))} contradicts the checkpoint, which was trained with "
                f"{shown(before.get(key))}: start a new run to change it."
            )
    if config.total_timesteps is not None:  # otherwise the number of rows must be known first
        _check_unfinished(checkpoint, config, run_dir)
    _warn_about_differences(checkpoint, config, on_warning)
    horizons = [c.parts.controls.schedule_horizon for c in (old, config)]
    masked = checkpoint.spec.action_masks  # False for checkpoints of earlier versions
    starts = horizons[0] != horizons[1]
    task = check_config(config, passed, given=given, starts=starts, use_masks=masked)
    _check_unfinished(checkpoint, task.config, run_dir)
    chosen = task.config.env_id if passed.env is not None else None
    checkpoint.check_env(task.spec, chosen=chosen)
    _check_same_env(old, task, on_warning)
    if masked and not task.spec.action_masks:
        raise CheckpointError(
            f"{checkpoint.path} was trained with action masks, but its environment no longer "
            "provides them"
        )
    if task.data is not None:
        advice = "pass the original data with dataset_path=FILE, or start a new run"
        checkpoint.check_data(task.data, advice)
    checkpoint.check_learner(task.config, task.spec)
    return task


def _check_same_env(old: TrainConfig, task: Task, on_warning: Callable[[str], None]) -> None:
    """Reject an object that is not the run's registered environment; warn about another object."""
    before, now = old.env_id, task.config.env_id
    if is_object_label(before) and before != now:
        on_warning(f"the run was trained in {before}, but continues in {now}.")
    elif not is_object_label(before) and (before, old.env_kwargs) != (now, task.config.env_kwargs):
        raise ConfigError(
            f"The run was trained in {before} with env_kwargs {shown(old.parts.env.make_kwargs)}, "
            f"but env is {now} with {shown(task.config.parts.env.make_kwargs)}: leave env out, or "
            "start a new run."
        )


def _check_initial_checkpoint(config: TrainConfig, run_dir: Path | None) -> None:
    """Reject a run from an older version that was killed before it saved its initial state.

    Newer runs have a checkpoint before their folder gets its final name.
    """
    ended = f"{run_dir} ended before its first checkpoint"
    if config.finetunes:
        raise CheckpointError(f"{ended}: run finetune again")
    if run_dir is not None and "branched_from_step" in read_run_info(run_dir):
        raise CheckpointError(f"{ended}: resume the checkpoint that it started from instead")


def _check_unfinished(checkpoint: SavedRun, config: TrainConfig, run_dir: Path | None) -> None:
    over = finished_reason(checkpoint, config)
    ended = run_dir is None or read_run_info(run_dir).get("state") in ENDED_STATES
    stop = checkpoint.stop_reason()
    at_its_end = stop is not None and (stop == COMPLETED or stop.is_early_stopping)
    if over and (ended or not at_its_end):
        raise ConfigError(over)


def finished_reason(checkpoint: SavedRun, config: TrainConfig) -> str | None:
    """Return why a run is finished and how to continue it; None if there are steps left."""
    stop, old = checkpoint.stop_reason(), checkpoint.config
    stopping = [c.parts.controls.early_stopping for c in (old, config)]
    if stop is not None and stop.is_early_stopping and stopping[0] == stopping[1]:
        key = "target_value" if stop.kind is StopKind.TARGET_REACHED else "patience"
        return (
            f"This run stopped early at step {checkpoint.step} ({stop}). To continue, change "
            f"early_stopping (early_stopping.{key}=N) or disable it (early_stopping=null)."
        )
    if checkpoint.step >= config.last_step:
        state = "finished" if checkpoint.step >= old.last_step else "is already"
        return (
            f"This run {state} at step {checkpoint.step}. To continue, set total_timesteps=N to "
            f"more than {checkpoint.step - config.online_from}."
        )
    return None


def _warn_about_differences(
    checkpoint: SavedRun, config: TrainConfig, on_warning: Callable[[str], None]
) -> None:
    """Warn about everything that prevents an exact continuation."""
    manifest = checkpoint.manifest
    threads = choose_threads(config.parts.controls.num_threads)
    if threads != manifest.get("num_threads"):
        on_warning(
            f"the checkpoint was written with {manifest.get('num_threads')} threads, but this run "
            f"uses {threads}: results may differ in the last bits."
        )
    device = choose_device(config.device).type
    if device != manifest.get("device"):
        on_warning(
            f"the checkpoint was written on {manifest.get('device')}, but this run uses {device}: "
            "the results may differ from those of an uninterrupted run."
        )
    engine, wanted = manifest.get("engine", "eager"), config.parts.controls.engine
    if wanted not in ("auto", engine):
        on_warning(
            f"the checkpoint was written with engine={engine}, but this run uses engine={wanted}: "
            "results may differ in the last bits."
        )
    written = manifest.get("versions")
    for name, version in versions().items():
        saved = written.get(name) if isinstance(written, dict) else None
        if saved != version:
            on_warning(
                f"the checkpoint was written with {name} {saved}, but {version} is installed."
            )

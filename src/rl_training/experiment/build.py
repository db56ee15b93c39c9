"""Build a session and its parts from a config."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, cast, get_args

import gymnasium
import numpy as np
import torch

from rl_training.algorithms.base import Algorithm
from rl_training.algorithms.config import CollectionConfig, MixingConfig
from rl_training.data import ReplayBuffer, TransitionDataset
from rl_training.data.replay_buffer import ReplayPlan
from rl_training.envs import make_training_envs, read_goal_task
from rl_training.envs.given import GivenEnv
from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.dataset_source import (
    RunData,
    discount,
    mix,
    normalized,
    prepare_sampler,
    supply_fields,
)
from rl_training.experiment.machine import choose_device, choose_threads, keep_freed_memory
from rl_training.experiment.memory import report_out_of_memory
from rl_training.experiment.task import Task
from rl_training.precision import widest_float
from rl_training.runtime.acting import Explorer, GraphedExplorer
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.checkpoint_writer import CheckpointWriter
from rl_training.runtime.collector import Collector
from rl_training.runtime.control_config import build_control_callbacks
from rl_training.runtime.engine import Engine
from rl_training.runtime.engine_choice import EngineMode, choose_engine
from rl_training.runtime.evaluation import Evaluator, Policy, Validation
from rl_training.runtime.loggers.build import build_loggers, flat_settings
from rl_training.runtime.loggers.video import Film
from rl_training.runtime.logging import MetricsLogger, read_metrics
from rl_training.runtime.observing import Observer
from rl_training.runtime.seeding import Stream, derive_seed
from rl_training.runtime.session import LoopSettings, Session
from rl_training.runtime.training_loop import updates_due
from rl_training.text import shown
from rl_training.types import EnvSpec, Sampler
from rl_training.version import __version__


def build_session(
    task: Task,
    run_dir: Path,
    *,
    callbacks: Sequence[Callback] = (),
    start_step: int = 0,
    saved_engine: str | None = None,
    on_warning: Callable[[str], None] = warnings.warn,
) -> Session:
    """Build the session of a run, with training environments at the start of an episode.

    A continued run keeps the engine of its checkpoint, ``saved_engine``, unless the config sets
    another one, so that a longer budget does not change the results.
    """
    config, parts = task.config, task.config.parts
    device = choose_device(config.device)
    torch.set_num_threads(choose_threads(parts.controls.num_threads))
    keep_freed_memory()
    mode = engine_mode(config, device, saved_engine)
    algorithm = build_algorithm(config, task.spec, device)
    logger = MetricsLogger(
        run_dir,
        loggers=build_loggers(config.logging, read_metrics, on_warning),
        settings=flat_settings(config.to_dict()),
        tags=config.tags,
        start_step=start_step,
        on_warning=on_warning,
    )
    sources = build_sources(task, algorithm, device, mode)
    evaluator = build_evaluator(task)
    has_evaluation = sources.validation is not None or evaluator is not None

    def say(text: str) -> None:  # the session is created after the engine
        session.say(text)

    session = Session(
        algorithm=algorithm,
        engine=Engine(
            algorithm,
            sources.sampler,
            seed=derive_seed(config.seed, Stream.SAMPLING),
            device=device,
            mode=mode,
            say=say,
            warn=on_warning,
        ),
        policy=Policy(algorithm, task.spec, device),
        checkpoints=CheckpointWriter(run_dir, keep=parts.controls.keep_checkpoints),
        logger=logger,
        schedule=parts.controls.schedule(config.last_step),
        settings=LoopSettings(
            total_timesteps=config.last_step,
            log_interval=config.log_interval,
            checkpoint_interval=config.checkpoint_interval,
            eval_interval=parts.controls.eval_interval if has_evaluation else 0,
            eval_episodes=config.eval_episodes,
            has_evaluation=has_evaluation,
            eager_checks=device.type == "cpu",
            first_step=config.first_step,
            online_from=config.online_from if sources.collector else config.last_step,
            compare_returns=config.finetunes and evaluator is not None,
        ),
        manifest=describe_run(task, device),
        collector=sources.collector,
        evaluator=evaluator,
        validation=sources.validation,
        callbacks=[*build_control_callbacks(parts.controls), *callbacks],
        film=Film(config.logging.videos, on_warning) if config.logging.videos else None,
    )
    return session


@dataclass(frozen=True)
class Sources:
    """The data sources of a run: the sampler, the collector and the held-out rows."""

    sampler: Sampler
    collector: Collector | None = None
    validation: Validation | None = None


def build_sources(
    task: Task, algorithm: Algorithm, device: torch.device, mode: EngineMode
) -> Sources:
    """Build the sampler for a dataset, for a replay with its collector, or for both."""
    config, data = task.config, task.data
    validation = build_validation(data, config.seed) if data else None
    needed = config.replay_class.needed_fields if config.mode != "offline" else ()
    if task.spec.action_masks:
        needed = (*needed, *algorithm.mask_fields)
    recorded: Sampler | None = None
    if data is not None:
        with report_out_of_memory(f"{data.record['source']}: the dataset", device):
            recorded = prepare_sampler(config, data, algorithm, device)
            supply_fields(algorithm, recorded, data.held_out, needed=needed)
        if config.mode == "offline":
            return Sources(recorded, validation=validation)
    buffer = build_replay(config, task.spec, device, task.env)
    supply_fields(algorithm, buffer, needed=needed)
    collector = build_collector(task, algorithm, buffer, mode)
    if config.mode == "online":
        return Sources(normalized(buffer, algorithm), collector)
    if recorded is None:
        recorded = TransitionDataset(buffer.rows[:0], buffer.layout)
    return Sources(mix(config, recorded, buffer, algorithm), collector, validation)


def build_validation(data: RunData, seed: int) -> Validation | None:
    """Build the evaluation on held-out rows; None if there are none."""
    if data.held_out is None:
        return None
    return Validation(data.held_out, seed=derive_seed(seed, Stream.VALIDATION, 1))


def build_evaluator(task: Task) -> Evaluator | None:
    """Build the evaluator; None without an environment or evaluation episodes."""
    if task.evaluation is None:
        return None
    config, chosen = task.config, task.evaluation
    seed = derive_seed(config.seed, Stream.EVALUATION)
    return Evaluator(
        chosen.env,
        chosen.kwargs,
        seed=seed,
        action_masks=task.spec.action_masks,
        render=config.logging.videos > 0,
    )


def build_collector(
    task: Task, algorithm: Algorithm, buffer: ReplayBuffer, mode: EngineMode
) -> Collector:
    """Build the collector, with its environments at the start of their first episodes."""
    config = task.config
    assert task.env is not None
    seed = derive_seed(config.seed, Stream.EXPLORATION)
    # Not the device of the replay, which stays in host memory if it has goals.
    generator = torch.Generator(algorithm.obs_shift.device).manual_seed(seed)
    explorer = GraphedExplorer if mode == "cuda_graph" else Explorer
    collector = Collector(
        make_training_envs(
            task.env,
            config.parts.training_env,
            config.num_envs,
            action_masks=task.spec.action_masks,
        ),
        explorer(algorithm, config.num_envs, generator),
        buffer,
        task.spec,
        seed=config.seed,
        observer=build_observer(config, algorithm),
    )
    try:
        collector.reset()
    except Exception:
        collector.close()
        raise
    return collector


def build_observer(config: TrainConfig, algorithm: Algorithm) -> Observer | None:
    """Build the observer that updates running statistics; None if the learner has none."""
    if not algorithm.has_running_statistics:
        return None
    return Observer(algorithm, config.num_envs, gamma=discount(algorithm))


def engine_mode(config: TrainConfig, device: torch.device, saved: str | None) -> EngineMode:
    """Choose the engine mode of a run; also sets the precision of matrix products on a GPU."""
    parts = config.parts
    wanted = parts.controls.engine
    if device.type == "cuda":
        torch.set_float32_matmul_precision(parts.controls.matmul_precision)
    if wanted == "auto" and device.type != "mps" and saved in get_args(EngineMode):
        fits = saved != "cuda_graph" or device.type == "cuda"
        wanted = cast("EngineMode", saved) if fits else "compiled"
    planned = config.budget
    if isinstance(parts.algorithm, CollectionConfig):
        planned = updates_due(config.budget, 0, parts.algorithm)
    if isinstance(parts.algorithm, MixingConfig):
        planned += parts.algorithm.offline_pretrain_updates
    return choose_engine(wanted, device.type, planned)


def build_replay(
    config: TrainConfig, spec: EnvSpec, device: torch.device, env: str | GivenEnv | None = None
) -> ReplayBuffer:
    """Build the replay that the config or the learner specifies.

    ``env`` is the run's environment, which relabels goals; by default, the one of the config.
    """
    settings, task_env = config.parts.algorithm, env or config.env_id
    assert isinstance(settings, CollectionConfig)
    assert task_env is not None
    before_collection = config.online_from - config.first_step
    horizon = config.parts.controls.schedule_horizon or before_collection + config.budget
    plan = ReplayPlan(
        settings.buffer_capacity,
        spec,
        num_envs=config.num_envs,
        horizon=max(1, horizon - before_collection),
        device=device,
        read_goal_task=lambda: read_goal_task(task_env, config.parts.training_env),
    )
    with report_out_of_memory(f"buffer_capacity = {settings.buffer_capacity}: the replay", device):
        return config.replay_class.build(plan, **settings.replay_options())


def build_algorithm(config: TrainConfig, spec: EnvSpec, device: torch.device) -> Algorithm:
    """Build the learner with its initial weights."""
    learner, settings = config.learner_class, config.parts.algorithm
    seed = derive_seed(config.seed, Stream.NETWORKS)
    sizes = f"hidden_sizes = {shown([*settings.hidden_sizes])}"
    with report_out_of_memory(f"{sizes}: the learner", device):
        algorithm = learner.build(spec, settings, seed=seed)
        wide = any(tensor.dtype == torch.float64 for tensor in algorithm.buffers())
        if wide and widest_float(device) != torch.float64:
            raise ConfigError(
                f"device = {str(device)!r} does not support float64, which normalize_observations "
                "and normalize_rewards require: use device='cpu', or leave them out."
            )
        return algorithm.to(device)


def describe_run(task: Task, device: torch.device) -> dict[str, Any]:
    """Return the description of a run for the manifest; equal runs have equal descriptions."""
    config, spec = task.config, task.spec
    kept = {key: value for key, value in config.to_dict().items() if key != "output_dir"}
    return {
        "algorithm": config.algo,
        "config": kept,
        "env_spec": spec.to_dict(),
        **({"environment": task.env_record.to_dict()} if task.env_record else {}),
        **({"dataset": task.data.record} if task.data else {}),
        "device": device.type,
        "num_threads": torch.get_num_threads(),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Return the versions of the packages that affect the results of a run."""
    found = {
        "rl_training": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "gymnasium": gymnasium.__version__,
    }
    for package in ("mujoco", "gymnasium_robotics"):
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)  # without importing the package
    return found

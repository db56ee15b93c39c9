"""From a config to the parts of a session."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast, get_args

import gymnasium
import numpy as np
import torch

from rl_training.algorithms.base import Algorithm
from rl_training.algorithms.config import OffPolicyConfig
from rl_training.algorithms.her import HindsightConfig
from rl_training.algorithms.registry import HindsightEntry, get_algorithm
from rl_training.data import HindsightReplay, ReplayBuffer
from rl_training.envs import (
    EnvConfig,
    WrappersConfig,
    describe_env,
    make_training_envs,
    read_goal_task,
)
from rl_training.errors import CheckpointError, ConfigError
from rl_training.experiment.config import TrainConfig, make_config, split
from rl_training.runtime.acting import Explorer, GraphedExplorer
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.checkpointing import (
    MANIFEST,
    MODEL,
    Checkpoint,
    CheckpointWriter,
    load_tensors,
)
from rl_training.runtime.collector import Collector
from rl_training.runtime.controls import build_control_callbacks
from rl_training.runtime.engine import Engine
from rl_training.runtime.engine_choice import EngineMode, choose_engine
from rl_training.runtime.evaluation import Evaluator, Policy
from rl_training.runtime.logging import MetricsLogger
from rl_training.runtime.loops import updates_due
from rl_training.runtime.seeding import Stream, derive_seed
from rl_training.runtime.trainer import LoopSettings, Session
from rl_training.types import EnvSpec
from rl_training.version import __version__

MAX_THREADS = 4
"""More threads than this do not help products of 256 rows; they only wait for each other."""


def choose_device(name: str) -> torch.device:
    """The device by its name; `auto` is the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device = {name!r}: use auto, cpu, cuda or cuda:N.") from None
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device = {name!r}: use auto, cpu, cuda or cuda:N.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"device = {name!r} is not there: this machine has {torch.cuda.device_count()} CUDA "
            "devices; use device=auto or device=cpu."
        )
    return device


def choose_threads(requested: int | None) -> int:
    """Threads for products on the CPU: as asked, or the cores this process may use, to a limit."""
    if requested is not None:
        return requested
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(MAX_THREADS, cores or 1)


def keep_freed_memory() -> None:
    """Let glibc keep what tensors free, on Linux.

    By default it hands half-megabyte blocks back to the system, and every update asks for them
    again, page by page (docs/decisions/0005-one-node-per-network.md).
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        for option, value in ((-3, 1 << 30), (-1, 2**31 - 1), (-2, 64 << 20)):
            libc.mallopt(option, value)  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_TOP_PAD


def check_config(config: TrainConfig) -> EnvSpec:
    """All that can be wrong with a config and shows before anything is written."""
    device = choose_device(config.device)
    parts = split(config)
    if parts.controls.engine == "cuda_graph" and device.type != "cuda":
        raise ConfigError("engine = cuda_graph needs a CUDA device: use engine=auto or compiled.")
    spec = describe_env(config.env_id, parts.env)
    entry = get_algorithm(config.algo)
    if entry.goals != (spec.goal_dim > 0):
        raise ConfigError(_wrong_observations(config, spec))
    entry.learner_class(config.algo_kwargs).check_spec(spec)
    if entry.goals:
        read_goal_task(config.env_id, parts.env)
    if parts.data.dataset_kind is not None and entry.mode == "online":
        raise ConfigError(f"{config.algo} learns online: it takes no dataset_kind.")
    training_envs(config)
    capacity = getattr(parts.algorithm, "buffer_capacity", config.num_envs)
    if capacity < config.num_envs:
        raise ConfigError(
            f"buffer_capacity = {capacity}: it must hold at least one transition of each of the "
            f"{config.num_envs} environments."
        )
    return spec


def _wrong_observations(config: TrainConfig, spec: EnvSpec) -> str:
    if spec.goal_dim:
        base = f" with base_algo: {config.algo}" if config.algo in HindsightEntry.bases() else ""
        return (
            f"{config.env_id} has the observation space Dict(achieved_goal, desired_goal, "
            f"observation), which {config.algo} does not take: use algo: her{base}."
        )
    return (
        f"{config.env_id} has the observation space Box({spec.obs_dim}), but {config.algo} needs "
        "a Dict of observation, achieved_goal and desired_goal, each a flat Box: use algo: "
        f"{config.algo_kwargs.get('base_algo', 'sac')} on this environment."
    )


def training_envs(config: TrainConfig) -> EnvConfig:
    """The training environments' settings, with the rewards that the learner shall see.

    `env_kwargs.wrappers.reward` and the `reward_*` keys say the same thing; both may be given where
    they agree.
    """
    parts = split(config)
    wrapped, keyed = parts.env.wrappers.reward, parts.data.rewards()
    if not wrapped.is_identity and not keyed.is_identity and wrapped != keyed:
        raise ConfigError(
            f"env_kwargs.wrappers.reward ({wrapped}) and the reward_* keys ({keyed}) differ: "
            "give one of them."
        )
    reward = keyed if wrapped.is_identity else wrapped
    return parts.env.model_copy(update={"wrappers": WrappersConfig(reward=reward)})


def build_session(
    config: TrainConfig,
    spec: EnvSpec,
    run_dir: Path,
    *,
    callbacks: Sequence[Callback] = (),
    start_step: int = 0,
    saved_engine: str | None = None,
) -> Session:
    """Put a run's parts together; the environments begin their first episodes.

    A continued run keeps the engine of its checkpoint, ``saved_engine``, unless another is asked
    for: a longer budget must not change the last bits.
    """
    parts = split(config)
    assert isinstance(parts.algorithm, OffPolicyConfig)
    device = choose_device(config.device)
    torch.set_num_threads(choose_threads(parts.controls.num_threads))
    keep_freed_memory()
    mode = engine_mode(config, device, saved_engine)
    algorithm = build_algorithm(config, spec, device)
    with saying_what_fills_memory(parts.algorithm.buffer_capacity, device):
        buffer = build_replay(config, spec, device)
    exploration = torch.Generator(device).manual_seed(derive_seed(config.seed, Stream.EXPLORATION))
    explorer = GraphedExplorer if mode == "cuda_graph" else Explorer
    collector = Collector(
        make_training_envs(config.env_id, training_envs(config), config.num_envs),
        explorer(algorithm, config.num_envs, exploration),
        buffer,
        spec,
        seed=config.seed,
    )
    try:
        collector.reset()
        logger = MetricsLogger(
            run_dir, tensorboard=parts.controls.tensorboard, start_step=start_step
        )
    except Exception:  # worker processes must not wait for a trainer that never comes
        collector.close()
        raise
    session = Session(
        algorithm=algorithm,
        engine=Engine(
            algorithm,
            buffer,
            seed=derive_seed(config.seed, Stream.SAMPLING),
            device=device,
            mode=mode,
        ),
        collector=collector,
        storage=buffer,
        evaluator=Evaluator(
            config.env_id,
            parts.env.make_kwargs,
            seed=derive_seed(config.seed, Stream.EVALUATION),
        ),
        policy=Policy(algorithm, spec, device),
        checkpoints=CheckpointWriter(run_dir, keep=parts.controls.keep_checkpoints),
        logger=logger,
        schedule=parts.controls.schedule(config.total_timesteps),
        settings=LoopSettings(
            total_timesteps=config.total_timesteps,
            log_interval=config.log_interval,
            checkpoint_interval=config.checkpoint_interval,
            eval_interval=parts.controls.eval_interval if config.eval_episodes else 0,
            eval_episodes=config.eval_episodes,
            eager_checks=device.type == "cpu",
        ),
        manifest=describe_run(config, spec, device),
        callbacks=[*build_control_callbacks(parts.controls), *callbacks],
    )
    session.engine.say = session.say
    return session


def engine_mode(config: TrainConfig, device: torch.device, saved: str | None) -> EngineMode:
    """How this run updates; products on a GPU are set to the precision that goes with it."""
    parts = split(config)
    assert isinstance(parts.algorithm, OffPolicyConfig)
    wanted = parts.controls.engine
    if device.type == "cuda":
        torch.set_float32_matmul_precision(parts.controls.matmul_precision)
    if wanted == "auto" and saved in get_args(EngineMode):
        fits = saved != "cuda_graph" or device.type == "cuda"
        wanted = cast("EngineMode", saved) if fits else "compiled"
    planned = updates_due(config.total_timesteps, 0, parts.algorithm)
    return choose_engine(wanted, device.type, planned)


@contextmanager
def saying_what_fills_memory(rows: int, device: torch.device) -> Iterator[None]:
    """One sentence in place of an allocator's report."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise ConfigError(
            f"buffer_capacity = {rows}: the replay does not fit into the memory of {device}; "
            "make it smaller or use device=cpu."
        ) from None


def build_replay(config: TrainConfig, spec: EnvSpec, device: torch.device) -> ReplayBuffer:
    """The replay of online experience, with hindsight where the config asks for it."""
    settings = split(config).algorithm
    assert isinstance(settings, OffPolicyConfig)
    sizes = settings.buffer_capacity, spec.obs_dim, spec.action_width
    if not isinstance(settings, HindsightConfig):
        return ReplayBuffer(*sizes, device=device)
    return HindsightReplay(
        *sizes,
        goal_dim=spec.goal_dim,
        num_envs=config.num_envs,
        task=read_goal_task(config.env_id, training_envs(config)),
        strategy=settings.her_strategy,
        ratio=settings.her_ratio,
        device=device,
    )


def build_algorithm(config: TrainConfig, spec: EnvSpec, device: torch.device) -> Algorithm:
    """The learner with its first weights."""
    learner = get_algorithm(config.algo).learner_class(config.algo_kwargs)
    seed = derive_seed(config.seed, Stream.NETWORKS)
    return learner.build(spec, split(config).algorithm, seed=seed).to(device)


def describe_run(config: TrainConfig, spec: EnvSpec, device: torch.device) -> dict[str, Any]:
    """What a manifest says besides its files: nothing that differs between equal runs."""
    kept = {key: value for key, value in config.to_dict().items() if key != "output_dir"}
    return {
        "algorithm": config.algo,
        "config": kept,
        "env_spec": spec.to_dict(),
        "device": device.type,
        "num_threads": torch.get_num_threads(),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """The versions that decide a run's numbers."""
    return {
        "rl_training": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "gymnasium": gymnasium.__version__,
    } | {
        name: metadata.version(name) for name in ("mujoco", "gymnasium_robotics") if find_spec(name)
    }


def checkpoint_config(checkpoint: Checkpoint, output_dir: str = "runs") -> TrainConfig:
    """The config inside a checkpoint."""
    return make_config(checkpoint.manifest["config"] | {"output_dir": output_dir})


def saved_spec(checkpoint: Checkpoint) -> EnvSpec:
    """The environment that a checkpoint was trained on, as its manifest describes it."""
    try:
        spec = EnvSpec.from_dict(checkpoint.manifest["env_spec"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CheckpointError(f"{checkpoint.path / MANIFEST} has no environment: {error}") from None
    bounds = (*spec.action_low, *spec.action_high)
    # Every observation entry and action has weights: sizes beyond the file's are made up.
    most = checkpoint.manifest["files"][MODEL]["bytes"]
    if (
        not (0 < spec.obs_dim <= most and 0 < spec.action_dim <= most)
        or not 0 <= spec.goal_dim < spec.obs_dim
        or len(bounds) != (0 if spec.discrete else 2 * spec.action_dim)
        or not np.isfinite(bounds).all()
        or not -(2**53) < spec.action_start < 2**53
    ):
        raise CheckpointError(f"{checkpoint.path / MANIFEST} describes an impossible environment")
    return spec


def load_policy(checkpoint: Checkpoint, device: str = "cpu") -> Policy:
    """A checkpoint's policy, for evaluation and prediction."""
    spec = saved_spec(checkpoint)
    where = choose_device(device)
    algorithm = build_algorithm(checkpoint_config(checkpoint), spec, where)
    load_tensors(algorithm, checkpoint, MODEL)
    return Policy(algorithm, spec, where)

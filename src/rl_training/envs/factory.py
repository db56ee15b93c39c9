"""Create training and evaluation environments from `env_id`, `env_kwargs` and `num_envs`."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from pydantic import ConfigDict

from rl_training.boundary.terminal import open_standard_streams
from rl_training.config_model import ConfigModel
from rl_training.envs.actions import inner_bounds
from rl_training.envs.checking import check_episode, check_spaces, describe_running
from rl_training.envs.contract import AnyEnv
from rl_training.envs.goals import FlatGoals, GoalTask, flatten_goals
from rl_training.envs.guard import FAILURES, GuardedEnv, Isolation
from rl_training.envs.resolving import ResolvedEnv, resolve_env
from rl_training.envs.reward_wrappers import OwnReturnWrapper, apply_reward_wrappers
from rl_training.envs.state import CapturableEnv
from rl_training.envs.vector import LocalEnvs, WorkerEnvs
from rl_training.errors import ConfigError, EnvError
from rl_training.rewards import RewardTransformConfig
from rl_training.text import error_text, one_line, shown
from rl_training.types import EnvSpec

TrainingEnvs = LocalEnvs | WorkerEnvs


class WrappersConfig(ConfigModel):
    """Keys of `env_kwargs.wrappers`."""

    reward: RewardTransformConfig = RewardTransformConfig()
    """Scale, shift and clip of rewards."""


class EnvConfig(ConfigModel):
    """Keys of `env_kwargs`: those below, and any argument of `gymnasium.make`."""

    model_config = ConfigDict(extra="allow")

    vectorization: Literal["sync", "async"] = "sync"
    """Step several environments in turn, or each in a separate process."""
    wrappers: WrappersConfig = WrappersConfig()
    """Wrappers of the training environments."""

    @property
    def make_kwargs(self) -> dict[str, Any]:
        """Arguments for `gymnasium.make`."""
        return dict(self.model_extra or {})


def make_env(
    env_id: str, kwargs: Mapping[str, Any] | None = None, *, render: bool = False
) -> GuardedEnv:
    """Create one environment.

    A goal environment returns flat observations, ``[observation, desired_goal]``.
    """
    options = dict(kwargs or {})
    if render:
        options["render_mode"] = "rgb_array"
    isolation = Isolation()
    env = _construct(resolve_env(env_id, options), isolation)
    return GuardedEnv(flatten_goals(env), env_id, isolation)


def _construct(resolved: ResolvedEnv, isolation: Isolation) -> AnyEnv:
    """Create the environment; any exception of its constructor becomes a ConfigError."""
    env_id, options = resolved.spec.id, resolved.kwargs
    try:
        env = isolation.run(resolved.make)
    except (gym.error.DependencyNotInstalled, ImportError) as error:
        raise ConfigError(_missing_package(resolved, error)) from error
    except (TypeError, ValueError, gym.error.Error) as error:
        raise ConfigError(
            f"{env_id} could not be created with env_kwargs {shown(options)}: "
            f"{one_line(str(error))}"
        ) from error
    except FAILURES as error:
        raise ConfigError(
            f"{env_id}: the constructor failed with {error_text(error)}; fix the environment or "
            f"env_kwargs {shown(options)}."
        ) from error
    _check_render_mode(env, env_id, options.get("render_mode"))
    check_spaces(env, env_id)
    return env


_PACKAGES = {
    "gymnasium.envs.box2d": ("Box2D", 'pip install swig, then pip install "gymnasium[box2d]"'),
    "gymnasium.envs.mujoco": ("MuJoCo", "pip install 'rl-training[mujoco]'"),
    "gymnasium.envs.phys2d": ("JAX", 'pip install "gymnasium[jax]"'),
    "gymnasium.envs.tabular": ("JAX", 'pip install "gymnasium[jax]"'),
    "ale_py": ("ale-py", 'pip install "gymnasium[atari]"'),
}
"""Optional packages of environments and how to install them, by the prefix of the entry point."""

_OLD_MUJOCO = "mujoco v2 and v3"


def _missing_package(resolved: ResolvedEnv, error: Exception) -> str:
    """Return the error for an environment whose package is missing, with the install command."""
    env_id, message = resolved.spec.id, one_line(str(error))
    if _OLD_MUJOCO in message:
        name = env_id.rpartition("-v")[0]
        return f"Gymnasium does not include {env_id}: use {name}-v5 instead."
    for module, (package, install) in _PACKAGES.items():
        if str(resolved.spec.entry_point).startswith(module):
            return f"{env_id} needs {package}, which could not be imported. Install it: {install}"
    return f"{env_id} needs a package that could not be imported: {message}"


def _check_render_mode(env: AnyEnv, env_id: str, mode: Any) -> None:
    """Reject a render mode that neither the environment nor Gymnasium's wrappers offer."""
    declared = (env.unwrapped.metadata or {}).get("render_modes") or []
    offered = [*declared, *(f"{name}_list" for name in declared if not name.endswith("_list"))]
    if {"rgb_array", "rgb_array_list"} & set(declared):
        offered.append("human")
    if mode is None or mode in offered:
        return
    allowed = ", ".join(dict.fromkeys(offered)) or "none"
    raise ConfigError(
        f"env_kwargs.render_mode = {shown(mode)}: the render modes of {env_id} are: {allowed}. "
        "Training does not need one, so you can remove the key."
    )


def read_env_spec(env: AnyEnv, env_id: str) -> EnvSpec:
    """Return the sizes and bounds of an environment; reject unsupported spaces."""
    obs_space, action_space = env.observation_space, env.action_space
    if not isinstance(obs_space, gym.spaces.Box):
        raise ConfigError(_wrong_observations(obs_space, env_id))
    if len(obs_space.shape) != 1:
        raise ConfigError(_not_flat(obs_space, env_id))
    obs_dim = int(obs_space.shape[0])
    inner = env.env if isinstance(env, GuardedEnv) else env
    goal_dim = inner.goal_dim if isinstance(inner, FlatGoals) else 0
    if obs_dim == goal_dim:  # there are no values other than the goal
        raise ConfigError(
            f"{env_id} has observations of length 0, but at least one value is needed: return a "
            "constant if there is nothing to observe."
        )
    if isinstance(action_space, gym.spaces.Discrete):
        size, start = int(action_space.n), int(action_space.start)
        return EnvSpec(obs_dim, size, discrete=True, action_start=start, goal_dim=goal_dim)
    if not isinstance(action_space, gym.spaces.Box) or len(action_space.shape) != 1:
        raise ConfigError(
            f"{env_id} has the action space {_name(action_space)}, but a flat bounded Box or a "
            "Discrete space is needed: convert it with a gymnasium.ActionWrapper."
        )
    _check_actions(action_space, env_id)
    return EnvSpec(
        obs_dim,
        int(action_space.shape[0]),
        tuple(action_space.low.tolist()),
        tuple(action_space.high.tolist()),
        goal_dim=goal_dim,
    )


_FLATTEN = (
    "wrap it with gymnasium.wrappers.FlattenObservation, register the wrapped environment in a "
    "module and import that module (rl-training --import MODULE …)"
)


def _not_flat(space: gym.spaces.Box, env_id: str) -> str:
    """Return the error for observations that are not one-dimensional arrays."""
    text = f"{env_id} has the observation space {_name(space)}"
    if len(space.shape) not in (2, 3) or space.dtype != np.uint8:
        return f"{text}, but one-dimensional observations are needed: {_FLATTEN}."
    text += (
        ", which looks like images. Images are not supported: use an environment with "
        "one-dimensional observations, or compute features in an ObservationWrapper"
    )
    if env_id.startswith("ALE/"):
        return f"{text}; for Atari, env_kwargs.obs_type=ram gives 128 values."
    return f"{text}. Small images can be flattened: {_FLATTEN}."


def _wrong_observations(space: gym.Space[Any], env_id: str) -> str:
    text = f"{env_id} has the observation space {_name(space)}, but "
    goals = (
        "observation, achieved_goal and desired_goal, where each is a flat Box and both goals have "
        "the same size"
    )
    if isinstance(space, gym.spaces.Dict) and "desired_goal" in space.spaces:
        return f"{text}a goal environment needs a Dict of {goals}."
    if not isinstance(space, gym.spaces.Dict):
        return f"{text}a flat Box is needed: {_FLATTEN}."
    return (
        f"{text}a flat Box is needed: {_FLATTEN}. For her, a goal environment needs a Dict of "
        f"{goals}."
    )


def _check_actions(space: gym.spaces.Box, env_id: str) -> None:
    """Reject an action space without a usable finite range in every entry."""
    if space.shape[0] == 0:
        raise ConfigError(f"{env_id} has actions of length 0, but at least one value is needed.")
    if space.dtype is None or space.dtype.kind != "f":
        raise ConfigError(
            f"{env_id} has integer actions {_name(space)}, but a Box of floats is needed: declare "
            "it with dtype=np.float32 and round in step, or use a Discrete space."
        )
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise ConfigError(
            f"{env_id} has unbounded actions {_name(space)}, but finite bounds are needed: declare "
            "them in the environment, or wrap it with gymnasium.wrappers.TransformAction(env, "
            "func, Box(-1, 1, shape))."
        )
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    first, last = inner_bounds(low, high)
    beyond = np.maximum(-low, high) > np.finfo(np.float32).max
    for wrong, advice in (
        (low >= high, "low must be below high: remove this entry from the Box"),
        (
            (first >= last) | beyond,
            "float32 cannot represent this range: rescale it to about [-1, 1]",
        ),
    ):
        if wrong.any():
            where = int(np.argmax(wrong))
            raise ConfigError(
                f"Action {where} of {env_id} has the bounds {space.low[where]} and "
                f"{space.high[where]}, but {advice}."
            )


def _name(space: gym.Space[Any]) -> str:
    text = repr(space)
    return text if len(text) <= 80 else f"{type(space).__name__}{space.shape or ''}"


def describe_env(env_id: str, config: EnvConfig) -> EnvSpec:
    """Create an environment, read its sizes and bounds, and close it."""
    with closing(make_env(env_id, config.make_kwargs)) as env:
        return read_env_spec(env, env_id)


def examine_env(
    env_id: str, config: EnvConfig, *, evaluated: bool = False
) -> tuple[EnvSpec, tuple[str, ...]]:
    """Check an environment with one reset and one step; return its sizes and notes for the user.

    ``evaluated`` is whether policies will be evaluated in it.
    """
    with closing(make_env(env_id, config.make_kwargs)) as env:
        spec = read_env_spec(env, env_id)
        notes = check_episode(env, env_id, spec)
        return spec, (*notes, *describe_running(env, env_id, evaluated=evaluated))


def read_goal_task(env_id: str, config: EnvConfig) -> GoalTask:
    """Return the rewards and terminations for other goals, as in the training environments."""
    return GoalTask(make_env(env_id, config.make_kwargs), env_id, config.wrappers.reward)


GRACE_SECONDS = 30
"""How long a worker process continues after SIGTERM, so that the trainer can save its state."""


def _make_worker(
    resolved: ResolvedEnv, rewards: RewardTransformConfig, index: int, name: str
) -> CapturableEnv:
    if multiprocessing.parent_process() is not None:
        open_standard_streams()  # a failed print in the environment must not end the worker
        # Ctrl-C and a scheduler's SIGTERM reach the whole process group, but only the trainer
        # decides when to stop. If it never does, its workers end after the grace period.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if hasattr(signal, "alarm"):  # not available on Windows
            signal.signal(signal.SIGTERM, lambda *_: signal.alarm(GRACE_SECONDS))
    isolation = Isolation()
    try:
        env = flatten_goals(_construct(resolved, isolation), achieved=True)
    except ConfigError as error:  # the config was valid before, so the environment is to blame
        raise EnvError(str(error)) from error
    if not rewards.is_identity:
        env = apply_reward_wrappers(OwnReturnWrapper(env), rewards)
    return CapturableEnv(env, index, name, isolation)


def make_training_envs(env_id: str, config: EnvConfig, num_envs: int) -> TrainingEnvs:
    """Create a vector environment with SAME_STEP resets, in this process or in worker processes."""
    names = [f"{env_id} (environment {index})" for index in range(num_envs)]
    names = names if num_envs > 1 else [env_id]
    # Resolved here, since a worker process does not know what is registered and trusted.
    resolved = resolve_env(env_id, config.make_kwargs)
    makers: list[Callable[[], AnyEnv]] = [
        partial(_make_worker, resolved, config.wrappers.reward, index, name)
        for index, name in enumerate(names)
    ]
    if config.vectorization == "sync":
        return LocalEnvs(makers)
    return WorkerEnvs(makers, names)

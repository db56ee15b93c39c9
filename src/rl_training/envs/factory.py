"""Create training and evaluation environments from an id or an object of the user."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper
from pydantic import ConfigDict, Field

from rl_training.config_model import ConfigModel
from rl_training.envs.actions import inner_bounds
from rl_training.envs.checking import check_episode, check_spaces, describe_running
from rl_training.envs.contract import SUCCESS_KEYS, AnyEnv, space_name
from rl_training.envs.given import (
    EnvLike,
    EnvMaker,
    EnvRecord,
    GivenEnv,
    GivenInstance,
    GivenVector,
    ObjectMaker,
    as_given,
    check_made,
    resolve,
)
from rl_training.envs.goals import FlatGoals, GoalTask, flatten_goals
from rl_training.envs.guard import FAILURES, GuardedEnv, Isolation
from rl_training.envs.observations import (
    MAX_STACK,
    FlatObservations,
    flatten_observations,
    read_entries,
    stack_frames,
    take_frame_stack,
)
from rl_training.envs.pool import PooledEnvs, WorkerPool
from rl_training.envs.resolving import ResolvedEnv, registered_time_limit
from rl_training.envs.reward_wrappers import OwnReturnWrapper, apply_reward_wrappers
from rl_training.envs.state import CapturableEnv
from rl_training.envs.vector import LocalEnvs
from rl_training.errors import ConfigError, EnvError
from rl_training.rewards import RewardTransformConfig
from rl_training.text import error_text, one_line, shown
from rl_training.types import EnvSpec

TrainingEnvs = LocalEnvs | PooledEnvs


class WrappersConfig(ConfigModel):
    """Keys of `env_kwargs.wrappers`."""

    reward: RewardTransformConfig = RewardTransformConfig()
    """Scale, shift and clip of rewards."""


class EnvConfig(ConfigModel):
    """Keys of `env_kwargs`: those below, and any argument of `gymnasium.make`."""

    model_config = ConfigDict(extra="allow")

    vectorization: Literal["sync", "async"] = "sync"
    """Step several environments in turn, or each in a separate process."""
    frame_stack: int = Field(default=1, ge=1, le=MAX_STACK)
    """Number of most recent images in an observation; each is stored once."""
    wrappers: WrappersConfig = WrappersConfig()
    """Wrappers of the training environments."""
    action_masks: bool = True
    """Choose legal actions only, if the environment returns them as `info["action_mask"]`."""

    @property
    def make_kwargs(self) -> dict[str, Any]:
        """Arguments for `make_env`: those of `gymnasium.make`, and `frame_stack` if it is set."""
        stack = {} if self.frame_stack == 1 else {"frame_stack": self.frame_stack}
        return {**(self.model_extra or {}), **stack}


def make_env(
    env: EnvLike, kwargs: Mapping[str, Any] | None = None, *, render: bool = False
) -> GuardedEnv:
    """Create one environment from an id, a class or a function, or use an instance.

    Its observations are flat (`rl_training.observations`). Those of a goal environment are
    ``[observation, desired_goal]``. Closing it leaves an instance of the user open.
    """
    given, isolation = as_given(env), Isolation()
    options, stack = take_frame_stack(kwargs or {})
    maker = resolve(given, options, render=render)
    made = _construct(maker, isolation)
    name = name_of(given, made)
    if render and made.render_mode != "rgb_array":
        raise ConfigError(
            f"{name} has render_mode = {shown(made.render_mode)}, but a video needs an environment "
            "that was created with render_mode='rgb_array'."
        )
    flat = flatten_observations(flatten_goals(stack_frames(made, stack, name)), name)
    return GuardedEnv(flat, name, isolation, keep_open=_is_lent(maker))


def name_of(env: str | GivenEnv, made: AnyEnv) -> str:
    """Return the name of an environment for messages: its id, or a description of an object."""
    return env.record(made).name if isinstance(env, GivenEnv) else env


def _is_lent(maker: EnvMaker) -> bool:
    return isinstance(maker, ObjectMaker) and maker.is_lender


def _first_of(env: str | GivenEnv) -> str | GivenEnv:
    """Return the first environment of a vector environment, and any other environment itself."""
    return env.each()[0] if isinstance(env, GivenVector) else env


def _construct(maker: EnvMaker, isolation: Isolation) -> AnyEnv:
    """Create the environment; any exception of its constructor becomes a ConfigError."""
    try:
        made = isolation.run(maker.make)
    except FAILURES as error:
        raise ConfigError(_creation_error(maker, error)) from error
    env = check_made(maker, made)
    _check_render_mode(env, maker.name, maker.kwargs.get("render_mode"))
    check_spaces(env, maker.name)
    return env


def _creation_error(maker: EnvMaker, error: BaseException) -> str:
    """Return the error for an environment whose constructor failed."""
    name, options = maker.name, shown(dict(maker.kwargs))
    if isinstance(error, gym.error.DependencyNotInstalled | ImportError):
        return _missing_package(maker, error)
    if isinstance(maker, ObjectMaker):
        return f"{name}() failed with {error_text(error)}; {maker.advice}."
    if isinstance(error, TypeError | ValueError | gym.error.Error):
        return f"{name} could not be created with env_kwargs {options}: {one_line(str(error))}"
    return (
        f"{name}: the constructor failed with {error_text(error)}; fix the environment or "
        f"env_kwargs {options}."
    )


_PACKAGES = {
    "gymnasium.envs.box2d": ("Box2D", 'pip install swig, then pip install "gymnasium[box2d]"'),
    "gymnasium.envs.mujoco": ("MuJoCo", "pip install 'rl-training[mujoco]'"),
    "gymnasium.envs.phys2d": ("JAX", 'pip install "gymnasium[jax]"'),
    "gymnasium.envs.tabular": ("JAX", 'pip install "gymnasium[jax]"'),
    "ale_py": ("ale-py", 'pip install "gymnasium[atari]"'),
}
"""Optional packages of environments and how to install them, by the prefix of the entry point."""

_OLD_MUJOCO = "mujoco v2 and v3"


def _missing_package(maker: EnvMaker, error: BaseException) -> str:
    """Return the error for an environment whose package is missing, with the install command."""
    env_id, message = maker.name, one_line(str(error))
    entry = str(maker.spec.entry_point) if isinstance(maker, ResolvedEnv) else ""
    if _OLD_MUJOCO in message:
        name = env_id.rpartition("-v")[0]
        return f"Gymnasium does not include {env_id}: use {name}-v5 instead."
    for module, (package, install) in _PACKAGES.items():
        if entry.startswith(module):
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
    inner = env.env if isinstance(env, GuardedEnv) else env
    obs_space, action_space = env.observation_space, env.action_space
    entries = read_entries(obs_space, env_id)
    if isinstance(inner, FlatObservations):
        entries = inner.entries
    obs_dim = gym.spaces.flatdim(obs_space)
    goal_dim = inner.goal_dim if isinstance(inner, FlatGoals) else 0
    if obs_dim == goal_dim:  # there are no values other than the goal
        raise ConfigError(
            f"{env_id} has observations of length 0, but at least one value is needed: return a "
            "constant if there is nothing to observe."
        )
    if isinstance(action_space, gym.spaces.Discrete):
        size, start = int(action_space.n), int(action_space.start)
        return EnvSpec(
            *(obs_dim, size),
            discrete=True,
            action_start=start,
            goal_dim=goal_dim,
            entries=entries,
        )
    if isinstance(action_space, gym.spaces.MultiDiscrete) and len(action_space.shape) == 1:
        return EnvSpec(
            obs_dim,
            int(action_space.nvec.sum()),
            discrete=True,
            goal_dim=goal_dim,
            entries=entries,
            action_choices=tuple(map(int, action_space.nvec)),
            action_starts=tuple(map(int, action_space.start)),
        )
    if not isinstance(action_space, gym.spaces.Box) or len(action_space.shape) != 1:
        raise ConfigError(
            f"{env_id} has the action space {space_name(action_space)}, but a flat bounded Box or "
            "a Discrete space is needed (or, for bc, a flat MultiDiscrete): convert it with a "
            "gymnasium.ActionWrapper."
        )
    _check_actions(action_space, env_id)
    return EnvSpec(
        obs_dim,
        int(action_space.shape[0]),
        tuple(action_space.low.tolist()),
        tuple(action_space.high.tolist()),
        goal_dim=goal_dim,
        entries=entries,
    )


def _check_actions(space: gym.spaces.Box, env_id: str) -> None:
    """Reject an action space without a usable finite range in every entry."""
    if space.shape[0] == 0:
        raise ConfigError(f"{env_id} has actions of length 0, but at least one value is needed.")
    if space.dtype is None or space.dtype.kind != "f":
        raise ConfigError(
            f"{env_id} has integer actions {space_name(space)}, but a Box of floats is needed: "
            "declare it with dtype=np.float32 and round in step, or use a Discrete space."
        )
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise ConfigError(
            f"{env_id} has unbounded actions {space_name(space)}, but finite bounds are needed: "
            "declare them in the environment, or wrap it with "
            "gymnasium.wrappers.TransformAction(env, func, Box(-1, 1, shape))."
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


def describe_env(env: EnvLike, config: EnvConfig) -> EnvSpec:
    """Create an environment, read its sizes and bounds, and close it."""
    with closing(make_env(env, config.make_kwargs)) as made:
        return read_env_spec(made, made.name)


def examine_env(
    env: EnvLike, config: EnvConfig, *, evaluated: bool = False
) -> tuple[EnvSpec, tuple[str, ...]]:
    """Check an environment with one reset and one step; return its sizes and notes for the user.

    ``evaluated`` is whether policies will be evaluated in it.
    """
    found = inspect_env(env, config, evaluated=evaluated)
    return found.spec, found.notes


class Inspection(NamedTuple):
    """Sizes of an environment, notes for the user, and a description if it is an object."""

    spec: EnvSpec
    notes: tuple[str, ...]
    record: EnvRecord | None


def inspect_env(env: EnvLike, config: EnvConfig, *, evaluated: bool = False) -> Inspection:
    """Check an environment like `examine_env`, and describe an object that the user passed."""
    given = as_given(env)
    with closing(make_env(_first_of(given), config.make_kwargs)) as made:
        spec = read_env_spec(made, made.name)
        checked = check_episode(made, made.name, spec, use_masks=config.action_masks)
        spec = replace(spec, action_masks=checked.action_masks)
        notes = (*checked.notes, *describe_running(made, made.name, evaluated=evaluated))
        record = given.record(own_env(made)) if isinstance(given, GivenEnv) else None
        return Inspection(spec, notes, record)


def own_env(made: GuardedEnv) -> AnyEnv:
    """Return the environment without the wrappers of this package."""
    env: AnyEnv = made.env
    while isinstance(env, FlatGoals | FlatObservations):
        env = env.env
    return env


def time_limit(env: EnvLike, kwargs: Mapping[str, Any]) -> int | None:
    """Return the time limit in steps: `max_episode_steps`, or the one of an object's wrappers."""
    given = as_given(env)
    if isinstance(given, str):
        return registered_time_limit(given, kwargs)
    with closing(make_env(_first_of(given), kwargs)) as made:
        return given.record(own_env(made)).time_limit


def read_goal_task(env: EnvLike, config: EnvConfig) -> GoalTask:
    """Return the rewards and terminations for other goals, as in the training environments."""
    made = make_env(_first_of(as_given(env)), config.make_kwargs)
    return GoalTask(made, made.name, config.wrappers.reward)


@dataclass(frozen=True)
class _TrainingMaker:
    """Makes one training environment, in this process or in a worker process."""

    maker: EnvMaker
    stack: int
    rewards: RewardTransformConfig
    index: int
    name: str
    action_masks: bool

    def __call__(self) -> CapturableEnv:
        isolation = Isolation()
        try:
            env = stack_frames(_construct(self.maker, isolation), self.stack, self.maker.name)
            env = flatten_observations(flatten_goals(env, achieved=True), self.maker.name)
        except ConfigError as error:  # the config was valid before, so the environment is to blame
            raise EnvError(str(error)) from error
        if not self.rewards.is_identity:
            env = apply_reward_wrappers(OwnReturnWrapper(env), self.rewards)
        return CapturableEnv(
            env,
            self.index,
            self.name,
            isolation,
            action_masks=self.action_masks,
            keep_open=_is_lent(self.maker),
        )


def make_training_envs(
    env: EnvLike, config: EnvConfig, num_envs: int, *, action_masks: bool = False
) -> TrainingEnvs:
    """Create a vector environment with SAME_STEP resets, in this process or in worker processes.

    With ``action_masks``, infos contain the legal actions, checked.
    """
    given = as_given(env)
    name = given.name if isinstance(given, GivenEnv) else given
    names = [f"{name} (environment {index})" for index in range(num_envs)]
    names = names if num_envs > 1 else [name]
    # Resolved here, since a worker process does not know what is registered and trusted.
    options, stack = take_frame_stack(config.make_kwargs)
    if isinstance(given, GivenVector):
        makers = [resolve(one, options) for one in given.each()]
    else:
        makers = [resolve(given, options)] * num_envs
    rewards = config.wrappers.reward
    made = [
        _TrainingMaker(maker, stack, rewards, index, name, action_masks)
        for index, (maker, name) in enumerate(zip(makers, names, strict=True))
    ]
    if config.vectorization == "sync":
        return LocalEnvs(made)
    if isinstance(given, GivenEnv):
        _check_sendable(given.name, made[0])
    own = WorkerPool(num_envs)
    try:
        return own.envs(made, names).own(own)
    except BaseException:
        own.close()
        raise


@dataclass(frozen=True)
class _EvaluationMaker:
    """Makes one environment like `make_env`, in a worker process."""

    maker: EnvMaker
    stack: int
    name: str

    def __call__(self) -> GuardedEnv:
        isolation = Isolation()
        env = stack_frames(_construct(self.maker, isolation), self.stack, self.name)
        return GuardedEnv(
            flatten_observations(flatten_goals(env), self.name),
            self.name,
            isolation,
            kept=SUCCESS_KEYS,
            keep_open=_is_lent(self.maker),
        )


def evaluation_maker(
    env: EnvLike, kwargs: Mapping[str, Any] | None = None
) -> Callable[[], GuardedEnv]:
    """Return a function that creates an evaluation environment, for a `WorkerPool`.

    Its infos contain only whether the episode succeeded.
    """
    given = as_given(env)
    options, stack = take_frame_stack(kwargs or {})
    maker = resolve(_first_of(given), options)
    made = _EvaluationMaker(maker, stack, maker.name)
    if isinstance(given, GivenEnv):
        _check_sendable(maker.name, made)
    return made


def check_num_envs(env: str | GivenEnv, config: EnvConfig, num_envs: int) -> None:
    """Reject a number of environments, or worker processes, that the object does not allow."""
    if isinstance(env, GivenVector):
        _check_vector(env, config, num_envs)
    if not isinstance(env, GivenInstance):
        return
    advice = f"pass a class or a function that makes it, such as lambda: {env.name}(…)"
    if num_envs > 1:
        raise ConfigError(
            f"num_envs = {num_envs}: {env.name} is a single environment; {advice}, instead."
        )
    if config.vectorization == "async":
        raise ConfigError(
            f"env_kwargs.vectorization = async: {env.name} is an environment of this process and "
            f"cannot run in another one; {advice}, instead."
        )


def _check_vector(env: GivenVector, config: EnvConfig, num_envs: int) -> None:
    if num_envs != env.env.num_envs:
        raise ConfigError(
            f"num_envs = {num_envs}: the vector environment has {env.env.num_envs} environments, "
            "but should have the same number."
        )
    if config.vectorization == "async" and not env.uses_processes:
        raise ConfigError(
            "env_kwargs.vectorization = async: the environments of a SyncVectorEnv run in this "
            "process; pass an AsyncVectorEnv, or a class or a function that makes one "
            "environment, instead."
        )


def _check_sendable(name: str, maker: Callable[[], AnyEnv]) -> None:
    """Reject a function that cannot be sent to a worker process."""
    try:
        CloudpickleWrapper(maker).__getstate__()
    except Exception as error:  # an object of the user may raise anything
        raise ConfigError(
            f"{name} cannot be sent to a worker process ({error_text(error)}): create what it "
            "needs inside the function, or use env_kwargs.vectorization=sync."
        ) from error

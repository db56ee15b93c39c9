"""The environments of a run: from the config, or passed as objects in Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from rl_training.envs import EnvConfig, EnvLike, describe_env, name_env
from rl_training.envs.factory import inspect_env
from rl_training.envs.given import (
    EnvRecord,
    GivenEnv,
    GivenFunction,
    GivenInstance,
    GivenVector,
    as_given,
)
from rl_training.envs.resolving import is_object_label, object_label
from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig
from rl_training.text import shown
from rl_training.types import EnvSpec


class EvaluationEnv(NamedTuple):
    """An environment to evaluate in, and the arguments to create it."""

    env: str | GivenEnv
    kwargs: Mapping[str, Any]


@dataclass(frozen=True)
class PassedEnvs:
    """Environments that were passed as arguments in Python; None where the config decides."""

    env: str | GivenEnv | None = None
    eval_env: str | GivenEnv | None = None

    @classmethod
    def of(cls, env: EnvLike | None = None, eval_env: EnvLike | None = None) -> PassedEnvs:
        """Check the arguments `env` and `eval_env` of a function."""
        given = None if env is None else as_given(env)
        other = None if eval_env is None else as_given(eval_env, "eval_env")
        if isinstance(other, GivenVector):
            raise ConfigError(
                "eval_env is a vector environment, but evaluation plays one episode at a time: "
                "pass an environment, a class or a function."
            )
        pair = [
            passed.env.unwrapped for passed in (given, other) if isinstance(passed, GivenInstance)
        ]
        if len(pair) == 2 and pair[0] is pair[1]:
            raise ConfigError(
                "eval_env is the training environment, whose episodes an evaluation would "
                "disturb: pass another instance, a class or a function."
            )
        return cls(given, other)

    def training_env(self, config: TrainConfig) -> str | GivenEnv | None:
        """Return the environment of a run; None if it has none."""
        if isinstance(self.env, GivenFunction):
            # `env_kwargs` of a registered id describe how Gymnasium made the environment.
            named = is_object_label(config.env_id)
            return replace(self.env, env_id=config.env_id, takes_kwargs=named)
        return self.env if isinstance(self.env, GivenEnv) else config.env_id


def with_env(data: Mapping[str, Any], env: str | GivenEnv) -> dict[str, Any]:
    """Return the mapping of a config with the environment that was passed instead of its own."""
    if isinstance(env, str):
        return {**data, "env_id": env}
    if isinstance(env, GivenVector):
        number, wanted = env.env.num_envs, data.get("num_envs", 1)
        if wanted not in (1, number):
            raise ConfigError(
                f"num_envs = {shown(wanted)}: the vector environment has {number} environments, so "
                "leave it out."
            )
        data = {**data, "num_envs": number}
    if env.belongs_to_user:
        check_no_arguments(env, data.get("env_kwargs"))
    if isinstance(env, GivenVector) and env.uses_processes:
        data = {**data, "env_kwargs": {**(data.get("env_kwargs") or {}), "vectorization": "async"}}
    return {**data, "env_id": env.label}


def check_no_arguments(env: GivenEnv, kwargs: Any) -> None:
    """Reject `env_kwargs` for an environment that is already created."""
    for key, value in kwargs.items() if isinstance(kwargs, Mapping) else ():
        if key not in EnvConfig.model_fields:
            raise ConfigError(
                f"env_kwargs.{key} = {shown(value)}: {env.name} is already created, so set it "
                "where you create the environment."
            )


def with_record(config: TrainConfig, record: EnvRecord | None) -> TrainConfig:
    """Return a config that describes an environment that was passed as an object.

    If Gymnasium can make an equal environment, the config gets its id and arguments, so that the
    run does not need the object again.
    """
    if record is None:
        return config
    own_arguments = is_object_label(config.env_id) and config.parts.env.make_kwargs
    if record.registration is None or own_arguments:
        return config.model_copy(update={"env_id": object_label(record.name)})
    env_id, arguments = record.registration
    name_env(env_id, arguments)
    settings = {k: v for k, v in config.env_kwargs.items() if k in EnvConfig.model_fields}
    return config.model_copy(update={"env_id": env_id, "env_kwargs": settings | arguments})


# --- Evaluation ----------------------------------------------------------------------


@dataclass(frozen=True)
class Evaluation:
    """Where a run evaluates, or why it does not."""

    env: EvaluationEnv | None = None
    notes: tuple[str, ...] = ()
    """Notes about an environment that was passed for evaluation."""
    skipped: str | None = None
    """Warning that there is no environment to evaluate in."""


def choose_evaluation(
    config: TrainConfig, passed: PassedEnvs, env: str | GivenEnv | None, spec: EnvSpec
) -> Evaluation:
    """Choose the environment of evaluations: the one that was passed, or a new one like ``env``.

    The training environment itself is never used, since its episodes continue after evaluations.
    """
    if config.eval_episodes == 0:
        return Evaluation()
    if passed.eval_env is not None:
        return _passed_evaluation(passed.eval_env, spec)
    if env is None:
        return Evaluation()
    arguments = config.parts.env.make_kwargs
    if not isinstance(env, GivenEnv) or config.mode == "offline":
        return Evaluation(EvaluationEnv(env, arguments))
    found = _another(env, arguments, spec)
    if isinstance(found, EvaluationEnv):
        return Evaluation(found)
    return Evaluation(
        skipped=f"evaluation is skipped, because {env.name} {found}. Pass eval_env=… (an "
        "environment, a class or a function), or set eval_episodes=0."
    )


def _passed_evaluation(env: str | GivenEnv, spec: EnvSpec) -> Evaluation:
    if isinstance(env, str):
        name_env(env)
    found = inspect_env(env, EnvConfig(action_masks=spec.action_masks), evaluated=True)
    if found.spec != spec:
        raise ConfigError(
            f"eval_env has {found.spec}, but the training environment has {spec}: they should have "
            "the same spaces."
        )
    return Evaluation(EvaluationEnv(env, {}), found.notes)


def _another(env: GivenEnv, arguments: Mapping[str, Any], spec: EnvSpec) -> EvaluationEnv | str:
    """Return how to make another environment like ``env``, or in words why that is impossible."""
    other = env.another()
    if other is None:
        return "was not created by gymnasium.make"
    if other is env:  # the check of the run has already made one
        return EvaluationEnv(env, arguments)
    try:
        found = describe_env(other, EnvConfig())
    except ConfigError as error:
        return f"cannot be created again ({str(error).rstrip('.')})"
    if replace(found, action_masks=spec.action_masks) != spec:
        return f"has {spec}, but created again by gymnasium.make it has {found}"
    return EvaluationEnv(other, {})

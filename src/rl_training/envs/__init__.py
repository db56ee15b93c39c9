"""Environments: making them, scaling their actions, saving their running state."""

from rl_training.envs.actions import ActionScaler
from rl_training.envs.factory import (
    EnvConfig,
    TrainingEnvs,
    describe_env,
    find_spec,
    make_env,
    make_training_envs,
    read_env_spec,
)
from rl_training.envs.state import CapturableEnv, CaptureError, capture_env, restore_env

__all__ = [
    "ActionScaler",
    "CapturableEnv",
    "CaptureError",
    "EnvConfig",
    "TrainingEnvs",
    "capture_env",
    "describe_env",
    "find_spec",
    "make_env",
    "make_training_envs",
    "read_env_spec",
    "restore_env",
]

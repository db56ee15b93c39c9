"""Environments: making them, scaling their actions, saving their running state."""

from rl_training.envs.actions import ActionScaler
from rl_training.envs.factory import (
    EnvConfig,
    TrainingEnvs,
    WrappersConfig,
    describe_env,
    find_spec,
    make_env,
    make_training_envs,
    read_env_spec,
)
from rl_training.envs.rewards import (
    RewardClipWrapper,
    RewardScaleWrapper,
    RewardShiftWrapper,
    apply_reward_wrappers,
)
from rl_training.envs.state import CapturableEnv, CaptureError, capture_env, restore_env

__all__ = [
    "ActionScaler",
    "CapturableEnv",
    "CaptureError",
    "EnvConfig",
    "RewardClipWrapper",
    "RewardScaleWrapper",
    "RewardShiftWrapper",
    "TrainingEnvs",
    "WrappersConfig",
    "apply_reward_wrappers",
    "capture_env",
    "describe_env",
    "find_spec",
    "make_env",
    "make_training_envs",
    "read_env_spec",
    "restore_env",
]

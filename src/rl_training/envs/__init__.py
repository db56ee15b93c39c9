"""Environments: making them, scaling their actions, saving their running state."""

from rl_training.envs import point_goal
from rl_training.envs.actions import ActionScaler
from rl_training.envs.contract import is_numeric
from rl_training.envs.factory import (
    EnvConfig,
    TrainingEnvs,
    WrappersConfig,
    describe_env,
    examine_env,
    make_env,
    make_training_envs,
    read_env_spec,
    read_goal_task,
)
from rl_training.envs.goals import GOAL_KEYS, GoalTask
from rl_training.envs.guard import GuardedEnv
from rl_training.envs.point_goal import POINT_GOAL, PointGoalEnv
from rl_training.envs.resolving import (
    ResolvedEnv,
    name_env,
    name_kwargs,
    resolve_env,
    time_limit,
)
from rl_training.envs.reward_wrappers import (
    OWN_RETURN,
    RewardClipWrapper,
    RewardScaleWrapper,
    RewardShiftWrapper,
    apply_reward_wrappers,
)
from rl_training.envs.state import CapturableEnv, CaptureError, capture_env, restore_env
from rl_training.rewards import RewardTransformConfig

point_goal.register()

__all__ = [
    "GOAL_KEYS",
    "OWN_RETURN",
    "POINT_GOAL",
    "ActionScaler",
    "CapturableEnv",
    "CaptureError",
    "EnvConfig",
    "GoalTask",
    "GuardedEnv",
    "PointGoalEnv",
    "ResolvedEnv",
    "RewardClipWrapper",
    "RewardScaleWrapper",
    "RewardShiftWrapper",
    "RewardTransformConfig",
    "TrainingEnvs",
    "WrappersConfig",
    "apply_reward_wrappers",
    "capture_env",
    "describe_env",
    "examine_env",
    "is_numeric",
    "make_env",
    "make_training_envs",
    "name_env",
    "name_kwargs",
    "read_env_spec",
    "read_goal_task",
    "resolve_env",
    "restore_env",
    "time_limit",
]

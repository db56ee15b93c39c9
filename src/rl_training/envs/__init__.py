"""Environments: creating them, scaling their actions, saving their state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.envs import pixel_tasks, point_goal
from rl_training.lazy import lazy_exports

point_goal.register()
pixel_tasks.register()

if TYPE_CHECKING:
    from rl_training.generated.envs import *
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "actions": ["ActionScaler"],
            "contract": ["is_numeric"],
            "factory": [
                *("EnvConfig", "TrainingEnvs", "WrappersConfig", "describe_env", "examine_env"),
                *("make_env", "make_training_envs", "read_env_spec", "read_goal_task"),
                "time_limit",
            ],
            "given": ["EnvLike"],
            "goals": ["GOAL_KEYS", "GoalTask"],
            "guard": ["GuardedEnv"],
            "pixel_tasks": ["CATCH", "PIXEL_PENDULUM", "CatchEnv", "PixelPendulumEnv"],
            "point_goal": ["POINT_GOAL", "PointGoalEnv"],
            "resolving": ["ResolvedEnv", "name_env", "name_kwargs", "resolve_env"],
            "reward_wrappers": [
                *("OWN_RETURN", "RewardClipWrapper", "RewardScaleWrapper", "RewardShiftWrapper"),
                *("RewardTransformConfig", "apply_reward_wrappers"),
            ],
            "state": ["CapturableEnv", "CaptureError", "capture_env", "restore_env"],
        },
    )

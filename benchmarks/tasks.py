"""Environments of the studies: register MinAtar's games and a Pendulum with Dict observations.

rl-training --import benchmarks.tasks study run benchmarks/studies/minatar.yaml
"""

from contextlib import suppress
from importlib import import_module
from typing import Any

import gymnasium as gym
import numpy as np

DICT_PENDULUM = "DictPendulum-v0"


class DictPendulum(gym.ObservationWrapper[Any, Any, Any]):
    """Pendulum with its velocity and the direction of the rod as entries of a Dict.

    Entries are in alphabetical order, so the flat vector has another order than Pendulum's.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(gym.make("Pendulum-v1", **kwargs))
        self.observation_space = gym.spaces.Dict(
            {
                "angular_velocity": gym.spaces.Box(-8.0, 8.0, (1,), np.float32),
                "direction": gym.spaces.Box(-1.0, 1.0, (2,), np.float32),
            }
        )

    def observation(self, observation: Any) -> dict[str, Any]:
        """Split the vector of cos θ, sin θ and the velocity."""
        return {"angular_velocity": observation[2:], "direction": observation[:2]}


if DICT_PENDULUM not in gym.registry:
    gym.register(DICT_PENDULUM, DictPendulum)
if "MinAtar/Breakout-v1" not in gym.registry:
    with suppress(ModuleNotFoundError):  # MinAtar is optional
        import_module("minatar.gym").register_envs()

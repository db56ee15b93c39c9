"""A task whose best settings are known.

The learner's policy is a constant action that moves from a random one to ``(x, y)``. The return is
the negative squared distance to `OPTIMUM`, so the score of a run is noisy in the seed and best for
the settings ``x, y = OPTIMUM``. Runs take a fraction of a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from rl_training import Algorithm, register_algorithm
from rl_training.algorithms.config import OffPolicyConfig
from rl_training.algorithms.registry import REGISTRY
from rl_training.types import Batch, EnvSpec, Metrics, Noise, NoiseSpec

OPTIMUM = (0.3, -0.5)
ENV_ID = "rl_training_tests/Quadratic-v0"


class Quadratic(gym.Env[Any, Any]):
    """Episodes of one step."""

    observation_space = gym.spaces.Box(-1, 1, (1,), dtype=np.float32)
    action_space = gym.spaces.Box(-1, 1, (2,), dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        distance = np.asarray(action, np.float64) - OPTIMUM
        return np.zeros(1, np.float32), -float(np.square(distance).sum()), True, False, {}


class SyntheticConfig(OffPolicyConfig):
    """Settings of the synthetic learner."""

    x: float = Field(default=0.0, ge=-1, le=1)
    """First entry of the action that is learned."""
    y: float = Field(default=0.0, ge=-1, le=1)
    """Second entry of the action that is learned."""
    diverges: bool = False
    """Whether the loss is not finite."""


class Synthetic(Algorithm):
    """Learns a constant action."""

    name = "synthetic"
    config_class = SyntheticConfig
    config: SyntheticConfig
    goal: Tensor

    def __init__(self, spec: EnvSpec, config: SyntheticConfig, generator: torch.Generator) -> None:
        super().__init__(spec, config, generator)
        start = torch.rand(2, generator=generator) * 2 - 1
        self.action = torch.nn.Parameter(start)
        self.register_buffer("goal", torch.tensor([config.x, config.y]))
        self.add_optimizer("actor", self.action)

    def act_noise(self, batch_size: int) -> NoiseSpec:
        return {}

    def noise(self, batch_size: int) -> NoiseSpec:
        return {}

    def choose_actions(
        self, obs: Tensor, *, deterministic: bool, noise: Noise | None, legal: Tensor | None = None
    ) -> Tensor:
        return self.action.detach().clamp(-1, 1).expand(len(obs), 2)

    def update(self, batch: Batch, noise: Noise, due: Any = None) -> Metrics:
        loss = (self.action - self.goal).square().sum()
        if self.config.diverges:
            loss = loss * float("nan")
        self.minimize(loss, actor=self.action)
        return {"loss/actor": loss.detach()}


def register() -> None:
    """Register the learner and the environment."""
    if "synthetic" not in REGISTRY:
        register_algorithm(Synthetic)
    if ENV_ID not in gym.registry:
        gym.register(ENV_ID, entry_point=f"{__name__}:Quadratic", max_episode_steps=1)


def unregister() -> None:
    """Remove them again, since other tests look at all learners."""
    REGISTRY.pop("synthetic", None)
    gym.registry.pop(ENV_ID, None)


CONFIG: dict[str, Any] = {
    "algo": "synthetic",
    "env_id": ENV_ID,
    "total_timesteps": 60,
    "device": "cpu",
    "eval_episodes": 1,
    "checkpoint_interval": 20,
    "log_interval": 20,
    "algo_kwargs": {
        "learning_starts": 0,
        "learning_rate": 0.05,
        "batch_size": 4,
        "buffer_capacity": 100,
        "eval_interval": 10,
        "tensorboard": False,
        "num_threads": 1,
    },
}
SPACE: Mapping[str, Any] = {"x": {"low": -1.0, "high": 1.0}, "y": {"low": -1.0, "high": 1.0}}

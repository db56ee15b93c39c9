"""The algorithms by name, and what each can do. Listing them does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal, cast

from rl_training.errors import ConfigError, nearest

if TYPE_CHECKING:
    from rl_training.algorithms.base import Algorithm
    from rl_training.algorithms.config import AlgorithmConfig

Mode = Literal["online", "offline", "offline_to_online"]


@dataclass(frozen=True)
class AlgorithmEntry:
    """One algorithm: where it lives and which runs it fits."""

    name: str
    title: str
    class_name: str
    mode: Mode
    actions: Literal["continuous", "discrete"]
    summary: str

    @property
    def module(self) -> str:
        """The module that defines the learner; by convention the algorithm's name."""
        return f"rl_training.algorithms.{self.name}"

    def learner_class(self) -> type[Algorithm]:
        """Import and return the learner's class."""
        return cast("type[Algorithm]", getattr(import_module(self.module), self.class_name))

    def config_class(self) -> type[AlgorithmConfig]:
        """Import and return the config's class."""
        return self.learner_class().config_class


REGISTRY: dict[str, AlgorithmEntry] = {
    entry.name: entry
    for entry in (
        AlgorithmEntry(
            name="sac",
            title="Soft Actor-Critic",
            class_name="SACAlgorithm",
            mode="online",
            actions="continuous",
            summary="Entropy-regularised actor-critic with a learned temperature.",
        ),
        AlgorithmEntry(
            name="ddpg",
            title="Deep Deterministic Policy Gradient",
            class_name="DDPGAlgorithm",
            mode="online",
            actions="continuous",
            summary="Deterministic actor-critic with Gaussian exploration.",
        ),
        AlgorithmEntry(
            name="td3",
            title="Twin Delayed DDPG",
            class_name="TD3Algorithm",
            mode="online",
            actions="continuous",
            summary="Twin critics, smoothed targets and a delayed deterministic policy.",
        ),
        AlgorithmEntry(
            name="redq",
            title="Randomized Ensembled Double Q-learning",
            class_name="REDQAlgorithm",
            mode="online",
            actions="continuous",
            summary="Many critics, random subsets of them, many updates a step.",
        ),
        AlgorithmEntry(
            name="tqc",
            title="Truncated Quantile Critics",
            class_name="TQCAlgorithm",
            mode="online",
            actions="continuous",
            summary="Distributional critics whose largest quantiles are left out.",
        ),
        AlgorithmEntry(
            name="dqn",
            title="Deep Q-Network",
            class_name="DQNAlgorithm",
            mode="online",
            actions="discrete",
            summary="Q-learning with a target network; Double DQN as an option.",
        ),
    )
}


def get_algorithm(name: str) -> AlgorithmEntry:
    """Look an algorithm up; an unknown name gets the nearest one suggested."""
    if name not in REGISTRY:
        raise ConfigError(f"Unknown algorithm {name!r}{nearest(name, REGISTRY)}")
    return REGISTRY[name]

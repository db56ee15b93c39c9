"""The algorithms by name, and what each can do. Listing them does not import torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from rl_training.boundary.text import shown
from rl_training.errors import ConfigError, nearest
from rl_training.types import ActionKind, Mode

if TYPE_CHECKING:
    from rl_training.algorithms.base import Algorithm
    from rl_training.algorithms.config import AlgorithmConfig


def is_finetuned(kwargs: Mapping[str, Any] | None) -> bool:
    """Whether `algo_kwargs` are those of a run that goes on from a checkpoint."""
    return isinstance(kwargs, Mapping) and "finetuned_step" in kwargs


@dataclass(frozen=True)
class AlgorithmEntry:
    """One algorithm: where it lives and which runs it fits."""

    name: str
    title: str
    class_name: str
    mode: Mode
    actions: ActionKind
    summary: str
    goals: bool = False
    """Whether it is for goal environments alone, or for flat observations alone."""

    @property
    def module(self) -> str:
        """The module that defines the learner; by convention the algorithm's name."""
        return f"rl_training.algorithms.{self.name}"

    def learner_class(self, kwargs: Mapping[str, Any] | None = None) -> type[Algorithm]:
        """Import and return the learner's class; a run's `algo_kwargs` may choose it."""
        return cast("type[Algorithm]", getattr(import_module(self.module), self.class_name))

    def config_class(self, kwargs: Mapping[str, Any] | None = None) -> type[AlgorithmConfig]:
        """Import and return the config's class; a run's `algo_kwargs` may choose it."""
        own = self.learner_class(kwargs).config_class
        if not is_finetuned(kwargs):
            return own
        from rl_training.algorithms.finetuning_config import finetuning_config

        return finetuning_config(own)

    def run_mode(self, kwargs: Mapping[str, Any] | None = None) -> Mode:
        """Where the data of a run with these `algo_kwargs` comes from."""
        return "offline_to_online" if is_finetuned(kwargs) else self.mode


class HindsightEntry(AlgorithmEntry):
    """HER: its learner is that of `base_algo`, its keys are those of the base and its own."""

    def learner_class(self, kwargs: Mapping[str, Any] | None = None) -> type[Algorithm]:
        """The base algorithm's learner."""
        return self.base(kwargs).learner_class()

    def config_class(self, kwargs: Mapping[str, Any] | None = None) -> type[AlgorithmConfig]:
        """The base algorithm's config with HER's keys."""
        from rl_training.algorithms.her import hindsight_config

        return hindsight_config(self.base(kwargs).config_class())

    def base(self, kwargs: Mapping[str, Any] | None = None) -> AlgorithmEntry:
        """The entry that `base_algo` names."""
        name = kwargs.get("base_algo", "sac") if isinstance(kwargs, Mapping) else "sac"
        if name not in self.bases():
            raise ConfigError(
                f"base_algo = {shown(name)}: choose one of {', '.join(self.bases())}."
            )
        return REGISTRY[name]

    @staticmethod
    def bases() -> list[str]:
        """The algorithms that HER works with: online, for continuous actions."""
        return [
            entry.name
            for entry in REGISTRY.values()
            if entry.mode == "online" and entry.actions == "continuous" and not entry.goals
        ]


class OwnEntry(AlgorithmEntry):
    """A learner that a user has registered: its class is known, wherever it is defined."""

    def learner_class(self, kwargs: Mapping[str, Any] | None = None) -> type[Algorithm]:
        """The class that was given."""
        return _OWN[self.name]


_OWN: dict[str, type[Algorithm]] = {}

REGISTRY: dict[str, AlgorithmEntry] = {
    entry.name: entry
    for entry in (
        AlgorithmEntry(
            name="sac",
            title="Soft Actor-Critic",
            class_name="SACAlgorithm",
            mode="online",
            actions="continuous",
            summary="Entropy-regularized actor-critic with a learned temperature.",
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
        AlgorithmEntry(
            name="bc",
            title="Behavior Cloning",
            class_name="BCAlgorithm",
            mode="offline",
            actions="continuous",
            summary="Supervised learning of the recorded actions.",
        ),
        HindsightEntry(
            name="her",
            title="Hindsight Experience Replay",
            class_name="HER",
            mode="online",
            actions="continuous",
            summary="Goals relabeled with what was achieved, over any off-policy learner.",
            goals=True,
        ),
        AlgorithmEntry(
            name="iql",
            title="Implicit Q-Learning",
            class_name="IQLAlgorithm",
            mode="offline",
            actions="continuous",
            summary="Expectile values and advantage-weighted imitation; no action is ever queried.",
        ),
        AlgorithmEntry(
            name="awac",
            title="Advantage-Weighted Actor-Critic",
            class_name="AWACAlgorithm",
            mode="offline",
            actions="continuous",
            summary="Twin critics and imitation weighted by the advantage over the own policy.",
        ),
        AlgorithmEntry(
            name="td3_bc",
            title="TD3 with Behavior Cloning",
            class_name="TD3BCAlgorithm",
            mode="offline",
            actions="continuous",
            summary="TD3 whose actor also imitates the dataset.",
        ),
        AlgorithmEntry(
            name="cql",
            title="Conservative Q-Learning",
            class_name="CQLAlgorithm",
            mode="offline",
            actions="continuous",
            summary="SAC whose critics are held low away from the dataset's actions.",
        ),
        AlgorithmEntry(
            name="edac",
            title="Ensemble-Diversified Actor-Critic",
            class_name="EDACAlgorithm",
            mode="offline",
            actions="continuous",
            summary="SAC with the minimum of many critics whose action gradients are kept apart.",
        ),
        AlgorithmEntry(
            name="rlpd",
            title="RL with Prior Data",
            class_name="RLPDAlgorithm",
            mode="offline_to_online",
            actions="continuous",
            summary="REDQ with normalized critics on batches of a dataset and of new experience.",
        ),
    )
}


def get_algorithm(name: str) -> AlgorithmEntry:
    """Look an algorithm up; an unknown name gets the nearest one suggested."""
    if name not in REGISTRY:
        raise ConfigError(
            f"Unknown algorithm {shown(name)} (one of your own has to be registered first: "
            f"register_algorithm, on the command line --import MODULE){nearest(name, REGISTRY)}"
        )
    return REGISTRY[name]


def register_algorithm(
    learner: type[Algorithm],
    *,
    mode: Mode = "online",
    actions: ActionKind = "continuous",
) -> None:
    """Make a learner of one's own known in this process, by its `name` (docs/own_algorithm.md).

    Configs, training, checkpoints and the command line then take it as one of the package's.

    Raises:
        ConfigError: It is not a learner, or its name is that of another one.
    """
    from rl_training.algorithms.base import Algorithm

    if not (isinstance(learner, type) and issubclass(learner, Algorithm)):
        raise ConfigError(f"{shown(learner)} is not a learner: derive a class from Algorithm.")
    name, text = learner.name, (learner.__doc__ or "").strip()
    if name in REGISTRY and name not in _OWN:
        raise ConfigError(f"There is an algorithm {name!r} already: give yours a name of its own.")
    _OWN[name] = learner
    REGISTRY[name] = OwnEntry(
        name=name,
        title=learner.__name__,
        class_name=learner.__name__,
        mode=mode,
        actions=actions,
        summary=text.splitlines()[0] if text else "",
    )

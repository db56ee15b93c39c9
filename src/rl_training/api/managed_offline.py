"""Managed classes of the offline algorithms: `IQL(env_id=..., dataset_path=...).learn(10_000)`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rl_training.api.managed import ManagedAlgorithm, train_as
from rl_training.experiment.config import TrainConfig
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.training_loop import TrainResult

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rl_training.api.options import (
        AWACOptions,
        CQLOptions,
        EDACOptions,
        IQLOptions,
        TD3BCOptions,
    )


class IQL(ManagedAlgorithm):
    """Implicit Q-Learning, managed.

    >>> IQL("Pendulum-v1", dataset_kind="npz", dataset_path="data/pendulum.npz").learn(10_000)
    """

    algo: ClassVar[str] = "iql"

    def __init__(self, env_id: str | None = None, **options: Unpack[IQLOptions]) -> None:
        super().__init__(env_id, **options)


def train_iql(
    config: TrainConfig | dict[str, Any] | str | Path, *, callbacks: Sequence[Callback] = ()
) -> TrainResult:
    """Train IQL from a config; one of another algorithm is refused."""
    return train_as("iql", config, callbacks)


class AWAC(ManagedAlgorithm):
    """Advantage-Weighted Actor-Critic, managed."""

    algo: ClassVar[str] = "awac"

    def __init__(self, env_id: str | None = None, **options: Unpack[AWACOptions]) -> None:
        super().__init__(env_id, **options)


def train_awac(
    config: TrainConfig | dict[str, Any] | str | Path, *, callbacks: Sequence[Callback] = ()
) -> TrainResult:
    """Train AWAC from a config; one of another algorithm is refused."""
    return train_as("awac", config, callbacks)


class TD3BC(ManagedAlgorithm):
    """TD3 with behavior cloning, managed."""

    algo: ClassVar[str] = "td3_bc"

    def __init__(self, env_id: str | None = None, **options: Unpack[TD3BCOptions]) -> None:
        super().__init__(env_id, **options)


def train_td3_bc(
    config: TrainConfig | dict[str, Any] | str | Path, *, callbacks: Sequence[Callback] = ()
) -> TrainResult:
    """Train TD3+BC from a config; one of another algorithm is refused."""
    return train_as("td3_bc", config, callbacks)


class CQL(ManagedAlgorithm):
    """Conservative Q-Learning, managed."""

    algo: ClassVar[str] = "cql"

    def __init__(self, env_id: str | None = None, **options: Unpack[CQLOptions]) -> None:
        super().__init__(env_id, **options)


def train_cql(
    config: TrainConfig | dict[str, Any] | str | Path, *, callbacks: Sequence[Callback] = ()
) -> TrainResult:
    """Train CQL from a config; one of another algorithm is refused."""
    return train_as("cql", config, callbacks)


class EDAC(ManagedAlgorithm):
    """Ensemble-Diversified Actor-Critic, managed; with ``eta=0`` it is SAC-N."""

    algo: ClassVar[str] = "edac"

    def __init__(self, env_id: str | None = None, **options: Unpack[EDACOptions]) -> None:
        super().__init__(env_id, **options)


def train_edac(
    config: TrainConfig | dict[str, Any] | str | Path, *, callbacks: Sequence[Callback] = ()
) -> TrainResult:
    """Train EDAC from a config; one of another algorithm is refused."""
    return train_as("edac", config, callbacks)

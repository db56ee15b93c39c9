"""Managed classes of the offline algorithms: `IQL(env_id=..., dataset_path=...).learn(10_000)`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from rl_training.api.managed import ManagedAlgorithm, train_as
from rl_training.api.options import RunOptions
from rl_training.experiment.config import TrainConfig
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.workflows import TrainResult

if TYPE_CHECKING:
    from typing_extensions import Unpack


class ValueOptions(RunOptions, total=False):
    """Hyper-parameters of every offline learner of values."""

    batch_size: int
    learning_rate: float
    hidden_sizes: Sequence[int]
    gamma: float
    tau: float


class IQLOptions(ValueOptions, total=False):
    """IQL's hyper-parameters."""

    expectile: float
    beta: float
    weight_clip: float
    log_std_bounds: Sequence[float]


class AWACOptions(ValueOptions, total=False):
    """AWAC's hyper-parameters."""

    critic_hidden_sizes: Sequence[int]
    weight_decay: float
    temperature: float
    weighting: Literal["clip", "softmax"]
    weight_clip: float
    policy: Literal["tanh_mean", "squashed"]
    log_std_bounds: Sequence[float]


class TD3BCOptions(ValueOptions, total=False):
    """TD3+BC's hyper-parameters."""

    alpha: float
    exploration_noise: float
    policy_delay: int
    target_noise: float
    target_noise_clip: float


class SoftOptions(ValueOptions, total=False):
    """Hyper-parameters of SAC's offline family."""

    alpha: float | Literal["auto"]
    initial_alpha: float
    target_entropy: float | Literal["auto"]


class CQLOptions(SoftOptions, total=False):
    """CQL's hyper-parameters."""

    policy_learning_rate: float
    conservative_weight: float
    num_sampled_actions: int
    conservative_temperature: float
    lagrange_threshold: float | None
    backup_entropy: bool


class EDACOptions(SoftOptions, total=False):
    """EDAC's hyper-parameters."""

    num_critics: int
    eta: float


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
    """TD3 with behaviour cloning, managed."""

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

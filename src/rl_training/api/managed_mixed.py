"""Managed classes of the algorithms that learn from a dataset and collect beside it."""

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

    from rl_training.api.options import RLPDOptions


class RLPD(ManagedAlgorithm):
    """RL with Prior Data, managed.

    >>> RLPD("Pendulum-v1", dataset_kind="npz", dataset_path="data/pendulum.npz").learn(3_000)
    """

    algo: ClassVar[str] = "rlpd"

    def __init__(self, env_id: str, **options: Unpack[RLPDOptions]) -> None:
        super().__init__(env_id, **options)


def train_rlpd(
    config: TrainConfig | dict[str, Any] | str | Path, *, callbacks: Sequence[Callback] = ()
) -> TrainResult:
    """Train RLPD from a config; one of another algorithm is refused."""
    return train_as("rlpd", config, callbacks)

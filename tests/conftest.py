"""Shared fixtures: one thread, small runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

ENVIRONMENTS = {"her": "rl_training/PointGoal-v0"}
"""Where an algorithm's small runs are, if not on Pendulum."""

SMALL_KWARGS: dict[str, Any] = {
    "hidden_sizes": [16, 16],
    "batch_size": 16,
    "learning_starts": 30,
    "buffer_capacity": 5_000,
    "eval_interval": 0,
    "tensorboard": False,
    "num_threads": 1,
}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def small_config(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """A mapping for a run of seconds; keyword arguments replace or extend its keys."""

    def make(**changes: Any) -> dict[str, Any]:
        kwargs = SMALL_KWARGS | changes.pop("algo_kwargs", {})
        return {
            "algo": "sac",
            "env_id": ENVIRONMENTS.get(changes.get("algo", "sac"), "Pendulum-v1"),
            "seed": 0,
            "total_timesteps": 120,
            "output_dir": str(tmp_path / "runs"),
            "device": "cpu",
            "eval_episodes": 0,
            "checkpoint_interval": 40,
            "log_interval": 20,
            "algo_kwargs": kwargs,
        } | changes

    return make

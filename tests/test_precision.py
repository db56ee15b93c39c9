"""Devices without float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from rl_training import ConfigError, ReplayBuffer, precision
from rl_training.algorithms.sac import SACAlgorithm, SACConfig
from rl_training.data.prioritized_replay import PrioritizedReplay
from rl_training.experiment.build import build_algorithm, engine_mode
from rl_training.experiment.config import make_config
from rl_training.models.kernels import plain_operations
from rl_training.precision import widest_float
from rl_training.runtime.engine import Engine
from rl_training.types import EnvSpec

SPEC = EnvSpec(3, 1, (-1.0,), (1.0,))


class _RejectFloat64(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Fails like an MPS device when an operation returns float64."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            assert result.dtype != torch.float64, func
        return result


@pytest.mark.parametrize("replay_class", [ReplayBuffer, PrioritizedReplay])
def test_eager_updates_without_float64(
    replay_class: type[ReplayBuffer], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (widest_float("cpu"), widest_float("mps")) == (torch.float64, torch.float32)
    monkeypatch.setattr(precision, "_WITHOUT_FLOAT64", {"cpu"})
    rng = np.random.default_rng(0)
    replay = replay_class(100, 3, 1)
    if replay_class.needed_fields:
        replay.supply(replay_class.needed_fields, gamma=0.99)
    with plain_operations(), _RejectFloat64():  # type: ignore[no-untyped-call]
        obs = rng.normal(size=(2, 40, 3)).astype(np.float32)
        values = rng.uniform(-1, 1, (2, 40)).astype(np.float32)
        ends = np.zeros(40, dtype=bool)
        replay.add(obs[0], values[0][:, None], values[1], obs[1], ends, ends)
        algorithm = SACAlgorithm.build(SPEC, SACConfig(batch_size=16, hidden_sizes=(16, 16)))
    engine = Engine(algorithm, replay, seed=0)
    with plain_operations(), _RejectFloat64():  # type: ignore[no-untyped-call]
        engine.run(5)
    assert np.isfinite(engine.pop_metrics()["loss/critic"])


def test_running_statistics_need_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "_WITHOUT_FLOAT64", {"cpu"})
    config = make_config(
        {
            "algo": "sac",
            "env_id": "Pendulum-v1",
            "total_timesteps": 9,
            "algo_kwargs": {"normalize_observations": True},
        }
    )
    with pytest.raises(ConfigError, match="does not support float64, which normalize_observations"):
        build_algorithm(config, SPEC, torch.device("cpu"))


def test_saved_engine_does_not_apply_to_mps() -> None:
    config = make_config({"algo": "sac", "env_id": "Pendulum-v1", "total_timesteps": 10**6})
    assert engine_mode(config, torch.device("mps"), "compiled") == "eager"

"""Selection of the replay in the config: keys, errors, memory and the schedule of β."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rl_training.data import HindsightReplay, PrioritizedReplay, ReplayBuffer
from rl_training.errors import ConfigError
from rl_training.experiment.build import build_replay
from rl_training.experiment.config import TrainConfig, make_config
from rl_training.types import EnvSpec

SPEC = EnvSpec(3, 1, (-2.0,), (2.0,))
CPU = torch.device("cpu")


def config(algo: str = "sac", total: int = 1000, **kwargs: Any) -> TrainConfig:
    return make_config(
        {"algo": algo, "env_id": "Pendulum-v1", "total_timesteps": total, "algo_kwargs": kwargs}
    )


def test_config_selects_the_replay_class() -> None:
    assert config().replay_class is ReplayBuffer
    assert config(replay="prioritized").replay_class is PrioritizedReplay
    assert config("her").replay_class is HindsightReplay


def test_keys_reach_the_replay() -> None:
    options: dict[str, Any] = {
        "priority_exponent": 0.5,
        "importance_exponent": 0.7,
        "priority_epsilon": 0.01,
    }
    replay = build_replay(config(replay="prioritized", buffer_capacity=50, **options), SPEC, CPU)
    assert isinstance(replay, PrioritizedReplay)
    assert (replay._alpha, replay._first_beta, replay._epsilon) == (0.5, 0.7, 0.01)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"priority_exponent": 0.7}, "priority_exponent only applies to replay=prioritized"),
        ({"importance_exponent": 1.0}, "importance_exponent only applies to replay=prioritized"),
        ({"priority_epsilon": 0.1}, "priority_epsilon only applies to replay=prioritized"),
        ({"replay": "prioritised"}, "'uniform' or 'prioritized'"),
        ({"replay": "prioritized", "priority_exponent": 1.5}, "less than or equal to 1"),
        ({"replay": "prioritized", "priority_exponent": -0.1}, "greater than or equal to 0"),
        ({"replay": "prioritized", "importance_exponent": 2.0}, "less than or equal to 1"),
        ({"replay": "prioritized", "priority_epsilon": 0.0}, "greater than 0"),
        ({"replay": "prioritized", "buffer_capacity": 10**9}, "at most 100000000"),
        ({"algo": "her", "replay": "prioritized"}, "HER samples transitions uniformly"),
        ({"algo": "her", "priority_exponent": 0.7}, "only applies to replay=prioritized"),
    ],
)
def test_settings_without_effect_are_refused(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        config(**kwargs)
    assert "\n" not in str(caught.value)


def test_resolved_keys_are_accepted_again() -> None:
    for given in (config(), config(replay="prioritized", priority_exponent=0.5), config("her")):
        resolved = given.resolved()
        assert make_config(resolved.to_dict()) == resolved


@pytest.mark.parametrize(
    ("settings", "horizon"),
    [
        (config(replay="prioritized"), 1000),
        (config(replay="prioritized", schedule_horizon=400), 400),
        (config("rlpd", 1000, replay="prioritized", offline_pretrain_updates=300), 1000),
        (config("rlpd", 1000, replay="prioritized", offline_pretrain_updates=300).resolved(), 1000),
    ],
)
def test_beta_reaches_1_at_the_end_of_the_first_budget(settings: TrainConfig, horizon: int) -> None:
    replay = build_replay(settings, SPEC, CPU)
    assert isinstance(replay, PrioritizedReplay)
    betas = []
    for total in (0, horizon // 2, horizon, 2 * horizon):
        replay.total = total
        betas.append(replay.beta)
    assert betas == pytest.approx([0.4, 0.7, 1.0, 1.0])


def test_memory_of_priorities_is_counted() -> None:
    rows = ReplayBuffer.num_bytes(1000, SPEC)
    assert rows == ReplayBuffer(1000, 3, 1).rows.nbytes
    replay = PrioritizedReplay(1000, 3, 1)
    counted = PrioritizedReplay.num_bytes(1000, SPEC)
    assert counted == replay.rows.nbytes + replay.priorities.values.nbytes

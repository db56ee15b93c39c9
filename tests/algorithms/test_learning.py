"""Learning on real tasks, minutes each (`make test-slow`); records are in benchmarks/."""

from __future__ import annotations

import secrets
from pathlib import Path

import numpy as np
import pytest

from rl_training import TrainConfig, evaluate_checkpoint, train

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("config", "steps", "bar"),
    [
        ("sac/pendulum", 20_000, -180.0),
        ("sac/pendulum n_step=3", 12_000, -230.0),
        ("sac/pendulum replay=prioritized", 12_000, -230.0),
        ("ddpg/pendulum", 20_000, -190.0),
        ("td3/pendulum", 20_000, -190.0),
        ("redq/pendulum", 5_000, -200.0),
        ("tqc/pendulum", 20_000, -190.0),
        ("dqn/cartpole", 50_000, 475.0),
    ],
)
def test_packaged_config_learns(tmp_path: Path, config: str, steps: int, bar: float) -> None:
    """Mean of two seeds, one fixed and one random, with only the listed changes."""
    seeds = [0, 1 + secrets.randbelow(10**6)]
    means = []
    for seed in seeds:
        name, *changes = config.split()
        changes += [f"seed={seed}", f"total_timesteps={steps}", "num_threads=1"]
        result = train(TrainConfig.load(name, [*changes, f"output_dir={tmp_path}"]))
        score = evaluate_checkpoint(result.checkpoint_path, episodes=10, seed=10_000 + seed)
        means.append(score["eval_return_mean"])
    assert np.mean(means) >= bar, dict(zip(seeds, means, strict=True))


def test_hindsight_solves_a_task_that_the_learner_alone_does_not(tmp_path: Path) -> None:
    """The packaged config with and without relabeling, on a random seed."""
    seed = secrets.randbelow(10**6)
    rates = {}
    for ratio in (0.8, 0.0):
        changes = [f"seed={seed}", f"her_ratio={ratio}", "num_threads=1", f"output_dir={tmp_path}"]
        result = train(TrainConfig.load("her/point_goal", changes))
        score = evaluate_checkpoint(result.checkpoint_path, episodes=100, seed=10_000)
        rates[ratio] = score["eval_success_rate"]
    assert rates[0.8] >= 0.9, (seed, rates)
    assert rates[0.0] < 0.3, (seed, rates)

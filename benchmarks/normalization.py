"""Train SAC on a Pendulum with observation entries scaled by 1, 100 and 0.01.

    python -m benchmarks.normalization [--steps 8000] [--seeds 3]

Prints evaluation returns (20 episodes) of the unscaled and the scaled environment, both with and
without `normalize_observations`, and of the scaled one also with `normalize_rewards`.
"""

from __future__ import annotations

import argparse
import tempfile
from statistics import mean, stdev
from typing import Any

from tests.scaled_envs import SCALED, register

from rl_training import train

CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "unscaled": ({"scales": [1.0, 1.0, 1.0]}, {}),
    "scaled": ({}, {}),
    "scaled, normalize_observations": ({}, {"normalize_observations": True}),
    "unscaled, normalize_observations": (
        {"scales": [1.0, 1.0, 1.0]},
        {"normalize_observations": True},
    ),
    "scaled, both keys": ({}, {"normalize_observations": True, "normalize_rewards": True}),
}


def learn(env: dict[str, Any], options: dict[str, Any], seed: int, steps: int) -> float:
    """Return the evaluation return after training."""
    with tempfile.TemporaryDirectory() as folder:
        result = train(
            {
                "algo": "sac",
                "env_id": SCALED,
                "seed": seed,
                "total_timesteps": steps,
                "output_dir": folder,
                "device": "cpu",
                "eval_episodes": 20,
                "checkpoint_interval": 0,
                "algo_kwargs": {
                    "batch_size": 128,
                    "hidden_sizes": [64, 64],
                    "learning_rate": 1e-3,
                    "learning_starts": 500,
                    "eval_interval": 0,
                    "num_threads": 1,
                    "engine": "eager",
                    "tensorboard": False,
                    **options,
                },
                "env_kwargs": env,
            }
        )
    return float(result.metrics["eval_return_mean"])


def main() -> None:
    """Print one line for each case."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8_000, help="steps of each run")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of the runs")
    arguments = parser.parse_args()
    register()
    for name, (env, options) in CASES.items():
        returns = [learn(env, options, seed, arguments.steps) for seed in range(arguments.seeds)]
        each = ", ".join(f"{value:.0f}" for value in returns)
        print(f"{name}: {mean(returns):.0f} ± {stdev(returns):.0f} ({each})", flush=True)


if __name__ == "__main__":
    main()

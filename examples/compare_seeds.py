"""Compare two algorithms over several seeds, and plot their mean returns.

    python examples/compare_seeds.py --seeds 5

Needs the extra `plot` for the figure: python -m pip install 'rl-training[plot]'
"""

import argparse
from statistics import mean, stdev

from rl_training import TrainConfig, evaluate_checkpoint, train
from rl_training.api.plots import plot_runs


def main(steps: int, seeds: int) -> None:
    """Train SAC and TD3 for ``steps`` steps with every seed."""
    runs = []
    for config in ("sac/pendulum", "td3/pendulum"):
        returns = []
        for seed in range(seeds):
            overrides = [f"seed={seed}", f"total_timesteps={steps}", f"eval_interval={steps // 5}"]
            result = train(TrainConfig.load(config, overrides))
            runs.append(result.run_dir)
            # All seeds are evaluated from the same starting states.
            returns.append(evaluate_checkpoint(result.run_dir, seed=10_000)["eval_return_mean"])
        spread = f" ± {stdev(returns):.1f}" if seeds > 1 else ""
        print(f"{config}: {mean(returns):.1f}{spread} over {seeds} seeds")
    plot_runs(runs, "comparison.png")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Compare SAC and TD3 over several seeds.")
    parser.add_argument("--steps", type=int, default=10_000, help="environment steps per run")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds per algorithm")
    arguments = parser.parse_args()
    main(arguments.steps, arguments.seeds)

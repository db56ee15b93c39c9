"""From recorded data to an environment: train IQL offline, then fine-tune it online.

    python examples/offline_to_online.py

The data comes from the replay buffer of a short SAC run. The same steps on the command line:

    rl-training train --config sac/pendulum total_timesteps=6000
    rl-training data convert runs/sac_Pendulum-v1_seed0 replay.npz
    rl-training train --config iql/pendulum dataset_path=replay.npz
    rl-training finetune runs/iql_Pendulum-v1_seed0 total_timesteps=5000
"""

import argparse

from rl_training import IQL, SAC, finetune
from rl_training.api.datasets import convert_data


def main(steps: int, updates: int) -> None:
    """Collect ``steps`` transitions, make ``updates`` offline updates, then fine-tune."""
    starts = min(500, steps // 2)
    sac = SAC("Pendulum-v1", learning_rate=1e-3, learning_starts=starts).learn(steps)
    convert_data(sac.checkpoint.path, "replay.npz")

    iql = IQL(
        "Pendulum-v1",
        dataset="replay.npz",
        return_scaling=True,
        learning_rate=1e-3,
    )
    iql.learn(updates)
    print(f"offline: {iql.evaluate()['eval_return_mean']:.1f}")

    result = finetune(iql.checkpoint.path, "Pendulum-v1", [f"total_timesteps={steps}"])
    print(f"before fine-tuning: {result.metrics['return_before']:.1f}")
    print(f"after fine-tuning:  {result.metrics['return_after']:.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train IQL offline, then fine-tune it online.")
    parser.add_argument("--steps", type=int, default=6_000, help="environment steps per phase")
    parser.add_argument("--updates", type=int, default=10_000, help="offline gradient updates")
    arguments = parser.parse_args()
    main(arguments.steps, arguments.updates)

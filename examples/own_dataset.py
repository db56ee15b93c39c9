"""Train offline on your own arrays, and estimate the policy's value without an environment.

    python examples/own_dataset.py

Replace `record` with whatever produces your transitions: logs of a robot, a simulator, a database.
"""

import argparse
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training import IQL, evaluate_checkpoint


def record(rows: int, seed: int = 0) -> dict[str, Any]:
    """Play Pendulum with a noisy hand-written controller and return its transitions."""
    env, random = gym.make("Pendulum-v1"), np.random.default_rng(seed)
    columns = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")
    data: dict[str, list[Any]] = {name: [] for name in columns}
    obs, _ = env.reset(seed=seed)
    for _ in range(rows):
        angle, speed = np.arctan2(obs[1], obs[0]), obs[2]
        upright = abs(angle) < 0.5
        torque = -10 * angle - 2 * speed if upright else 2 * np.sign(speed)  # balance or swing up
        action = np.clip([torque + random.normal(scale=0.5)], -2, 2).astype(np.float32)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        # Store terminations and time limits separately: a target bootstraps at a time limit but
        # not at a termination.
        row = (obs, action, reward, next_obs, terminated, truncated)
        for name, value in zip(columns, row, strict=True):
            data[name].append(value)
        obs = env.reset()[0] if terminated or truncated else next_obs
    return {name: np.asarray(values) for name, values in data.items()}


def main(rows: int, updates: int) -> None:
    """Train IQL for ``updates`` gradient updates on ``rows`` recorded transitions."""
    arrays = record(rows)
    # Without an environment, the action bounds must be set.
    model = IQL(
        dataset=arrays,
        action_low=-2,
        action_high=2,
        return_scaling=True,
        validation_fraction=0.1,
    )
    model.learn(updates)
    print(f"loss on held-out rows: {model.evaluate()['eval_loss']:.3f}")
    estimate = evaluate_checkpoint(
        model.checkpoint.path, fqe=True, fqe_updates=updates, dataset=arrays
    )
    print(f"value estimated by fitted Q evaluation: {estimate['fqe_value']:.1f}")
    print(f"action for a hanging pendulum: {model.predict(np.array([-1.0, 0.0, 0.0]))}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train offline on your own arrays.")
    parser.add_argument("--rows", type=int, default=10_000, help="transitions to record")
    parser.add_argument("--updates", type=int, default=5_000, help="gradient updates")
    arguments = parser.parse_args()
    main(arguments.rows, arguments.updates)

"""Measure the returns of uniformly random actions: `python -m benchmarks.reference_returns`.

`src/rl_training/assets/reference_returns.yaml` uses them where D4RL has no value. The Box2D
environments need `pip install 'gymnasium[box2d]'`.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from benchmarks.describe import describe

MUJOCO = [
    f"{name}-{version}"
    for name in ("Humanoid", "Swimmer", "Reacher", "InvertedPendulum", "InvertedDoublePendulum")
    for version in ("v4", "v5")
]
CLASSIC = ["Pendulum-v1", "CartPole-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0"]
BOX2D = ["LunarLander-v3", "LunarLanderContinuous-v3", "BipedalWalker-v3"]


def main() -> None:
    """Print a line for each environment, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", nargs="+", default=[*CLASSIC, *MUJOCO, *BOX2D])
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    facts = describe()
    found = {}
    for name in options.envs:
        returns = random_returns(name, options.episodes)
        error = float(np.std(returns, ddof=1) / math.sqrt(len(returns)))
        found[name] = {"mean": float(np.mean(returns)), "standard_error": error}
        print(f"{name:28s} {found[name]['mean']:12.3f} ± {error:.3f}", flush=True)
    if options.out:
        record: dict[str, Any] = facts | {"episodes": options.episodes, "returns": found}
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def random_returns(name: str, episodes: int) -> list[float]:
    """Return the returns of episodes with uniformly random actions."""
    env = gymnasium.make(name)
    env.action_space.seed(0)
    returns = []
    for episode in range(episodes):
        env.reset(seed=episode)
        total, ended = 0.0, False
        while not ended:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            total += float(reward)
            ended = terminated or truncated
        returns.append(total)
    env.close()
    return returns


if __name__ == "__main__":
    main()

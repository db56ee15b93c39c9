"""Time Stable-Baselines3's DQN and print the result as one JSON object.

Run by ``benchmarks/dqn_cpu.py`` with the interpreter of the peers' environment.
"""

import argparse
import json
import time
from importlib.metadata import version
from typing import Any

import torch
from stable_baselines3 import DQN  # type: ignore[import-not-found]

PACKAGES = ["torch", "stable-baselines3", "gymnasium", "numpy"]


def speed(model: Any, steps: int, warmup: int) -> float:
    """Environment steps per second from step ``warmup`` to step ``steps``.

    The callback runs between the environment's step and the updates that follow it; both ends of
    the window lie at the same place of a round of updates, so it holds whole rounds.
    """
    times: list[float] = []

    def note(_locals: dict[str, Any], _globals: dict[str, Any]) -> bool:
        times.append(time.perf_counter())
        return True

    model.learn(total_timesteps=steps, callback=note)
    return (steps - warmup) / (times[steps - 1] - times[warmup - 1])


def main() -> None:
    """Train, then print the speed, the thread count and the versions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--warmup", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True, help="torch threads")
    parser.add_argument("--settings", required=True, help="JSON: keyword arguments of DQN")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    settings = json.loads(args.settings)
    model = DQN("MlpPolicy", args.env, seed=0, device="cpu", verbose=0, **settings)
    print(
        json.dumps(
            {
                "steps_per_second": speed(model, args.steps, args.warmup),
                "threads": torch.get_num_threads(),
                "versions": {name: version(name) for name in PACKAGES},
            }
        )
    )


if __name__ == "__main__":
    main()

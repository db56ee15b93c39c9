"""Time Stable-Baselines3's DQN and print the result as one JSON object.

Run by ``benchmarks/dqn_cpu.py`` with the interpreter of the peers' environment.
"""

import argparse
import json
from importlib.metadata import version

import torch
from sac_peer import speed  # type: ignore[import-not-found]
from stable_baselines3 import DQN  # type: ignore[import-not-found]

PACKAGES = ["torch", "stable-baselines3", "gymnasium", "numpy"]


def main() -> None:
    """Train, then print the speed, the thread count and the versions.

    The window must hold whole rounds of updates: both its ends at one place of a round.
    """
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

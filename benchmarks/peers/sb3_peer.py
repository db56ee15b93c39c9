"""Time an algorithm of Stable-Baselines3 or sb3-contrib and print the result as a JSON object.

Run by ``benchmarks/online_cpu.py`` with the interpreter of the peers' environment.
"""

import argparse
import json
import time
from importlib.metadata import version
from typing import Any

import torch
from sb3_learning import add_learner_arguments, make_model  # type: ignore[import-not-found]

PACKAGES = ["torch", "stable-baselines3", "gymnasium", "mujoco", "numpy"]


class Window:
    """A callback that times the steps after a warm-up, for some seconds.

    It runs between an environment step and the update that follows, so the window contains as many
    steps as updates.
    """

    def __init__(self, warmup: int, seconds: float) -> None:
        self.warmup, self.seconds = warmup, seconds
        self.step = 0
        self.first: tuple[int, float] | None = None
        self.result: dict[str, Any] = {}

    def __call__(self, _locals: dict[str, Any], _globals: dict[str, Any]) -> bool:
        """Return whether to continue."""
        now = time.perf_counter()
        self.step += 1
        if self.first is None:
            self.first = (self.step, now) if self.step >= self.warmup else None
            return True
        steps, seconds = self.step - self.first[0], now - self.first[1]
        self.result = {"speed": steps / seconds, "steps": steps, "seconds": seconds}
        return seconds < self.seconds


def main() -> None:
    """Train and print the speed, the thread count and the versions."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add_learner_arguments(parser)
    parser.add_argument("--warmup", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument(
        "--steps", type=int, required=True, help="total steps, the length of schedules"
    )
    args = parser.parse_args()
    args.seed = 0
    window = Window(args.warmup, args.seconds)
    make_model(args).learn(total_timesteps=args.steps, callback=window)
    facts = {"threads": torch.get_num_threads(), "versions": {p: version(p) for p in PACKAGES}}
    print(json.dumps(window.result | facts))


if __name__ == "__main__":
    main()

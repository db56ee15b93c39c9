"""Time SAC of another library and print the result as a JSON object.

Run by ``benchmarks/sac_cpu.py`` with the interpreter of the peers' environment.
"""

import argparse
import json
import time
from importlib.metadata import version
from typing import Any

import torch

PACKAGES = ["torch", "stable-baselines3", "sbx-rl", "jax", "gymnasium", "mujoco", "numpy"]
SETTINGS: dict[str, Any] = {
    "learning_rate": 3e-4,
    "buffer_size": 1_000_000,
    "learning_starts": 100,
    "batch_size": 256,
    "tau": 0.005,
    "gamma": 0.99,
    "train_freq": 1,
    "gradient_steps": 1,
    "ent_coef": "auto",
    "policy_kwargs": {"net_arch": [256, 256]},
    "seed": 0,
    "verbose": 0,
}


def make_model(library: str, env: str) -> Any:
    """Return the library's SAC with the shared settings, on the CPU."""
    if library == "sbx":
        from sbx import SAC  # type: ignore[import-not-found]

        return SAC("MlpPolicy", env, **SETTINGS)
    from stable_baselines3 import SAC  # type: ignore[import-not-found]

    return SAC("MlpPolicy", env, device="cpu", **SETTINGS)


def speed(model: Any, steps: int, warmup: int) -> float:
    """Return environment steps (and updates) per second after the first ``warmup`` steps.

    The callback runs between the environment's step and the update that follows it, so the
    window contains exactly ``steps - warmup`` of each.
    """
    times: list[float] = []

    def note(_locals: dict[str, Any], _globals: dict[str, Any]) -> bool:
        times.append(time.perf_counter())
        return True

    model.learn(total_timesteps=steps, callback=note)
    return (steps - warmup) / (times[steps - 1] - times[warmup - 1])


def main() -> None:
    """Train and print the speed, the thread count and the versions."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("library", choices=["sb3", "sbx"])
    parser.add_argument("--env", default="HalfCheetah-v5")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--warmup", type=int, required=True)
    parser.add_argument("--threads", type=int, help="torch threads (default: torch's choice)")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    rate = speed(make_model(args.library, args.env), args.steps, args.warmup)
    threads = torch.get_num_threads() if args.library == "sb3" else "XLA default"
    versions = {name: version(name) for name in PACKAGES}
    print(json.dumps({"steps_per_second": rate, "threads": threads, "versions": versions}))


if __name__ == "__main__":
    main()

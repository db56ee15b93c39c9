"""Measure the time of one action for one observation on the CPU, with one thread.

HalfCheetah sizes, networks 2×256. The policy is called as in evaluation (NumPy in, the
environment's units out) and as in exploration. Each number is the median of 2,000 calls, in
rounds.

    python -m benchmarks.inference_cpu --out result.json
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.describe import describe, spread
from benchmarks.engine_gpu import SPEC
from benchmarks.peering import cell, write
from rl_training.algorithms.base import draw_noise
from rl_training.algorithms.registry import REGISTRY
from rl_training.runtime.evaluation import Policy

ALGOS = ("sac", "td3", "iql")
CALLS = 2_000


def typical(call: Callable[[], object]) -> float:
    """Return the median time of a call in microseconds."""
    times = []
    for _ in range(CALLS):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return 1e6 * median(times)


def calls(algo: str) -> dict[str, Callable[[], object]]:
    """Return the two ways to get an action from a learner."""
    learner = REGISTRY[algo].learner_class()
    algorithm = learner.build(SPEC, learner.config_class(hidden_sizes=(256, 256)))
    policy, generator = Policy(algorithm, SPEC), torch.Generator()
    obs = np.random.default_rng(0).standard_normal(SPEC.obs_dim, dtype=np.float32)
    row = torch.from_numpy(obs[None])

    def explore() -> object:
        noise = draw_noise(algorithm.act_noise(1), generator)
        return algorithm.act(row, deterministic=False, noise=noise)

    return {"policy": lambda: policy(obs), "exploring": explore}


def main() -> None:
    """Measure in rounds, print and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="file to write the record to")
    args = parser.parse_args()
    torch.set_num_threads(1)
    ways = {f"{algo}, {way}": call for algo in ALGOS for way, call in calls(algo).items()}
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(args.rounds):
        for name, call in ways.items():
            found[name].append(typical(call))
    results = {name: spread(times) for name, times in found.items()}
    table = Table(title="One action, µs: median (minimum - maximum) of the rounds")
    table.add_column("")
    table.add_column("µs", justify="right")
    for name, entry in results.items():
        table.add_row(name, cell(entry, ".1f"))
    Console().print(table)
    write({**describe(), "microseconds": results}, args.out)


if __name__ == "__main__":
    main()

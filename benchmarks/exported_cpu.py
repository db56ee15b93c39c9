"""Measure the time of one action of an exported policy, compared with `predict`, with one thread.

Calls take turns, so that other load on the machine affects all of them. Each number is the median
of the calls of a round, and each ratio compares the calls of one round. A ratio below 1 means that
the exported policy is faster than `predict`.

    python -m benchmarks.exported_cpu --rounds 10 --out result.json
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnxruntime
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.describe import describe, spread
from benchmarks.engine_gpu import SPEC
from benchmarks.peering import cell, write
from rl_training.algorithms.registry import REGISTRY
from rl_training.api.checkpoints import predict_actions
from rl_training.api.exporting import describe_ports, program_bytes
from rl_training.boundary.exported_policy import Policy as ExportedPolicy
from rl_training.envs import EnvConfig, describe_env
from rl_training.runtime.evaluation import Policy
from rl_training.runtime.policy_graph import export_program
from rl_training.runtime.policy_ports import policy_inputs, unflatten
from rl_training.types import EnvSpec

CASES: dict[str, tuple[str, EnvSpec]] = {
    "SAC, 17 observations": ("sac", SPEC),
    "TD3, 17 observations": ("td3", SPEC),
    "DQN, 17 observations": ("dqn", EnvSpec(17, 6, discrete=True)),
    "HER, goals": ("her", EnvSpec(20, 6, (-1.0,) * 6, (1.0,) * 6, goal_dim=3)),
    "DQN, images of 84×84": ("dqn", describe_env("rl_training/Catch-v0", EnvConfig())),
}
"""An algorithm and the sizes of its environment; networks have the default sizes."""

CALLS = 500
"""Number of calls of each kind in a round."""


def calls(algo: str, spec: EnvSpec, folder: Path) -> dict[str, Callable[[], object]]:
    """Return the ways to get an action for one observation."""
    entry = REGISTRY[algo]
    policy = Policy(entry.learner_class().build(spec, entry.config_class()()), spec)
    file = folder / "policy.onnx"
    file.write_bytes(program_bytes(export_program(policy), describe_ports(spec), onnx=True))
    rows = np.random.default_rng(0).random((1, spec.obs_dim), dtype=np.float32)
    batch = unflatten(rows, spec)
    single: Any = {name: values[0] for name, values in batch.items()}
    obs = single.get("", single)
    exported = ExportedPolicy(file)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    feeds = {given.name: batch[given.entry.name] for given in policy_inputs(spec)}
    return {
        "predict": lambda: predict_actions(policy, obs),
        "policy.py": lambda: exported(obs),
        "onnxruntime": lambda: session.run(None, feeds),
    }


def round_of(ways: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return the median time of each way in microseconds; single calls take turns."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(CALLS):
        for name, call in ways.items():
            began = time.perf_counter()
            call()
            times[name].append(1e6 * (time.perf_counter() - began))
    return {name: median(found) for name, found in times.items()}


def measure(algo: str, spec: EnvSpec, rounds: int) -> dict[str, dict[str, float]]:
    """Return the times of each way in microseconds, and the ratios to `predict`."""
    with TemporaryDirectory() as folder:
        ways = calls(algo, spec, Path(folder))
        found = [round_of(ways) for _ in range(rounds + 1)][1:]  # the first one warms up
    results = {name: spread([each[name] for each in found]) for name in ways}
    for name in list(ways)[1:]:
        ratios = [each[name] / each["predict"] for each in found]
        results[f"{name} / predict"] = spread(ratios)
    return results


def main() -> None:
    """Measure, print and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=10, help="number of rounds")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="file to write the record to")
    args = parser.parse_args()
    torch.set_num_threads(1)
    results = {name: measure(*case, args.rounds) for name, case in CASES.items()}
    table = Table(title="One action: median (minimum - maximum) of the rounds, µs and ratios")
    for name in ("", *next(iter(results.values()))):
        table.add_column(name, justify="right" if name else "left")
    for name, found in results.items():
        cells = [cell(x, ".2f" if "/" in way else ".1f") for way, x in found.items()]
        table.add_row(name, *cells)
    Console().print(table)
    write({**describe(), "microseconds": results}, args.out)


if __name__ == "__main__":
    main()

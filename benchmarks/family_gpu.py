"""Measure updates per second of every algorithm with CUDA graphs, and the cost of ensembles.

Batch 256, networks 2×256 unless stated otherwise, HalfCheetah sizes (DQN: CartPole), sampling
included, TF32. All algorithms are prepared in parallel, then measured one after another. HER's
batches are drawn and relabeled on the host with the rewards of PointGoal; it is also measured with
the compiled engine.

    python -m benchmarks.family_gpu --out result.json
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.describe import describe, spread
from rl_training.types import EnvSpec

if TYPE_CHECKING:
    from rl_training.data import HindsightReplay

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "sac": ("sac", {}),
    "ddpg": ("ddpg", {}),
    "td3": ("td3", {}),
    "tqc, 5 critics 3×512": ("tqc", {}),
    "redq, 2 critics": ("redq", {"num_critics": 2}),
    "redq, 10 critics": ("redq", {"num_critics": 10}),
    "dqn, CartPole": ("dqn", {}),
    "bc": ("bc", {}),
    "iql": ("iql", {}),
    "td3_bc": ("td3_bc", {}),
    "awac": ("awac", {"batch_size": 256, "hidden_sizes": (256, 256)}),
    "awac, batch 1024, actor 4×256": ("awac", {}),
    "cql, 3×256": ("cql", {"hidden_sizes": (256, 256, 256)}),
    "edac, 10 critics 3×256": ("edac", {"hidden_sizes": (256, 256, 256)}),
    "her, over sac": ("her", {}),
    "her, over sac, compiled": ("her", {}),
}
CARTPOLE = EnvSpec(4, 2, discrete=True)
GOAL_DIM = 2
ENVS, EPISODE = 100, 50


def goal_episodes(spec: EnvSpec, rows: int = 100_000, device: str = "cuda") -> "HindsightReplay":
    """Return finished episodes of noise with the goals of PointGoal, for HER to sample."""
    from rl_training.data import HindsightReplay
    from rl_training.envs import POINT_GOAL, EnvConfig, read_goal_task

    task = read_goal_task(POINT_GOAL, EnvConfig())
    sizes = rows, spec.obs_dim, spec.action_dim
    replay = HindsightReplay(*sizes, goal_dim=GOAL_DIM, num_envs=ENVS, task=task, device=device)
    rng = np.random.default_rng(0)
    for step in range(1, rows // ENVS + 1):
        obs, next_obs = rng.uniform(-1, 1, (2, ENVS, spec.obs_dim + GOAL_DIM))
        actions, rewards = rng.uniform(-1, 1, (ENVS, spec.action_dim)), np.full(ENVS, -1.0)
        ends = np.full(ENVS, step % EPISODE == 0)
        replay.add(obs, actions, rewards, next_obs, np.zeros(ENVS, bool), ends)
    return replay


def measure(name: str) -> None:
    """Prepare, report it, wait for the turn and measure."""
    import torch

    from benchmarks.engine_gpu import SPEC, filled_buffer, make_engine, speed

    algo, settings = CASES[name]
    torch.set_float32_matmul_precision("high")
    spec = CARTPOLE if algo == "dqn" else SPEC
    replay = goal_episodes(spec) if algo == "her" else filled_buffer(spec=spec)
    mode = "compiled" if name.endswith("compiled") else "cuda_graph"
    engine = make_engine(algo, mode, replay, spec, **settings)
    print("ready", flush=True)
    sys.stdin.readline()
    found = [speed(engine, 4_000) for _ in range(3)]
    print(
        json.dumps({"speeds": found, "prepared": engine.preparation_seconds, "mode": engine.mode}),
        flush=True,
    )


def main() -> None:
    """Prepare all algorithms, measure one after another, print and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--only", nargs="*", choices=list(CASES), default=list(CASES), help="algorithms to measure"
    )
    parser.add_argument("--case", choices=list(CASES), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="file to write the record to")
    args = parser.parse_args()
    if args.case:
        measure(args.case)
        return
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "benchmarks.family_gpu", "--case"]
    running = {
        name: subprocess.Popen([*command, name], stdin=pipe, stdout=pipe, text=True)
        for name in args.only
    }
    for process in running.values():
        assert process.stdout is not None
        process.stdout.readline()
    results: dict[str, Any] = {}
    table = Table(title="One GPU, CUDA graphs unless stated otherwise")
    for heading in ("", "updates/s", "preparation, s (in parallel)"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, process in running.items():
        out, _ = process.communicate("go\n")
        results[name] = json.loads(out.splitlines()[-1])
        numbers = spread(results[name]["speeds"])
        cell = "{median:,.0f} ({min:,.0f} - {max:,.0f})".format(**numbers)
        table.add_row(name, cell, f"{results[name]['prepared']:.1f}")
    Console().print(table)
    if args.out:
        args.out.write_text(json.dumps({**describe(), "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()

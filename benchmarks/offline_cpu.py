"""Measure updates per second of the offline algorithms on the CPU, next to d3rlpy.

Ours is the offline loop of `train` (sampling, updates, log lines) without evaluation; theirs is
`fit` with logging silenced. Both have the same dataset, batch and network sizes and number of
sampled actions (`offline_cases.py`). EDAC, which d3rlpy does not have, is measured alone. Every
measurement is a separate process, in rounds of rotated order, timed for some seconds after a
warm-up. d3rlpy runs with its default number of threads and with one; the faster one counts.

    python -m benchmarks.offline_cpu --rounds 3 --out benchmarks/results/offline_cpu.json
    python -m benchmarks.offline_cpu --only bc iql --dataset data.npz --env HalfCheetah-v5
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console

from benchmarks.describe import describe
from benchmarks.offline_cases import CASES, our_config, peer_spec
from benchmarks.peering import D3RLPY, PEERS, Result, peer_python, run_json, take_turns, write
from benchmarks.versus import OURS, PEER, show, summarize

WARMUP = 40
OBS, ACT, EPISODE = 17, 6, 1_000
"""HalfCheetah's sizes."""


def write_noise(path: Path, rows: int) -> None:
    """Write a dataset of noise with HalfCheetah sizes, in episodes that end by a time limit."""
    rng = np.random.default_rng(0)
    walk = rng.standard_normal((rows + 1, OBS), dtype=np.float32)
    np.savez(
        path,
        observations=walk[:-1],
        actions=rng.uniform(-1, 1, (rows, ACT)).astype(np.float32),
        rewards=rng.standard_normal(rows, dtype=np.float32),
        next_observations=walk[1:],
        terminals=np.zeros(rows, bool),
        timeouts=np.arange(1, rows + 1) % EPISODE == 0,
    )


def measure(name: str, python: str, args: argparse.Namespace, folder: Path) -> Result:
    """Make one measurement; ``name`` is an algorithm and a kind."""
    algo, _, kind = name.partition(" ")
    window = ["--warmup", str(WARMUP), "--seconds", str(args.seconds)]
    if kind in PEER:
        command = [python, str(PEERS / "d3rlpy_peer.py"), "--spec", json.dumps(peer_spec(algo))]
        command += ["--dataset", str(args.dataset), *window]
        command += ["--env", args.env] if args.env else []
        return run_json(command + (["--threads", "1"] if kind == PEER[1] else []))
    file = folder / f"{algo}.yaml"
    config = our_config(algo, args.env or "HalfCheetah-v5", str(args.dataset), 1)
    file.write_text(json.dumps(config))
    command = [sys.executable, "-m", "benchmarks.timed_run", "--config", str(file), *window]
    return run_json([*command, f"engine={kind}"])


def main() -> None:
    """Measure in rounds, print the table and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds")
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="timed duration of each measurement"
    )
    parser.add_argument(
        "--only", nargs="+", choices=list(CASES), default=list(CASES), help="algorithms to measure"
    )
    parser.add_argument(
        "--dataset", type=Path, help="an .npz file (default: 100,000 rows of noise)"
    )
    parser.add_argument("--env", help="the environment of the dataset")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="file to write the record to")
    args = parser.parse_args()
    if (args.dataset is None) != (args.env is None):
        parser.error("--dataset and --env go together")
    console = Console()
    python = peer_python(console, D3RLPY)
    kinds = {algo: OURS + PEER if CASES[algo].peer else OURS for algo in args.only}
    names = [f"{algo} {kind}" for algo in args.only for kind in kinds[algo]]
    described = describe() | {"dataset": args.dataset.name if args.dataset else "noise"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.dataset is None:
            args.dataset = folder / "noise.npz"
            write_noise(args.dataset, 100_000)
        for rounds in take_turns(
            names, args.rounds, lambda name: measure(name, python, args, folder), console
        ):  # write after every round, so that finished rounds survive an interruption
            report = {**described, "summary": summarize(rounds, args.only), "rounds": rounds}
            write(report, args.out)
    show(report, console, "Offline updates on the CPU")


if __name__ == "__main__":
    main()

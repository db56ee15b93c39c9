"""Compare returns of the offline algorithms with d3rlpy's: same data, updates, starts and settings.

Every seed trains on the dataset for the same number of updates (`offline_cases.py`: 10,000; CQL
3,000). The last checkpoint plays 20 episodes from the same starts. Intervals are from a bootstrap
over seeds and episodes within each seed; the interval of the difference is over seeds only. Calls
with the same `--out` add algorithms, sides or seeds to one record.

    python -m benchmarks.offline_learning --dataset pendulum-medium-sac-rllib.npz \
        --only iql --out benchmarks/results/offline_learning.json
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.describe import describe
from benchmarks.offline_cases import CASES, WITH_PEER, our_config, peer_spec
from benchmarks.peering import D3RLPY, PEERS, Result, peer_python, run_json, write
from rl_training import evaluate_checkpoint

EVALUATION_SEED = 10_000
DRAWS = 10_000
SHOWN = ("ours", "peer", "difference")


def train_ours(args: argparse.Namespace, algo: str, seed: int) -> Result:
    """Train one seed with the command line and evaluate its last checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        updates = args.updates or CASES[algo].updates
        config.write_text(json.dumps(our_config(algo, args.env, str(args.dataset), updates)))
        command = [sys.executable, "-m", "rl_training", "train", "--config", str(config), "--json"]
        command += [f"seed={seed}", f"output_dir={folder}", f"num_threads={args.threads}"]
        command += [f"device={args.device}", "eval_interval=0", "eval_episodes=0"]
        run_dir = run_json(command, args.device)["run_dir"]
        played = [
            evaluate_checkpoint(run_dir, episodes=1, seed=EVALUATION_SEED + episode)
            for episode in range(args.episodes)
        ]
    if played[0]["step"] != updates:
        raise SystemExit(f"{algo}, seed {seed}: ended at update {played[0]['step']} of {updates}")
    return {"seed": seed, "returns": [each["eval_return_mean"] for each in played]}


def train_peer(args: argparse.Namespace, algo: str, seed: int) -> Result:
    """Train and evaluate one seed of d3rlpy."""
    command = [args.python, str(PEERS / "d3rlpy_peer.py"), "--spec", json.dumps(peer_spec(algo))]
    command += ["--dataset", str(args.dataset), "--env", args.env, "--seed", str(seed)]
    command += ["--updates", str(args.updates or CASES[algo].updates)]
    command += ["--threads", str(args.threads), "--episodes", str(args.episodes)]
    command += ["--episode-seed", str(EVALUATION_SEED), "--device", args.device]
    return {"seed": seed} | run_json(command, args.device)


def estimate(mean: float, drawn: Any) -> Result:
    """Return a mean and its 95% percentile interval."""
    low, high = np.percentile(drawn, [2.5, 97.5])
    return {"mean": mean, "interval": (float(low), float(high))}


def score(runs: list[Result]) -> Result:
    """Return the mean, its bootstrap interval over seeds and episodes, and the runs."""
    returns = np.array([run["returns"] for run in runs])  # [seeds, episodes]
    rng = np.random.default_rng(0)
    seeds = rng.integers(len(returns), size=(DRAWS, len(returns)))
    episodes = rng.integers(returns.shape[1], size=(DRAWS, *returns.shape))
    drawn = np.take_along_axis(returns[seeds], episodes, axis=2).mean(axis=(1, 2))
    means = [float(np.mean(run["returns"])) for run in runs]
    return estimate(float(np.mean(means)), drawn) | {"seed_means": means, "runs": runs}


def difference(ours: Result, peer: Result) -> Result:
    """Return our mean minus the peer's; only seeds are resampled, as the starts are shared."""
    rng, both = np.random.default_rng(0), (ours["seed_means"], peer["seed_means"])
    drawn = [rng.choice(means, size=(DRAWS, len(means))).mean(axis=1) for means in both]
    return estimate(ours["mean"] - peer["mean"], drawn[0] - drawn[1])


def data_returns(path: Path) -> Result:
    """Return the mean and the highest return of the dataset's episodes."""
    with np.load(path) as data:
        ends = np.flatnonzero(data["terminals"] | data["timeouts"]) + 1
        sums = [float(part.sum()) for part in np.split(data["rewards"], ends)[: len(ends)]]
    return {"name": path.name, "mean_return": float(np.mean(sums)), "best_return": max(sums)}


def show(record: Result, console: Console) -> None:
    """Print the table of the whole record."""
    table = Table(title="Mean return [95% interval], last checkpoint")
    for heading in ("", "updates", "ours", "d3rlpy", "difference", "dataset"):
        table.add_column(heading, justify="right" if heading else "left")

    def text(entry: Result) -> str:
        low, high = entry["interval"]
        return f"{entry['mean']:.1f} [{low:.1f}, {high:.1f}]"

    for algo, entry in record.items():
        data = f"{entry['dataset']['mean_return']:.1f}"
        cells = (text(entry[side]) if side in entry else "" for side in SHOWN)
        table.add_row(algo, str(entry["updates"]), *cells, data)
    console.print(table)


def main() -> None:
    """Train the selected cases, add them to the record and print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--dataset", type=Path, required=True, help="an .npz file")
    parser.add_argument("--env", default="Pendulum-v1", help="environment to train in")
    parser.add_argument(
        "--only", nargs="+", choices=WITH_PEER, default=WITH_PEER, help="algorithms to measure"
    )
    parser.add_argument(
        "--sides",
        nargs="+",
        choices=["ours", "peer"],
        default=["ours", "peer"],
        help="rl_training, d3rlpy or both",
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="seeds of the runs")
    parser.add_argument("--episodes", type=int, default=20, help="evaluation episodes")
    parser.add_argument(
        "--updates", type=int, help="number of updates (default: the algorithm's own)"
    )
    parser.add_argument("--threads", type=int, default=1, help="of each run")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="of each run")
    parser.add_argument("--at-once", type=int, default=1, help="runs in parallel")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="the record to add to")
    args = parser.parse_args()
    console = Console()
    args.python = peer_python(console, D3RLPY)
    works: dict[str, Callable[[argparse.Namespace, str, int], Result]] = {
        "ours": train_ours,
        "peer": train_peer,
    }
    record: Result = json.loads(args.out.read_text()) if args.out and args.out.exists() else {}
    for algo in args.only:
        entry = record.setdefault(algo, {})
        updates = args.updates or CASES[algo].updates
        if entry.get("updates", updates) != updates:
            raise SystemExit(f"{args.out} has {algo} with {entry['updates']} updates")
        entry |= {"updates": updates, "dataset": data_returns(args.dataset)}
        for side in args.sides:
            with ThreadPoolExecutor(args.at_once) as pool:
                futures = [pool.submit(works[side], args, algo, seed) for seed in args.seeds]
            described, old = describe(), entry.get(side, {}).get("runs", [])
            described["device"] = torch.cuda.get_device_name() if args.device == "cuda" else "cpu"
            made = {key: described[key] for key in ("commit", "device")}
            runs = [future.result() | made for future in futures]
            runs += [run for run in old if run["seed"] not in args.seeds]
            entry[side] = described | score(sorted(runs, key=lambda run: run["seed"]))
            console.print(f"{algo}, {side}: {entry[side]['mean']:.1f} {entry[side]['seed_means']}")
            if "ours" in entry and "peer" in entry:
                entry["difference"] = difference(entry["ours"], entry["peer"])
            write(record, args.out)
    show(record, console)


if __name__ == "__main__":
    main()

"""Compare a study and its report with the same runs alone: time, processor time and returns.

    python -m benchmarks.study_overhead --steps 20000 --rounds 1 --out result.json

Each round trains every config and seed twice: as one study whose report is written, and as separate
`rl-training train` commands, with as many at once as the study has workers. The two take turns to
be first. Three ratios are recorded, each of which should be at most 1.1:

- `wall`: time of the study / time of the separate commands
- `cpu`: the same for processor time, which other programs on the machine hardly affect
- `own`: workers × time of the study / sum of the training times of its runs, which counts the
  starts of all processes, the index, the report and idle workers at the end as overhead
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.describe import describe, spread
from rl_training import Study
from rl_training.experiment.run_directory import read_run_info

CONFIGS = ("sac/pendulum", "td3/pendulum", "tqc/pendulum")


def clock() -> tuple[float, float]:
    """Return the time, and the processor time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter(), used.ru_utime + used.ru_stime


def call(*words: str) -> None:
    """Run a command of the package."""
    threads = {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "rl_training", *words]
    done = subprocess.run(
        command, env=os.environ | threads, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")


def run_study(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Train all runs as a study, and write its report."""
    began, used = clock()
    options = ["--seeds", str(args.seeds), "--cores", str(args.workers), "--out", str(folder)]
    call("study", "run", *args.configs, *options, f"total_timesteps={args.steps}", *args.set)
    call("study", "report", str(folder))
    ended, used_then = clock()
    index = Study.load(folder).index
    assert len(index) == len(args.configs) * args.seeds
    training = sum(run.seconds for run in index)
    returns = {f"{run.label} {run.seed}": run.results["last_return"] for run in index}
    own = args.workers * (ended - began) / training
    return {"wall": ended - began, "cpu": used_then - used, "own": own, "returns": returns}


def run_alone(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Train the same runs with separate commands, in the order of the study."""
    began, used = clock()
    returns: dict[str, Any] = {}

    def train(seed: int, config: str) -> None:
        runs = folder / f"{config.replace('/', '_')}_{seed}"
        settings = [f"total_timesteps={args.steps}", f"seed={seed}", "num_threads=1", *args.set]
        call("train", "--config", config, *settings, f"output_dir={runs}")
        (run_dir,) = runs.iterdir()
        label = config.partition("/")[0]
        returns[f"{label} {seed}"] = read_run_info(run_dir)["last_return"]

    with ThreadPoolExecutor(args.workers) as pool:
        list(pool.map(lambda pair: train(*pair), product(range(args.seeds), args.configs)))
    ended, used_then = clock()
    return {"wall": ended - began, "cpu": used_then - used, "returns": returns}


def measure(args: argparse.Namespace, number: int) -> dict[str, Any]:
    """Train everything both ways, and compare."""
    sides = {"study": run_study, "alone": run_alone}
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for side in list(sides)[:: -1 if number % 2 else 1]:
            found[side] = sides[side](args, Path(folder) / side)
    study, alone = found["study"], found["alone"]
    if study["returns"] != alone["returns"]:
        raise SystemExit(f"the returns differ: {study['returns']}, {alone['returns']}")
    seconds = {f"{side}_{key}": found[side][key] for side in found for key in ("wall", "cpu")}
    return {
        **{key: round(value, 1) for key, value in seconds.items()},
        "wall": round(study["wall"] / alone["wall"], 4),
        "cpu": round(study["cpu"] / alone["cpu"], 4),
        "own": round(study["own"], 4),
        "load": round(os.getloadavg()[1], 1),
    }


def main() -> None:
    """Measure all rounds, print them and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("configs", nargs="*", default=CONFIGS, help="packaged configs")
    parser.add_argument("--steps", type=int, default=20_000, help="steps of each run")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="runs at once")
    parser.add_argument("--rounds", type=int, default=1, help="number of rounds")
    parser.add_argument("--set", nargs="*", default=[], help="config keys to change: key=value")
    parser.add_argument("--out", type=Path, default=None, help="file to write the record to")
    args = parser.parse_args()
    rounds: list[dict[str, Any]] = []
    for number in range(args.rounds):
        rounds.append(measure(args, number))
        print("  ".join(f"{key} {value}" for key, value in rounds[-1].items()), flush=True)
        ratios = {key: spread([row[key] for row in rounds]) for key in ("wall", "cpu", "own")}
        if args.out:
            record = {
                **describe(),
                "runs": len(args.configs) * args.seeds,
                "steps": args.steps,
                "workers": args.workers,
                "ratios": ratios,
                "same_returns": True,
                "rounds": rounds,
            }
            args.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()

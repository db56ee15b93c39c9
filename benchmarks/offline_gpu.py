"""Measure returns of the offline algorithms on MuJoCo data, with seeds in parallel on one GPU.

The datasets are those of `collect_medium.py`. Every algorithm uses its packaged config, except for
seed, dataset and number of updates; its last checkpoint plays 10 episodes from the same starts. A
process runs the seeds of one algorithm on one dataset one after another. Calls with the same
``--out`` add to one record, which contains the commit of each run, so the benchmark can be
interrupted and continued.

    python -m benchmarks.offline_gpu --data data --updates 100000 --out result.json
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from threading import Lock
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.describe import describe
from benchmarks.peering import write
from benchmarks.records import estimate

ALGOS = ("edac", "cql", "awac", "iql", "td3_bc", "bc")  # slowest first
TASKS = {"halfcheetah": (-280.18, 12_135.0), "hopper": (-20.27, 3_234.3)}
KINDS = ("medium-replay", "medium")
EVALUATION_SEED = 10_000

Result = dict[str, Any]


def work(args: argparse.Namespace) -> None:
    """Train and evaluate each seed of one algorithm on one dataset; print a JSON line for each."""
    from rl_training import TrainConfig, evaluate_checkpoint, train

    algo, task, kind = args.work
    for seed in args.seeds:
        with tempfile.TemporaryDirectory() as folder:
            overrides = [f"dataset_path={args.data / f'{task}-{kind}.npz'}", f"seed={seed}"]
            overrides += [f"total_timesteps={args.updates}", f"output_dir={folder}"]
            overrides += [f"device={args.device}", "eval_episodes=0", "num_threads=1", *args.set]
            began = time.perf_counter()
            result = train(TrainConfig.load(f"{algo}/{task}", overrides))
            seconds = time.perf_counter() - began
            played = evaluate_checkpoint(result.run_dir, episodes=10, seed=EVALUATION_SEED)
        found = {"seed": seed, "return": played["eval_return_mean"], "seconds": seconds}
        print(json.dumps(found), flush=True)


def score(value: float, task: str) -> float:
    """Return the D4RL score of a return: 0 is random play, 100 is an expert."""
    random, expert = TASKS[task]
    return 100.0 * (value - random) / (expert - random)


def show(runs: dict[str, list[Result]], console: Console) -> None:
    """Print normalized scores with their intervals over seeds."""
    table = Table(title="Normalized score, mean [95% interval over seeds]")
    pairs = list(product(TASKS, KINDS))
    for heading in ("", *(f"{task} {kind}" for task, kind in pairs)):
        table.add_column(heading, justify="right" if heading else "left")
    for algo in ALGOS:
        cells = []
        for task, kind in pairs:
            found = runs.get(f"{algo} {task} {kind}", [])
            values = [score(run["return"], task) for run in found]
            cells.append(f"{estimate(values, 1)} ×{len(values)}" if values else "")
        table.add_row(algo, *cells)
    console.print(table)


def main() -> None:
    """Run what is missing in the record, print and write it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the datasets")
    parser.add_argument("--algos", nargs="*", default=list(ALGOS), help="algorithms to run")
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), help="environments to run")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), help="kinds of datasets")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2], help="seeds of the runs")
    parser.add_argument("--updates", type=int, default=100_000, help="updates of each run")
    parser.add_argument("--device", default="cuda", help="cpu or cuda")
    parser.add_argument("--at-once", type=int, default=12, help="processes")
    parser.add_argument("--set", nargs="*", default=[], help="further settings, key=value")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE.json", help="file to write the record to"
    )
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        work(args)
        return
    console, lock = Console(width=150), Lock()
    report: Result = {"runs": {}}
    if args.out.exists():
        report = json.loads(args.out.read_text())
    report |= {**describe(), "updates": args.updates, "settings": args.set}

    def take(case: tuple[str, str, str]) -> None:
        name = " ".join(case)
        done = {run["seed"] for run in report["runs"].get(name, [])}
        seeds = [str(seed) for seed in args.seeds if seed not in done]
        if not seeds:
            return
        command = [sys.executable, "-m", "benchmarks.offline_gpu", "--work", *case]
        command += ["--data", str(args.data), "--updates", str(args.updates), "--out", "-"]
        command += ["--device", args.device, "--seeds", *seeds, "--set", *args.set]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            for line in process.stdout:
                with lock:
                    found = json.loads(line) | {"commit": report["commit"]}
                    report["runs"].setdefault(name, []).append(found)
                    console.print(f"{name}: {line.strip()}")
                    write(report, args.out)
            said = process.stderr.read()
        if process.returncode:
            console.print(f"{name} failed:\n{said[-1500:]}")

    with ThreadPoolExecutor(args.at_once) as pool:
        list(pool.map(take, list(product(args.algos, args.tasks, args.kinds))))
    show(report["runs"], console)
    write(report, args.out)


if __name__ == "__main__":
    main()

r"""Compare the returns of a population with those of single runs with the same config.

The same seeds are trained as single runs and as members of a population. Both round differently, so
a run and its member drift apart, but their returns come from the same distribution: the test is
that of Kolmogorov and Smirnov, over seeds. It can be interrupted and started again.

    python -m benchmarks.population_returns --device cuda --out population_returns_gpu.json
    python -m benchmarks.population_returns --device cpu --set hidden_sizes=[64,64] batch_size=64 \
        train_frequency=4 --out population_returns_cpu.json
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from rich.console import Console
from rich.table import Table
from scipy.stats import ks_2samp

from benchmarks.describe import describe
from rl_training.boundary.yaml_codec import dump_yaml
from rl_training.study.index import StudyIndex

Result = dict[str, Any]
EXECUTORS = ("local", "population")


def train(args: argparse.Namespace, executor: str) -> dict[int, float]:
    """Train all seeds, and return the last return of each."""
    folder = args.runs / executor
    settings = {
        "device": args.device,
        "total_timesteps": args.steps,
        "eval_episodes": 20,
        "eval_interval": args.steps,
        "checkpoint_interval": args.steps // 4,
        **{key: yaml.safe_load(value) for key, value in (word.split("=", 1) for word in args.set)},
    }
    share = {"cpus": 1, "gpus": 1 / 16 if args.device == "cuda" else 0}
    description = {
        "name": executor,
        "runs": [args.config],
        "seeds": args.seeds,
        "set": settings,
        "executor": executor,
        "resources": share,
    }
    file = folder.with_suffix(".yaml")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(dump_yaml(description))
    command = [sys.executable, "-m", "rl_training", "study", "run", str(file), "--out", str(folder)]
    done = subprocess.run([*command, "--cores", str(args.cores)], check=False)
    if done.returncode:
        raise SystemExit(f"{executor}: the study has not finished; run this command again.")
    results = {run.seed: run.results["last_return"] for run in StudyIndex.open(folder)}
    return {seed: float(value) for seed, value in results.items() if value is not None}


def main() -> None:
    """Train both ways, print the test and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--config", default="sac/hopper", help="a packaged config")
    parser.add_argument("--seeds", type=int, default=20, help="number of seeds")
    parser.add_argument("--steps", type=int, default=100_000, help="steps of each run")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--cores", type=int, default=2, help="cores to use")
    parser.add_argument("--set", nargs="*", default=[], help="further settings, key=value")
    parser.add_argument("--runs", type=Path, default=Path("studies/population_returns"))
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="file to write the record to")
    args = parser.parse_args()
    returns = {executor: train(args, executor) for executor in EXECUTORS}
    samples = [list(returns[executor].values()) for executor in EXECUTORS]
    test = ks_2samp(*samples)
    table = Table(title=f"{args.config}, {args.seeds} seeds, {args.steps:,} steps: last returns")
    for heading in ("", "mean", "deviation", "lowest", "highest"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, values in zip(("single runs", "population"), samples, strict=True):
        numbers = np.mean(values), np.std(values, ddof=1), min(values), max(values)
        table.add_row(name, *(f"{number:,.1f}" for number in numbers))
    console = Console()
    console.print(table)
    console.print(f"Kolmogorov-Smirnov: D = {test.statistic:.3f}, p = {test.pvalue:.3f}")
    if args.out:
        found = {"statistic": float(test.statistic), "p_value": float(test.pvalue)}
        record = {**describe(), "config": args.config, "steps": args.steps, "set": args.set}
        record |= {"device": args.device, "returns": returns, "kolmogorov_smirnov": found}
        args.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()

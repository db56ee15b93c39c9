"""Measure whole training on one GPU: environment steps per second and the learning curve.

HalfCheetah-v5, one environment, one update per step, with the command line. One run is timed alone;
then the seeds run in parallel for their returns.

    python -m benchmarks.train_gpu --seeds 0 1 2 --steps 100000 --out result.json
"""

import argparse
import json
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.describe import describe, spread

Result = dict[str, Any]


def command(config: str, folder: Path, seed: int, steps: int, extra: list[str]) -> list[str]:
    """Return the command of one run."""
    settings = [f"seed={seed}", f"total_timesteps={steps}", f"output_dir={folder}", "device=cuda"]
    settings += ["log_interval=1000", *extra]
    return [sys.executable, "-m", "rl_training", "train", "--json", "--config", config, *settings]


def finished(process: "subprocess.Popen[str]") -> Path:
    """Wait for a run and return its folder."""
    out, err = process.communicate()
    if process.returncode:
        raise SystemExit(f"training failed:\n{out[-1000:]}{err[-3000:]}")
    sys.stderr.write("".join(line + "\n" for line in err.splitlines() if "engine" in line))
    return Path(json.JSONDecoder().raw_decode(out[out.index("{") :])[0]["run_dir"])


def start(arguments: list[str]) -> "subprocess.Popen[str]":
    """Start a run."""
    pipe = subprocess.PIPE
    return subprocess.Popen(arguments, stdout=pipe, stderr=pipe, text=True)


def read(run_dir: Path) -> tuple[list[Result], list[Result]]:
    """Return a run's timed lines and its evaluations."""
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    timed = [row for row in rows if "time/seconds" in row and "updates" in row]
    return timed, [row for row in rows if "eval_return_mean" in row]


def speeds(timed: list[Result], after: int) -> list[float]:
    """Return steps per second between the log lines after a step."""
    rows = [row for row in timed if row["step"] >= after]
    return [
        (b["step"] - a["step"]) / (b["time/seconds"] - a["time/seconds"]) for a, b in pairwise(rows)
    ]


def main() -> None:
    """Time one run, then train the seeds in parallel."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--config", default="sac/halfcheetah", help="a packaged config")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2], help="seeds of the runs")
    parser.add_argument("--steps", type=int, default=100_000, help="steps of each run")
    parser.add_argument(
        "--timed-steps", type=int, default=30_000, help="steps of the timed run; 0 skips it"
    )
    parser.add_argument("--set", nargs="*", default=[], help="further settings, key=value")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="file to write the record to")
    args = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = [0.0]
        if args.timed_steps:
            quiet = ["engine=cuda_graph", "eval_interval=0", "eval_episodes=0", *args.set]
            alone = start(command(args.config, folder, 100, args.timed_steps, quiet))
            found = speeds(read(finished(alone))[0], args.timed_steps // 2)
            console.print(f"alone, {args.timed_steps:,} steps: {spread(found)} steps/s")
        running = {
            seed: start(command(args.config, folder, seed, args.steps, args.set))
            for seed in args.seeds
        }
        curves = {}
        for seed, process in running.items():
            run_dir = finished(process)
            evaluate = [sys.executable, "-m", "rl_training", "evaluate", str(run_dir), "--json"]
            last = json.loads(
                subprocess.run(
                    [*evaluate, "--episodes", "10", "--seed", "1000"],
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout
            )
            _, evaluations = read(run_dir)
            curves[seed] = {
                "last": last["eval_return_mean"],
                "curve": [(row["step"], row["eval_return_mean"]) for row in evaluations],
            }
    table = Table(title=f"{args.config}: mean return of 10 episodes at {args.steps:,} steps")
    table.add_column("seed")
    table.add_column("return", justify="right")
    for seed, curve in curves.items():
        table.add_row(str(seed), f"{curve['last']:,.0f}")
    console.print(table)
    if args.out:
        report = {**describe(), "steps_per_second": spread(found), "seeds": curves}
        args.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()

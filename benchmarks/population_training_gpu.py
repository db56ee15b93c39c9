"""Measure whole training of many seeds on one GPU: environment steps per second in total.

Each task trains with the command line, one after another: `seeds` runs as one program, with
evaluations and checkpoints. The speed over everything counts from the start of the first run's
clock to the end of the last one's, with the preparation of the engine; the speed while learning
leaves out the preparation and the steps before `--after`.

    python -m benchmarks.population_training_gpu --seeds 10 --steps 200000 --out result.json
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.describe import describe, spread
from benchmarks.train_gpu import read, speeds
from rl_training.study.index import StudyIndex

Result = dict[str, Any]
TASKS = ("HalfCheetah-v5", "Hopper-v5", "Ant-v5")


def train(config: str, task: str, seeds: int, steps: int, folder: Path, extra: list[str]) -> Result:
    """Train a population of one task, and return its speeds and returns."""
    settings = [f"env_id={task}", f"seeds={seeds}", f"total_timesteps={steps}", "device=cuda"]
    settings += [f"output_dir={folder}", "log_interval=1000", "eval_episodes=10", *extra]
    began = time.perf_counter()
    command = [sys.executable, "-m", "rl_training", "train", config, *settings]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"training failed:\n{done.stdout[-1000:]}{done.stderr[-3000:]}")
    seconds = time.perf_counter() - began
    (study,) = {index.parent for index in folder.rglob("index.jsonl")}
    found = {run.seed: read(run.path) for run in StudyIndex.open(study)}
    return {
        "task": task,
        "seeds": seeds,
        "steps": steps,
        "command_seconds": seconds,
        "seconds": max(timed[-1]["time/seconds"] for timed, _ in found.values()),
        "rows": next(timed for timed, _ in found.values()),
        "curves": {
            seed: [(row["step"], row["eval_return_mean"]) for row in evaluations]
            for seed, (_, evaluations) in found.items()
        },
    }


def summarize(result: Result, after: int) -> Result:
    """Replace the log lines of the first run by the speeds of all runs."""
    rows, seeds = result.pop("rows"), result["seeds"]
    late = [row for row in rows if row["step"] >= after]
    learning = (late[-1]["step"] - late[0]["step"]) / (
        late[-1]["time/seconds"] - late[0]["time/seconds"]
    )
    return result | {
        "steps_per_second": seeds * result["steps"] / result["seconds"],
        "steps_per_second_while_learning": seeds * learning,
        "between_log_lines": spread([seeds * speed for speed in speeds(rows, after)]),
    }


def main() -> None:
    """Train each task, print a table and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--config", default="sac/halfcheetah", help="a packaged config")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), help="ids of environments")
    parser.add_argument("--seeds", type=int, default=10, help="number of seeds")
    parser.add_argument("--steps", type=int, default=200_000, help="steps of each run")
    parser.add_argument("--after", type=int, default=12_000, help="step at which learning is timed")
    parser.add_argument("--set", nargs="*", default=[], help="further settings, key=value")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="file to write the record to")
    args = parser.parse_args()
    results = []
    table = Table(title=f"{args.config}, {args.seeds} seeds: environment steps/s in total")
    for heading in ("task", "whole training", "while learning", "between log lines"):
        table.add_column(heading, justify="left" if heading == "task" else "right")
    for task in args.tasks:
        with tempfile.TemporaryDirectory() as name:
            result = train(args.config, task, args.seeds, args.steps, Path(name), args.set)
        results.append(summarize(result, args.after))
        whole, learning = (
            f"{results[-1][key]:,.0f}"
            for key in ("steps_per_second", "steps_per_second_while_learning")
        )
        each = "{median:,.0f} ({min:,.0f} - {max:,.0f})".format(**results[-1]["between_log_lines"])
        table.add_row(task, whole, learning, each)
        if args.out:
            record = {**describe(), "config": args.config, "tasks": results}
            args.out.write_text(json.dumps(record, indent=2) + "\n")
    Console().print(table)


if __name__ == "__main__":
    main()

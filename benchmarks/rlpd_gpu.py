"""Measure offline-to-online training on one GPU: HalfCheetah-v5 with a recorded dataset.

There are three parts. The first one runs alone on the GPU, the others run their seeds in parallel:

- ``speed``: environment steps per second of the whole training of `rlpd/halfcheetah`, with 20
  updates of 10 critics per step;
- ``returns``: `rlpd/halfcheetah` with the dataset and `sac/halfcheetah` without it, after the same
  number of environment steps, last checkpoint, 10 episodes from the same starts;
- ``finetune``: `iql/halfcheetah` trained on the dataset, then fine-tuned; the return before, the
  lowest during fine-tuning, and the last.

A finished job is written to ``--out`` immediately and not run again with the same file. After
``--limit`` seconds, or on a signal, running jobs save and stop; with ``--runs`` the next call
continues them.

    python -m benchmarks.rlpd_gpu --dataset data/halfcheetah-medium.npz --runs runs --out out.json
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean
from threading import Event, Lock, Timer
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.describe import describe, spread
from benchmarks.peering import Result, cell, write
from benchmarks.train_gpu import read, speeds
from rl_training import TrainConfig, evaluate_checkpoint, finetune, resume, train
from rl_training.experiment.run_directory import read_run_info
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.checkpointing import list_steps
from rl_training.runtime.session import Session
from rl_training.runtime.training_loop import TrainResult

EVALUATION_SEED = 10_000
PIECES = {"speed": ("speed",), "returns": ("rlpd", "sac"), "finetune": ("iql",)}
"""The pieces and their jobs, each of which runs once per seed."""
FLOOR = 0.8
"""Share of the offline return below which a fine-tuned policy should not fall."""


class Progress(Callback):
    """Prints a line for every evaluation."""

    def __init__(self, name: str) -> None:
        self.name = name

    def on_evaluation(self, session: Session, metrics: Mapping[str, float]) -> None:
        """Print the step and the return."""
        value = metrics["eval_return_mean"]
        print(f"{self.name} at {session.state.step:,}: {value:,.0f}", flush=True)


# --- One job, in a separate process ----------------------------------------------


def completed(folder: Path, name: str, start: Callable[[Progress], TrainResult]) -> Path:
    """Return the finished run in ``folder``, after starting or resuming it if needed."""
    started = [run for run in folder.glob("*") if list_steps(run)]
    if started and read_run_info(started[0]).get("state") == "completed":
        return started[0]
    watch = Progress(name)
    result = resume(started[0], callbacks=[watch]) if started else start(watch)
    if result.stop_reason != "completed":
        raise SystemExit(f"{name} ended: {result.stop_reason}")
    return Path(result.run_dir)


def make_config(args: argparse.Namespace, config: str, folder: Path, *keys: str) -> TrainConfig:
    """Return a packaged config with the settings of this program."""
    common = [f"seed={args.seed}", f"device={args.device}", f"output_dir={folder}"]
    if not config.startswith("sac"):
        common.append(f"dataset_path={args.dataset}")
    return TrainConfig.load(config, [*common, "num_threads=1", *keys, *args.set])


def measure_speed(args: argparse.Namespace, folder: Path) -> Result:
    """Return steps per second between log lines, after preparation."""
    keys = [f"total_timesteps={args.timed_steps}", "eval_interval=0", "eval_episodes=0"]
    keys += ["engine=cuda_graph" if args.device == "cuda" else "engine=auto", "log_interval=500"]
    config = make_config(args, "rlpd/halfcheetah", folder, *keys)
    result = train(config)
    starts = config.resolved().algo_kwargs["learning_starts"]
    found = speeds(read(Path(result.run_dir))[0], starts + 1_000)
    engine = read_run_info(Path(result.run_dir))["engine"]
    updates = config.resolved().algo_kwargs["gradient_updates_per_step"]
    return {"engine": engine, "updates_per_step": updates, "steps_per_second": spread(found)}


def measure_return(args: argparse.Namespace, folder: Path) -> Result:
    """Train and return the last checkpoint's return and the curve."""
    keys = f"total_timesteps={args.steps}", "checkpoint_interval=5000", "eval_interval=5000"
    config = make_config(args, f"{args.job}/halfcheetah", folder, *keys)
    run_dir = completed(folder, args.name, lambda watch: train(config, callbacks=[watch]))
    return score(run_dir, args.episodes)


def measure_finetuning(args: argparse.Namespace, folder: Path) -> Result:
    """Train IQL offline and fine-tune it; evaluate from the same starts before and after."""
    keys = f"total_timesteps={args.updates}", "checkpoint_interval=10000", "eval_interval=25000"
    config = make_config(args, "iql/halfcheetah", folder / "offline", *keys)
    offline = completed(
        folder / "offline", args.name, lambda watch: train(config, callbacks=[watch])
    )
    changes = [f"total_timesteps={args.finetuning_steps}", f"eval_interval={args.eval_interval}"]
    changes += [f"output_dir={folder / 'online'}", "checkpoint_interval=2500"]
    changes += [f"eval_episodes={args.eval_episodes}", *args.set_online]

    def start_finetuning(watch: Progress) -> TrainResult:
        return finetune(offline, overrides=changes, callbacks=[watch])

    online = completed(folder / "online", f"{args.name}, fine-tuned", start_finetuning)
    curve = [row for row in read(online)[1] if "env_steps" in row]
    returns = [row["eval_return_mean"] for row in curve]
    return {
        "before": returns[0],
        "lowest": min(returns[1:]),
        "after": returns[-1],
        "curve": [[row["env_steps"], row["eval_return_mean"]] for row in curve],
    }


def score(run_dir: Path, episodes: int) -> Result:
    """Evaluate the last checkpoint from the same starts for all; include the learning curve."""
    played = evaluate_checkpoint(run_dir, episodes=episodes, seed=EVALUATION_SEED)
    timed, evaluations = read(run_dir)
    return {
        "return": played["eval_return_mean"],
        "seconds": timed[-1]["time/seconds"],
        "curve": [[row["step"], row["eval_return_mean"]] for row in evaluations],
    }


def work(args: argparse.Namespace, folder: Path) -> None:
    """Run one job and print its result as a JSON line."""
    jobs = {"speed": measure_speed, "iql": measure_finetuning}
    result = jobs.get(args.job, measure_return)(args, folder / args.name.replace(" ", "_"))
    print(json.dumps(result), flush=True)


# --- All jobs -------------------------------------------------------------------

OVER = Event()
RUNNING: set["subprocess.Popen[str]"] = set()


def stop_all(*_: Any) -> None:
    """Let all running jobs save and stop; start no more."""
    OVER.set()
    for process in list(RUNNING):
        process.terminate()


def start(name: str, folder: Path, say: Callable[[str], None]) -> Result | None:
    """Run one job in a new process and forward its output; return None if it failed."""
    job, _, seed = name.partition(" ")
    own = ["--job", job, "--seed", seed or "100", "--name", name, "--runs", str(folder)]
    command = [sys.executable, "-m", "benchmarks.rlpd_gpu", *sys.argv[1:], *own]
    last = ""
    with tempfile.TemporaryFile("w+") as errors:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
            RUNNING.add(process)
            assert process.stdout is not None
            for last in process.stdout:
                say(last.strip() if last[:1] != "{" else f"{name}: {last.strip()[:120]}")
        RUNNING.discard(process)
        if process.returncode == 0:
            result: Result = json.loads(last)
            return result
        errors.seek(0)
        say(f"{name} failed:\n{errors.read()[-2000:]}")
    return None


def run_all(args: argparse.Namespace, report: Result, console: Console) -> None:
    """Run what is missing in the record; the speed is measured first, alone."""
    lock = Lock()
    jobs = [job for piece in args.pieces for job in PIECES[piece]]
    names = [f"{job} {seed}" for seed in args.seeds for job in jobs if job != "speed"]

    def say(text: str) -> None:
        with lock:
            console.print(text, markup=False, highlight=False)

    def take(name: str) -> None:
        if name in report["results"] or OVER.is_set():
            return
        found = start(name, args.runs, say)
        with lock:
            if found is not None:
                report["results"][name] = found
                write(report, args.out)

    if "speed" in jobs:
        with tempfile.TemporaryDirectory() as folder:
            kept, args.runs = args.runs, Path(folder)
            take("speed")
            args.runs = kept
    with ThreadPoolExecutor(args.at_once) as pool:
        list(pool.map(take, names))


def show(results: Result, console: Console) -> None:
    """Print the results next to their targets."""
    table = Table(title="Offline to online, HalfCheetah-v5")
    for heading in ("", "figure", "bar"):
        table.add_column(heading)
    if "speed" in results:
        text = cell(results["speed"]["steps_per_second"], ",.0f")
        table.add_row("rlpd, environment steps / s", text, "150")
    means = {}
    for job in PIECES["returns"]:
        found = {name: r["return"] for name, r in results.items() if name.startswith(f"{job} ")}
        if found:
            means[job] = fmean(found.values())
            each = ", ".join(f"{name.split()[1]}: {value:,.0f}" for name, value in found.items())
            table.add_row(f"{job}, return", f"{means[job]:,.0f} ({each})", "")
    if len(means) == 2:
        table.add_row("rlpd / sac", f"{means['rlpd'] / means['sac']:.2f}", "1.5")
    for name, r in results.items():
        if name.startswith("iql"):
            text = f"{r['before']:,.0f} -> {r['lowest']:,.0f} (lowest) -> {r['after']:,.0f}"
            bar = f"lowest {FLOOR * r['before']:,.0f}, better than {r['before']:,.0f}"
            table.add_row(f"{name}, fine-tuned", text, bar)
    console.print(table)


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--dataset", type=Path, required=True, help="a dataset of HalfCheetah-v5")
    parser.add_argument(
        "--pieces", nargs="*", choices=PIECES, default=list(PIECES), help="parts to run"
    )
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2], help="seeds of the runs")
    parser.add_argument(
        "--steps", type=int, default=50_000, help="environment steps of RLPD and SAC"
    )
    parser.add_argument("--timed-steps", type=int, default=12_000, help="steps of the timed run")
    parser.add_argument("--updates", type=int, default=100_000, help="offline updates of IQL")
    parser.add_argument(
        "--finetuning-steps", type=int, default=25_000, help="environment steps of fine-tuning"
    )
    parser.add_argument(
        "--eval-interval", type=int, default=2_500, help="steps between evaluations in fine-tuning"
    )
    parser.add_argument(
        "--eval-episodes", type=int, default=50, help="episodes per evaluation in fine-tuning"
    )
    parser.add_argument(
        "--episodes", type=int, default=10, help="episodes to evaluate the last checkpoints"
    )
    parser.add_argument("--device", default="cuda", help="cpu or cuda")
    parser.add_argument("--at-once", type=int, default=9, help="processes")
    parser.add_argument("--set", nargs="*", default=[], help="settings of all runs, key=value")
    parser.add_argument(
        "--set-online", nargs="*", default=[], help="settings of fine-tuning only, key=value"
    )
    parser.add_argument(
        "--limit", type=float, default=1e6, help="seconds until all jobs are stopped"
    )
    parser.add_argument(
        "--runs", type=Path, help="folder for the runs, from which the benchmark can continue"
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE.json", help="file to write the record to"
    )
    for name, kind in (("--job", str), ("--name", str), ("--seed", int)):
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Run what is missing in the record, print and write it."""
    args = parse()
    if args.job:
        work(args, args.runs)
        return
    report: dict[str, Any] = {"results": {}}
    if args.out.exists():
        report = json.loads(args.out.read_text())
    report |= describe()
    console = Console(width=130)
    signal.signal(signal.SIGTERM, stop_all)
    timer = Timer(args.limit, stop_all)
    timer.daemon = True
    timer.start()
    with tempfile.TemporaryDirectory() as folder:
        args.runs = args.runs or Path(folder)
        run_all(args, report, console)
    show(report["results"], console)
    write(report, args.out)


if __name__ == "__main__":
    main()

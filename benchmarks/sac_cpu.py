"""Measure SAC's training speed on the CPU, next to Stable-Baselines3 and SBX.

Every measurement is a separate process. They take turns in rounds of rotated order, so that other
load on the machine affects all of them. ``products`` times only the matrix products that an
update needs, which is the limit of the machine.

The virtual environment of the peers is created on first use, next to this file.

    python -m benchmarks.sac_cpu --rounds 5 --out result.json
"""

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.describe import spread
from benchmarks.peering import HERE, PEERS, Result, cell, peer_python, run_json, summarize

NAMES = ["ours", "ours_eager", "sb3", "sb3_1thread", "sbx", "products"]
LABELS = {
    "ours": "rl-training, compiled",
    "ours_eager": "rl-training, eager",
    "sb3": "SB3, default threads",
    "sb3_1thread": "SB3, 1 thread",
    "sbx": "SBX",
    "products": "matrix products only",
}


def measure_ours(steps: int, warmup: int, engine: str) -> Result:
    """Train with the command line and read the speed from the run's metrics.

    `engine: auto` chooses the compiled engine for a run of usual length. It is prepared before the
    warm-up ends, as SBX is.
    """
    with tempfile.TemporaryDirectory() as folder:
        overrides = ["learning_starts=100", "log_interval=200", "checkpoint_interval=1000"]
        overrides.append(f"engine={engine}")
        command = [sys.executable, "-m", "rl_training", "train", "--config", "sac/halfcheetah"]
        command += [f"total_timesteps={steps}", "--json", f"output_dir={folder}", *overrides]
        run_dir = Path(run_json(command)["run_dir"])
        speed = logged_speed((run_dir / "metrics.jsonl").read_text().splitlines(), warmup)
        threads = json.loads((run_dir / "run.json").read_text()).get("num_threads")
    return {"steps_per_second": speed, "threads": threads}


def logged_speed(lines: list[str], warmup: int) -> float:
    """Return steps per second between the first timed line after the warm-up and the last step.

    Of several lines at one step the first one counts: the final evaluation, which the peers do not
    make, writes another one.
    """
    times: dict[int, float] = {}
    for record in map(json.loads, lines):
        if "time/seconds" in record and record["step"] >= warmup:
            times.setdefault(record["step"], record["time/seconds"])
    first, last = min(times), max(times)
    return (last - first) / (times[last] - times[first])


def measure(name: str, python: str, steps: int, warmup: int) -> Result:
    """Make one measurement; ``speed`` is in steps (with one update each) per second."""
    if name.startswith("ours"):
        result = measure_ours(steps, warmup, "eager" if name == "ours_eager" else "compiled")
    elif name == "products":
        result = run_json([sys.executable, str(PEERS / "products.py")])
    else:
        command = [python, str(PEERS / "sac_peer.py"), name.split("_")[0]]
        command += ["--steps", str(steps), "--warmup", str(warmup)]
        result = run_json(command + (["--threads", "1"] if name == "sb3_1thread" else []))
    speed = result.pop("updates_per_second" if name == "products" else "steps_per_second")
    return {"speed": speed, "load": os.getloadavg()[0], **result}


def installed(name: str) -> str | None:
    """Return the installed version of a package."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def cpu_model() -> str:
    """Return the processor's name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def describe(rounds: list[dict[str, Result]]) -> Result:
    """Return versions, machine, threads, date, commit and command."""
    git = ["git", "--no-optional-locks", "-C", str(HERE), "describe", "--always", "--dirty"]
    commit = subprocess.run([*git, "--abbrev=40", "--exclude=*"], capture_output=True, text=True)
    packages = ["rl-training", "torch", "gymnasium", "mujoco", "numpy"]
    peers = [r["versions"] for r in rounds[0].values() if "versions" in r]
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": shlex.join([Path(sys.executable).name, *sys.argv]),
        "commit": commit.stdout.strip(),
        "python": platform.python_version(),
        "versions": {name: installed(name) for name in packages},
        "peer_versions": peers[0] if peers else {},
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "threads": {name: result["threads"] for name, result in rounds[0].items()},
    }


def show(report: Result, console: Console) -> None:
    """Print the table and the machine's limit."""
    table = Table(title="SAC, HalfCheetah-v5, CPU: median (minimum - maximum)")
    for heading in ("", "steps = updates / s", "ours / it, per round"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, entry in report["summary"].items():
        ratio = cell(entry["ours_ratio"], ".2f") if "ours_ratio" in entry else ""
        table.add_row(LABELS[name], cell(entry["speed"], ".1f"), ratio)
    console.print(table)
    limits = [r["products"] for r in report["rounds"] if "products" in r]
    if limits:
        used = cell(spread([r["gflops"] for r in limits]), ".0f")
        large = cell(spread([r["large_gflops"] for r in limits]), ".0f")
        console.print(f"Products of one update: {limits[0]['mflop_per_update']:.0f} MFLOP")
        console.print(f"GFLOP/s in them: {used}; in a 2048 x 2048 x 2048 product: {large}")
    if "ours_ratio" in report["summary"].get("products", {}):
        share = cell(report["summary"]["products"]["ours_ratio"], ".0%")
        console.print(f"Share of the products-only speed that training reaches: {share}")


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds")
    parser.add_argument("--steps", type=int, default=2600, help="environment steps of each run")
    parser.add_argument("--warmup", type=int, default=600, help="steps before the clock starts")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="file to write the record to")
    parser.add_argument("--only", default=",".join(NAMES), help="some of %(default)s")
    args = parser.parse_args()
    args.only = args.only.split(",")
    if args.rounds < 1 or not 100 < args.warmup < args.steps:
        parser.error("--rounds must be at least 1, and 100 < --warmup < --steps")
    if unknown := set(args.only) - set(NAMES):
        parser.error(f"--only does not know {', '.join(sorted(unknown))}; it takes {NAMES}")
    return args


def main() -> None:
    """Measure in rounds, print the table and write the record."""
    args = parse()
    console = Console()
    python = peer_python(console)
    rounds: list[dict[str, Result]] = []
    for number in range(args.rounds):
        turn = number % len(args.only)
        results = {}
        for name in args.only[turn:] + args.only[:turn]:
            results[name] = measure(name, python, args.steps, args.warmup)
            console.print(f"round {number + 1}  {LABELS[name]:22} {results[name]['speed']:8.1f} /s")
        rounds.append({name: results[name] for name in args.only})
        report = {**describe(rounds), "summary": summarize(rounds), "rounds": rounds}
        if args.out:  # after every round, so that finished rounds survive an interruption
            args.out.write_text(json.dumps(report, indent=2) + "\n")
    show(report, console)


if __name__ == "__main__":
    main()

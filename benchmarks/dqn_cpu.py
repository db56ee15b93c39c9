"""DQN's training speed on the CPU beside Stable-Baselines3, measured in one run.

Every measurement is a process of its own, in rounds of rotated order, as in `sac_cpu.py`. The
settings are those of the packaged config `dqn/cartpole`; Stable-Baselines3 gets the same ones by
its own names, the target's interval in environment steps (one copy for each round of updates).

    python -m benchmarks.dqn_cpu --rounds 5 --out result.json
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.describe import describe
from benchmarks.sac_cpu import PEERS, Result, cell, logged_speed, peer_python, run_json, summarise
from rl_training import TrainConfig

CONFIG = "dqn/cartpole"
LABELS = {
    "ours": "rl-training, 1 thread",
    "ours_2threads": "rl-training, 2 threads",
    "sb3": "SB3, 1 thread",
    "sb3_2threads": "SB3, 2 threads",
}


def peer_settings(kwargs: dict[str, Any], steps: int) -> dict[str, Any]:
    """Our settings by Stable-Baselines3's names; its ε falls over a fraction of the run."""
    rounds = kwargs["target_update_interval"] / kwargs["gradient_updates_per_step"]
    return {
        "learning_rate": kwargs["learning_rate"],
        "buffer_size": kwargs["buffer_capacity"],
        "learning_starts": kwargs["learning_starts"],
        "batch_size": kwargs["batch_size"],
        "tau": kwargs["tau"],
        "gamma": kwargs["gamma"],
        "train_freq": kwargs["train_frequency"],
        "gradient_steps": kwargs["gradient_updates_per_step"],
        "target_update_interval": max(1, round(rounds * kwargs["train_frequency"])),
        "exploration_fraction": min(1.0, kwargs["epsilon_decay_steps"] / steps),
        "exploration_initial_eps": kwargs["epsilon_start"],
        "exploration_final_eps": kwargs["epsilon_end"],
        "policy_kwargs": {"net_arch": list(kwargs["hidden_sizes"])},
    }


def measure_ours(steps: int, warmup: int, interval: int, threads: int) -> Result:
    """Train with the library's own command line; read the speed from the run's metrics."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "rl_training", "train", "--config", CONFIG, "--json"]
        command += [f"total_timesteps={steps}", f"output_dir={folder}", f"num_threads={threads}"]
        command += [f"log_interval={interval}", "eval_interval=0", "eval_episodes=0"]
        run_dir = Path(run_json(command)["run_dir"])
        speed = logged_speed((run_dir / "metrics.jsonl").read_text().splitlines(), warmup)
    return {"steps_per_second": speed, "threads": threads}


def measure(name: str, python: str, args: argparse.Namespace, interval: int) -> Result:
    """One measurement; its speed is in environment steps per second."""
    threads = 2 if name.endswith("2threads") else 1
    if name.startswith("ours"):
        result = measure_ours(args.steps, args.warmup, interval, threads)
    else:
        config = TrainConfig.load(CONFIG).resolved()
        settings = json.dumps(peer_settings(config.algo_kwargs, args.steps))
        command = [python, str(PEERS / "dqn_peer.py"), "--env", config.env_id]
        command += ["--steps", str(args.steps), "--warmup", str(args.warmup)]
        result = run_json([*command, "--threads", str(threads), "--settings", settings])
    return {"speed": result.pop("steps_per_second"), "load": os.getloadavg()[0], **result}


def show(report: Result, console: Console) -> None:
    """Print the table."""
    table = Table(title=f"DQN, {CONFIG}, CPU: median (least - greatest)")
    for heading in ("", "environment steps / s", "ours at 1 thread / it, per round"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, entry in report["summary"].items():
        ratio = cell(entry["ours_ratio"], ".2f") if "ours_ratio" in entry else ""
        table.add_row(LABELS[name], cell(entry["speed"], ".0f"), ratio)
    console.print(table)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="at least 1")
    parser.add_argument("--rounds-of-updates", type=int, default=30, help="counted ones, each run")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="where to write the result")
    args = parser.parse_args()
    if args.rounds < 1 or args.rounds_of_updates < 1:
        parser.error("--rounds and --rounds-of-updates must be at least 1")
    return args


def main() -> None:
    """Measure in rounds, print the table, write the JSON."""
    args = parse()
    console = Console()
    kwargs = TrainConfig.load(CONFIG).resolved().algo_kwargs
    # Log lines, the warm-up's end and the run's end all at one place of a round of updates.
    interval = kwargs["train_frequency"]
    args.warmup = (kwargs["learning_starts"] // interval + 3) * interval
    args.steps = args.warmup + args.rounds_of_updates * interval
    python = peer_python(console)
    rounds: list[dict[str, Result]] = []
    names = list(LABELS)
    for number in range(args.rounds):
        turn = number % len(names)
        results = {}
        for name in names[turn:] + names[:turn]:
            results[name] = measure(name, python, args, interval)
            console.print(f"round {number + 1}  {LABELS[name]:22} {results[name]['speed']:8.0f} /s")
        rounds.append({name: results[name] for name in names})
        report = {**describe(), "summary": summarise(rounds), "rounds": rounds}
        if args.out:  # after every round: a run that is stopped keeps the rounds it finished
            args.out.write_text(json.dumps(report, indent=2) + "\n")
    show(report, console)


if __name__ == "__main__":
    main()

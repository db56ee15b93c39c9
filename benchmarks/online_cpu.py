"""Training speed of TD3, DDPG, TQC and DQN on the CPU beside Stable-Baselines3, in one run.

Environment steps a second of whole training, one update a step, at the settings of the packaged
configs on both sides; TQC's peer is sb3-contrib's. Every measurement is a process of its own, in
rounds of rotated order, timed for some seconds after learning began. The peer runs at its default
threads and at one; the better counts. Preparing our compiled engine is outside the window and
reported.

    python -m benchmarks.online_cpu --rounds 3 --out benchmarks/results/online_cpu.json
    python -m benchmarks.online_cpu --only tqc --rounds 1 --seconds 5
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.describe import describe, spread
from benchmarks.learning import peer_settings
from benchmarks.peering import PEERS, Result, cell, peer_python, run_json, take_turns, write
from rl_training import TrainConfig

CONFIGS = {
    "td3": "td3/halfcheetah",
    "ddpg": "ddpg/halfcheetah",
    "tqc": "tqc/halfcheetah",
    "dqn": "dqn/cartpole",
}
KINDS = ("compiled", "eager", "peer", "peer, 1 thread")
STARTS, WARMUP = 100, 200
"""Steps of random play, and steps before the clock starts, of all."""
STEPS = 10_000_000
"""The peers' total: their schedules are fractions of it."""


def dqn_settings(kwargs: dict[str, Any]) -> dict[str, Any]:
    """DQN's settings by Stable-Baselines3's names; its target's interval is in steps."""
    rounds = kwargs["target_update_interval"] / kwargs["gradient_updates_per_step"]
    settings = peer_settings(kwargs)
    return settings | {
        "target_update_interval": max(1, round(rounds * kwargs["train_frequency"])),
        "exploration_fraction": kwargs["epsilon_decay_steps"] / STEPS,
        "exploration_initial_eps": kwargs["epsilon_start"],
        "exploration_final_eps": kwargs["epsilon_end"],
        "max_grad_norm": kwargs["max_grad_norm"] or 1e9,
        "policy_kwargs": {"net_arch": list(kwargs["hidden_sizes"])},
    }


def measure_peer(python: str, algo: str, seconds: float, threads: int | None) -> Result:
    """The peer at our settings."""
    config = TrainConfig.load(CONFIGS[algo]).resolved()
    kwargs = config.algo_kwargs | {"learning_starts": STARTS}
    settings = dqn_settings(kwargs) if algo == "dqn" else peer_settings(kwargs)
    command = [python, str(PEERS / "sb3_peer.py"), "--algo", algo, "--env", config.env_id]
    command += ["--warmup", str(WARMUP), "--seconds", str(seconds), "--steps", str(STEPS)]
    command += ["--exploration-noise", str(kwargs.get("exploration_noise", 0.0))]
    command += ["--threads", str(threads)] if threads else []
    return run_json([*command, "--settings", json.dumps(settings)])


def measure(name: str, python: str, seconds: float) -> Result:
    """One measurement; ``name`` is an algorithm and a kind."""
    algo, _, kind = name.partition(" ")
    if kind.startswith("peer"):
        return measure_peer(python, algo, seconds, 1 if "1" in kind else None)
    command = [sys.executable, "-m", "benchmarks.timed_run", "--config", CONFIGS[algo]]
    command += ["--warmup", str(WARMUP), "--seconds", str(seconds)]
    return run_json([*command, f"engine={kind}", f"learning_starts={STARTS}"])


def summarise(rounds: list[dict[str, Result]], algos: list[str]) -> Result:
    """Of each algorithm: speeds, and each of ours over the better peer, round by round."""
    summary: Result = {}
    for algo in algos:
        by_kind = {kind: [r[f"{algo} {kind}"] for r in rounds] for kind in KINDS}
        peers = [max(r[f"{algo} {kind}"]["speed"] for kind in KINDS[2:]) for r in rounds]
        speeds = {kind: [r["speed"] for r in results] for kind, results in by_kind.items()}
        summary[algo] = {
            "speed": {kind: spread(values) for kind, values in speeds.items()},
            "over_better_peer": {
                kind: spread([a / b for a, b in zip(speeds[kind], peers, strict=True)])
                for kind in KINDS[:2]
            },
            "threads": {kind: results[0]["threads"] for kind, results in by_kind.items()},
            "preparation_seconds": [r["preparation_seconds"] for r in by_kind["compiled"]],
            "fell_back": any(r["engine"] != "compiled" for r in by_kind["compiled"]),
        }
    return summary


def show(report: Result, console: Console) -> None:
    """Print the table."""
    table = Table(title="CPU, environment steps / s: median (least - greatest)")
    for heading in ("", "", "steps / s", "over the better peer", "threads", "preparation, s"):
        table.add_column(heading, justify="right" if heading else "left")
    for algo, entry in report["summary"].items():
        for kind in KINDS:
            ratio = entry["over_better_peer"].get(kind)
            prepared = cell(spread(entry["preparation_seconds"]), ".0f")
            table.add_row(
                algo if kind == KINDS[0] else "",
                f"ours, {kind}" if ratio else kind,
                cell(entry["speed"][kind], ".1f"),
                cell(ratio, ".2f") if ratio else "",
                str(entry["threads"][kind]),
                prepared if kind == "compiled" else "",
            )
        if entry["fell_back"]:
            console.print(f"{algo}: the compiled engine fell back to eager updates")
    console.print(table)


def main() -> None:
    """Measure in rounds, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="timed, of each measurement")
    parser.add_argument("--only", nargs="+", choices=list(CONFIGS), default=list(CONFIGS))
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="where to write the result")
    args = parser.parse_args()
    console = Console()
    python = peer_python(console)
    names = [f"{algo} {kind}" for algo in args.only for kind in KINDS]
    for rounds in take_turns(
        names, args.rounds, lambda name: measure(name, python, args.seconds), console
    ):  # written after every round: a run that is stopped keeps the rounds it finished
        report = {**describe(), "summary": summarise(rounds, args.only), "rounds": rounds}
        write(report, args.out)
    show(report, console)


if __name__ == "__main__":
    main()

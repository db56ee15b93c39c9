"""Measure the training speed of TD3, DDPG, TQC and DQN on the CPU, next to Stable-Baselines3.

Environment steps per second of whole training with one update per step and the settings of the
packaged configs on both sides; TQC is compared with sb3-contrib. Every measurement is a separate
process, in rounds of rotated order, timed for some seconds after learning has started. The peer
runs with its default number of threads and with one; the faster one counts. The time to prepare
our compiled engine is not counted, but reported.

    python -m benchmarks.online_cpu --rounds 3 --out benchmarks/results/online_cpu.json
    python -m benchmarks.online_cpu --only tqc --rounds 1 --seconds 5
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.describe import describe
from benchmarks.learning import peer_settings
from benchmarks.peering import PEERS, Result, peer_python, run_json, take_turns, write
from benchmarks.versus import OURS, PEER, show, summarize
from rl_training import TrainConfig

CONFIGS = {
    "td3": "td3/halfcheetah",
    "ddpg": "ddpg/halfcheetah",
    "tqc": "tqc/halfcheetah",
    "dqn": "dqn/cartpole",
}
EVERY_STEP: dict[str, Any] = {
    "n_step": 1,
    "layer_norm": False,
    "batch_size": 128,
    "learning_rate": 5e-4,
    "train_frequency": 1,
    "gradient_updates_per_step": 1,
    "max_grad_norm": 1.0,
}
CHANGES = {"dqn": EVERY_STEP}
"""Changes to a config on both sides: one update for every step, and nothing the peer lacks."""
STARTS, WARMUP = 100, 200
"""Steps of random play, and steps before the clock starts, for all algorithms."""
STEPS = 10_000_000
"""Total steps of the peers, whose schedules are fractions of it."""


def dqn_settings(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return DQN's settings for Stable-Baselines3, where the target interval is in steps."""
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
    """Measure the peer with our settings."""
    config = TrainConfig.load(CONFIGS[algo]).resolved()
    kwargs = config.algo_kwargs | CHANGES.get(algo, {}) | {"learning_starts": STARTS}
    settings = dqn_settings(kwargs) if algo == "dqn" else peer_settings(kwargs)
    command = [python, str(PEERS / "sb3_peer.py"), "--algo", algo]
    command += ["--env", str(config.env_id), "--steps", str(STEPS)]
    command += ["--warmup", str(WARMUP), "--seconds", str(seconds)]
    command += ["--exploration-noise", str(kwargs.get("exploration_noise", 0.0))]
    command += ["--threads", str(threads)] if threads else []
    return run_json([*command, "--settings", json.dumps(settings)])


def measure(name: str, python: str, seconds: float) -> Result:
    """Make one measurement; ``name`` is an algorithm and a kind."""
    algo, _, kind = name.partition(" ")
    if kind.startswith("peer"):
        return measure_peer(python, algo, seconds, 1 if "1" in kind else None)
    command = [sys.executable, "-m", "benchmarks.timed_run", "--config", CONFIGS[algo]]
    command += ["--warmup", str(WARMUP), "--seconds", str(seconds)]
    changes = {"engine": kind, "learning_starts": STARTS, **CHANGES.get(algo, {})}
    return run_json([*command, *(f"{key}={json.dumps(value)}" for key, value in changes.items())])


def main() -> None:
    """Measure in rounds, print the table and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds")
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="timed duration of each measurement"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=list(CONFIGS),
        default=list(CONFIGS),
        help="algorithms to measure",
    )
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="file to write the record to")
    args = parser.parse_args()
    console = Console()
    python = peer_python(console)
    names = [f"{algo} {kind}" for algo in args.only for kind in OURS + PEER]
    for rounds in take_turns(
        names, args.rounds, lambda name: measure(name, python, args.seconds), console
    ):  # write after every round, so that finished rounds survive an interruption
        report = {**describe(), "summary": summarize(rounds, args.only), "rounds": rounds}
        write(report, args.out)
    show(report, console, "Environment steps on the CPU")


if __name__ == "__main__":
    main()

"""Measure DQN's training speed from pixels on one GPU, next to Stable-Baselines3.

Environment steps per second of whole training in Catch: frames of 84×84 pixels, stacks of four, the
network of the DQN paper, batches of 32, one update for every four steps. Every measurement is a
separate process, in rounds of rotated order.

    python -m benchmarks.pixels_gpu --rounds 3 --out benchmarks/results/pixels_gpu.json

Stable-Baselines3 must be installed for the interpreter that runs this.
"""

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console

from benchmarks.describe import describe
from benchmarks.peering import PEERS, Result, cell, run_json, summarize, take_turns, write

ENV = "rl_training/Catch-v0"
FRAMES, BATCH, WIDTH, EVERY = 4, 32, 512, 4
STARTS, WARMUP, ROWS = 1_000, 2_000, 50_000
LEARNING_RATE = 1e-4
NAMES = ["ours", "ours_eager", "sb3"]


def ours(engine: str, device: str, seconds: float) -> Result:
    """Measure our DQN."""
    settings = [
        f"env_id={ENV}",
        f"env_kwargs.frame_stack={FRAMES}",
        f"device={device}",
        f"engine={engine}",
        f"batch_size={BATCH}",
        f"hidden_sizes=[{WIDTH}]",
        "layer_norm=false",
        "n_step=1",
        f"learning_rate={LEARNING_RATE}",
        f"learning_starts={STARTS}",
        f"train_frequency={EVERY}",
        "gradient_updates_per_step=1",
        f"buffer_capacity={ROWS}",
        "target_update_interval=250",
        "networks={q: {trunk: cnn, encoder: nature}}",
    ]
    command = [sys.executable, "-m", "benchmarks.timed_run", "--config", "dqn/cartpole"]
    command += ["--warmup", str(WARMUP), "--seconds", str(seconds)]
    return run_json([*command, *settings], device)


def sb3(device: str, seconds: float) -> Result:
    """Measure the DQN of Stable-Baselines3, whose target interval is in steps."""
    settings = {
        "batch_size": BATCH,
        "learning_rate": LEARNING_RATE,
        "learning_starts": STARTS,
        "train_freq": EVERY,
        "gradient_steps": 1,
        "buffer_size": ROWS,
        "target_update_interval": 250 * EVERY,
        "exploration_fraction": 0.1,
    }
    command = [sys.executable, str(PEERS / "sb3_peer.py"), "--algo", "dqn"]
    command += ["--env", f"rl_training.envs:{ENV}", "--frame-stack", str(FRAMES)]
    command += ["--policy", "CnnPolicy", "--device", device, "--steps", "1000000"]
    command += ["--warmup", str(WARMUP), "--seconds", str(seconds)]
    return run_json([*command, "--settings", json.dumps(settings)], device)


def measure(name: str, device: str, seconds: float) -> Result:
    """Make one measurement."""
    if name == "sb3":
        return sb3(device, seconds)
    fast = "cuda_graph" if device == "cuda" else "compiled"
    return ours("eager" if name == "ours_eager" else fast, device, seconds)


def main() -> None:
    """Measure in rounds, print the speeds and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds")
    parser.add_argument("--seconds", type=float, default=8.0, help="duration of each measurement")
    parser.add_argument("--device", default="cuda", help="cuda or cpu")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="file to write the record to")
    args = parser.parse_args()
    console = Console()
    for rounds in take_turns(
        NAMES, args.rounds, lambda name: measure(name, args.device, args.seconds), console
    ):
        summary = summarize(rounds)
        write({**describe(), "summary": summary, "rounds": rounds}, args.out)
    for name, found in summary.items():
        ratio = f"   ours / {name}: {cell(found['ours_ratio'], '.2f')}" if name != "ours" else ""
        console.print(f"{name:12} {cell(found['speed'], ',.0f')} steps/s{ratio}")


if __name__ == "__main__":
    main()

"""Compare the training speed of this working tree with another commit.

    python -m benchmarks.versions_cpu --against 90d7648 --rounds 15

Both versions train in separate processes and take turns of some hundred steps, so that only one of
them runs at any moment and other load on the machine affects both. With ``--threads 1`` processor
time is measured, which is comparable even on a busy machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from rich.console import Console

from benchmarks.describe import ROOT, describe, spread
from benchmarks.peering import CPU_ONLY, THREAD_VARIABLES, Result, cell, take_turns, write
from benchmarks.snapshots import checked_out

WORKER = """
import sys
import time
from rl_training import Callback, train

clock = time.process_time if THREADS == 1 else time.perf_counter

class Turns(Callback):
    steps = 0
    began = 0.0

    def on_step(self, session):
        self.steps += 1
        if self.steps >= WARMUP and (self.steps - WARMUP) % TURN == 0:
            print("turn", clock() - self.began, flush=True)
            if not sys.stdin.readline():
                sys.exit()
            self.began = clock()

train(CONFIG, callbacks=[Turns()])
"""


class Trainer:
    """A training process that waits for its turns."""

    def __init__(self, sources: Path, config: Result, *, warmup: int, turn: int) -> None:
        threads = config["algo_kwargs"].get("num_threads")
        values = {"WARMUP": warmup, "TURN": turn, "CONFIG": config, "THREADS": threads}
        settings = "".join(f"{name} = {value!r}\n" for name, value in values.items())
        env = {key: value for key, value in os.environ.items() if key not in THREAD_VARIABLES}
        self._process = subprocess.Popen(
            [sys.executable, "-c", settings + WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env | CPU_ONLY | {"PYTHONPATH": str(sources)},
            cwd=config["output_dir"],  # the current folder must not affect what is imported
        )
        self._turn = turn
        self.seconds()  # wait until the warm-up is over

    def seconds(self) -> float:
        """Return the duration of the current turn."""
        for line in self._process.stdout or ():
            if line.startswith("turn "):
                return float(line.split()[1])
        raise SystemExit(f"the training ended with exit code {self._process.wait()}")

    def speed(self) -> float:
        """Run one turn and return steps per second."""
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write("go\n")
        stdin.flush()
        return self._turn / self.seconds()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def training(args: argparse.Namespace) -> Iterator[dict[str, Trainer]]:
    """Yield both versions after their warm-up."""
    trainers: dict[str, Trainer] = {}
    with checked_out(args.against) as tree, tempfile.TemporaryDirectory() as folder:
        try:
            for name, root in {"new": ROOT, "old": tree}.items():
                output = Path(folder, name)
                output.mkdir()
                threads = {"num_threads": args.threads} if args.threads else {}
                config = {
                    "algo": args.algo,
                    "env_id": args.env,
                    "total_timesteps": 1_000_000,
                    "eval_episodes": 0,
                    "output_dir": str(output),
                    "device": "cpu",
                    "algo_kwargs": {"learning_starts": 100, "engine": args.engine, **threads},
                }
                trainers[name] = Trainer(root / "src", config, warmup=args.warmup, turn=args.turn)
            yield trainers
        finally:
            for trainer in trainers.values():
                trainer.close()


def main() -> None:
    """Measure in rounds, print the ratio and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--against", default="90d7648", help="the commit to compare with")
    parser.add_argument("--algo", default="sac", help="algorithm to train")
    parser.add_argument("--env", default="HalfCheetah-v5", help="environment to train in")
    parser.add_argument("--rounds", type=int, default=15, help="number of turns of each version")
    parser.add_argument("--turn", type=int, default=400, help="environment steps per turn")
    parser.add_argument("--warmup", type=int, default=600, help="steps before the first turn")
    parser.add_argument(
        "--engine", default="compiled", choices=["compiled", "eager"], help="engine of the updates"
    )
    parser.add_argument("--threads", type=int, help="threads (default: chosen by the library)")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="file to write the record to")
    args = parser.parse_args()
    console = Console()
    with training(args) as trainers:

        def measure(name: str) -> Result:
            return {"speed": trainers[name].speed()}

        for rounds in take_turns(("new", "old"), args.rounds, measure, console):
            ratios = [r["new"]["speed"] / r["old"]["speed"] for r in rounds]
    report = {**describe(), "against": args.against, "engine": args.engine}
    report |= {"threads": args.threads} | {"ratio": spread(ratios), "rounds": rounds}
    write(report, args.out)
    ratio = cell(cast("dict[str, float]", report["ratio"]), ".3f")
    console.print(f"new / old, {len(ratios)} rounds: {ratio}")


if __name__ == "__main__":
    main()

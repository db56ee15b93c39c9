"""Compare the training speed of this tree with that of another commit, interleaved in one run.

    python -m benchmarks.versions_cpu --against 90d7648 --rounds 15

Both versions train at the same time, each in a process of its own, but only one of them runs at
any moment: they take turns of some hundred steps. Whatever else the machine does therefore
affects both alike. With ``--threads 1`` processor time is measured, which is comparable even on a
busy machine.
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
            cwd=config["output_dir"],  # the present folder must not decide what is imported
        )
        self._turn = turn
        self.seconds()  # until the warm-up is over

    def seconds(self) -> float:
        """The duration of the turn that is running."""
        for line in self._process.stdout or ():
            if line.startswith("turn "):
                return float(line.split()[1])
        raise SystemExit(f"the training ended with exit code {self._process.wait()}")

    def speed(self) -> float:
        """Let it run for one turn: steps per second."""
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
    """Both versions after their warm-up."""
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
    """Measure in rounds, print the ratio, write the JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--against", default="90d7648", help="the commit to compare with")
    parser.add_argument("--algo", default="sac")
    parser.add_argument("--env", default="HalfCheetah-v5")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each version")
    parser.add_argument("--turn", type=int, default=400, help="environment steps of a turn")
    parser.add_argument("--warmup", type=int, default=600, help="steps before the first turn")
    parser.add_argument("--engine", default="compiled", choices=["compiled", "eager"])
    parser.add_argument("--threads", type=int, help="by default what the library chooses")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="where to write the result")
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

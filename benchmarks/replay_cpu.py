"""Measure SAC's training speed with a full replay buffer: prioritized next to uniform.

Two runs of `sac/halfcheetah` in one process, each with a million rows in the replay buffer, take
turns of some hundred steps in alternating order, so that other load on the machine affects both.
A step is one action of the policy, one step of the environment and one update. ``--device cuda``
measures on a GPU with CUDA graphs.

    python -m benchmarks.replay_cpu --rounds 10 --out result.json
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.describe import describe, spread
from rl_training import TrainConfig
from rl_training.experiment.build import build_session
from rl_training.experiment.task import check_config
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.session import Session
from rl_training.runtime.training_loop import online_steps

KINDS = "uniform", "prioritized"
ROWS = 1_000_000
FILL = 10_000
"""Rows per chunk when the replay buffer is filled."""


class PauseError(Exception):
    """The turn is over."""


class Turns(Callback):
    """Leaves the training loop after a number of steps; the run can continue from there."""

    until = 0

    def on_step(self, session: Session) -> None:
        """Pause at the end of the turn."""
        if session.state.step >= self.until:
            raise PauseError


class Run:
    """One of the runs, with a replay buffer full of random transitions."""

    def __init__(self, kind: str, folder: Path, overrides: list[str]) -> None:
        fixed = [f"replay={kind}", f"output_dir={folder}", "total_timesteps=100_000_000"]
        fixed += [
            "eval_interval=0",
            "eval_episodes=0",
            "checkpoint_interval=0",
            "tensorboard=false",
        ]
        fixed += [f"buffer_capacity={ROWS}", "learning_starts=1", "log_interval=1_000_000"]
        self.turns = Turns()
        task = check_config(TrainConfig.load("sac/halfcheetah", [*fixed, *overrides]))
        folder.mkdir()
        self.session = build_session(task, folder, callbacks=[self.turns])
        assert self.session.collector is not None
        self.collector = self.session.collector
        rng, spec = np.random.default_rng(0), task.spec
        for _ in range(ROWS // FILL):
            obs = rng.normal(size=(2, FILL, spec.obs_dim)).astype(np.float32)
            actions = rng.uniform(-1, 1, (FILL, spec.action_dim)).astype(np.float32)
            rewards, ended = obs[0, :, 0], rng.random(FILL) < 0.001
            self.collector.buffer.add(obs[0], actions, rewards, obs[1], ended, ended & False)

    def take_turn(self, steps: int) -> tuple[float, float]:
        """Train for some steps; return steps per second and per second of processor time."""
        self.turns.until = self.session.state.step + steps
        synchronize()
        began = time.perf_counter(), time.process_time()
        try:
            for updates in online_steps(self.session, self.collector):
                self.session.learn(updates or 0)
        except PauseError:
            synchronize()
        return steps / (time.perf_counter() - began[0]), steps / (time.process_time() - began[1])


def synchronize() -> None:
    """Wait for the GPU, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def measure(rounds: int, steps: int, overrides: list[str]) -> dict[str, Any]:
    """Return the speeds of both, round by round."""
    speeds: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    loads = []
    with tempfile.TemporaryDirectory() as folder:
        runs = {kind: Run(kind, Path(folder) / kind, overrides) for kind in KINDS}
        for run in runs.values():
            run.take_turn(steps)  # the engine is prepared here
        for number in range(rounds):
            loads.append(os.getloadavg()[0])
            for kind in KINDS if number % 2 == 0 else reversed(KINDS):
                speeds[kind].append(runs[kind].take_turn(steps))
        engine = runs["uniform"].session.engine.mode
        for run in runs.values():
            run.session.close()
    uniform, prioritized = (np.array(speeds[kind]).T for kind in KINDS)  # [2, rounds]
    ratios = prioritized / uniform
    return {
        "engine": engine,
        "rows": ROWS,
        "steps_per_turn": steps,
        "steps_per_second": {
            "uniform": spread(uniform[0].tolist()),
            "prioritized": spread(prioritized[0].tolist()),
        },
        "ratio": spread(ratios[0].tolist()),
        "ratio_of_processor_time": spread(ratios[1].tolist()),
        "load": spread(loads),
    }


def main() -> None:
    """Measure, print and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=10, help="number of rounds")
    parser.add_argument("--steps", type=int, default=300, help="environment steps per turn")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--engine", help="default: compiled on the CPU, cuda_graph on a GPU")
    parser.add_argument("--out", type=Path, help="file to write the record to")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    args = parser.parse_args()
    engine = args.engine or ("compiled" if args.device == "cpu" else "cuda_graph")
    overrides = [f"device={args.device}", f"engine={engine}", *args.overrides]
    found = measure(args.rounds, args.steps, overrides)
    for kind, speed in found["steps_per_second"].items():
        print(f"{kind:12} {speed['median']:8.1f} steps/s [{speed['min']:.1f}, {speed['max']:.1f}]")
    for key in ("ratio", "ratio_of_processor_time"):
        ratio = found[key]
        print(f"{key:24} {ratio['median']:.3f} [{ratio['min']:.3f}, {ratio['max']:.3f}]")
    if args.out:
        args.out.write_text(json.dumps(describe() | found, indent=1) + "\n")


if __name__ == "__main__":
    main()

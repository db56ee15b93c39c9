"""Measure what recorded data is worth on Pendulum-v1: environment steps to a return of -200.

Compares RLPD with 10,000 recorded transitions, SAC from scratch with all settings that both have,
and `sac/pendulum` without changes. Every ``--every`` steps the policy plays 20 episodes from the
same starts for all algorithms, seeds and steps. "Reached" is the first evaluation at or above
-200, "stays" the first one after which none is below. The target is half of SAC's steps.

    python -m benchmarks.prior_data --dataset data/pendulum.npz --out result.json
"""

import argparse
import json
import secrets
import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.describe import describe
from benchmarks.peering import Result, write
from rl_training import TrainConfig, train
from rl_training.algorithms.sac import SACConfig
from rl_training.data import DataConfig
from rl_training.envs import make_env
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.evaluation import Policy
from rl_training.runtime.session import Session

TARGET = -200.0
EVALUATION_SEED = 10_000
EPISODES = 20
CASES = ("rlpd", "sac, same settings", "sac/pendulum")


class FixedStarts(Callback):
    """Plays all episodes in parallel at every interval, from the same starts each time."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.curve: list[tuple[int, float]] = []
        self._envs = [make_env("Pendulum-v1", {}) for _ in range(EPISODES)]

    def on_step(self, session: Session) -> None:
        """Evaluate at multiples of the interval."""
        step = session.state.step - session.settings.online_from
        if step >= 0 and step % self.every == 0:
            self.curve.append((step, self.play(session.policy)))

    def play(self, policy: Policy) -> float:
        """Return the mean return; all episodes of Pendulum have the same length."""
        starts = [env.reset(seed=EVALUATION_SEED + i)[0] for i, env in enumerate(self._envs)]
        obs, total, ended = np.stack(starts), 0.0, False
        while not ended:
            steps = [env.step(a) for env, a in zip(self._envs, policy(obs), strict=True)]
            obs = np.stack([step[0] for step in steps])
            total += sum(float(step[1]) for step in steps)
            ended = any(step[3] for step in steps)
        return total / EPISODES


def shared_settings(rlpd: TrainConfig) -> list[str]:
    """Return RLPD's settings that SAC has too, as overrides of a SAC config."""
    kwargs = rlpd.resolved().algo_kwargs
    shared = {
        key: kwargs[key] for key in SACConfig.model_fields if key not in DataConfig.model_fields
    }
    if shared["target_entropy"] == "auto":
        shared["target_entropy"] = -0.5  # for one action dimension; SAC's `auto` is -1
    return [f"{key}={json.dumps(value)}" for key, value in shared.items()]


def make_config(case: str, args: argparse.Namespace, seed: int, folder: str) -> TrainConfig:
    """Return the config of one run."""
    common = [f"seed={seed}", f"total_timesteps={args.steps}", f"output_dir={folder}"]
    common += ["eval_episodes=0", "eval_interval=0", "checkpoint_interval=0", "num_threads=1"]
    common += [f"engine={args.engine}", "device=cpu"]
    rlpd = [*common, f"dataset_path={args.dataset}", *args.set]
    if case == "rlpd":
        return TrainConfig.load("rlpd/pendulum", rlpd)
    same = shared_settings(TrainConfig.load("rlpd/pendulum", rlpd)) if "same" in case else []
    return TrainConfig.load("sac/pendulum", [*common, *same])


def reached(curve: list[tuple[int, float]]) -> int | None:
    """Return the first step whose evaluation is at or above the target."""
    return next((step for step, value in curve if value >= TARGET), None)


def stays(curve: list[tuple[int, float]]) -> int | None:
    """Return the first step after which no evaluation is below the target."""
    below = [index for index, (_, value) in enumerate(curve) if value < TARGET]
    first = below[-1] + 1 if below else 0
    return curve[first][0] if first < len(curve) else None


def measure(case: str, args: argparse.Namespace, seed: int) -> Result:
    """Train once and return the curve of evaluations."""
    watch = FixedStarts(args.every)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        train(make_config(case, args, seed, folder), callbacks=[watch])
    return {
        "seed": seed,
        "reached": reached(watch.curve),
        "stays": stays(watch.curve),
        "curve": watch.curve,
        "seconds": time.perf_counter() - began,
    }


def mean(runs: list[Result], key: str) -> float | None:
    """Return the mean over seeds, or None if a seed never reached the target."""
    values = [run[key] for run in runs]
    return None if None in values else fmean(values)


def show(runs: dict[str, list[Result]], console: Console) -> None:
    """Print the table."""
    table = Table(title=f"Pendulum-v1: environment steps to {TARGET:.0f}, mean (each seed)")
    for heading in ("", "reached", "stays", "RLPD relative to it: reached, stays"):
        table.add_column(heading)
    for case, found in runs.items():
        cells, ratios = [], []
        for key in ("reached", "stays"):
            average, ours = mean(found, key), mean(runs["rlpd"], key) if "rlpd" in runs else None
            each = ", ".join(str(run[key]) for run in found)
            cells.append(f"{'-' if average is None else f'{average:,.0f}'} ({each})")
            ratios.append(f"{ours / average:.2f}" if average and ours else "-")
        table.add_row(case, *cells, ", ".join(ratios))
    console.print(table)


def main() -> None:
    """Run every algorithm on every seed, print and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--dataset", type=Path, required=True, help="a dataset of Pendulum-v1")
    parser.add_argument(
        "--cases", nargs="*", choices=CASES, default=list(CASES), help="cases to run"
    )
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2], help="seeds of the runs")
    parser.add_argument("--drawn", type=int, default=1, help="number of seeds to draw at random")
    parser.add_argument("--steps", type=int, default=5_000, help="steps of each run")
    parser.add_argument("--every", type=int, default=100, help="steps between evaluations")
    parser.add_argument("--engine", default="auto", help="engine of the updates")
    parser.add_argument("--set", nargs="*", default=[], help="settings of RLPD, key=value")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="file to write the record to")
    args = parser.parse_args()
    torch.set_num_threads(1)
    console = Console(width=130)
    runs: dict[str, list[Result]] = {}
    report: dict[str, Any] = {**describe(), "target": TARGET, "episodes": EPISODES, "runs": runs}
    for seed in args.seeds + [3 + secrets.randbelow(10**6) for _ in range(args.drawn)]:
        for case in args.cases:
            found = measure(case, args, seed)
            runs.setdefault(case, []).append(found)
            console.print(f"{case}, seed {seed}: {found['reached']}, {found['stays']} steps")
            write(report, args.out)
    show(runs, console)


if __name__ == "__main__":
    main()

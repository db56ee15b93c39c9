"""Measure what an ensemble of critics costs on the CPU, relative to its arithmetic.

Updates alone, including sampling, of SAC with 2 critics and REDQ with 2, 5 and 10, with HalfCheetah
sizes; every update trains critics and actor. RLPD has its packaged settings: per environment step,
20 updates of 10 critics and one of the actor, on batches from two sources. FlashSAC makes two
updates with one of the actor; its target is 1.2. All run in one process with one thread, in rounds
of rotated order, together with the matrix products that each one needs. The result is

    (time / SAC's time) / (FLOP / SAC's FLOP)

with the FLOP of these products. It is 1 if the cost grows with the arithmetic; the target is
1.3 or less.

    python -m benchmarks.ensemble_cpu --rounds 3 --out benchmarks/results/ensemble_cpu.json
    python -m benchmarks.ensemble_cpu --cases "sac 2" "rlpd 10" --out rlpd_cpu.json
    python -m benchmarks.ensemble_cpu --cases "sac 2" "flash_sac 2" --out flash_cpu.json
"""

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.describe import describe, spread
from benchmarks.engine_gpu import SPEC, filled_buffer
from benchmarks.peering import Result, cell, take_turns, write
from benchmarks.peers.products import (
    Product,
    flash_products,
    flops,
    prepare,
    rate,
    update_products,
)
from rl_training.algorithms.registry import REGISTRY
from rl_training.data import MixedSampler, TransitionDataset
from rl_training.experiment.machine import keep_freed_memory
from rl_training.runtime.engine import Engine
from rl_training.runtime.engine_choice import EngineMode
from rl_training.types import Sampler


class Case(NamedTuple):
    """A learner that makes ``updates`` per environment step, the last one with the actor."""

    algo: str
    critics: int
    updates: int = 1

    def products(self) -> list[Product]:
        """Return the matrix products of a step."""
        find = flash_products if self.algo == "flash_sac" else update_products
        return find(self.critics, self.updates)


CASES = {
    "sac 2": Case("sac", 2),
    "redq 2": Case("redq", 2),
    "redq 5": Case("redq", 5),
    "redq 10": Case("redq", 10),
    "rlpd 10": Case("rlpd", 10, updates=20),
    "flash_sac 2": Case("flash_sac", 2, updates=2),
}
BASE = "sac 2"
MODES: tuple[EngineMode, ...] = ("eager", "compiled")
BLOCK = 20


def make_sampler(algo: str) -> Sampler:
    """Return a replay buffer of noise, for RLPD with as many recorded rows."""
    replay = filled_buffer(device="cpu")
    if algo != "rlpd":
        return replay
    return MixedSampler(TransitionDataset(replay.rows.clone(), replay.layout), replay, 0.5)


def make_engine(case: str, mode: EngineMode) -> Engine:
    """Return an engine after its first updates, compiled if ``mode`` says so."""
    algo, critics, updates = CASES[case]
    learner = REGISTRY[algo].learner_class()
    ensemble = {"num_critics": critics, "gradient_updates_per_step": updates}
    settings = {} if algo == "sac" else ensemble
    algorithm = learner.build(SPEC, learner.config_class(**settings))
    engine = Engine(algorithm, make_sampler(algo), seed=0, mode=mode)
    engine.run(2 * BLOCK)
    if engine.mode != mode:
        raise SystemExit(f"{case}: the {mode} engine fell back to {engine.mode} updates")
    return engine


def speed(engine: Engine, seconds: float, updates_each: int) -> Result:
    """Return steps per second, measured in whole blocks."""
    engine.run(BLOCK)  # load weights and buffers into the caches
    began, updates = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        engine.run(BLOCK)
        updates += BLOCK
    engine.check_finite()
    return {"speed": updates / updates_each / (time.perf_counter() - began)}


def products_speed(case: str, seconds: float) -> Result:
    """Return how often per second the products of one step can be computed."""
    products = CASES[case].products()
    ways = {product: prepare(product) for product in set(products)}
    calls = [ways[product] for product in products]
    passes = max(1, round(seconds / 5 * rate(calls, 2, 1)))
    return {"speed": rate(calls, passes, 4)}


def summarize(rounds: list[dict[str, Result]]) -> Result:
    """Return speeds, and the cost relative to the arithmetic, round by round."""
    summary: Result = {}
    base = flops(CASES[BASE].products())
    for name in rounds[0]:
        case, _, kind = name.partition(", ")
        arithmetic = flops(CASES[case].products()) / base
        times = [r[f"{BASE}, {kind}"]["speed"] / r[name]["speed"] for r in rounds]
        summary[name] = {
            "speed": spread([r[name]["speed"] for r in rounds]),
            "flop_ratio": arithmetic,
            "time_ratio": spread(times),
            "cost_over_arithmetic": spread([ratio / arithmetic for ratio in times]),
        }
    return summary


def show(report: Result, console: Console) -> None:
    """Print the table."""
    table = Table(title="Updates on the CPU, one thread: median (minimum - maximum)")
    heads = ("", "steps / s", "FLOP / SAC's", "time / SAC's", "time ratio / FLOP ratio")
    for heading in heads:
        table.add_column(heading, justify="right" if heading else "left")
    for name, entry in report["summary"].items():
        table.add_row(
            name,
            cell(entry["speed"], ".1f"),
            f"{entry['flop_ratio']:.2f}",
            cell(entry["time_ratio"], ".2f"),
            cell(entry["cost_over_arithmetic"], ".2f"),
        )
    console.print(table)


def main() -> None:
    """Prepare all cases, measure in rounds, print and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds")
    parser.add_argument("--seconds", type=float, default=4.0, help="duration of each measurement")
    parser.add_argument("--threads", type=int, default=1, help="number of threads")
    parser.add_argument(
        "--cases", nargs="*", choices=CASES, default=list(CASES), help="cases to run"
    )
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="file to write the record to")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    keep_freed_memory()
    console = Console()
    engines = {f"{case}, {mode}": make_engine(case, mode) for mode in MODES for case in args.cases}

    def measure(name: str) -> Result:
        case = name.partition(", ")[0]
        if name in engines:
            return speed(engines[name], args.seconds, CASES[case].updates)
        return products_speed(case, args.seconds)

    names = [*engines, *(f"{case}, products" for case in args.cases)]
    for rounds in take_turns(names, args.rounds, measure, console):
        report = {**describe(), "threads": args.threads, "summary": summarize(rounds)}
        report["preparation_seconds"] = {k: e.preparation_seconds for k, e in engines.items()}
        write(report | {"rounds": rounds}, args.out)
    show(report, console)


if __name__ == "__main__":
    main()

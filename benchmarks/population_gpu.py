"""Measure agent updates per second of populations on one GPU, next to `vmap` in JAX.

Batch 256, networks 2×256 unless stated otherwise, HalfCheetah sizes, sampling included, TF32, CUDA
graphs. An agent update is an update of one member. Every case is prepared in a process of its own,
all at once; then they are measured one after another, in rounds.

    python -m benchmarks.population_gpu --rounds 3 --out result.json
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.describe import describe, spread

Case = tuple[str, int, dict[str, Any]]
DEEP = {"hidden_sizes": (256, 256, 256)}
CASES: dict[str, Case] = {
    "sac, 1 seed": ("sac", 1, {}),
    "sac, 10 seeds": ("sac", 10, {}),
    "sac, 64 seeds": ("sac", 64, {}),
    **{
        f"{algo}, {seeds} seed{'s' * (seeds > 1)}": (algo, seeds, settings)
        for algo, settings in {"iql": {}, "td3_bc": {}, "cql": DEEP, "edac": DEEP}.items()
        for seeds in (1, 10)
    },
    "jax sac, 1 seed": ("jax", 1, {}),
    "jax sac, 10 seeds": ("jax", 10, {}),
    "jax sac, 64 seeds": ("jax", 64, {}),
}
UPDATES = 2_000
"""Updates of each member in one measurement."""
JAX = Path(__file__).resolve().parent / "peers" / "sac_jax.py"


def make_population(algo: str, seeds: int, settings: dict[str, Any]) -> Any:
    """Return the prepared engine of a population on the GPU."""
    import torch

    from benchmarks.engine_gpu import SPEC, filled_buffer
    from rl_training.algorithms.registry import REGISTRY
    from rl_training.runtime.engine import Engine
    from rl_training.runtime.population.engine import PopulationEngine

    learner = REGISTRY[algo].learner_class()
    config = learner.config_class(**settings)
    members = [learner.build(SPEC, config, seed=seed).to("cuda") for seed in range(seeds)]
    engine = PopulationEngine(
        [
            Engine(member, filled_buffer(), seed=seed, device="cuda", mode="cuda_graph")
            for seed, member in enumerate(members)
        ]
    )
    engine.run(60)
    torch.cuda.synchronize()
    return engine


def measure(name: str) -> None:
    """Prepare a case, then measure it for each line of standard input."""
    import torch

    from benchmarks.engine_gpu import SPEC, filled_buffer, make_engine, speed

    algo, seeds, settings = CASES[name]
    torch.set_float32_matmul_precision("high")
    if seeds == 1:
        engine = make_engine(algo, "cuda_graph", filled_buffer(spec=SPEC), SPEC, **settings)
    else:
        engine = make_population(algo, seeds, settings)
    print(json.dumps({"mode": engine.mode, "prepared": engine.preparation_seconds}), flush=True)
    for _ in sys.stdin:
        print(json.dumps(seeds * speed(engine, UPDATES)), flush=True)


class Running:
    """The process of a case, which has prepared or will soon have."""

    def __init__(self, name: str) -> None:
        algo, seeds, _ = CASES[name]
        command = [sys.executable, "-m", "benchmarks.population_gpu", "--case", name]
        if algo == "jax":
            sizes = ["--seeds", str(seeds), "--updates", str(UPDATES), "--wait"]
            command = [sys.executable, str(JAX), *sizes]
        pipe = subprocess.PIPE
        shared = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=shared)
        self.result: dict[str, Any] = {}

    def read(self) -> Any:
        """Return the next line of the process; None if it has ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def wait(self) -> None:
        """Wait until the case is prepared."""
        found = self.read()
        self.result = {"error": "it ended early"} if found is None else {**found, "speeds": []}

    def measure(self) -> None:
        """Make one measurement, unless the process has ended."""
        if "error" in self.result:
            return
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        self.result["speeds"].append(self.read())

    def cells(self) -> tuple[str, str]:
        """Return the speed and the preparation time as text."""
        if "error" in self.result:
            return self.result["error"], ""
        numbers = spread(self.result["speeds"])
        speed = "{median:,.0f} ({min:,.0f} - {max:,.0f})".format(**numbers)
        return speed, f"{self.result['prepared']:.1f}"


def main() -> None:
    """Prepare all cases, measure them in rounds, print and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", nargs="*", choices=list(CASES), default=list(CASES))
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds")
    parser.add_argument("--case", choices=list(CASES), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="file to write the record to")
    args = parser.parse_args()
    if args.case:
        measure(args.case)
        return
    running = {name: Running(name) for name in args.only}
    for case in running.values():
        case.wait()
    for _ in range(args.rounds):
        for case in running.values():
            case.measure()
    table = Table(title="One GPU: agent updates/s, median (minimum - maximum)")
    for heading in ("", "agent updates/s", "preparation, s (in parallel)"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, case in running.items():
        case.process.communicate()
        table.add_row(name, *case.cells())
    Console().print(table)
    if args.out:
        results = {name: case.result for name, case in running.items()}
        args.out.write_text(json.dumps({**describe(), "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()

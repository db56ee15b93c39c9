"""Measure updates per second of each engine mode on one GPU, next to JAX's `lax.scan`.

SAC, batch 256, networks 2×256, HalfCheetah sizes, sampling included, TF32 products. The modes take
turns; JAX runs in a separate process when it is its turn.

    python -m benchmarks.engine_gpu --rounds 3 --out result.json
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.describe import describe, spread
from rl_training.algorithms.registry import REGISTRY
from rl_training.data import ReplayBuffer
from rl_training.runtime.engine import Engine
from rl_training.types import EnvSpec

HERE = Path(__file__).resolve().parent
SPEC = EnvSpec(17, 6, (-1.0,) * 6, (1.0,) * 6)
MODES = ("eager", "compiled", "cuda_graph")
UPDATES = {"eager": 300, "compiled": 1_000, "cuda_graph": 10_000}

Result = dict[str, Any]


def filled_buffer(rows: int = 100_000, device: str = "cuda", spec: EnvSpec = SPEC) -> ReplayBuffer:
    """Return a replay buffer of noise, with HalfCheetah sizes by default."""
    rng = np.random.default_rng(0)
    buffer = ReplayBuffer(rows, spec.obs_dim, spec.action_width, device=device)
    obs = rng.standard_normal((rows, spec.obs_dim), dtype=np.float32)
    if spec.discrete:
        actions = rng.integers(spec.action_dim, size=(rows, 1)).astype(np.float32)
    else:
        actions = rng.uniform(-1, 1, (rows, spec.action_dim)).astype(np.float32)
    no = np.zeros(rows, bool)
    buffer.add(obs, actions, rng.standard_normal(rows, dtype=np.float32), obs[::-1], no, no)
    return buffer


def make_engine(
    algo: str, mode: Any, buffer: ReplayBuffer, spec: EnvSpec = SPEC, **settings: Any
) -> Engine:
    """Return a prepared engine on the GPU."""
    learner = REGISTRY[algo].learner_class()
    algorithm = learner.build(spec, learner.config_class(**settings)).to("cuda")
    engine = Engine(algorithm, buffer, seed=0, device="cuda", mode=mode)
    engine.run(60)
    torch.cuda.synchronize()
    return engine


def speed(engine: Engine, updates: int) -> float:
    """Return updates per second of one measurement."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    engine.run(updates)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    engine.check_finite()
    return updates / seconds


def jax_speed() -> Result:
    """Measure JAX in a separate process."""
    command = [sys.executable, str(HERE / "peers" / "sac_jax.py")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return {"error": done.stderr[-500:]}
    result: Result = json.loads(done.stdout.splitlines()[-1])
    return result


def gpu_state() -> list[str]:
    """Return clocks, throttling reasons and the processes on the GPU, which also affect speed."""
    fields = "clocks.sm,clocks.mem,clocks_event_reasons.active,temperature.gpu,power.draw"
    found = []
    for query in (f"--query-gpu={fields}", "--query-compute-apps=pid,used_memory"):
        command = ["nvidia-smi", query, "--format=csv,noheader"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found += done.stdout.strip().splitlines()
    return found


def kernels(engine: Engine) -> list[tuple[str, int, float]]:
    """Return name, launches and microseconds of an update's kernels, most expensive first."""
    from torch.profiler import ProfilerActivity, profile

    engine.run(1)
    engine.run(1)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as record:
        for _ in range(10):
            engine.run(1)
        torch.cuda.synchronize()
    rows = [
        (event.key, event.count // 10, event.self_device_time_total / 10)
        for event in record.key_averages()
        if event.self_device_time_total > 0
    ]
    return sorted(rows, key=lambda row: -row[2])


def main() -> None:
    """Measure, print and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds")
    parser.add_argument("--algo", default="sac", help="algorithm to train")
    parser.add_argument("--critics", type=int, nargs="*", default=[2, 10], help="for redq")
    parser.add_argument("--no-jax", action="store_true", help="skip JAX")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="file to write the record to")
    args = parser.parse_args()
    console = Console()
    torch.set_float32_matmul_precision("high")
    buffer = filled_buffer()
    engines, prepared = {}, {}
    for mode in MODES:
        engines[mode] = make_engine(args.algo, mode, buffer)
        prepared[mode] = engines[mode].preparation_seconds
        console.print(f"{mode}: prepared in {prepared[mode]:.1f} s, mode {engines[mode].mode}")
    speeds: dict[str, list[float]] = {mode: [] for mode in MODES}
    states = [gpu_state()]
    peer: list[Result] = []
    for number in range(args.rounds):
        for mode, engine in engines.items():
            speeds[mode].append(speed(engine, UPDATES[mode]))
            console.print(f"round {number + 1}  {mode:11} {speeds[mode][-1]:9.0f} updates/s")
        if not args.no_jax:
            peer.append(jax_speed())
            console.print(f"round {number + 1}  jax {peer[-1]}")
        states.append(gpu_state())
    launched = kernels(engines["cuda_graph"])
    table = Table(title=f"{args.algo}, one GPU: updates/s, median (minimum - maximum)")
    table.add_column("")
    table.add_column("updates/s", justify="right")
    table.add_column("preparation, s", justify="right")
    summary: Result = {}
    for mode, values in speeds.items():
        summary[mode] = spread(values)
        cell = "{median:,.0f} ({min:,.0f} - {max:,.0f})".format(**summary[mode])
        table.add_row(mode, cell, f"{prepared[mode]:.1f}")
    found = [r["updates_per_second"] for r in peer if "updates_per_second" in r]
    if found:
        summary["jax"] = spread(found)
        cell = "{median:,.0f} ({min:,.0f} - {max:,.0f})".format(**summary["jax"])
        table.add_row("JAX lax.scan", cell, f"{peer[0]['preparation_seconds']:.1f}")
    console.print(table)
    total = sum(row[2] for row in launched)
    console.print(f"{sum(row[1] for row in launched)} kernels, {total:.0f} us busy per update")
    for name, count, micros in launched[:40]:
        console.print(f"{micros:8.1f} us  {count:3d} x  {name[:110]}", highlight=False)
    if args.out:
        report = {
            **describe(),
            "gpu": torch.cuda.get_device_name(),
            "gpu_state": states,
            "summary": summary,
            "preparation_seconds": prepared,
            "speeds": speeds,
            "jax": peer,
            "kernels": launched,
        }
        args.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()

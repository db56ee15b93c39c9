"""Shared parts of comparisons: the peers' virtual environments, processes, rounds and tables.

python -m benchmarks.peering    creates both environments, like `make peers`
"""

import hashlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.describe import spread

HERE = Path(__file__).resolve().parent
PEERS = HERE / "peers"
# Installed first, because the requirement of another package may select a different build.
TORCH = "torch==2.13.0"
CPU_ONLY = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")

Result = dict[str, Any]


@dataclass(frozen=True)
class Environment:
    """A virtual environment for peers: its folder, its constraints and the steps of pip."""

    folder: Path
    constraints: Path
    steps: tuple[tuple[str, ...], ...]


D3RLPY_NEEDS = (
    "gymnasium[mujoco]",
    "mujoco==4.0.*",
    "gym",
    "numpy",
    "h5py",
    "tqdm",
    "click",
    "structlog",
    "colorama",
    "typing_extensions",
    "dataclasses-json",
    "scikit-learn",
)
ONLINE = Environment(
    HERE / ".venv-peers",
    PEERS / "constraints.txt",
    (
        (TORCH,),
        (
            TORCH,
            "stable-baselines3==2.9.*",
            "sb3-contrib==2.9.*",
            "sbx-rl==0.28.*",
            "gymnasium[mujoco]==1.4.*",
            "mujoco==4.0.*",
        ),
    ),
)
D3RLPY = Environment(
    HERE / ".venv-d3rlpy",
    PEERS / "constraints_d3rlpy.txt",
    (
        (TORCH,),
        (TORCH, *D3RLPY_NEEDS),
        ("--no-deps", "d3rlpy==2.8.*"),  # requires gymnasium 1.0.0, but works with 1.4 here
    ),
)


def run(command: list[str], device: str = "cpu") -> str:
    """Run a command and return what it printed; an error ends the benchmark.

    GPUs are hidden unless ``device`` is one. Variables that set the number of threads are removed,
    so that each library uses its own default.
    """
    env = {key: value for key, value in os.environ.items() if key not in THREAD_VARIABLES}
    env |= CPU_ONLY if device == "cpu" else {}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode:
        said = done.stdout[-2000:] + done.stderr[-4000:]
        raise SystemExit(f"{shlex.join(command)} failed:\n{said}")
    return done.stdout


def run_json(command: list[str], device: str = "cpu") -> Result:
    """Run a command and return the JSON object that it printed."""
    text = run(command, device)
    result: Result = json.JSONDecoder().raw_decode(text[text.index("{") :])[0]
    return result


def peer_python(console: Console, environment: Environment = ONLINE) -> str:
    """Return the interpreter of a peers' environment, which is created or updated if needed."""
    folder, pins = environment.folder, environment.constraints
    python = str(folder / "bin" / "python")
    wanted = hashlib.sha256(pins.read_bytes() + repr(environment.steps).encode()).hexdigest()
    ready = folder / f"ready-{wanted[:12]}"
    if not ready.exists():
        console.print(f"Creating {folder.name} (once, takes a few minutes) ...")
        run([sys.executable, "-m", "venv", "--clear", str(folder)])
        for packages in environment.steps:
            run([python, "-m", "pip", "install", "-c", str(pins), *packages])
        ready.touch()
    return python


def take_turns(
    names: Sequence[str], rounds: int, measure: Callable[[str], Result], console: Console
) -> Iterator[list[dict[str, Result]]]:
    """Measure in rounds of rotated order; after each one, yield all rounds so far.

    ``measure`` returns the rate per second under ``speed``.
    """
    found: list[dict[str, Result]] = []
    width = max(map(len, names))
    for number in range(rounds):
        turn = number % len(names)
        results = {}
        for name in [*names[turn:], *names[:turn]]:
            results[name] = measure(name) | {"load": os.getloadavg()[0]}
            console.print(f"round {number + 1}  {name:{width}} {results[name]['speed']:9.1f} /s")
        found.append({name: results[name] for name in names})
        yield found


def summarize(rounds: list[dict[str, Result]], ours: str = "ours") -> Result:
    """Return speeds over the rounds, and ours divided by each other one, round by round."""
    summary: Result = {}
    for name in rounds[0]:
        summary[name] = {"speed": spread([r[name]["speed"] for r in rounds])}
        if ours in rounds[0] and name != ours:
            ratios = [r[ours]["speed"] / r[name]["speed"] for r in rounds]
            summary[name]["ours_ratio"] = spread(ratios)
    return summary


def cell(values: dict[str, float], form: str) -> str:
    """Format a spread."""
    return f"{values['median']:{form}} ({values['min']:{form}} - {values['max']:{form}})"


def write(report: Result, out: Path | None) -> None:
    """Write the record if a file is given."""
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    for each in (ONLINE, D3RLPY):
        print(peer_python(Console(), each))

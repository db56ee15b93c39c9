"""Measure the memory of offline training on a million HalfCheetah transitions.

Each case trains in a separate process. Memory is the resident memory above what the process had
before it read the file, relative to the data's float32 bytes: after loading, the peak until then,
and after some updates.

    python -m benchmarks.offline_memory --out result.json
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.dataset_loading import memory
from benchmarks.describe import describe
from rl_training import Callback, train
from rl_training.data.dataset_writers import write_arrays
from rl_training.runtime.session import Session

ROWS, OBS, ACT, LENGTH = 1_000_000, 17, 6, 1_000
FLOAT32_BYTES = ROWS * 4 * (2 * OBS + ACT + 2)
MARKS = (500, 2_000, 5_000)
SMALL = {"hidden_sizes": [32, 32], "batch_size": 64}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "bc": ("bc", {}),
    "iql": ("iql", {}),
    "iql, normalize_states, return_scaling": (
        "iql",
        {"normalize_states": True, "return_scaling": True},
    ),
    "iql, by epochs": ("iql", {"sampling": "epochs"}),
    "iql, 5 % held out": ("iql", {"validation_fraction": 0.05}),
}


def make(path: Path) -> None:
    """Return noise in episodes of a thousand steps."""
    rng = np.random.default_rng(0)
    obs = rng.standard_normal((ROWS, OBS), dtype=np.float32)
    arrays: dict[str, Any] = {
        "observations": obs,
        "actions": rng.uniform(-1, 1, (ROWS, ACT)).astype(np.float32),
        "rewards": obs[:, 0].copy(),
        "next_observations": obs,
        "terminals": np.zeros(ROWS, dtype=bool),
        "timeouts": np.arange(1, ROWS + 1) % LENGTH == 0,
    }
    write_arrays(arrays, path)


class Watch(Callback):
    """Records the resident memory above ``base``, relative to the dataset's float32 bytes."""

    def __init__(self, base: int) -> None:
        self._base = base
        self.found: dict[str, float] = {}

    def on_start(self, session: Session) -> None:
        """Record the memory after the data has been loaded and transformed."""
        self._note("loaded", "VmRSS")
        self._note("peak_until_loaded", "VmHWM")

    def on_log(self, session: Session, metrics: Mapping[str, float]) -> None:
        """Record the memory at the marks; the peak includes loading."""
        if session.state.step in MARKS:
            self._note(f"after_{session.state.step}", "VmRSS")
            self._note("peak", "VmHWM")

    def _note(self, name: str, key: str) -> None:
        self.found[name] = round((memory(key) - self._base) / FLOAT32_BYTES, 3)


def measure(case: str, path: str, folder: str) -> dict[str, float]:
    """Train in this process and return the memory."""
    algo, keys = CASES[case]
    bounds = {"action_low": -1.0, "action_high": 1.0}
    data = {"dataset_kind": "npz", "dataset_path": path, "validation_fraction": 0.0}
    quiet = {"eval_interval": 0, "tensorboard": False, "num_threads": 1}
    torch.set_num_threads(1)
    ones = torch.ones(64, 64, requires_grad=True)
    torch.autograd.grad(ones.square().sum(), ones)  # import what the first call needs
    Path("/proc/self/clear_refs").write_text(
        "5"
    )  # reset the peak, which may include a parent process
    watch = Watch(memory("VmRSS"))
    train(
        {
            "algo": algo,
            "env_id": None,
            "total_timesteps": MARKS[-1],
            "output_dir": folder,
            "device": "cpu",
            "log_interval": 500,
            "algo_kwargs": {**SMALL, **bounds, **data, **quiet, **keys},
        },
        callbacks=[watch],
    )
    return watch.found


def main() -> None:
    """Write the data, train each case, print a table and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="file to write the record to")
    parser.add_argument("--case", nargs=3, default=None, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        print(json.dumps(measure(*args.case)))
        return
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "noise.npz"
        make(path)
        for case in CASES:
            command = [sys.executable, "-m", "benchmarks.offline_memory", "--case", case]
            places = [str(path), str(Path(folder) / "runs")]
            done = subprocess.run(
                [*command, *places], stdout=subprocess.PIPE, text=True, check=True
            )
            results[case] = json.loads(done.stdout.splitlines()[-1])
            cells = "  ".join(f"{key} {value:.3f}" for key, value in results[case].items())
            print(f"{case:40s} {cells}", flush=True)
    if args.out:
        record = {**describe(), "float32_bytes": FLOAT32_BYTES, "ratios": results}
        args.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()

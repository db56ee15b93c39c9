"""Measure the time and peak memory of loading two million HalfCheetah transitions.

Memory is relative to the float32 bytes of the data.

python -m benchmarks.dataset_loading --out result.json
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.describe import describe
from rl_training.data import load_transition_dataset
from rl_training.data.dataset_writers import write_arrays
from rl_training.types import EnvSpec

ROWS, OBS, ACT, LENGTH = 2_000_000, 17, 6, 1_000
FLOAT32_BYTES = ROWS * 4 * (2 * OBS + ACT + 2)
SPEC = EnvSpec(OBS, ACT, (-1.0,) * ACT, (1.0,) * ACT)


def make(path: Path, *, next_observations: bool) -> None:
    """Return random transitions in episodes of a thousand steps."""
    rng = np.random.default_rng(0)
    obs = rng.standard_normal((ROWS, OBS), dtype=np.float32)
    timeouts = np.zeros(ROWS, dtype=bool)
    timeouts[LENGTH - 1 :: LENGTH] = True
    arrays: dict[str, Any] = {
        "observations": obs,
        "actions": rng.uniform(-1, 1, (ROWS, ACT)).astype(np.float32),
        "rewards": obs[:, 0].copy(),
        "terminals": np.zeros(ROWS, dtype=bool),
        "timeouts": timeouts,
    }
    if next_observations:
        arrays["next_observations"] = obs
    write_arrays(arrays, path)


def load(path: str) -> dict[str, float]:
    """Load in this process; return the time and the rise of memory."""
    kind = {".npz": "npz", ".pt": "pt", ".hdf5": "hdf5"}[Path(path).suffix]
    Path("/proc/self/clear_refs").write_text(
        "5"
    )  # reset the peak, which may include a parent process
    before = memory("VmRSS")
    began = time.perf_counter()
    dataset = load_transition_dataset({"dataset_kind": kind, "dataset_path": path}, spec=SPEC)
    seconds = time.perf_counter() - began
    peak = memory("VmHWM") - before
    return {"rows": len(dataset), "seconds": seconds, "peak_ratio": peak / FLOAT32_BYTES}


def memory(key: str) -> int:
    """Return the resident bytes of this process, current (VmRSS) or peak (VmHWM), on Linux."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(key)).split()[1]) * 1024


def main() -> None:
    """Write the files, load each one in a new process and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=None, help="file to write the record to")
    parser.add_argument("--load", default=None, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.load:
        print(json.dumps(load(args.load)))
        return
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, given in (("a.npz", True), ("b.npz", False), ("a.hdf5", True), ("a.pt", True)):
            path = Path(folder) / name
            make(path, next_observations=given)
            command = [sys.executable, "-m", "benchmarks.dataset_loading", "--load", str(path)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            label = f"{path.suffix[1:]}, next observations {'given' if given else 'implied'}"
            results[label] = json.loads(done.stdout)
            path.unlink()
            row = results[label]
            print(
                f"{label:32s} {row['rows']:,} rows  {row['seconds']:5.2f} s  "
                f"peak {row['peak_ratio']:.2f} times the float32 bytes"
            )
    if args.out:
        args.out.write_text(json.dumps({**describe(), "loads": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()

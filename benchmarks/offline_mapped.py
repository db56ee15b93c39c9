"""Measure the memory of offline training on data larger than memory, read through memory maps.

The data is a folder of .npy files of transitions with large observations. Only every thousandth
observation is noise; the others are zeros in a sparse file, which takes no space on the disk but is
mapped, checked, hashed and read like any other. Anonymous memory (RssAnon) is what cannot be
dropped and read again.

    python -m benchmarks.offline_mapped --gigabytes 20 --out result.json
"""

import argparse
import json
import re
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.describe import describe
from rl_training import Callback, train
from rl_training.runtime.session import Session

OBS, ACT, LENGTH = 250, 6, 1_000
ROW_BYTES = 4 * (2 * OBS + ACT + 1) + 2


def make(folder: Path, rows: int) -> None:
    """Write episodes of a thousand steps."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((rows // LENGTH, OBS), dtype=np.float32)
    for name in ("observations", "next_observations"):
        path = folder / f"{name}.npy"
        array = np.lib.format.open_memmap(path, "w+", np.float32, (rows, OBS))
        array[: len(noise) * LENGTH : LENGTH] = noise
        array.flush()
    np.save(folder / "actions.npy", rng.uniform(-1, 1, (rows, ACT)).astype(np.float32))
    np.save(folder / "rewards.npy", rng.standard_normal(rows, dtype=np.float32))
    np.save(folder / "terminals.npy", np.zeros(rows, dtype=bool))
    np.save(folder / "timeouts.npy", np.arange(1, rows + 1) % LENGTH == 0)


def status(key: str) -> int:
    """Return an entry of the process's memory in bytes."""
    found = re.search(rf"{key}:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10


class Watch(Callback):
    """Records the largest anonymous memory at the start and whenever metrics are logged."""

    def __init__(self) -> None:
        self.peak = 0
        self.started = 0.0

    def on_start(self, session: Session) -> None:
        """Record the memory after the data has been checked and hashed."""
        self.started = time.perf_counter()
        self.peak = max(self.peak, status("RssAnon"))

    def on_log(self, session: Session, metrics: Mapping[str, float]) -> None:
        """Record the memory while training."""
        self.peak = max(self.peak, status("RssAnon"))


def measure(folder: Path, updates: int, keys: Mapping[str, Any]) -> dict[str, float]:
    """Train on a folder of data, and return the memory and the times."""
    watch, began = Watch(), time.perf_counter()
    data = {"dataset_path": str(folder / "data"), "action_low": -1.0, "action_high": 1.0}
    train(
        {
            "algo": "iql",
            "total_timesteps": updates,
            "log_interval": 20,
            "output_dir": str(folder / "runs"),
            "device": "cpu",
            "algo_kwargs": {**data, "tensorboard": False, "num_threads": 1, **keys},
        },
        callbacks=[watch],
    )
    ended = time.perf_counter()
    return {
        "peak_anonymous_gb": round(watch.peak / 1e9, 3),
        "mapped_gb": round(status("RssFile") / 1e9, 3),
        "seconds_until_training": round(watch.started - began, 1),
        "updates_per_second": round(updates / (ended - watch.started), 1),
    }


def main() -> None:
    """Write the data, train, print the result and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--gigabytes", type=float, default=20.0, help="size of the data")
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--epochs", action="store_true", help="sample by epochs")
    parser.add_argument("--folder", type=Path, help="where to write the data, removed afterwards")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="file to write the record to")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = int(args.gigabytes * 1e9) // ROW_BYTES // LENGTH * LENGTH
    folder = Path(tempfile.mkdtemp(dir=args.folder))
    try:
        (folder / "data").mkdir()
        make(folder / "data", rows)
        keys: dict[str, Any] = {"validation_fraction": 0.01, "eval_interval": 0}
        if args.epochs:
            keys["sampling"] = "epochs"
        found = measure(folder, args.updates, keys)
    finally:
        shutil.rmtree(folder)
    print(json.dumps(found))
    if args.out:
        sizes = {"rows": rows, "obs_dim": OBS, "action_dim": ACT, "bytes": rows * ROW_BYTES}
        record = {**describe(), **sizes, "sampling": "epochs" if args.epochs else "replacement"}
        args.out.write_text(json.dumps(record | found, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Measure what a checkpoint costs as the replay buffer grows: bytes and seconds, HalfCheetah sizes.

python -m benchmarks.checkpoint_cost --out result.json
"""

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.describe import describe
from rl_training.algorithms.sac import SACAlgorithm
from rl_training.data import ReplayBuffer
from rl_training.runtime.checkpoint_writer import CheckpointWriter
from rl_training.runtime.checkpointing import open_checkpoint
from rl_training.types import EnvSpec

SPEC = EnvSpec(17, 6, (-1.0,) * 6, (1.0,) * 6)
SAVES = (100_000, 200_000, 300_000, 310_000, 310_001)


def grow(buffer: ReplayBuffer, total: int, rng: np.random.Generator) -> None:
    """Add random transitions until ``total`` have been added, one at a time, as in a run."""
    while buffer.total < total:
        count = min(1000, total - buffer.total)
        obs = rng.normal(size=(count, 17)).astype(np.float32)
        flags = np.zeros(count, dtype=bool)
        buffer.add(obs, obs[:, :6], obs[:, 0], obs, flags, flags)


def measure(folder: Path) -> list[dict[str, float]]:
    """Save at each size, then load and verify the last checkpoint."""
    rng = np.random.default_rng(0)
    learner = SACAlgorithm.build(SPEC)
    buffer = ReplayBuffer(1_000_000, SPEC.obs_dim, SPEC.action_dim)
    writer = CheckpointWriter(folder, keep=3)
    rows = []
    for total in SAVES:
        grow(buffer, total, rng)
        began = time.perf_counter()
        path = writer.save(
            step=total,
            tensors=learner.state_dict(),
            state={"storage": buffer.state_dict()},
            storage=buffer,
            manifest={"config": {}, "env_spec": SPEC.to_dict()},
        )
        rows.append(
            {
                "transitions": total,
                "save_seconds": round(time.perf_counter() - began, 3),
                "megabytes_written": round(writer.bytes_written / 1e6, 2),
                "megabytes_of_the_whole_replay": round(total * buffer.rows.shape[1] * 4 / 1e6, 2),
            }
        )
    began = time.perf_counter()
    checkpoint = open_checkpoint(path, replay=True)
    checkpoint.restore_storage(ReplayBuffer(1_000_000, 17, 6), buffer.state_dict())
    rows[-1]["verify_and_load_seconds"] = round(time.perf_counter() - began, 3)
    return rows


def main() -> None:
    """Measure, print a table and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=None, help="file to write the record to")
    args = parser.parse_args()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    buffer = ReplayBuffer(1_000_000, SPEC.obs_dim, SPEC.action_dim)
    buffer.rows.zero_()
    resident = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    ratio = resident / (1_000_000 * 4 * 42)
    print(
        f"Replay buffer, 1,000,000 transitions: {ratio:.3f} times the bytes of its float32 values"
    )
    del buffer
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder))
    for row in rows:
        print("  ".join(f"{key} {value:,}" for key, value in row.items()))
    if args.out:
        record = {**describe(), "replay_memory_ratio": round(ratio, 4), "saves": rows}
        args.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()

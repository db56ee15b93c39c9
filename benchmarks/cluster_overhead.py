"""Measure what a Ray cluster adds to a study of many tiny runs.

    python -m benchmarks.cluster_overhead --runs 200 --out result.json

A cluster with one node is started on the loopback interface. A run's time is that between two
events of its worker: it holds the run's lock, and it has ended. The overhead is all other time of
the slots, as a share of the sum of these times:

- `scheduling`: between the end of a run and the start of the next one in the same slot
- `whole`: slots × time of the study, including the connection, the start of the slots, the import
  of PyTorch in each of them, and idle slots at the end
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rl_training.study.jobs import Ended, Event, Started
from rl_training.study.ray_cluster import LOOPBACK_VARIABLE, RayExecutor

os.environ[LOOPBACK_VARIABLE] = "0"  # before the import of Ray

from benchmarks.describe import describe, spread
from rl_training import Study

CONFIG: dict[str, Any] = {
    "algo": "sac",
    "env_id": "Pendulum-v1",
    "device": "cpu",
    "eval_episodes": 1,
    "log_interval": 500,
    "checkpoint_interval": 500,
    "algo_kwargs": {
        "hidden_sizes": [64, 64],
        "learning_starts": 100,
        "eval_interval": 500,
        "tensorboard": False,
    },
}


class TimedExecutor(RayExecutor):
    """Records when runs start and end."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.started: dict[str, float] = {}
        self.seconds: list[float] = []
        """Time of each run."""
        self.gaps: list[float] = []
        """Time between the end of a run and the start of the next one."""
        self._ended: list[float] = []

    def wait(self, seconds: float) -> Sequence[Event]:
        """Return the events since the last call."""
        events = super().wait(seconds)
        now = time.perf_counter()
        for event in events:
            if isinstance(event, Started):
                self.started[event.key] = now
                if self._ended:
                    self.gaps.append(now - self._ended.pop(0))
            elif isinstance(event, Ended):
                assert event.status.has_ended, event
                self.seconds.append(now - self.started[event.key])
                self._ended.append(now)
        return events


def measure(address: str, args: argparse.Namespace) -> dict[str, float]:
    """Run the study once."""
    config = CONFIG | {"total_timesteps": args.steps}
    study = Study([{"config": config}], seeds=args.runs)
    executor = TimedExecutor(address)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        result = study.run(Path(folder) / "study", executor=executor, progress=False)
        wall = time.perf_counter() - began
    executor.close()
    assert result.is_complete
    own = sum(executor.seconds)
    return {
        "scheduling": round(sum(executor.gaps) / own, 4),
        "whole": round(args.slots * wall / own - 1, 4),
        "seconds_per_run": round(own / args.runs, 3),
        "milliseconds_between_runs": round(1000 * sum(executor.gaps) / len(executor.gaps), 1),
        "wall": round(wall, 1),
        "load": round(os.getloadavg()[1], 1),
    }


def main() -> None:
    """Measure all rounds, print them and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=200, help="number of runs")
    parser.add_argument("--steps", type=int, default=1000, help="steps of each run")
    parser.add_argument("--slots", type=int, default=os.cpu_count(), help="runs at once")
    parser.add_argument("--rounds", type=int, default=1, help="number of rounds")
    parser.add_argument("--out", type=Path, default=None, help="file to write the record to")
    args = parser.parse_args()
    import ray
    from ray.cluster_utils import Cluster

    node = {"num_cpus": args.slots, "node_ip_address": "127.0.0.1", "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    rounds: list[dict[str, float]] = []
    try:
        for _ in range(args.rounds):
            rounds.append(measure(cluster.address, args))
            print("  ".join(f"{key} {value}" for key, value in rounds[-1].items()), flush=True)
    finally:
        cluster.shutdown()
    if args.out:
        record = {
            **describe(),
            "ray": ray.__version__,
            "runs": args.runs,
            "steps": args.steps,
            "slots": args.slots,
            "ratios": {k: spread([row[k] for row in rounds]) for k in ("scheduling", "whole")},
            "rounds": rounds,
        }
        args.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()

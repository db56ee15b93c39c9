"""Check that two versions learn the same: parameters after 200 updates, bit for bit.

    python -m benchmarks.snapshots --against 90d7648

Trains each algorithm twice, with the sources of this working tree and of another commit, in
separate processes with one thread, and compares every tensor of the last checkpoints. ``--engine
compiled`` compiles the updates.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
UPDATES = 200
STARTS = 50
COMMON = {
    "hidden_sizes": [32, 32],
    "batch_size": 32,
    "eval_interval": 0,
    "tensorboard": False,
    "num_threads": 1,
}
COLLECTION = {"learning_starts": STARTS, "buffer_capacity": 200}
DATA = {"dataset_kind": "random", "dataset_size": 500}
CASES: dict[str, dict[str, Any]] = {
    "sac": {},
    "sac, three environments": {"algo": "sac", "num_envs": 3},
    "ddpg": {},
    "td3": {},
    "redq": {"num_critics": 3, "gradient_updates_per_step": 4},
    "tqc": {"num_critics": 2, "num_quantiles": 5, "critic_hidden_sizes": [32, 32]},
    "dqn": {"env_id": "CartPole-v1", "train_frequency": 1},
    "her": {"env_id": "rl_training/PointGoal-v0"},
    "bc": {},
    "iql": {"learning_rate_schedule": "cosine", "normalize_states": True},
    "awac": {"critic_hidden_sizes": [32, 32]},
    "td3_bc": {},
    "cql": {"num_sampled_actions": 3},
    "edac": {"num_critics": 3},
    "rlpd": {"num_critics": 3, "gradient_updates_per_step": 4, "offline_pretrain_updates": 40},
}
"""The cases by the names of their algorithms, with further settings."""

OFFLINE = ("bc", "iql", "awac", "td3_bc", "cql", "edac")


def config_of(case: str, folder: str, engine: str) -> dict[str, Any]:
    """Return the config of a run with about `UPDATES` updates."""
    changes = dict(CASES[case])
    algo = changes.pop("algo", case)
    top = {key: changes.pop(key) for key in ("env_id", "num_envs") if key in changes}
    kwargs: dict[str, Any] = COMMON | {"engine": engine} | changes
    if algo not in OFFLINE:
        kwargs |= COLLECTION
    if algo in (*OFFLINE, "rlpd"):
        kwargs |= DATA
    updates_per_step = kwargs.get("gradient_updates_per_step", 1)
    steps = UPDATES if algo in OFFLINE else STARTS + UPDATES // updates_per_step
    return {
        "algo": algo,
        "env_id": "Pendulum-v1",
        "seed": 3,
        "total_timesteps": steps,
        "output_dir": folder,
        "device": "cpu",
        "eval_episodes": 0,
        "log_interval": 50,
        "algo_kwargs": kwargs,
    } | top


def take(engine: str, sources: Path) -> dict[str, dict[str, str]]:
    """Return a hash of every tensor of each case's last checkpoint."""
    import safetensors.torch

    import rl_training
    from rl_training import train

    if not Path(str(rl_training.__file__)).is_relative_to(sources):
        raise RuntimeError(f"{rl_training.__file__} is not below {sources}")
    found = {}
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            result = train(config_of(case, folder, engine))
            tensors: dict[str, Any] = {}
            for name in ("model.safetensors", "optimizers.safetensors"):
                tensors |= safetensors.torch.load_file(result.checkpoint_path / name)
            found[case] = {
                name: hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()
                for name, tensor in tensors.items()
            } | {"updates": str(result.metrics["updates"])}
    return found


def run(sources: Path, engine: str) -> dict[str, dict[str, str]]:
    """Take the snapshots with other sources in a new process."""
    environment = os.environ | {"PYTHONPATH": f"{sources}:{ROOT}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.snapshots", "--engine", engine]
    command += ["--take", str(sources)]
    done = subprocess.run(
        command, env=environment, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    found: dict[str, dict[str, str]] = json.loads(done.stdout.splitlines()[-1])
    return found


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Check out a commit into a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def compare(commit: str, engine: str) -> int:
    """Print a line for each case; return the number of cases that differ."""
    with checked_out(commit) as tree:
        old, new = run(tree / "src", engine), run(ROOT / "src", engine)
    different = 0
    for case in CASES:
        names = sorted(old[case].keys() | new[case].keys())
        wrong = [name for name in names if old[case].get(name) != new[case].get(name)]
        different += bool(wrong)
        verdict = f"differs in {', '.join(wrong)}" if wrong else f"{len(names) - 1} tensors equal"
        print(f"{case}: {old[case]['updates']} updates, {verdict}")
    return different


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--against", default="90d7648", help="the commit to compare with")
    parser.add_argument(
        "--engine", default="eager", choices=["eager", "compiled"], help="engine of the updates"
    )
    parser.add_argument("--take", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.take:
        print(json.dumps(take(arguments.engine, arguments.take)))
        return
    sys.exit(min(1, compare(arguments.against, arguments.engine)))


if __name__ == "__main__":
    main()

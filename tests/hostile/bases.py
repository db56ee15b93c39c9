"""Ordinary runs and datasets, created once; hostile cases are modified copies of them.

Creating them records what every command imports for ordinary input. It may not import anything else
for hostile input.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tests.hostile.sandbox import Outcome, Sandbox, Workspace

MINARI_ID = "tests/pendulum-v0"
SMALL: dict[str, Any] = {"hidden_sizes": [8, 8], "batch_size": 8, "num_threads": 1}
ONLINE: dict[str, Any] = {"learning_starts": 10, "buffer_capacity": 200}
STEPS = 24


def config(algo: str, env_id: str | None, output_dir: Path, **kwargs: Any) -> dict[str, Any]:
    """Return the config of a very short run."""
    controls = {"tensorboard": False, "keep_checkpoints": 2, "eval_interval": 0}
    return {
        "algo": algo,
        "env_id": env_id,
        "seed": 1,
        "total_timesteps": STEPS,
        "output_dir": str(output_dir),
        "device": "cpu",
        "eval_episodes": 1,
        "checkpoint_interval": 0,
        "log_interval": 8,
        "algo_kwargs": SMALL | controls | kwargs,
    }


def arrays(rows: int = 40) -> dict[str, np.ndarray[Any, Any]]:
    """Return data with Pendulum's dimensions, in episodes of ten steps."""
    rng = np.random.default_rng(0)
    ends = np.arange(1, rows + 1) % 10 == 0
    path = rng.uniform(-1, 1, (rows + 1, 3)).astype(np.float32)
    return {
        "observations": path[:-1],
        "actions": rng.uniform(-1, 1, (rows, 1)).astype(np.float32),
        "rewards": rng.uniform(-1, 0, rows).astype(np.float32),
        "next_observations": path[1:],
        "terminals": np.zeros(rows, dtype=bool),
        "timeouts": ends,
    }


@dataclass(frozen=True)
class Bases:
    """Locations of the ordinary runs and files."""

    folder: Path

    @property
    def data(self) -> Path:
        """The dataset that BC and IQL were trained on."""
        return self.folder / "data.npz"

    @property
    def minari(self) -> Path:
        """A folder of Minari datasets."""
        return self.folder / "minari"

    @property
    def observation(self) -> Path:
        """One observation of Pendulum."""
        return self.folder / "obs.npy"

    def run(self, name: str) -> Path:
        """The run ``sac``, ``bc``, ``dqn``, ``her``, ``iql`` or ``finetuned``."""
        return self.folder / "runs" / name

    def copy(self, name: str, workspace: Workspace) -> Path:
        """Copy a run with a single checkpoint, so that no other checkpoint can be a fallback."""
        return Path(shutil.copytree(self.run(name), workspace.run, symlinks=True))


def make_bases(sandbox: Sandbox, folder: Path) -> Bases:
    """Train and record with ordinary commands, and record what they import."""
    workspace = Workspace(folder / "place")
    workspace.root.mkdir()
    workspace.make(evil=())
    bases, given = Bases(workspace.given), workspace.given
    np.savez(bases.data, **arrays())  # type: ignore[arg-type]
    np.save(bases.observation, np.zeros(3, dtype=np.float32))
    recorded = {"dataset_kind": "npz", "dataset_path": str(bases.data)}
    settings = {
        "sac": config("sac", "Pendulum-v1", given / "new", **ONLINE),
        "dqn": config("dqn", "CartPole-v1", given / "new", **ONLINE),
        "her": config("her", "rl_training/PointGoal-v0", given / "new", **ONLINE),
        "bc": config("bc", None, given / "new", action_low=-1, action_high=1, **recorded),
        "iql": config("iql", "Pendulum-v1", given / "new", **recorded),
    }

    def benign(*argv: str | Path, status: int = 0) -> Outcome:
        outcome = sandbox.run([str(arg) for arg in argv], workspace, benign=True)
        assert (outcome.found, outcome.status) == ([], status), outcome
        return outcome

    def keep(name: str) -> None:
        (run,) = (given / "new").iterdir()
        run.rename(bases.run(name))
        older = sorted((bases.run(name) / "checkpoints").glob("step_*"))[:-1]
        for path in older:
            shutil.rmtree(path)

    (given / "runs").mkdir()
    for name, content in settings.items():
        (given / f"{name}.yaml").write_text(yaml.safe_dump(content))
        benign("train", "-c", given / f"{name}.yaml")
        keep(name)
    benign(
        *("finetune", bases.run("iql"), "--env-id", "Pendulum-v1", "total_timesteps=12"),
        *(f"output_dir={given / 'new'}", "learning_starts=4", "buffer_capacity=100"),
    )
    keep("finetuned")
    _play(bases, benign)
    return bases


def _play(bases: Bases, benign: Any) -> None:
    """Run each read-only command once correctly and once with a mistake."""
    sac, bc, given = bases.run("sac"), bases.run("bc"), bases.folder
    benign("data", "convert", bases.data, f"minari:{MINARI_ID}", "--env-id", "Pendulum-v1")
    for ending in ("npz", "pt", "hdf5"):
        benign("data", "convert", bases.data, given / f"copy.{ending}")
        benign("data", "inspect", given / f"copy.{ending}")
    benign("data", "inspect", MINARI_ID)
    benign("data", "inspect", sac)
    benign("data", "validate", MINARI_ID)
    benign("data", "validate", bases.data, "--env-id", "Pendulum-v1")
    benign("data", "collect", sac, "--steps", "5", "--out", given / "collected.npz")
    benign("evaluate", sac, "--episodes", "1")
    benign("evaluate", bc)
    benign("evaluate", bc, "--fqe", "--fqe-updates", "2")
    benign("predict", sac, "--obs", bases.observation)
    benign("plot", sac, "--out", given / "returns.png")
    benign("card", sac, "--out", given / "sac.md", "--episodes", "1")
    benign("card", bc, "--out", given / "bc.md")
    benign("export", sac, "--out", given / "sac.safetensors")
    benign("runs", given / "runs")
    benign("algorithms")
    benign("configs")
    benign("configs", "show", "sac/pendulum")
    shutil.copytree(sac, given / "resumed")
    benign("resume", given / "resumed", f"total_timesteps={STEPS + 2}")

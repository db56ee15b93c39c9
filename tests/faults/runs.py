"""A small run, how to compare it, and how to damage it."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from rl_training.boundary import json_codec
from rl_training.runtime.checkpointing import FILES, MANIFEST, list_steps

TOTAL = 200
CONFIG: dict[str, Any] = {
    "algo": "sac",
    "env_id": "Pendulum-v1",
    "seed": 1,
    "total_timesteps": TOTAL,
    "device": "cpu",
    "eval_episodes": 1,
    "checkpoint_interval": 25,
    "log_interval": 25,
    "algo_kwargs": {
        "hidden_sizes": [16, 16],
        "batch_size": 16,
        "learning_starts": 20,
        "train_frequency": 5,
        "eval_interval": 50,
        "buffer_capacity": 1000,
        "tensorboard": False,
        "num_threads": 1,
    },
}
RUN_NAME = "sac_Pendulum-v1_seed1"
BEST_STEP = 50
"""With this seed, the first evaluation is the best, so its checkpoint is kept."""


def config_for(output_dir: Path, **changes: Any) -> dict[str, Any]:
    """Return the small config; other keys go to `algo_kwargs`, and `...` removes a key."""
    config = CONFIG | {"output_dir": str(output_dir), "algo_kwargs": dict(CONFIG["algo_kwargs"])}
    for key, value in changes.items():
        target = config if key in ("num_envs", "env_kwargs", "env_id", *CONFIG) else None
        (config["algo_kwargs"] if target is None else target)[key] = value
    config["algo_kwargs"] = {k: v for k, v in config["algo_kwargs"].items() if v is not ...}
    return config


def write_config(output_dir: Path, **changes: Any) -> Path:
    """Write the small config to a file next to its runs."""
    file = output_dir / "config.yaml"
    file.write_text(yaml.safe_dump(config_for(output_dir, **changes)))
    return file


# --- Equality -----------------------------------------------------------------


def metrics_rows(run_dir: Path) -> list[dict[str, Any]]:
    """Return all lines of the metrics without times; an incomplete line fails here."""
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    return [
        {key: value for key, value in json.loads(line).items() if not key.startswith("time/")}
        for line in lines
    ]


def checkpoint_contents(path: Path) -> dict[str, bytes]:
    """Return every byte of a checkpoint, including its replay."""
    replay = json.loads((path / MANIFEST).read_bytes())["replay"]
    files = [*(path / name for name in (MANIFEST, *FILES))]
    files += [path.parents[1] / "replay" / f"{name}.npy" for name in replay]
    assert {file.name for file in path.iterdir()} == {MANIFEST, *FILES}
    return {file.name: file.read_bytes() for file in files}


def final_state(run_dir: Path) -> dict[str, Any]:
    """Return what an interrupted and resumed run must have in common with an uninterrupted one."""
    folder = run_dir / "checkpoints"
    info = json.loads((run_dir / "run.json").read_text())
    return {
        "checkpoint": checkpoint_contents(list_steps(run_dir)[-1]),
        "metrics": metrics_rows(run_dir),
        "pointers": {name: (folder / name).read_text() for name in ("last", "best")},
        "best": checkpoint_contents(folder / (folder / "best").read_text().strip()),
        "run": {key: info[key] for key in ("state", "stop_reason", "step", "best_return")},
    }


def folder_names(run_dir: Path) -> set[str]:
    """Return the names of all files, including hidden ones, except renamed damaged checkpoints."""
    return {
        str(file.relative_to(run_dir))
        for file in run_dir.rglob("*")
        if not file.relative_to(run_dir).as_posix().startswith("checkpoints/damaged-")
    }


def assert_equal_runs(run_dir: Path, reference: Path) -> None:
    """Fail with the first difference."""
    found, expected = final_state(run_dir), final_state(reference)
    for part in expected:
        assert found[part] == expected[part], f"{part} of {run_dir} differs"


def assert_no_leftovers(run_dir: Path) -> None:
    """Check that no temporary files and no unused replay files are left."""
    assert not [file for file in run_dir.rglob(".tmp-*")]
    used = {
        name
        for path in list_steps(run_dir)
        for name in json.loads((path / MANIFEST).read_bytes())["replay"]
    }
    assert {file.stem for file in (run_dir / "replay").iterdir()} == used


# --- Damage -------------------------------------------------------------------


def copy_run(run_dir: Path, parent: Path) -> Path:
    """Copy a run, to damage the copy."""
    return Path(shutil.copytree(run_dir, parent / run_dir.name, symlinks=True))


def newest(run_dir: Path) -> Path:
    """Return the folder of the newest checkpoint."""
    return list_steps(run_dir)[-1]


def flip_byte(file: Path) -> None:
    """Alter a file without changing its size."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0x01
    file.write_bytes(data)


def truncate(file: Path) -> None:
    """Truncate a file to half of its size."""
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])


DAMAGE: dict[str, Callable[[Path], None]] = {
    "truncated": truncate,
    "altered": flip_byte,
    "missing": Path.unlink,
}


def forge(path: Path, change: Callable[[dict[str, Any]], object] = lambda manifest: None) -> None:
    """Update a checkpoint's manifest to match its files, like an attacker would."""
    manifest = json.loads((path / MANIFEST).read_bytes())
    manifest.pop("digest", None)
    for name in FILES:
        data = (path / name).read_bytes()
        manifest["files"][name] = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    change(manifest)
    body = (json.dumps(manifest, sort_keys=True, indent=1) + "\n").encode()
    manifest["digest"] = hashlib.sha256(body).hexdigest()
    (path / MANIFEST).write_bytes(json_codec.dumps(manifest))


def forge_segment(path: Path, data: bytes) -> Path:
    """Replace a checkpoint's replay file by other bytes, with a matching name."""
    name = hashlib.sha256(data).hexdigest()
    file = path.parents[1] / "replay" / f"{name}.npy"
    file.write_bytes(data)
    forge(path, lambda manifest: manifest.update(replay=[name]))
    return file

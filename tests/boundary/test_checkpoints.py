"""Edited checkpoints and run folders are rejected, and files outside are not changed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from rl_training import evaluate_checkpoint, train
from rl_training.api.checkpoints import predict_checkpoint
from rl_training.api.training import resume
from rl_training.boundary import json_codec
from rl_training.errors import CheckpointError, ConfigError
from rl_training.experiment.run_directory import list_runs
from rl_training.runtime.checkpointing import MANIFEST, list_steps
from rl_training.runtime.logging import read_metrics


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    result = train(
        {
            "algo": "sac",
            "env_id": "Pendulum-v1",
            "total_timesteps": 40,
            "eval_episodes": 0,
            "checkpoint_interval": 20,
            "output_dir": str(folder),
            "device": "cpu",
            "algo_kwargs": {
                "hidden_sizes": [8],
                "batch_size": 8,
                "learning_starts": 30,
                "buffer_capacity": 100,
                "tensorboard": False,
                "num_threads": 1,
            },
        }
    )
    return result.run_dir


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def edit_manifest(checkpoint: Path, **changes: Any) -> None:
    """Change a manifest and update its digest."""
    file = checkpoint / MANIFEST
    body = json.loads(file.read_bytes()) | changes
    del body["digest"]
    for name, entry in body["files"].items():
        data = (checkpoint / name).read_bytes()
        if set(entry) == {"sha256", "bytes"}:
            entry |= {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    body["digest"] = hashlib.sha256(json_codec.dumps(body)).hexdigest()
    file.write_bytes(json_codec.dumps(body))


def last(run: Path) -> Path:
    return list_steps(run)[-1]


def test_checkpoint_in_folder_of_another_step_is_rejected(run: Path) -> None:
    edit_manifest(last(run), step=39)
    with pytest.raises(
        CheckpointError, match="is from step 39, which does not match its folder name"
    ):
        predict_checkpoint(run, np.zeros(3))


SPEC = {
    "obs_dim": 3,
    "action_dim": 1,
    "action_low": [-2.0],
    "action_high": [2.0],
    "discrete": False,
    "action_start": 0,
    "goal_dim": 0,
}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"extra": 1}, r"\['extra'\] are missing or unknown"),
        ({"discrete": ...}, r"\['discrete'\] are missing or unknown"),
        ({"obs_dim": "3"}, "obs_dim is not an integer"),
        ({"obs_dim": True}, "obs_dim is not an integer"),
        ({"discrete": 0}, "discrete is not true or false"),
        ({"action_low": [None]}, "action_low is not a list of numbers"),
        ({"action_low": [3.0]}, "invalid env_spec"),
        ({"action_low": [-2.0, -2.0], "action_high": []}, "invalid env_spec"),
        ({"action_start": 5}, "invalid env_spec"),
        ({"discrete": True}, "invalid env_spec"),
    ],
)
def test_inconsistent_environment_is_rejected(
    run: Path, changes: dict[str, Any], sentence: str
) -> None:
    spec = {k: v for k, v in (SPEC | changes).items() if v is not ...}
    edit_manifest(last(run), env_spec=spec)
    with pytest.raises(CheckpointError, match=sentence):
        predict_checkpoint(run, np.zeros(3))


def test_nonfinite_weights_are_rejected(run: Path) -> None:
    file = last(run) / "model.safetensors"
    tensors = safetensors.torch.load(file.read_bytes())
    name = next(name for name, tensor in tensors.items() if tensor.is_floating_point())
    tensors[name].view(-1)[0] = torch.nan
    file.write_bytes(safetensors.torch.save(tensors))
    edit_manifest(last(run))
    with pytest.raises(CheckpointError, match="values that are not finite"):
        predict_checkpoint(run, np.zeros(3))


@pytest.mark.parametrize(
    "value",
    [
        {"@array": ["<f4", [-1], "AAAAAA=="]},
        {"@array": ["<f4", [2], "AAAAAA=="]},
        {"@array": ["O", [1], "AAAAAAAAAAA="]},
        {"@array": ["<f4", [1], "!!!!AAAAAA=="]},
        {"@array": 5},
    ],
)
def test_arrays_with_wrong_declared_size_are_rejected(value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        json_codec.loads(json.dumps(value).encode())


@pytest.mark.parametrize(
    "name", ["checkpoints/.tmp-last", "checkpoints/.tmp-best", "run.json", "metrics.jsonl"]
)
def test_resume_does_not_write_through_planted_links(run: Path, tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    shutil.rmtree(run / "checkpoints")
    shutil.rmtree(run / "replay")
    (run / "checkpoints").mkdir()
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(victim)
    with suppress(CheckpointError):  # or it is replaced by a file
        resume(run)
    assert victim.read_text() == "precious"


def test_replay_rows_are_not_written_through_planted_links(run: Path, tmp_path: Path) -> None:
    names = json.loads((last(run) / MANIFEST).read_bytes())["replay"]
    victim = tmp_path / "victim"
    victim.write_text("precious")
    shutil.rmtree(run / "checkpoints")
    shutil.rmtree(run / "replay")
    (run / "replay").mkdir()
    for name in names:
        (run / "replay" / f".tmp-{name}").symlink_to(victim)
        (run / "replay" / f".tmp-{name}.npy").symlink_to(victim)
    resume(run)
    assert victim.read_text() == "precious"


def grow(file: Path) -> None:
    """Create a sparse file of eight gigabytes."""
    with file.open("r+b") as stream:
        stream.truncate(8 << 30)


def test_huge_config_is_not_read(run: Path) -> None:
    grow(run / "config.yaml")
    assert list_runs(run.parent) == []
    with pytest.raises(ConfigError, match="at most 4,194,304 are allowed"):
        resume(run)


def test_huge_run_record_is_not_read(run: Path) -> None:
    grow(run / "run.json")
    assert [row.state for row in list_runs(run.parent)] == ["unknown"]


def test_huge_metrics_are_not_read(run: Path) -> None:
    grow(run / "metrics.jsonl")
    with pytest.raises(ConfigError, match=r"metrics\.jsonl has 8,589,934,592 bytes, but at most"):
        resume(run, ["total_timesteps=50"])


def test_huge_metrics_line_is_skipped(run: Path) -> None:
    rows = list(read_metrics(run))
    with (run / "metrics.jsonl").open("ab") as stream:
        stream.write(b"{" * (3 << 20) + b"\n" + b'{"step": 99}\n')
    assert list(read_metrics(run)) == [*rows, {"step": 99}]


def test_pipe_or_link_in_a_checkpoint_is_rejected(run: Path, tmp_path: Path) -> None:
    file = last(run) / "state.json"
    os.rename(file, tmp_path / "state.json")
    file.symlink_to(tmp_path / "state.json")
    with pytest.raises(CheckpointError, match=r"state\.json is a symbolic link"):
        evaluate_checkpoint(run, episodes=1)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(CheckpointError, match=r"state\.json is not a regular file"):
        evaluate_checkpoint(run, episodes=1)

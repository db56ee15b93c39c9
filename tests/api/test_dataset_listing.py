"""`rl-training data list`: local datasets with their sizes and reference returns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from rl_training import ConfigError
from rl_training.api.dataset_listing import list_datasets
from rl_training.cli.app import app
from rl_training.runtime.recording import record_random


@pytest.fixture(autouse=True)
def no_minari_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "minari"
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(root))
    return root


def minari(folder: Path, metadata: dict[str, object]) -> None:
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "metadata.json").write_text(json.dumps(metadata))
    (folder / "data" / "main_data.hdf5").write_bytes(bytes(1000))


def test_files_and_minari_datasets_are_listed(
    tmp_path: Path, no_minari_datasets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "files"
    (folder / "arrays").mkdir(parents=True)
    (folder / "other").mkdir()
    arrays: dict[str, Any] = record_random("Pendulum-v1", {}, 70, 0)
    np.savez(folder / "a.npz", **arrays)
    for name, values in arrays.items():
        np.save(folder / "arrays" / f"{name}.npy", values)
    (folder / "b.npz").write_bytes(b"no archive")
    (folder / "notes.txt").write_text("no data")
    text = json.dumps({"id": "AdroitHandDoor-v1", "entry_point": "os:system"})
    facts = {"total_episodes": 3, "total_steps": 60, "env_spec": text}
    minari(no_minari_datasets / "D4RL" / "door" / "human-v2", facts)
    minari(no_minari_datasets / "broken-v0", {"total_episodes": -1})
    found = {item.source: item for item in list_datasets(folder)}
    assert list(found) == [
        *("D4RL/door/human-v2", "broken-v0"),
        *(str(folder / name) for name in ("a.npz", "arrays", "b.npz")),
    ]
    door = found["D4RL/door/human-v2"]
    assert (door.rows, door.episodes, door.env_id) == (60, 3, "AdroitHandDoor-v1")
    assert door.expert_return == pytest.approx(2940.578, abs=1e-3)
    assert door.bytes > 1000
    assert "not valid Minari metadata" in str(found["broken-v0"].problem)
    for name in ("a.npz", "arrays"):
        assert found[str(folder / name)].rows == 70
    assert "damaged or not an npz file" in str(found[str(folder / "b.npz")].problem)
    result = CliRunner().invoke(app, ["data", "list", "--folder", str(folder), "--json"])
    assert result.exit_code == 0
    printed = json.loads(result.stdout or capsys.readouterr().out)
    assert printed == {"datasets": [item.to_dict() for item in found.values()]}


def test_an_empty_folder_and_a_missing_one(tmp_path: Path) -> None:
    assert list_datasets(tmp_path) == []
    with pytest.raises(ConfigError, match="There is no folder"):
        list_datasets(tmp_path / "missing")

"""The dataset that packaged offline configs record on a machine without data."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training import ConfigError, resume, train
from rl_training.boundary.packaged_configs import config_names
from rl_training.data import DataConfig, load_transition_dataset
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.starter_data import record_starter
from rl_training.types import EnvSpec

SMALL = [
    *("total_timesteps=20", "hidden_sizes=[8]", "batch_size=8", "eval_episodes=0"),
    *("num_threads=1", "tensorboard=false", "log_interval=10", "checkpoint_interval=10"),
]
CONFIGS = [
    name for name in config_names() if TrainConfig.load(name).parts.data.dataset_kind == "starter"
]


@pytest.fixture(autouse=True)
def _bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def small(name: str, *more: str) -> TrainConfig:
    keys = [*SMALL, *more]
    if name.startswith("rlpd"):
        keys += ["offline_pretrain_updates=10", "learning_starts=5", "num_critics=2"]
    return TrainConfig.load(name, keys)


FILES = {"pendulum": "data/pendulum.npz", "cartpole": "data/cartpole.npz"}
ALGORITHMS = {
    "pendulum": {"awac", "bc", "cql", "edac", "iql", "rebrac", "rlpd", "td3_bc"},
    "cartpole": {"awac", "bc", "cql", "iql"},
}


@pytest.mark.parametrize("task", FILES)
def test_every_offline_config_of_a_small_task_starts_without_data(
    capfd: pytest.CaptureFixture[str], task: str
) -> None:
    hashes, names = set(), [name for name in CONFIGS if name.endswith(task)]
    assert {name.partition("/")[0] for name in names} == ALGORITHMS[task]
    for name in names:
        result = train(small(name))
        manifest = json.loads((result.checkpoint_path / "manifest.json").read_text())
        assert manifest["dataset"]["source"] == FILES[task]
        hashes.add(manifest["dataset"]["sha256"])
    messages = [line for line in capfd.readouterr().err.splitlines() if "Recorded" in line]
    assert len(messages) == 1  # siblings use the same file
    assert f"10,000 transitions of {config_env(task)} to {FILES[task]}" in messages[0]
    assert "dataset_path=FILE" in messages[0]
    # IQL scales the rewards of Pendulum-v1, which is part of the hash.
    assert len(hashes) == (2 if task == "pendulum" else 1)
    assert os.listdir("data") == [f"{task}.npz"]


def config_env(task: str) -> str:
    return str(TrainConfig.load(f"bc/{task}").env_id)


def test_cart_pole_recording_has_long_and_short_episodes() -> None:
    data = record_starter(small("bc/cartpole"), 3_000, 0)
    assert set(data["actions"].tolist()) == {0, 1}
    ends = np.flatnonzero(data["terminals"] | data["timeouts"])
    lengths = np.diff(np.concatenate([[-1], ends]))
    assert lengths.max() > 150
    assert lengths.min() < 30


def test_recording_is_deterministic_and_has_good_and_bad_episodes() -> None:
    config = small("bc/pendulum")
    first, second = (record_starter(config, 2_000, 0) for _ in range(2))
    assert all(np.array_equal(first[key], second[key]) for key in first)
    returns = first["rewards"].reshape(-1, 200).sum(axis=1)
    assert returns.max() > -150
    assert returns.min() < -700
    other = record_starter(config, 200, 1)
    assert not np.array_equal(first["actions"][:200], other["actions"])


def test_run_resumes_without_its_file() -> None:
    """The recording is repeated in memory, with the same hash and without writing a file."""
    result = train(small("td3_bc/pendulum"))
    Path("data/pendulum.npz").unlink()
    assert resume(result.run_dir, ["total_timesteps=30"]).metrics["step"] == 30
    assert not Path("data/pendulum.npz").exists()


def test_own_data_replaces_it(recorded: Path) -> None:
    train(small("bc/pendulum", f"dataset_path={recorded}"))
    assert not Path("data").exists()
    with pytest.raises(ConfigError, match=r"no dataset file 'mien\.npz'"):
        train(small("bc/pendulum", "dataset_path=mien.npz"))
    assert not Path("mien.npz").exists()


@pytest.mark.parametrize("change", ["env_id=MountainCarContinuous-v0", "env_kwargs={g: 3.0}"])
def test_other_environments_are_refused(change: str) -> None:
    with pytest.raises(
        ConfigError,
        match="starter is only available for Pendulum-v1 and CartPole-v1 without env_kwargs",
    ):
        train(small("bc/pendulum", change))
    assert not os.listdir()


def test_refused_config_records_nothing() -> None:
    with pytest.raises(ConfigError):
        train(small("bc/pendulum", "device=cuda:99"))
    assert not os.listdir()


def test_loading_without_an_environment_raises_a_clear_error() -> None:
    settings: Any = DataConfig(dataset_kind="starter")
    with pytest.raises(ConfigError, match="needs an environment"):
        load_transition_dataset(settings, spec=EnvSpec(3, 1, (-2.0,), (2.0,)))

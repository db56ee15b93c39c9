"""Dict, Tuple and discrete observations: training, resuming, recording and prediction."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rl_training import evaluate_checkpoint, resume, train
from rl_training.algorithms.registry import REGISTRY
from rl_training.api.checkpoints import predict_checkpoint, predict_file
from rl_training.api.datasets import collect_data, convert_data, inspect_data, validate_data
from rl_training.boundary.npy import open_npz
from rl_training.data import TransitionDataset
from rl_training.data.dataset_writers import write_arrays
from rl_training.envs import make_env, read_env_spec
from rl_training.errors import CheckpointError, ConfigError, EnvError
from rl_training.experiment.saved_run import SavedRun
from rl_training.runtime.checkpointing import MODEL
from rl_training.runtime.recording import record_random
from tests.comparing import CrashAt, CrashError, assert_same_run, untimed_metrics
from tests.structured_envs import DICT_PENDULUM, EVERYTHING, GRID, Everything

Config = Callable[..., dict[str, Any]]
WIDTH = spaces.flatdim(Everything.observation_space)


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_dict_observations_train_like_flat_ones(small_config: Config, vectorization: str) -> None:
    """The same numbers in a Dict give the same run, bit for bit."""
    runs = []
    for env_id in ("Pendulum-v1", DICT_PENDULUM):
        config = small_config(env_id=env_id, num_envs=2, eval_episodes=2)
        config["env_kwargs"] = {"vectorization": vectorization}
        runs.append(train(config))
    flat, nested = runs
    assert flat.metrics["eval_return_mean"] == nested.metrics["eval_return_mean"]
    assert untimed_metrics(flat.run_dir) == untimed_metrics(nested.run_dir)
    models = [(run.checkpoint_path / MODEL).read_bytes() for run in runs]
    assert models[0] == models[1]


@pytest.mark.parametrize("algo", [name for name, entry in REGISTRY.items() if not entry.goals])
def test_every_algorithm_learns_from_structured_observations(
    small_config: Config, tmp_path: Path, algo: str
) -> None:
    kind = {"discrete": REGISTRY[algo].actions == "discrete"}
    config = small_config(
        algo=algo, env_id=EVERYTHING, env_kwargs=kind, total_timesteps=60, eval_episodes=1
    )
    if REGISTRY[algo].mode != "online":
        data = tmp_path / "everything.npz"
        write_arrays(record_random(EVERYTHING, kind, 60, 0), data)
        config["algo_kwargs"]["dataset_path"] = str(data)
    result = train(config)
    assert result.metrics["updates"] > 0
    assert np.isfinite(result.metrics["eval_return_mean"])


@pytest.mark.parametrize("env_id", [EVERYTHING, GRID])
def test_resumed_run_equals_an_uninterrupted_one(small_config: Config, env_id: str) -> None:
    algo = "dqn" if env_id == GRID else "sac"
    config = small_config(algo=algo, env_id=env_id, num_envs=2, total_timesteps=120)
    config["algo_kwargs"]["normalize_observations"] = True
    whole = train(config)
    with pytest.raises(CrashError):
        train(config, callbacks=[CrashAt(90)])
    (crashed,) = set(whole.run_dir.parent.iterdir()) - {whole.run_dir}
    assert_same_run(whole, resume(crashed))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = {
        "algo": "sac",
        "env_id": EVERYTHING,
        "total_timesteps": 60,
        "output_dir": str(tmp_path_factory.mktemp("runs")),
        "eval_episodes": 0,
        "algo_kwargs": {
            "hidden_sizes": [8],
            "batch_size": 8,
            "learning_starts": 20,
            "buffer_capacity": 100,
            "tensorboard": False,
            "num_threads": 1,
        },
    }
    return train(config).run_dir


# --- Prediction ----------------------------------------------------------------


def test_predict_accepts_observations_of_the_environment(run: Path, tmp_path: Path) -> None:
    env = gym.make(EVERYTHING)
    obs, _ = env.reset(seed=3)
    flat = np.asarray(spaces.flatten(env.observation_space, obs))
    action = predict_checkpoint(run, obs)
    assert action.shape == (1,)
    np.testing.assert_array_equal(predict_checkpoint(run, flat), action)
    several: dict[str, Any] = {
        "mode": np.array([obs["mode"]] * 3),
        "robot": tuple(np.stack([part] * 3) for part in obs["robot"]),
        "switches": np.stack([obs["switches"]] * 3),
    }
    batch = predict_checkpoint(run, several)
    assert batch.shape == (3, 1)
    np.testing.assert_allclose(batch, np.stack([action] * 3), rtol=1e-5)
    np.testing.assert_array_equal(predict_checkpoint(run, np.stack([flat] * 3)), batch)
    arrays = {"robot/0": several["robot"][0], "robot/1": several["robot"][1]}
    arrays |= {"mode": several["mode"], "switches": several["switches"]}
    np.savez(tmp_path / "obs.npz", **arrays)
    out = tmp_path / "actions.npy"
    np.testing.assert_array_equal(predict_file(run, tmp_path / "obs.npz", out), batch)
    np.testing.assert_array_equal(np.load(out), batch)


@pytest.mark.parametrize(
    ("obs", "sentence"),
    [
        ({"mode": 0}, "observation is invalid: it has the entries mode, but should have switches"),
        (
            {"mode": 9, "robot": (np.zeros((2, 2)), np.zeros(3)), "switches": np.array([0, 5])},
            "entry 'mode' contains 9, but should contain integers from -1 to 1",
        ),
        (
            np.zeros(5),
            r"shape \(5,\), but an observation of the environment \(switches: Multi.*\), "
            rf"or an array of shape \[{WIDTH}\] or \[batch, {WIDTH}\] in this order, is expected",
        ),
    ],
)
def test_wrong_observations_get_a_clear_error(run: Path, obs: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        predict_checkpoint(run, obs)


def test_policy_of_discrete_observations(small_config: Config) -> None:
    run = train(small_config(algo="dqn", env_id=GRID, total_timesteps=60)).run_dir
    one = predict_checkpoint(run, 2)
    assert one.shape == ()
    cells = np.arange(5)
    batch = predict_checkpoint(run, cells)
    assert batch.shape == (5,)
    assert batch[2] == one
    np.testing.assert_array_equal(predict_checkpoint(run, np.eye(5)), batch)
    with pytest.raises(ConfigError, match="contains 5, but should contain integers from 0 to 4"):
        predict_checkpoint(run, np.array([5]))


def test_flat_policy_rejects_structured_observations(small_config: Config) -> None:
    run = train(small_config(total_timesteps=40)).run_dir
    with pytest.raises(ConfigError, match=r"have a tuple, but an array of shape \[3\]"):
        predict_checkpoint(run, (np.zeros(3), np.zeros(3)))


def test_policy_does_not_accept_an_environment_with_other_entries(small_config: Config) -> None:
    run = train(small_config(total_timesteps=40)).run_dir
    sentence = r"expects 3 observation values and .*, but .* has 3 observation values \(angle/0: "
    with pytest.raises(ConfigError, match=sentence):
        evaluate_checkpoint(run, env_id=DICT_PENDULUM, episodes=1)


def test_checkpoint_records_the_entries(run: Path) -> None:
    spec = SavedRun.load(run).spec
    with closing(make_env(EVERYTHING)) as env:
        assert spec == read_env_spec(env, EVERYTHING)
    assert [entry.name for entry in spec.entries] == ["switches", "mode", "robot/0", "robot/1"]


# --- The contract of an environment ----------------------------------------------


def test_value_outside_its_space_stops_the_run(small_config: Config) -> None:
    with pytest.raises(ConfigError, match="returns 2 for the mode, which is not in its space Disc"):
        train(small_config(env_id=EVERYTHING, env_kwargs={"trouble": "mode"}))


def test_later_wrong_value_is_an_environment_error() -> None:
    with closing(make_env(EVERYTHING)) as env:
        env.reset(seed=0)
        env.unwrapped.trouble = "mode"  # type: ignore[attr-defined]
        with pytest.raises(EnvError, match=r"step\(\) returns 2 for the mode"):
            env.step(np.zeros(1, np.float32))


# --- Datasets --------------------------------------------------------------------


def columns_of(arrays: dict[str, Any]) -> dict[str, Any]:
    """Return recorded rows in the environment's form, as a user might have them."""
    names = ("observations", "next_observations")
    nested = {}
    for name in names:
        rows: list[Any] = [
            spaces.unflatten(Everything.observation_space, row) for row in arrays[name]
        ]
        nested[name] = {
            "mode": np.array([row["mode"] for row in rows]),
            "robot": tuple(np.stack([row["robot"][i] for row in rows]) for i in range(2)),
            "switches": np.stack([row["switches"] for row in rows]),
        }
    return {key: value for key, value in arrays.items() if key not in names} | nested


@pytest.fixture(scope="module")
def arrays() -> dict[str, Any]:
    return record_random(EVERYTHING, {}, 30, 0)


@pytest.fixture(scope="module")
def spec() -> Any:
    with closing(make_env(EVERYTHING)) as env:
        return read_env_spec(env, EVERYTHING)


def named(data: dict[str, Any]) -> dict[str, Any]:
    """Return nested arrays as they are named in a file."""
    flat = {k: v for k, v in data.items() if not isinstance(v, dict)}
    for name in ("observations", "next_observations"):
        entries = data[name]
        flat |= {f"{name}/robot/{i}": part for i, part in enumerate(entries["robot"])}
        flat |= {f"{name}/{key}": entries[key] for key in ("mode", "switches")}
    return flat


def test_dataset_of_a_dict_equals_the_flat_one(arrays: dict[str, Any], spec: Any) -> None:
    flat = TransitionDataset.from_dict(arrays, spec=spec)
    for data in (columns_of(arrays), named(columns_of(arrays))):
        nested = TransitionDataset.from_dict(data, spec=spec)
        assert nested.fingerprint() == flat.fingerprint()
        assert nested.entries == spec.entries


@pytest.mark.parametrize("suffix", ["npz", "pt", "hdf5"])
def test_files_with_entries_are_read(
    arrays: dict[str, Any], tmp_path: Path, suffix: str, small_config: Config
) -> None:
    file = tmp_path / f"data.{suffix}"
    write_arrays(named(columns_of(arrays)), file)
    report, problems = validate_data(str(file), EVERYTHING)
    assert problems == []
    assert report.entries[0] == "switches: MultiDiscrete([2, 3])"
    assert report.obs_dim == WIDTH
    config = small_config(algo="bc", env_id=EVERYTHING, total_timesteps=20)
    config["algo_kwargs"] |= {"dataset_kind": suffix, "dataset_path": str(file)}
    train(config)
    # Without the environment, a discrete number cannot be one-hot.
    assert inspect_data(str(file)).obs_dim == 1 + 4 + 3 + 2


def test_wrong_entries_of_a_dataset_get_a_clear_error(arrays: dict[str, Any], spec: Any) -> None:
    data = named(columns_of(arrays))
    missing = {key: value for key, value in data.items() if not key.endswith("/mode")}
    with pytest.raises(ConfigError, match="entries robot/0, robot/1, switches, but the environm"):
        TransitionDataset.from_dict(missing, spec=spec)
    wrong = data | {"observations/mode": data["observations/mode"] + 5}
    with pytest.raises(ConfigError, match="entry 'mode' contains 4, but should contain integers"):
        TransitionDataset.from_dict(wrong, spec=spec)
    wide = {k: np.ones((30, 7)) if k.endswith("mode") else v for k, v in data.items()}
    with pytest.raises(
        ConfigError, match=r"'mode' have rows of the shape \(7,\), but the env.*Disc"
    ):
        TransitionDataset.from_dict(wide, spec=spec)
    short = data | {"observations/switches": data["observations/switches"][:-1]}
    with pytest.raises(ConfigError, match=r"'observations/switches' has 29 rows, but .* has 30"):
        TransitionDataset.from_dict(short, spec=spec)


def test_data_of_discrete_observations() -> None:
    arrays = record_random(GRID, {}, 20, 0)
    with closing(make_env(GRID)) as env:
        spec = read_env_spec(env, GRID)
    flat = TransitionDataset.from_dict(arrays, spec=spec)
    cells = {name: arrays[name].argmax(axis=1) for name in ("observations", "next_observations")}
    for data in (cells, {name: cell[:, None] for name, cell in cells.items()}):
        numbers = TransitionDataset.from_dict(arrays | data, spec=spec)
        assert numbers.fingerprint() == flat.fingerprint()


def test_recorded_data_is_flat_and_minari_has_the_environments_form(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    (tmp_path / "minari").mkdir()
    file = Path(collect_data(run, steps=20, out=tmp_path / "data.npz"))
    with open_npz(file) as columns:
        assert columns["observations"].shape == (20, WIDTH)
    collect_data(run, steps=20, minari_id="tests/everything-v0")
    dataset = minari.load_dataset("tests/everything-v0")
    assert dataset.observation_space == Everything.observation_space
    assert dataset[0].observations["robot"][0].shape == (8, 2, 2)
    assert validate_data("tests/everything-v0")[1] == []
    assert inspect_data("tests/everything-v0").obs_dim == WIDTH
    back = tmp_path / "back.npz"
    convert_data("tests/everything-v0", back)
    with open_npz(file) as one, open_npz(back) as two:
        for name in ("observations", "next_observations", "rewards"):
            np.testing.assert_array_equal(one[name].read_whole(), two[name].read_whole())


def test_replay_of_a_run_is_a_dataset_with_entries(run: Path, tmp_path: Path) -> None:
    report, problems = validate_data(str(run))
    assert problems == []
    assert len(report.entries) == 4
    convert_data(run, tmp_path / "replay.npz")
    assert validate_data(str(tmp_path / "replay.npz"), EVERYTHING)[1] == []


def test_data_without_an_environment_keeps_its_entries(
    arrays: dict[str, Any], tmp_path: Path, small_config: Config
) -> None:
    file = tmp_path / "data.npz"
    write_arrays(named(columns_of(arrays)), file)
    config = small_config(algo="bc", total_timesteps=20)
    config["env_id"] = None
    config["algo_kwargs"] |= {
        "dataset_path": str(file),
        "batch_size": 8,
        "action_low": -2.0,
        "action_high": 2.0,
    }
    run = train(config).run_dir
    entries = SavedRun.load(run).spec.entries
    assert [entry.name for entry in entries] == ["mode", "robot/0", "robot/1", "switches"]
    obs = {"mode": 1, "robot": (np.zeros((2, 2)), np.zeros(3)), "switches": np.zeros(2)}
    assert predict_checkpoint(run, obs).shape == (1,)


def test_altered_entries_in_a_checkpoint_are_rejected(run: Path) -> None:
    saved = SavedRun.load(run)
    altered = SavedRun(saved.path, saved.manifest | {"env_spec": saved.spec.to_dict()})
    altered.manifest["env_spec"]["entries"][0]["offset"] = 7
    with pytest.raises(CheckpointError, match="entries of an observation do not match its size"):
        _ = altered.spec

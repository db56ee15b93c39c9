"""Data passed as an object: arrays, a `TransitionDataset` or a Minari dataset."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl_training import (
    BC,
    IQL,
    ConfigError,
    TrainConfig,
    evaluate_checkpoint,
    finetune,
    resume,
    train,
    train_iql,
)
from rl_training.algorithms.registry import REGISTRY
from rl_training.api.datasets import convert_data
from rl_training.data import TransitionDataset, load_transition_dataset
from rl_training.envs import EnvConfig, describe_env
from rl_training.runtime.checkpointing import MODEL
from tests.comparing import CrashAt, CrashError, assert_same_run

Config = Callable[..., dict[str, Any]]
Arrays = dict[str, np.ndarray[Any, Any]]
RECORDED = [entry.name for entry in REGISTRY.values() if entry.mode != "online"]
DATA_KEYS = ("dataset_kind", "dataset_path")


@pytest.fixture
def arrays(recorded: Path) -> Arrays:
    with np.load(recorded) as file:
        return dict(file)


def without_data(config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a config without its dataset."""
    kwargs = {k: v for k, v in config["algo_kwargs"].items() if k not in DATA_KEYS}
    return config | {"algo_kwargs": kwargs | changes}


def weights(result: Any) -> bytes:
    return bytes((result.checkpoint_path / MODEL).read_bytes())


@pytest.mark.parametrize("algo", RECORDED)
def test_arrays_train_as_their_file_does(algo: str, small_config: Config, arrays: Arrays) -> None:
    changes = {"normalize_states": True, "reward_scale": 0.1}
    changes |= {"validation_fraction": 0.1} if REGISTRY[algo].mode == "offline" else {}
    config = small_config(algo=algo, total_timesteps=50)
    config["algo_kwargs"] |= changes
    before = {name: values.copy() for name, values in arrays.items()}
    from_file, from_arrays = train(config), train(without_data(config), dataset=arrays)
    assert weights(from_file) == weights(from_arrays)
    assert all((arrays[name] == before[name]).all() for name in before)  # never changed in place


def test_exact_resume_needs_the_same_arrays(small_config: Config, arrays: Arrays) -> None:
    config = without_data(small_config(algo="iql"), normalize_states=True, return_scaling=True)
    whole = train(config, dataset=arrays)
    with pytest.raises(CrashError):
        train(config, dataset=arrays, callbacks=[CrashAt(70)])
    run_dir = whole.run_dir.with_name(f"{whole.run_dir.name}_2")
    with pytest.raises(ConfigError, match=r"passed in Python and is not stored .* dataset=…, or"):
        resume(run_dir)
    other = arrays | {"rewards": arrays["rewards"] + 1}
    with pytest.raises(ConfigError, match="the given arrays differs from the data"):
        resume(run_dir, dataset=other)
    assert_same_run(whole, resume(run_dir, dataset=arrays))


def test_run_on_arrays_resumes_with_a_file_of_the_same_rows(
    small_config: Config, arrays: Arrays, recorded: Path
) -> None:
    config = without_data(small_config(algo="bc", total_timesteps=40))
    run = train(config, dataset=arrays)
    longer = resume(run.run_dir, [f"dataset_path={recorded}", "total_timesteps=60"])
    again = resume(longer.run_dir, ["total_timesteps=80"], dataset=str(recorded))
    assert TrainConfig.load(again.run_dir / "config.yaml").parts.data.dataset_kind == "npz"
    assert weights(again) == weights(train(config | {"total_timesteps": 80}, dataset=arrays))


def test_run_cannot_lose_its_data(small_config: Config, arrays: Arrays) -> None:
    config = without_data(small_config(algo="rlpd", total_timesteps=40))
    config["algo_kwargs"] |= {"offline_batch_ratio": 0.0}
    run = train(config, dataset=arrays)
    with pytest.raises(ConfigError, match="rlpd learns from recorded data: set dataset_path"):
        resume(run.run_dir, ["dataset_kind=null", "total_timesteps=60"])


@pytest.mark.parametrize("mapped", [True, False])
def test_dataset_object_trains_as_its_file_does(
    mapped: bool, small_config: Config, arrays: Arrays
) -> None:
    """Actions are in the environment's units, or already mapped by its bounds."""
    config = small_config(algo="iql", total_timesteps=30)
    spec = describe_env("Pendulum-v1", EnvConfig()) if mapped else None
    dataset = TransitionDataset.from_dict(arrays, spec=spec)
    rows = dataset.rows.clone()
    config["algo_kwargs"] |= {"normalize_states": True}
    assert weights(train(config)) == weights(train(without_data(config), dataset=dataset))
    assert torch.equal(dataset.rows, rows)


def test_dataset_object_of_another_environment_is_refused(
    small_config: Config, arrays: Arrays
) -> None:
    config = without_data(small_config(algo="iql"))
    spec = describe_env("MountainCarContinuous-v0", EnvConfig())
    narrow = arrays | {k: arrays[k][:, :2] for k in ("observations", "next_observations")}
    narrow["actions"] = arrays["actions"] / 2
    with pytest.raises(ConfigError, match=r"has 2 observation values .* use data from the same"):
        train(config, dataset=TransitionDataset.from_dict(narrow, spec=spec))
    pendulum = describe_env("Pendulum-v1", EnvConfig())
    wide = type(pendulum)(3, 1, (-4.0,), (4.0,))
    dataset = TransitionDataset.from_dict(arrays, spec=wide)
    with pytest.raises(ConfigError, match=r"was created for .* \[-4, 4\].*create it without spec="):
        train(config, dataset=dataset)


def test_minari_object_trains_as_its_id_does(
    small_config: Config,
    arrays: Arrays,
    recorded: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    convert_data(recorded, "minari:tests/pendulum-v0", env_id="Pendulum-v1")
    dataset = minari.load_dataset("tests/pendulum-v0")
    config = without_data(small_config(algo="iql", total_timesteps=30))
    by_id = train(config, dataset="tests/pendulum-v0")
    by_object = train(config, dataset=dataset)
    assert weights(by_id) == weights(by_object)
    folder = tmp_path / "minari" / "tests" / "pendulum-v0"
    assert weights(train(config, dataset=folder)) == weights(by_id)
    # A filtered object has fewer episodes, and the environment in its metadata is never created.
    monkeypatch.setattr(minari.MinariDataset, "recover_environment", None)
    short = dataset.filter_episodes(lambda episode: len(episode) < 200)
    assert short.total_episodes == 1
    with pytest.raises(ConfigError, match="450 rows then, 50 rows now"):
        resume(by_object.run_dir, ["total_timesteps=60"], dataset=short)
    resume(by_object.run_dir, ["total_timesteps=60"], dataset=dataset)


def test_managed_class_keeps_its_data(arrays: Arrays, tmp_path: Path) -> None:
    options: dict[str, Any] = {"hidden_sizes": [8], "num_threads": 1, "output_dir": tmp_path}
    model = IQL("Pendulum-v1", dataset=arrays, eval_episodes=0, **options).learn(20).learn(20)
    assert model.checkpoint.step == 40
    with pytest.raises(ConfigError, match="pass it again as dataset="):
        IQL.load(model.run_dir or "").learn(20)
    again = IQL.load(model.run_dir or "", dataset=arrays).learn(20)
    assert again.checkpoint.step == 60
    with pytest.raises(ConfigError, match="dataset and dataset_path are both set"):
        IQL("Pendulum-v1", dataset=arrays, dataset_path="x.npz")


def test_run_without_an_environment_is_evaluated_on_its_arrays(
    arrays: Arrays, tmp_path: Path
) -> None:
    bounds: dict[str, Any] = {"action_low": -2, "action_high": 2, "output_dir": tmp_path}
    model = BC(dataset=arrays, num_epochs=1, num_threads=1, **bounds).learn()
    loss = model.evaluate()["eval_loss"]
    assert loss == evaluate_checkpoint(str(model.run_dir), dataset=arrays)["eval_loss"]
    with pytest.raises(ConfigError, match="pass it again as dataset="):
        evaluate_checkpoint(str(model.run_dir))


def test_fitted_q_evaluation_takes_arrays(
    small_config: Config, arrays: Arrays, recorded: Path
) -> None:
    run = train(without_data(small_config(algo="iql", total_timesteps=20)), dataset=arrays)
    options: dict[str, Any] = {"fqe": True, "fqe_updates": 20}
    with pytest.raises(ConfigError, match="pass it again as dataset="):
        evaluate_checkpoint(run.run_dir, **options)
    results = [evaluate_checkpoint(run.run_dir, dataset=d, **options) for d in (arrays, recorded)]
    assert results[0]["fqe_value"] == results[1]["fqe_value"]
    assert [result["dataset"] for result in results] == ["the given arrays", str(recorded)]


@pytest.mark.parametrize("return_scaling", [False, True])
def test_finetuning_takes_arrays(
    return_scaling: bool, small_config: Config, arrays: Arrays, recorded: Path
) -> None:
    config = without_data(
        small_config(algo="iql", total_timesteps=20), return_scaling=return_scaling
    )
    run = train(config, dataset=arrays)
    online = ["total_timesteps=30", "learning_starts=10", "buffer_capacity=100"]
    with pytest.raises(ConfigError, match="pass it again as dataset="):
        finetune(run.run_dir, overrides=online)
    tuned = [finetune(run.run_dir, overrides=online, dataset=d) for d in (arrays, recorded)]
    assert weights(tuned[0]) == weights(tuned[1])


@pytest.mark.parametrize("value", [7, np.zeros((4, 3)), [1, 2], {1: np.zeros(3)}])
def test_other_objects_are_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"should be a path, a Minari id|keys should be strings"):
        IQL("Pendulum-v1", dataset=value)
    with pytest.raises(ConfigError, match=r"should be a path, a Minari id|keys should be strings"):
        train("iql/pendulum", dataset=value)


def test_arrays_are_checked_like_a_file(small_config: Config, arrays: Arrays) -> None:
    config = without_data(small_config(algo="iql"))
    with pytest.raises(ConfigError, match="the given arrays has no column for rewards"):
        train(config, dataset={k: v for k, v in arrays.items() if k != "rewards"})
    broken = arrays | {"rewards": np.full(450, np.nan)}
    with pytest.raises(ConfigError, match="rewards has values that are not finite in row 0"):
        train(config, dataset=broken)


def test_online_algorithm_refuses_data(small_config: Config, arrays: Arrays) -> None:
    with pytest.raises(ConfigError, match="is for recorded data, but sac learns online"):
        train(small_config(algo="sac"), dataset=arrays)


def test_dataset_replaces_the_data_of_a_config(arrays: Arrays, tmp_path: Path) -> None:
    """Packaged configs record their own data, which is then not needed."""
    short = {"total_timesteps": 20, "eval_episodes": 0, "output_dir": str(tmp_path)}
    config = TrainConfig.load("iql/pendulum").model_copy(update=short)
    result = train_iql(config, dataset=arrays)
    data = TrainConfig.load(result.run_dir / "config.yaml").parts.data
    assert (data.dataset_kind, data.dataset_path) == ("memory", None)


# --- The kind of a dataset ------------------------------------------------------


@pytest.mark.parametrize("suffix", ["npz", "pt", "hdf5"])
def test_kind_is_inferred_from_the_suffix(
    suffix: str, small_config: Config, recorded: Path, tmp_path: Path
) -> None:
    file = tmp_path / f"DATA.{suffix.upper()}"
    convert_data(recorded, file)
    config = without_data(small_config(algo="bc", total_timesteps=20), dataset_path=str(file))
    result = train(config)
    assert TrainConfig.load(result.run_dir / "config.yaml").parts.data.dataset_kind == suffix
    assert weights(result) == weights(train(config, dataset=recorded))


def test_folder_of_npy_files_is_a_dataset(
    small_config: Config, arrays: Arrays, recorded: Path, tmp_path: Path
) -> None:
    for name, values in arrays.items():
        np.save(tmp_path / name, values)
    (tmp_path / "notes.txt").write_text("ignored")
    dataset = load_transition_dataset({"dataset_path": tmp_path})
    same = load_transition_dataset({"dataset_path": recorded})
    assert torch.equal(dataset.rows, same.rows)
    config = without_data(small_config(algo="bc", total_timesteps=20))
    assert weights(train(config, dataset=tmp_path)) == weights(train(config, dataset=recorded))


def test_new_path_replaces_the_kind(recorded: Path, tmp_path: Path) -> None:
    """A path on the command line is read by its own suffix, whatever the config says."""
    config = TrainConfig.load("iql/pendulum", ["dataset_path=mine.h5"])
    assert config.parts.data.dataset_kind == "hdf5"
    config = TrainConfig.load("iql/hopper", ["dataset_id=D4RL/hopper/expert-v2"])
    assert (config.parts.data.dataset_kind, config.parts.data.dataset_path) == ("minari", None)
    config = TrainConfig.load("iql/pendulum", ["dataset_path=D4RL/door/human-v2"])
    assert config.parts.data.dataset_id == "D4RL/door/human-v2"
    with pytest.raises(ConfigError, match=r"'mine.h5' contradicts dataset_kind = npz"):
        TrainConfig.load("iql/pendulum", ["dataset_path=mine.h5", "dataset_kind=npz"])

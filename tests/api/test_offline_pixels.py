"""Learning from recorded images: training, resuming, fine-tuning, evaluation and export."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl_training import IQL, evaluate_checkpoint, finetune, resume, train
from rl_training.algorithms.registry import REGISTRY
from rl_training.api.checkpoints import predict_checkpoint
from rl_training.api.datasets import collect_data, convert_data, inspect_data, read_raw
from rl_training.api.exporting import export_checkpoint
from rl_training.data.dataset_writers import write_columns
from rl_training.envs import make_env
from rl_training.experiment.saved_run import SavedRun
from rl_training.runtime.checkpointing import MODEL
from rl_training.runtime.recording import record_random, record_random_columns
from tests.comparing import CrashAt, CrashError, assert_same_run
from tests.structured_envs import PIXELS

Config = Callable[..., dict[str, Any]]
RECORDED = [entry.name for entry in REGISTRY.values() if entry.mode != "online"]
STACKED = {"mixed": True, "frame_stack": 3, "terminates": True}
KINDS: tuple[dict[str, Any], ...] = ({}, {"channels": 3}, {"mixed": True}, STACKED)


@pytest.fixture
def make(small_config: Config, tmp_path: Path) -> Config:
    """Return configs of runs that learn from recorded images."""

    def make(algo: str, kind: dict[str, Any], **changes: Any) -> dict[str, Any]:
        kind = kind | {"discrete": REGISTRY[algo].actions == "discrete"}
        file = tmp_path / "images.npz"
        if not file.exists():
            write_columns(record_random_columns(PIXELS, kind, 60, 0), file)
        kwargs = {"dataset_path": str(file), "hidden_sizes": [8], "batch_size": 8}
        if REGISTRY[algo].mode != "offline":
            kwargs |= {"learning_starts": 10, "buffer_capacity": 40}
        changes = {"total_timesteps": 30, "log_interval": 10, "checkpoint_interval": 10} | changes
        kwargs |= changes.pop("algo_kwargs", {})
        config = small_config(algo=algo, env_id=PIXELS, env_kwargs=kind, **changes)
        config["algo_kwargs"] |= kwargs
        return config

    return make


def weights(result: Any) -> bytes:
    return bytes((result.checkpoint_path / MODEL).read_bytes())


@pytest.mark.parametrize("algo", RECORDED)
def test_every_offline_algorithm_learns_from_images(make: Config, algo: str) -> None:
    kind = STACKED | {"discrete": REGISTRY[algo].actions == "discrete"}
    result = train(make(algo, STACKED, eval_episodes=1))
    assert result.metrics["updates"] > 0
    assert np.isfinite(result.metrics["eval_return_mean"])
    arrays = record_random(PIXELS, kind, 5, 1)
    obs = {name: arrays[f"observations/{name}"] for name in ("arm", "camera")}
    assert len(predict_checkpoint(result.run_dir, obs)) == 5


@pytest.mark.parametrize("kind", KINDS[:-1], ids=str)
@pytest.mark.parametrize("algo", ["bc", "iql", "cql"])
def test_all_kinds_of_images_are_supported(make: Config, algo: str, kind: dict[str, Any]) -> None:
    result = train(make(algo, kind, eval_episodes=1, algo_kwargs={"augmentation": "random_shift"}))
    assert np.isfinite(result.metrics["eval_return_mean"])


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"sampling": "replacement", "augmentation": "random_shift", "n_step": 3},
        {"normalize_states": True, "validation_fraction": 0.3},
    ],
    ids=str,
)
def test_resumed_run_equals_an_uninterrupted_one(make: Config, keys: dict[str, Any]) -> None:
    config = make("iql", STACKED, algo_kwargs=keys, total_timesteps=45)
    whole = train(config)
    with pytest.raises(CrashError):
        train(config, callbacks=[CrashAt(27)])
    (crashed,) = set(whole.run_dir.parent.iterdir()) - {whole.run_dir}
    assert_same_run(whole, resume(crashed))


def test_changed_pixel_is_other_data(make: Config, tmp_path: Path) -> None:
    config = make("bc", {})
    run = train(config)
    arrays = record_random(PIXELS, {}, 60, 0)
    for name, row in (("observations", 30), ("next_observations", 29)):
        arrays[name][row, 2, 2] ^= 1
    with pytest.raises(Exception, match="same number of rows, but different values"):
        resume(run.run_dir, ["total_timesteps=40"], dataset=arrays)
    arrays = record_random(PIXELS, {}, 60, 0)
    resume(run.run_dir, ["total_timesteps=40"], dataset=arrays)


def test_arrays_train_as_their_file_does(make: Config, tmp_path: Path) -> None:
    config = make("iql", STACKED)
    arrays = record_random(PIXELS, STACKED | {"discrete": False}, 60, 0)
    nested: dict[str, Any] = {key: value for key, value in arrays.items() if "/" not in key}
    for field in ("observations", "next_observations"):
        nested[field] = {name: arrays[f"{field}/{name}"] for name in ("arm", "camera")}
    kwargs = {k: v for k, v in config["algo_kwargs"].items() if not k.startswith("dataset")}
    passed = train(config | {"algo_kwargs": kwargs}, dataset=nested)
    assert weights(passed) == weights(train(config))


@pytest.mark.usefixtures("without_compiler")
@pytest.mark.parametrize("algo", ["bc", "iql", "cql"])
def test_compiled_updates_equal_eager_ones(make: Config, algo: str) -> None:
    saved = []
    for engine in ("eager", "compiled"):
        keys = {"engine": engine, "augmentation": "random_shift", "augmentation_pad": 1}
        result = train(make(algo, STACKED, algo_kwargs=keys, total_timesteps=12))
        saved.append(SavedRun.load(result.run_dir).load_policy().algorithm.state_dict())
    for name, values in saved[0].items():
        np.testing.assert_allclose(values, saved[1][name], rtol=1e-4, atol=1e-6)


def test_held_out_images_are_evaluated_without_an_environment(make: Config) -> None:
    keys = {"action_low": -2.0, "action_high": 2.0, "validation_fraction": 0.3, "eval_interval": 10}
    config = make("bc", {}, algo_kwargs=keys) | {"env_id": None, "env_kwargs": {}}
    result = train(config)
    assert evaluate_checkpoint(result.run_dir)["eval_loss"] == result.metrics["eval_loss"]


def test_fitted_q_evaluation_reads_images(make: Config) -> None:
    result = train(make("iql", {"mixed": True}, algo_kwargs={"normalize_states": True}))
    assert np.isfinite(evaluate_checkpoint(result.run_dir, fqe=True, fqe_updates=20)["fqe_value"])


@pytest.mark.parametrize("keys", [[], ["offline_batch_ratio=0"]], ids=str)
def test_finetuning_mixes_recorded_and_new_images(make: Config, keys: list[str]) -> None:
    result = train(make("iql", STACKED, algo_kwargs={"normalize_states": True}))
    online = ["total_timesteps=30", "learning_starts=10", "buffer_capacity=40", *keys]
    tuned = finetune(result.run_dir, overrides=online)
    assert np.isfinite(tuned.metrics["loss/critic"])


def test_exported_policy_takes_images(make: Config, tmp_path: Path) -> None:
    result = train(make("iql", STACKED, algo_kwargs={"normalize_states": True}))
    export_checkpoint(result.run_dir, tmp_path / "policy.pt2")
    arrays = record_random(PIXELS, STACKED, 5, 1)
    obs = {name: arrays[f"observations/{name}"] for name in ("arm", "camera")}
    program = torch.export.load(tmp_path / "policy.pt2").module()
    actions = program(*(torch.from_numpy(values) for values in obs.values()))
    np.testing.assert_allclose(actions, predict_checkpoint(result.run_dir, obs), atol=1e-5)


# --- Recording ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_replay_of_a_run_with_images_becomes_a_dataset(
    small_config: Config, kind: dict[str, Any], tmp_path: Path
) -> None:
    config = small_config(algo="sac", env_id=PIXELS, env_kwargs=kind, num_envs=2)
    small = {"hidden_sizes": [8], "batch_size": 8, "learning_starts": 100, "buffer_capacity": 60}
    run = train(config | {"total_timesteps": 100, "algo_kwargs": config["algo_kwargs"] | small})
    report = inspect_data(str(run.run_dir))
    assert 50 < report.rows <= 60
    assert (report.discontinuities, report.duplicates) == (0, 0)
    convert_data(run.run_dir, tmp_path / "replay.npz")
    everything = torch.arange(report.rows)
    converted, replay = (
        read_raw(str(path)).batch(everything) for path in (tmp_path / "replay.npz", run.run_dir)
    )
    for one, two in zip(converted.tensors(), replay.tensors(), strict=True):
        np.testing.assert_array_equal(one, two)
    kwargs = {"dataset_path": str(tmp_path / "replay.npz"), "hidden_sizes": [8], "num_threads": 1}
    offline = config | {"algo": "bc", "algo_kwargs": kwargs, "num_envs": 1, "total_timesteps": 10}
    assert train(offline).metrics["updates"] == 10


def test_collected_images_train_a_policy(make: Config, tmp_path: Path) -> None:
    run = train(make("bc", STACKED)).run_dir
    files = [collect_data(run, steps=30, out=tmp_path / f"{i}.npz", noise=0.3) for i in (0, 1)]
    one, two = (Path(file).read_bytes() for file in files)
    assert one == two
    assert inspect_data(files[0]).entries == ["arm: Box(2)", "camera: image([3, 6, 6])"]
    options: dict[str, Any] = {"hidden_sizes": [8], "eval_episodes": 0, "num_threads": 1}
    model = IQL(PIXELS, env_kwargs=STACKED, dataset=files[0], output_dir=tmp_path, **options)
    model.learn(10)
    with closing(make_env(PIXELS, STACKED)) as env:
        assert model.predict(env.reset(seed=0)[0]).shape == (1,)

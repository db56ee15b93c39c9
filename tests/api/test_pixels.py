"""Images in observations: training, storage, resuming and prediction."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from rl_training import evaluate_checkpoint, resume, train
from rl_training.algorithms.registry import REGISTRY
from rl_training.api.checkpoints import predict_checkpoint, predict_file
from rl_training.boundary import json_codec
from rl_training.boundary.npy import read_npy
from rl_training.envs import make_env, observations, read_env_spec
from rl_training.errors import CheckpointError, ConfigError, EnvError
from rl_training.experiment.saved_run import SavedRun
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.checkpointing import MANIFEST, MODEL, open_checkpoint
from rl_training.runtime.session import Session
from tests.comparing import CrashAt, CrashError, assert_same_run, untimed_metrics
from tests.faults.runs import forge
from tests.structured_envs import PIXELS, STACKED

Config = Callable[..., dict[str, Any]]
SMALL: dict[str, Any] = {
    "hidden_sizes": [8],
    "batch_size": 8,
    "learning_starts": 20,
    "buffer_capacity": 60,
}
ONLINE = [name for name, entry in REGISTRY.items() if entry.mode == "online" and not entry.goals]


def pixel_config(small_config: Config, algo: str = "sac", **changes: Any) -> dict[str, Any]:
    """Return a config for images; the replay is smaller than the run."""
    config = small_config(algo=algo, env_id=PIXELS, total_timesteps=100)
    config["algo_kwargs"] |= SMALL
    config["env_kwargs"] = {"discrete": REGISTRY[algo].actions == "discrete"}
    for key, value in changes.items():
        config[key] = config[key] | value if isinstance(value, dict) else value
    return config


class Replay(Callback):
    """Records the frames of the replay at the end of a run."""

    frames = 0
    rows = 0

    def on_end(self, session: Session) -> None:
        assert session.collector is not None
        buffer = session.collector.buffer
        assert buffer.frames is not None
        self.frames, self.rows = buffer.frames.written, buffer.total


@pytest.mark.parametrize("algo", ONLINE)
def test_every_online_algorithm_learns_from_images(small_config: Config, algo: str) -> None:
    config = pixel_config(small_config, algo, total_timesteps=50, eval_episodes=1)
    config["env_kwargs"] |= {"mixed": True, "channels": 2}
    result = train(config)
    assert result.metrics["updates"] > 0
    assert np.isfinite(result.metrics["eval_return_mean"])


def test_a_stack_is_stored_once_and_changes_nothing(
    small_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs with stacks by our option, by Gymnasium's wrapper, and stored whole are equal."""
    models, metrics, stored = [], [], []
    for env_id, kwargs, known in (
        (PIXELS, {"frame_stack": 3}, True),
        (STACKED, {"size": 3}, True),
        (STACKED, {"size": 3}, False),
    ):
        if not known:  # as if the wrapper were another one
            monkeypatch.setattr(observations, "_num_frames", lambda _env: 1)
        replay = Replay()
        kwargs |= {"length": 20}  # so long that no row loses its frames
        config = pixel_config(small_config, env_id=env_id, env_kwargs=kwargs, num_envs=2)
        result = train(config, callbacks=[replay])
        models.append((result.checkpoint_path / MODEL).read_bytes())
        metrics.append(untimed_metrics(result.run_dir))
        stored.append(replay.frames)
    assert models[0] == models[1] == models[2]
    assert metrics[0] == metrics[1] == metrics[2]
    assert stored[0] == stored[1]
    assert replay.rows == 100
    assert stored[0] == 100 + 2 * 3  # one more for each episode


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"env_kwargs": {"frame_stack": 3, "terminates": True}},
        {"env_kwargs": {"mixed": True, "channels": 3}, "num_envs": 3},
        {"env_kwargs": {"length": 1}},
        {"env_id": STACKED, "num_envs": 2},
        {"algo_kwargs": {"replay": "prioritized", "n_step": 3, "augmentation": "random_shift"}},
        {"env_kwargs": {"mixed": True}, "algo_kwargs": {"normalize_observations": True}},
        {"env_kwargs": {"vectorization": "async", "frame_stack": 2}, "num_envs": 2},
    ],
    ids=lambda change: json.dumps(change)[:60],
)
def test_resumed_run_equals_an_uninterrupted_one(
    small_config: Config, change: dict[str, Any]
) -> None:
    config = pixel_config(small_config, total_timesteps=120, eval_episodes=1, **change)
    whole = train(config)
    with pytest.raises(CrashError):
        train(config, callbacks=[CrashAt(95)])
    (crashed,) = set(whole.run_dir.parent.iterdir()) - {whole.run_dir}
    warnings: list[str] = []
    assert_same_run(whole, resume(crashed, on_warning=warnings.append))
    assert warnings == []


@pytest.mark.usefixtures("without_compiler")
def test_traced_updates_equal_eager_ones(small_config: Config) -> None:
    runs = []
    for engine in ("eager", "compiled"):
        kwargs = {"engine": engine, "augmentation": "random_shift", "n_step": 2}
        runs.append(train(pixel_config(small_config, "dqn", algo_kwargs=kwargs)))
    models = [SavedRun.load(run.run_dir).tensors(MODEL) for run in runs]
    for name, tensor in models[0].items():
        torch.testing.assert_close(tensor, models[1][name], rtol=1e-4, atol=1e-6)


def test_checkpoint_contains_each_frame_once(small_config: Config) -> None:
    result = train(pixel_config(small_config, env_kwargs={"frame_stack": 3}))
    manifest = json.loads((result.checkpoint_path / MANIFEST).read_bytes())
    (frames,), (rows,) = manifest["frames"], manifest["replay"]
    replay = result.run_dir / "replay"
    images = read_npy(replay / f"{frames}.npy")
    assert images.dtype == np.uint8
    assert images.shape == (60 + 60 // 16 + 5, 36)
    assert read_npy(replay / f"{rows}.npy").shape == (60, 3 + 1 + 1 + 3 + 2)


def test_missing_or_altered_frames_are_rejected(small_config: Config) -> None:
    result = train(pixel_config(small_config, total_timesteps=40))
    manifest = json.loads((result.checkpoint_path / MANIFEST).read_bytes())
    file = result.run_dir / "replay" / f"{manifest['frames'][0]}.npy"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(CheckpointError, match="was altered: its contents do not match"):
        open_checkpoint(result.checkpoint_path, replay=True)
    file.unlink()
    with pytest.raises(CheckpointError, match="is missing"):
        open_checkpoint(result.checkpoint_path, replay=True)


@pytest.mark.parametrize("value", [300.0, -1.0, 0.5])
def test_a_saved_image_contains_pixels(small_config: Config, value: float) -> None:
    result = train(pixel_config(small_config, total_timesteps=40))

    file = result.checkpoint_path / "state.json"
    state = json_codec.decode(json.loads(file.read_bytes()))
    obs = state["collector"]["obs"].copy()
    obs[0, 0] = value
    state["collector"]["obs"] = obs
    file.write_bytes(json_codec.dumps(json_codec.encode(state)))
    forge(result.checkpoint_path)
    with pytest.raises(CheckpointError, match="obs contains values that are not pixels"):
        resume(result.run_dir, overrides=["total_timesteps=80"])


# --- Prediction and evaluation ------------------------------------------------------


def test_prediction_accepts_images(small_config: Config, tmp_path: Path) -> None:
    run = train(pixel_config(small_config, env_kwargs={"frame_stack": 2})).run_dir
    image = np.random.default_rng(0).integers(0, 256, (2, 6, 6), np.uint8)
    action = predict_checkpoint(run, image)
    assert action.shape == (1,)
    for same in (image.astype(float), image.reshape(-1), image.reshape(-1).astype(np.float32)):
        np.testing.assert_array_equal(predict_checkpoint(run, same), action)
    batch = predict_checkpoint(run, np.stack([image] * 3))
    assert batch.shape == (3, 1)
    np.testing.assert_allclose(batch, np.stack([action] * 3), rtol=1e-5)
    np.save(tmp_path / "images.npy", np.stack([image] * 3))
    np.testing.assert_array_equal(predict_file(run, tmp_path / "images.npy"), batch)
    assert np.isfinite(evaluate_checkpoint(run, episodes=2)["eval_return_mean"])
    with pytest.raises(ConfigError, match=r"image\(\[2, 6, 6\]\)\), or an array of shape \[72\]"):
        predict_checkpoint(run, np.zeros((6, 6)))
    with pytest.raises(ConfigError, match=r"contains 0\.5, but the pixels of an image should be"):
        predict_checkpoint(run, np.full((2, 6, 6), 0.5))
    with pytest.raises(ConfigError, match=r"expects .*image\(\[2, 6, 6\]\).*, but .* has 36"):
        evaluate_checkpoint(run, env_kwargs={"frame_stack": 1}, episodes=1)


# --- Settings -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"algo_kwargs": {"normalize_observations": True}}, "no effect on images, whose pixels"),
        ({"env_kwargs": {"frame_stack": 0}}, "frame_stack = 0"),
        ({"env_kwargs": {"frame_stack": "two"}}, "frame_stack"),
        ({"env_id": "Pendulum-v1", "env_kwargs": {"frame_stack": 2}}, "has no images, so leave it"),
        (
            {"env_id": "Pendulum-v1", "algo_kwargs": {"augmentation": "random_shift"}},
            "augmentation = random_shift shifts images, but the observations have none",
        ),
        ({"algo_kwargs": {"networks": {"actor": {"trunk": "residual"}}}}, "cannot read images"),
        ({"algo_kwargs": {"buffer_capacity": 10**9}}, r"the replay would need at least .* GiB"),
    ],
)
def test_unusable_settings_get_a_clear_error(
    small_config: Config, change: dict[str, Any], sentence: str
) -> None:
    config = pixel_config(small_config, **change)
    if config["env_id"] == "Pendulum-v1":
        del config["env_kwargs"]["discrete"]
    with pytest.raises(ConfigError, match=sentence):
        train(config)
    assert not Path(config["output_dir"]).exists() or not list(Path(config["output_dir"]).iterdir())


def test_memory_of_a_replay_counts_its_frames(
    small_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "rl_training.experiment.memory.available_memory"
    monkeypatch.setattr(name, lambda device: 2 * 2**30)
    config = pixel_config(small_config, env_kwargs={"side": 200})
    config["algo_kwargs"]["buffer_capacity"] = 60_000
    with pytest.raises(ConfigError, match=r"60000: the replay would need at least 2\.4 GiB"):
        train(config)


# --- Environments -----------------------------------------------------------------------


def test_stacks_start_with_copies_of_the_first_image() -> None:
    with closing(make_env(PIXELS, {"frame_stack": 3, "mixed": True})) as env:
        spec = read_env_spec(env, PIXELS)
        plain = gym.make(PIXELS, mixed=True)
        first, _ = plain.reset(seed=4)
        frames = [first["camera"]] * 3
        obs, _ = env.reset(seed=4)
        for _ in range(5):
            np.testing.assert_array_equal(obs[2:].reshape(3, 6, 6), np.stack(frames))
            action = np.ones(1, np.float32)
            obs, *_ = env.step(action)
            following, *_ = plain.step(action)
            frames = [*frames[1:], following["camera"]]
            np.testing.assert_array_equal(obs[:2], following["arm"])
    assert [(entry.name, entry.frames) for entry in spec.entries] == [("arm", 1), ("camera", 3)]


def test_flat_images_are_bytes() -> None:
    with closing(make_env(PIXELS)) as env:
        assert env.reset(seed=0)[0].dtype == np.uint8
    with closing(make_env(PIXELS, {"mixed": True})) as env:
        assert env.reset(seed=0)[0].dtype == np.float32


def test_wrong_image_is_an_environment_error() -> None:
    with closing(make_env(PIXELS, {"frame_stack": 2})) as env:
        env.reset(seed=0)
        env.unwrapped.shape = (5, 6)  # type: ignore[attr-defined]
        with pytest.raises(EnvError, match=r"an array of uint8 of shape \(5, 6\) for the observat"):
            env.step(np.zeros(1, np.float32))


@pytest.mark.parametrize(
    ("space", "kind", "frames"),
    [
        (gym.spaces.Box(0, 255, (8, 8), np.uint8), "image", 1),
        (gym.spaces.Box(0, 255, (8, 8, 3), np.uint8), "image", 1),
        (gym.spaces.Box(0, 1, (4, 8, 8), np.dtype(bool)), "image", 1),  # type: ignore[arg-type]
        (gym.spaces.Box(0, 255, (2, 8, 8, 3), np.uint8), "image", 1),
        (gym.spaces.Box(0, 255, (2, 2), np.uint8), "vector", 1),
        (gym.spaces.Box(0, 1, (8, 8), np.float32), "vector", 1),
    ],
)
def test_images_are_small_integers_with_two_or_three_axes(
    space: Any, kind: str, frames: int
) -> None:
    (entry,) = observations.read_entries(space, "Some-v0")
    assert (entry.kind, entry.frames) == (kind, frames)

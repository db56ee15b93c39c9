"""What is published of a run: no paths, no private keys, and a checkpoint that others can use."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training import (
    IQL,
    SAC,
    Callback,
    ConfigError,
    evaluate_checkpoint,
    export_checkpoint,
    finetune,
    model_card,
    predict_checkpoint,
    resume,
    train,
)
from rl_training.api.publishing import (
    published_checkpoint,
    published_command,
    published_config,
    strip_paths,
)
from rl_training.experiment.saved_run import SavedRun
from rl_training.runtime.session import Session

Config = Callable[..., dict[str, Any]]


@pytest.mark.parametrize(
    ("text", "published"),
    [
        ("/home/me/data.npz", "data.npz"),
        ("/home/My Name/my data.npz", "my data.npz"),
        ("~/data.npz", "data.npz"),
        ("~me/data.npz", "data.npz"),
        ("C:\\Users\\me\\data.npz", "data.npz"),
        ("C:/Users/me/data.npz", "data.npz"),
        ("\\\\server\\share\\data.npz", "data.npz"),
        ("file:///home/me/data.npz", "data.npz"),
        ("/home/me/", "me"),
        ("cannot read /home/me/a.npz, or '/tmp/b'", "cannot read a.npz, or 'b'"),
        ("(/home/me/a.npz)", "(a.npz)"),
        ("key=/home/me/a.npz", "key=a.npz"),
        ("http://user:secret@host/path", "http://host/path"),
        # Not paths of a machine.
        ("data/expert.npz", "data/expert.npz"),
        ("ALE/Pong-v5", "ALE/Pong-v5"),
        ("D4RL/pen/human-v2", "D4RL/pen/human-v2"),
        ("http://127.0.0.1:5000/x", "http://127.0.0.1:5000/x"),
        ("/joint_states", "/joint_states"),
        ("step 1/2", "step 1/2"),
        ("", ""),
    ],
)
def test_absolute_paths_are_replaced_with_names(text: str, published: str) -> None:
    assert strip_paths(text) == published
    assert strip_paths({"key": [text, 3, None]}) == {"key": [published, 3, None]}


def test_command_is_published_without_private_keys() -> None:
    words = [
        *("rl-training", "--import", "mine", "train", "-c", "/home/me/my config.yaml", "seed=1"),
        *("output_dir=/tmp/x", "tags=[secret]", "logging={wandb: {entity: me}}"),
        *("logging.mlflow.tracking_uri=http://user:secret@host", "dataset_path=/home/me/a.npz"),
        *("env_kwargs={xml_file: /home/My Name/b c.xml}", "--config=/home/me/c.yaml"),
    ]
    assert published_command(words) == (
        "rl-training --import mine train -c 'my config.yaml' seed=1 dataset_path=a.npz "
        "'env_kwargs={xml_file: b c.xml}' --config=c.yaml"
    )


@pytest.mark.parametrize("words", [None, [], "rl-training", ["rl-training", 3], ["rm", "-rf", "~"]])
def test_only_commands_of_this_package_are_published(words: Any) -> None:
    assert published_command(words) is None


@pytest.fixture
def secret_run(tmp_path: Path, small_config: Config, recorded: Path) -> Path:
    """A run whose files name folders, tags and a server."""
    folder = tmp_path / "secret-folder"
    folder.mkdir()
    data = folder / "demonstrations.npz"
    data.write_bytes(recorded.read_bytes())

    class Remembers(Callback):
        def on_step(self, session: Session) -> None:
            if session.state.step == 40:
                session.state.request_stop(f"wrote {folder}/report.html")

        def state_dict(self) -> dict[str, Any]:
            return {"file": str(folder)}

    config = small_config(
        algo="rlpd",
        output_dir=str(folder / "runs"),
        tags=["secret-tag"],
        logging={"tensorboard": False, "csv": True},
        algo_kwargs={"dataset_path": str(data), "offline_pretrain_updates": 10},
    )
    run = train(config, callbacks=[Remembers()]).run_dir
    info = json.loads((run / "run.json").read_text())
    info["command"] = ["rl-training", "train", "-c", str(folder / "my.yaml"), "tags=[secret-tag]"]
    (run / "run.json").write_text(json.dumps(info))
    return run


def test_nothing_private_is_published(secret_run: Path, tmp_path: Path) -> None:
    model_card(secret_run, tmp_path / "card.md", episodes=1)
    export_checkpoint(secret_run, tmp_path / "policy.onnx", standalone=True)
    files = published_checkpoint(SavedRun.load(secret_run))
    found = [*tmp_path.glob("card.*"), *tmp_path.glob("policy.*")]
    assert {file.name for file in found} >= {"card.md", "policy.onnx", "policy.json"}
    files |= {file.name: file.read_bytes() for file in found}
    for name, data in files.items():
        for secret in (b"secret", str(tmp_path).encode(), str(Path.home()).encode() + b"/"):
            assert secret not in data, f"{name} contains {secret!r}"
    assert b"demonstrations.npz" in files["card.md"]
    assert b"demonstrations.npz" in files["manifest.json"]


def test_published_config_has_everything_that_affects_the_result(secret_run: Path) -> None:
    config = SavedRun.load(secret_run).config
    published = published_config(config)
    assert config.to_dict().keys() - published.keys() == {"output_dir", "tags", "logging"}
    assert published["algo_kwargs"]["dataset_path"] == "demonstrations.npz"


def written(files: dict[str, bytes], folder: Path) -> Path:
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def test_published_checkpoint_is_a_policy_that_can_be_fine_tuned(
    small_config: Config, tmp_path: Path
) -> None:
    run = train(small_config(eval_episodes=1, algo_kwargs={"n_step": 2})).run_dir
    copy = written(published_checkpoint(SavedRun.load(run)), tmp_path / "checkpoint")
    assert {path.name for path in copy.iterdir()} == {
        *("manifest.json", "model.safetensors", "optimizers.safetensors", "state.json")
    }
    obs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    np.testing.assert_array_equal(predict_checkpoint(copy, obs), predict_checkpoint(run, obs))
    one, two = (evaluate_checkpoint(path, episodes=2)["eval_returns"] for path in (copy, run))
    assert one == two
    np.testing.assert_array_equal(SAC.load(copy).predict(obs), predict_checkpoint(run, obs))
    options = ["total_timesteps=20", "eval_episodes=0", f"output_dir={tmp_path / 'tuned'}"]
    assert finetune(copy, overrides=options).metrics["step"] == 140
    with pytest.raises(ConfigError, match="published without its replay"):
        resume(copy, ["total_timesteps=200"])


def test_published_checkpoint_of_offline_data_keeps_its_hash(
    small_config: Config, tmp_path: Path
) -> None:
    run = train(small_config(algo="iql")).run_dir
    copy = written(published_checkpoint(SavedRun.load(run)), tmp_path / "checkpoint")
    saved, kept = (SavedRun.load(path).manifest["dataset"]["sha256"] for path in (run, copy))
    assert saved == kept
    assert IQL.load(copy).predict(np.zeros(3, dtype=np.float32)).shape == (1,)

"""Discrete actions end to end: training, prediction, data, and known answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from rl_training import DQN, ConfigError, train, train_dqn
from rl_training.algorithms.dqn import DQNAlgorithm
from rl_training.api.datasets import collect_data, read_raw, validate_data
from rl_training.cli import app
from rl_training.data.dataset_loaders import load_transition_dataset
from rl_training.envs import EnvConfig, describe_env
from rl_training.experiment.saved_run import SavedRun
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.checkpointing import open_checkpoint
from rl_training.runtime.recording import record_random
from rl_training.runtime.session import Session

Config = Callable[..., dict[str, Any]]
START = 5
SMALL: dict[str, Any] = {
    "hidden_sizes": [32],
    "batch_size": 32,
    "learning_rate": 1e-2,
    "learning_starts": 50,
    "train_frequency": 1,
    "epsilon_decay_steps": 300,
    "eval_episodes": 1,
    "tensorboard": False,
    "num_threads": 1,
}


class Pick(gym.Env[Any, Any]):
    """One-step episodes; the right action, minus `START`, is the observed position."""

    observation_space = gym.spaces.Box(0.0, 1.0, (3,), np.float32)
    action_space = gym.spaces.Discrete(3, start=START)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(3))
        return np.eye(3, dtype=np.float32)[self.place], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        obs = np.eye(3, dtype=np.float32)[self.place]
        return obs, float(action == START + self.place), True, False, {}


class Wait(Pick):
    """Reward 1 per step, ended only by a time limit: Q is 1/(1-γ), not the remaining sum."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.eye(3, dtype=np.float32)[self.place], 1.0, False, False, {}


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    gym.register("tests/Pick-v0", entry_point="tests.algorithms.test_discrete_actions:Pick")
    gym.register(
        "tests/Wait-v0",
        entry_point="tests.algorithms.test_discrete_actions:Wait",
        max_episode_steps=5,
    )
    yield
    del gym.registry["tests/Pick-v0"], gym.registry["tests/Wait-v0"]


@pytest.fixture
def agent(tmp_path: Path) -> DQN:
    return DQN("tests/Pick-v0", output_dir=str(tmp_path / "runs"), **SMALL).learn(600)


def test_learns_the_known_answer_and_predicts_integers(agent: DQN, tmp_path: Path) -> None:
    assert agent.evaluate(9)["eval_return_mean"] == 1.0
    actions = agent.predict(np.eye(3))
    assert (actions.tolist(), actions.dtype) == ([5, 6, 7], np.dtype(np.int64))
    one = agent.predict(np.eye(3)[1])
    assert (int(one), np.shape(one)) == (6, ())
    copy = agent.save(tmp_path / "copy")
    assert DQN.load(copy).predict(np.eye(3)).tolist() == [5, 6, 7]


def test_command_line_predicts_integers(agent: DQN, tmp_path: Path) -> None:
    np.save(tmp_path / "obs.npy", np.eye(3))
    np.save(tmp_path / "one.npy", np.eye(3)[2])
    call = ["predict", str(agent.run_dir), "--obs"]
    done = CliRunner().invoke(
        app, [*call, str(tmp_path / "obs.npy"), "--out", str(tmp_path / "actions.npy")]
    )
    assert done.exit_code == 0, done.output
    actions = np.load(tmp_path / "actions.npy")
    assert (actions.tolist(), actions.dtype.kind) == ([5, 6, 7], "i")
    assert CliRunner().invoke(app, [*call, str(tmp_path / "one.npy")]).output == "7\n"
    shown = CliRunner().invoke(app, [*call, str(tmp_path / "one.npy"), "--json"]).output
    assert '"actions": 7' in shown


def test_checkpoints_keep_the_first_action(agent: DQN) -> None:
    spec = agent.checkpoint.spec
    assert (spec.discrete, spec.action_dim, spec.action_start) == (True, 3, START)
    assert spec == describe_env("tests/Pick-v0", EnvConfig())


def test_policies_are_recorded_and_read_back(agent: DQN, tmp_path: Path) -> None:
    assert agent.run_dir is not None
    greedy, noisy = tmp_path / "greedy.npz", tmp_path / "noisy.npz"
    collect_data(agent.run_dir, steps=60, out=greedy)
    collect_data(agent.run_dir, steps=600, out=noisy, noise=0.6)
    data = np.load(greedy)
    assert (data["actions"].dtype, data["actions"].shape) == (np.dtype(np.int64), (60,))
    assert (data["actions"] == START + data["observations"].argmax(1)).all()
    wrong = np.load(noisy)["rewards"] == 0
    assert wrong.mean() == pytest.approx(0.6 * 2 / 3, abs=0.08)
    with pytest.raises(ConfigError, match="from 0 to 1"):
        collect_data(agent.run_dir, steps=9, out=tmp_path / "x.npz", noise=1.5)
    _, problems = validate_data(str(noisy), "tests/Pick-v0")
    assert problems == []
    loaded = load_transition_dataset(
        {"dataset_kind": "npz", "dataset_path": str(noisy)}, spec=agent.checkpoint.spec
    )
    assert set(loaded.column("actions").flatten().tolist()) == {0.0, 1.0, 2.0}


def test_random_play_is_recorded_with_integers() -> None:
    data = record_random("tests/Pick-v0", {}, 90, 0)
    assert set(data["actions"].tolist()) == {5, 6, 7}
    assert data["actions"].dtype == np.int64


def test_validation_reports_actions_out_of_bounds(tmp_path: Path) -> None:
    data = record_random("tests/Pick-v0", {}, 30, 0)
    data["actions"][:4] = 2
    np.savez(tmp_path / "bad.npz", **data)  # type: ignore[arg-type]
    _, problems = validate_data(str(tmp_path / "bad.npz"), "tests/Pick-v0")
    assert any("4 rows outside the bounds 5 to 7" in problem for problem in problems)


def test_minari_dataset_of_discrete_actions(
    agent: DQN, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    assert agent.run_dir is not None
    collect_data(agent.run_dir, steps=40, minari_id="tests/pick-v0")
    actions = read_raw("tests/pick-v0").column("actions")
    assert set(actions.flatten().tolist()) <= {5.0, 6.0, 7.0}


def test_time_limits_bootstrap_in_the_whole_path(tmp_path: Path) -> None:
    """Episodes of 5 steps: without the bootstrap, values could not exceed 5."""
    options = SMALL | {"gamma": 0.9, "target_update_interval": 20}
    agent = DQN("tests/Wait-v0", output_dir=str(tmp_path), **options).learn(1500)
    learner = agent.policy.algorithm
    assert isinstance(learner, DQNAlgorithm)
    q = learner.model.q_values(torch.eye(3))
    torch.testing.assert_close(q, torch.full((3, 3), 10.0), rtol=0.1, atol=0)


def test_epsilon_follows_environment_steps(small_config: Config) -> None:
    """ε is independent of the update ratio and continues in a resumed run."""
    seen: dict[int, float] = {}

    class Watch(Callback):
        def on_step(self, session: Session) -> None:
            learner = session.algorithm
            assert isinstance(learner, DQNAlgorithm)
            seen[session.state.step] = float(learner.epsilon)

    kwargs = {"train_frequency": 4, "gradient_updates_per_step": 3, "epsilon_decay_steps": 100}
    config = small_config(algo="dqn", num_envs=2, algo_kwargs=kwargs)
    result = train_dqn(config | {"total_timesteps": 140})
    assert result.metrics["updates"] == 81
    train(config | {"total_timesteps": 140}, callbacks=[Watch()])
    for step in (2, 42, 80, 140):
        before = step - 2  # set before the step, from the number of earlier steps
        assert seen[step] == pytest.approx(1.0 + (0.05 - 1.0) * min(1.0, before / 100), abs=1e-6)


@pytest.mark.parametrize(
    ("algo", "env_id", "sentence"),
    [
        (
            "dqn",
            "Pendulum-v1",
            r"^dqn needs a Discrete action space, but .* is a Box of 1 v",
        ),
        ("td3", "CartPole-v1", r"^td3 needs a bounded Box action space.* Discrete\(2\)"),
    ],
)
def test_wrong_action_space_raises_a_clear_error(
    small_config: Config, algo: str, env_id: str, sentence: str
) -> None:
    config = small_config(algo=algo, env_id=env_id)
    with pytest.raises(ConfigError, match=sentence):
        train(config)
    assert not Path(config["output_dir"]).exists()


def test_checkpoints_without_a_start_load(agent: DQN) -> None:
    """A manifest of an early version, without the field, means 0."""
    checkpoint = open_checkpoint(agent.checkpoint.path)
    del checkpoint.manifest["env_spec"]["action_start"]
    assert SavedRun.of(checkpoint).spec.action_start == 0
    assert SavedRun.of(checkpoint).config.algo == "dqn"

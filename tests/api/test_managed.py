"""Managed classes, the example, and learning with a known solution."""

from __future__ import annotations

import importlib.util
import pydoc
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from rl_training import (
    BC,
    IQL,
    SAC,
    Callback,
    CheckpointError,
    ConfigError,
    RLTrainingError,
    TrainConfig,
    evaluate_checkpoint,
    finetune,
    resume,
    train,
    train_sac,
)
from rl_training.experiment.run_directory import read_run_info

SMALL: dict[str, Any] = {
    "hidden_sizes": [16, 16],
    "batch_size": 16,
    "learning_starts": 30,
    "eval_episodes": 1,
    "tensorboard": False,
    "num_threads": 1,
}


def test_learn_evaluate_predict_save_load(tmp_path: Path) -> None:
    agent = SAC("Pendulum-v1", seed=0, output_dir=str(tmp_path / "runs"), **SMALL)
    with pytest.raises(RLTrainingError, match="call learn"):
        agent.predict(np.zeros(3))
    assert agent.learn(80) is agent
    assert agent.result is not None
    assert agent.result.metrics["step"] == 80
    assert agent.evaluate(2)["eval_episodes"] == 2
    action = agent.predict(np.array([1.0, 0.0, 0.0]))
    assert action.shape == (1,)
    copy = agent.save(tmp_path / "copy")
    with pytest.raises(RLTrainingError, match="already exists"):
        agent.save(tmp_path / "copy")
    agent.learn(40)
    loaded = SAC.load(copy)
    np.testing.assert_array_equal(loaded.predict(np.array([1.0, 0.0, 0.0])), action)
    assert agent.result.metrics["step"] == 120


def test_run_without_updates_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options: Any = SMALL | {"output_dir": str(tmp_path), "learning_starts": 20}
    agent = SAC("Pendulum-v1", **options).learn(20)
    assert (
        "learning_starts = 20: the run ends after 20 steps, before the first"
        in capsys.readouterr().err
    )
    with pytest.raises(ConfigError, match=r"learn\(0\)"):
        agent.learn(0)
    SAC("Pendulum-v1", **options).learn(21)
    assert "Warning" not in capsys.readouterr().err


def test_saved_copy_continues_like_the_original(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    agent = SAC("Pendulum-v1", **SMALL).learn(80)
    copy = agent.save(tmp_path / "copy")
    loaded = SAC.load(copy).learn(40)
    agent.learn(40)
    assert loaded.run_dir != agent.run_dir
    obs = np.random.default_rng(0).normal(size=(9, 3))
    np.testing.assert_array_equal(loaded.predict(obs), agent.predict(obs))


def test_invalid_options_raise_at_construction() -> None:
    with pytest.raises(ConfigError, match="did you mean 'batch_size'"):
        SAC("Pendulum-v1", batchsize=3)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="gamma = 3"):
        SAC("Pendulum-v1", gamma=3)

    with pytest.raises(ConfigError, match=r"total_timesteps = 90: .* SAC\(…\)\.learn\(90\)"):
        SAC("Pendulum-v1", total_timesteps=90)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match=r"'eta' is not an option of SAC; it is .* of EDAC\."):
        SAC("Pendulum-v1", eta=1.0)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match=r"^'num_critics' is not an option of BC; it is an opt"):
        BC("Pendulum-v1", num_critics=5)  # type: ignore[call-arg]


@pytest.mark.parametrize("env", ["Pendulum-v1", gym.make("Pendulum-v1")], ids=["id", "object"])
def test_stable_baselines_call_is_explained(env: Any) -> None:
    known = "'Pendulum-v1'" if isinstance(env, str) else "env"
    message = rf"^SAC takes an environment, not a policy: write SAC\({known}\)\. Options"
    managed: Any = SAC
    calls: list[Callable[[], Any]] = [
        lambda: managed("MlpPolicy", env),
        lambda: managed("MlpPolicy", env=env),
        lambda: managed(policy="MlpPolicy", env=env),
    ]
    for call in calls:
        with pytest.raises(ConfigError, match=message):
            call()
    with pytest.raises(ConfigError, match=r"^SAC takes one positional argument, the env.*: pass 9"):
        managed("Pendulum-v1", 900)


def test_config_with_an_environment_object_shows_where_to_pass_it() -> None:
    for env in (Match(), Match, gym.make("Pendulum-v1")):
        config = {"algo": "sac", "env_id": env, "total_timesteps": 9}
        with pytest.raises(
            ConfigError, match=r"Pass an object .* SAC\(env\), or train\(config, env="
        ):
            train(config)


@pytest.mark.parametrize(
    "value",
    [{"observations": np.zeros((9_000, 3)), "rewards": [0.0] * 9_000}, np.zeros((9_000, 3))],
    ids=["dict", "array"],
)
def test_arrays_as_dataset_path_are_refused_briefly(value: Any) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: IQL("Pendulum-v1", dataset_path=value),
        lambda: IQL("Pendulum-v1", dataset_kind="npz", dataset_path=value),
        lambda: train({"algo": "iql", "env_id": "Pendulum-v1", "dataset_path": value}),
    ]
    for call in calls:
        with pytest.raises(
            ConfigError, match=r"should be a path: pass arrays .* as dataset="
        ) as told:
            call()
        assert len(str(told.value)) < 300
    others: list[Callable[[], Any]] = [
        lambda: SAC("Pendulum-v1").learn(value),
        lambda: SAC("Pendulum-v1").learn(9, callbacks=[value]),
        lambda: SAC("Pendulum-v1", hidden_sizes=value),
        lambda: SAC("Pendulum-v1", total_timesteps=value),  # type: ignore[call-arg]
        lambda: finetune("runs", dataset=value),
    ]
    for call in others:
        with pytest.raises(ConfigError) as told:
            call()
        assert len(str(told.value)) < 300


@pytest.mark.parametrize("device", ["cuda:99", "mps:0"])
def test_unavailable_device_is_refused_at_construction(
    trained: SAC, tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=f"^device = '{device}' is not available: PyTorch finds"):
        SAC("Pendulum-v1", device=device)
    with pytest.raises(ConfigError, match=r"use auto, cpu, cuda, cuda:N or mps\.$"):
        SAC("Pendulum-v1", device="gpu")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 100)
    assert "not trained yet" in repr(SAC("Pendulum-v1", device=device))


def test_run_of_another_device_can_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = SAC("Pendulum-v1", device="cpu", output_dir=tmp_path, **SMALL).learn(40)

    def refuse(_name: str) -> None:
        raise AssertionError("load() needs no device")

    monkeypatch.setattr("rl_training.api.managed.choose_device", refuse)
    assert SAC.load(str(agent.run_dir)).predict(np.zeros(3)).shape == (1,)


def test_learning_without_stderr_and_after_chdir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stderr", None)
    agent = SAC("Pendulum-v1", output_dir=Path("runs"), **SMALL).learn(40)
    monkeypatch.chdir(tmp_path / "other")
    assert agent.predict(np.zeros(3)).shape == (1,)
    assert agent.evaluate(1)["step"] == 40
    assert agent.learn(20).checkpoint.step == 60


class Silent(Callback):
    """Does nothing."""


class Misspelled(Callback):
    """Has a misspelled hook."""

    def on_evaluations(self, session: Any, metrics: Any) -> None:
        """Is not a hook."""


@pytest.mark.parametrize(
    ("callbacks", "sentence"),
    [
        (
            None,
            "callbacks = None: should be a list of Callback objects. Leave it out",
        ),
        (Silent(), "callbacks is a single Silent: pass a list, callbacks=[Silent()]."),
        ([Silent], "callbacks[0] is the class Silent: pass an object, Silent()."),
        ([Silent(), print], "callbacks[1] = <built-in function print>: should be a Callback"),
        (
            [Misspelled()],
            "Misspelled.on_evaluations would never be called, because there is no hook with "
            "this name; did you mean 'on_evaluation'?",
        ),
        (print, "callbacks = <built-in function print>: should be a list of Callback objects"),
    ],
)
def test_invalid_callbacks_raise_a_clear_error(
    tmp_path: Path, callbacks: Any, sentence: str
) -> None:
    agent = SAC("Pendulum-v1", output_dir=tmp_path / "runs", **SMALL)
    enter: list[Callable[[], Any]] = [
        lambda: agent.learn(20, callbacks=callbacks),
        lambda: train(TrainConfig.load("sac/pendulum"), callbacks=callbacks),
        lambda: resume(tmp_path, callbacks=callbacks),
        lambda: finetune(tmp_path, callbacks=callbacks),
    ]
    for call in enter:
        with pytest.raises(ConfigError, match=re.escape(sentence)):
            call()
    assert not list(tmp_path.iterdir())


class Fails(Callback):
    """Raises after a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, session: Any) -> None:
        if session.state.step == self.step:
            raise RuntimeError("boom")


def test_failed_run_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agent = SAC("Pendulum-v1", output_dir=tmp_path, checkpoint_interval=25, **SMALL)
    with pytest.raises(RuntimeError, match="boom"):
        agent.learn(100, callbacks=[Fails(70)])
    assert agent.run_dir == tmp_path / "sac_Pendulum-v1_seed0"
    assert (
        f"Warning: the run in {agent.run_dir} failed with an error: resume it from "
        "step_000000050." in capsys.readouterr().err
    )
    info = read_run_info(agent.run_dir)
    assert (info["state"], info["step"], info["error"]) == ("failed", 70, "boom")
    assert agent.checkpoint.step == 50
    assert agent.predict(np.zeros(3)).shape == (1,)
    with pytest.raises(RuntimeError, match="boom"):
        agent.learn(50, callbacks=[Fails(80)])
    assert agent.checkpoint.step == 75
    whole = SAC("Pendulum-v1", output_dir=tmp_path, **SMALL).learn(100)
    assert agent.learn(25).run_dir == tmp_path / "sac_Pendulum-v1_seed0"
    obs = np.random.default_rng(0).normal(size=(9, 3))
    np.testing.assert_array_equal(agent.predict(obs), whole.predict(obs))


def test_run_that_failed_at_its_start_is_continued(tmp_path: Path) -> None:
    class Refuses(Callback):
        def on_start(self, session: Any) -> None:
            raise RuntimeError("boom")

    agent = SAC("Pendulum-v1", output_dir=tmp_path, **SMALL)
    with pytest.raises(RuntimeError, match="boom"):
        agent.learn(40, callbacks=[Refuses()])
    assert agent.run_dir == tmp_path / "sac_Pendulum-v1_seed0"
    assert agent.checkpoint.step == 0
    assert agent.learn(40).checkpoint.step == 40
    assert [path.name for path in tmp_path.iterdir()] == ["sac_Pendulum-v1_seed0"]


def test_deleted_checkpoint_is_replaced_by_the_newest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options: Any = SMALL | {"keep_checkpoints": 2, "checkpoint_interval": 20, "eval_episodes": 0}
    agent = SAC("Pendulum-v1", output_dir=tmp_path, **options).learn(20)
    agent.predict(np.zeros(3))
    copy = SAC.load(agent.save(tmp_path / "copy"))
    assert agent.run_dir is not None
    resume(agent.run_dir, ["total_timesteps=80"])
    capsys.readouterr()
    assert agent.evaluate(1)["step"] == 80
    assert "step_000000020 no longer exists: this SAC uses step_" in capsys.readouterr().err
    obs = np.random.default_rng(0).normal(size=(9, 3))
    np.testing.assert_array_equal(agent.predict(obs), SAC.load(agent.run_dir).predict(obs))
    assert agent.learn(20).checkpoint.step == 100
    assert "no longer exists" not in capsys.readouterr().err
    shutil.rmtree(tmp_path / "copy")
    with pytest.raises(
        CheckpointError, match=r"exists: load another checkpoint with SAC\.load\(PATH\)"
    ):
        copy.evaluate(1)


def test_repr(trained: SAC, tmp_path: Path) -> None:
    assert repr(SAC("Pendulum-v1", seed=3)) == "SAC('Pendulum-v1', seed=3, not trained yet)"
    assert repr(trained) == f"SAC('Pendulum-v1', run_dir='{trained.run_dir}', step=40)"
    copy = trained.save(tmp_path / "copy")
    assert repr(SAC.load(copy)) == f"SAC('Pendulum-v1', checkpoint='{copy}', step=40)"
    assert repr(SAC.load(str(trained.run_dir))) == repr(trained)


def test_help_refers_to_the_options() -> None:
    for managed in (SAC, IQL):
        assert "docs/configuration.md" in pydoc.render_doc(managed)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> SAC:
    return SAC("Pendulum-v1", output_dir=tmp_path_factory.mktemp("runs"), **SMALL).learn(40)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda m: m.evaluate("2"), "episodes = '2': should be a whole number."),
        (lambda m: m.evaluate(2.5), "episodes = 2.5: should be a whole number."),
        (lambda m: m.evaluate(2, seed=None), "seed = None: should be a whole number."),
        (lambda m: m.learn("10"), "total_timesteps = '10': should be a whole number."),
        (lambda m: m.learn(True), "total_timesteps = True: should be a whole number."),
        (lambda m: m.learn(float("nan")), "total_timesteps = nan: should be a whole number."),
        (lambda _: SAC("Pendulum-v1").learn(True), "total_timesteps = True: should be a whole"),
        (lambda _: train(None), "config = None: should be a TrainConfig, a mapping, a file"),  # type: ignore[arg-type]
        (resume, ": should be the path of a run or a checkpoint: pass its run_dir."),
        (evaluate_checkpoint, ": should be the path of a run or a checkpoint: pass its"),
        (lambda _: SAC.load(None), "path = None: should be the path of a run or a"),  # type: ignore[arg-type]
        (lambda _: finetune(None), "path = None: should be the path of"),  # type: ignore[arg-type]
        (lambda m: m.save(None), "path = None: should be the path of a new folder."),
    ],
)
def test_wrong_argument_types_raise_a_clear_error(
    trained: SAC, call: Callable[[Any], Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        call(trained)


def test_integral_floats_are_accepted(trained: SAC) -> None:
    assert trained.evaluate(2.0)["eval_episodes"] == 2  # type: ignore[arg-type]
    assert trained.evaluate(np.int64(1), seed=np.int64(3))["seed"] == 3  # type: ignore[arg-type]


def test_evaluation_refuses_a_changed_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env_id = known("Changing", Match, None)
    agent = SAC(env_id, output_dir=tmp_path, **SMALL).learn(40)
    monkeypatch.setattr(Match, "observation_space", gym.spaces.Box(-1.0, 1.0, (2,), np.float32))
    with pytest.raises(CheckpointError, match=r"expects 1 obs.* environment has 2 obs"):
        agent.evaluate(1)


def test_train_functions_refuse_another_algorithms_config() -> None:
    config = TrainConfig.load("sac/pendulum")
    object.__setattr__(config, "algo", "td3")
    with pytest.raises(ConfigError, match="'td3'"):
        train_sac(config)


def test_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(__file__).parents[2] / "examples" / "sac_pendulum_reference.py"
    spec = importlib.util.spec_from_file_location("example", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    returns = module.train(400, learning_starts=350)
    assert len(returns) == 2
    assert "return" in capsys.readouterr().out


class Match(gym.Env[Any, Any]):
    """Episodes of one step; the best action equals the observation."""

    observation_space = gym.spaces.Box(-0.8, 0.8, (1,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.goal = self.np_random.uniform(-0.8, 0.8, 1).astype(np.float32)
        return self.goal, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.goal, -float(abs(action[0] - self.goal[0])), True, False, {}


class Wait(gym.Env[Any, Any]):
    """A reward of 1 per step until a time limit: Q must be 1/(1-γ)."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(1, np.float32), 1.0, False, False, {}


def known(name: str, maker: type[gym.Env[Any, Any]], limit: int | None) -> str:
    env_id = f"tests/{name}-v0"
    if env_id not in gym.registry:
        gym.register(env_id, entry_point=lambda **_: maker(), max_episode_steps=limit)
    return env_id


def test_learns_the_known_solution(tmp_path: Path) -> None:
    options = SMALL | {"hidden_sizes": [32, 32], "batch_size": 64, "learning_rate": 3e-3}
    env_id = known("Match", Match, None)
    agent = SAC(env_id, output_dir=str(tmp_path), learning_starts=100, **_without(options))
    agent.learn(1200)
    obs = np.linspace(-0.7, 0.7, 15)[:, None]
    assert np.abs(agent.predict(obs) - obs).mean() < 0.12


def _without(options: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key != "learning_starts"}


def test_time_limits_bootstrap_end_to_end(tmp_path: Path) -> None:
    """Episodes of 5 steps: without the bootstrap, values could not exceed 5."""
    options = _without(SMALL) | {"learning_rate": 1e-2, "batch_size": 32, "gamma": 0.9}
    env_id = known("Wait", Wait, 5)
    agent = SAC(
        env_id, output_dir=str(tmp_path), alpha=0.0, tau=0.05, learning_starts=50, **options
    )
    agent.learn(900)
    q = agent.policy.algorithm.model.q_values(torch.zeros(1, 1), torch.zeros(1, 1))  # type: ignore[operator,union-attr]
    assert q.mean().item() == pytest.approx(10.0, rel=0.1)

"""Environments that are passed as objects: instances, classes, functions and vectors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from rl_training import (
    IQL,
    SAC,
    ConfigError,
    evaluate_checkpoint,
    finetune,
    resume,
    train,
    train_sac,
)
from rl_training.errors import CheckpointError, RLTrainingError
from rl_training.experiment.run_directory import read_config_file, read_run_info
from rl_training.runtime.checkpointing import MODEL
from tests.comparing import CrashAt, CrashError, assert_same_run
from tests.faults.runs import forge
from tests.own_envs import KINDS, Doubled, Drift, Uncapturable, make_doubled, make_pendulum

Config = Callable[..., dict[str, Any]]
SMALL: dict[str, Any] = {
    "hidden_sizes": [16, 16],
    "batch_size": 16,
    "learning_starts": 30,
    "eval_episodes": 0,
    "logging": {"tensorboard": False},
    "num_threads": 1,
}
every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def own_config(small_config: Config) -> Config:
    """Return a small config without an environment."""

    def make(**changes: Any) -> dict[str, Any]:
        config = small_config(**changes)
        if "env_id" not in changes:
            del config["env_id"]
        return config

    return make


# --- Every kind -----------------------------------------------------------------------


@every_kind
def test_resume_is_exact(own_config: Config, kind: str) -> None:
    config, make = own_config(), KINDS[kind]
    whole = train(config, env=make())
    with pytest.raises(CrashError):
        train(config, env=make(), callbacks=[CrashAt(57)])
    run_dir = whole.run_dir.with_name(f"{whole.run_dir.name}_2")
    with pytest.raises(CrashError):
        resume(run_dir, env=make(), callbacks=[CrashAt(99)])
    assert_same_run(whole, resume(run_dir, env=make()))


@every_kind
def test_agent_learns_evaluates_saves_loads_and_is_fine_tuned(tmp_path: Path, kind: str) -> None:
    make = KINDS[kind]
    agent = SAC(make(), eval_env=make(), output_dir=tmp_path, **SMALL | {"eval_episodes": 1})
    agent.learn(40).learn(20)
    assert agent.result is not None
    assert agent.result.metrics["eval_return_mean"] < 0
    own = agent.evaluate(2)
    assert own == agent.evaluate(2, env=make())
    assert agent.checkpoint.config.env_id == own["env_id"]
    copy = agent.save(tmp_path / "copy")
    loaded = SAC.load(copy, make(), eval_env=make())
    assert loaded.evaluate(2)["eval_returns"] == own["eval_returns"]
    obs = np.ones((4, 3), dtype=np.float32)
    loaded.learn(20)
    np.testing.assert_array_equal(loaded.predict(obs), agent.learn(20).predict(obs))
    tuned = finetune(agent.run_dir, make(), ["total_timesteps=30"], eval_env=make())  # type: ignore[arg-type]
    assert tuned.metrics["return_before"] is not None
    assert tuned.run_dir.name.endswith("_seed0_finetuned")


def test_instance_gives_the_bits_of_its_id(small_config: Config) -> None:
    config = small_config(eval_episodes=1)
    by_id = train(config)
    by_object = [
        train(config, env=env)
        for env in (gym.make("Pendulum-v1"), lambda: gym.make("Pendulum-v1"), "Pendulum-v1")
    ]
    for result in by_object:
        one, two = (each.checkpoint_path / MODEL for each in (by_id, result))
        assert one.read_bytes() == two.read_bytes()
        assert result.metrics["eval_return_mean"] == by_id.metrics["eval_return_mean"]


def test_registered_instance_is_recorded_by_its_id(own_config: Config) -> None:
    """The run then needs no object: the command line can resume and evaluate it."""
    make: Callable[[], Any] = lambda: gym.make("Pendulum-v1", g=9.0, max_episode_steps=17)  # noqa: E731
    whole = train(own_config(), env=make())
    config = read_config_file(whole.run_dir)
    assert (config.env_id, config.env_kwargs) == (
        "Pendulum-v1",
        {"g": 9.0, "max_episode_steps": 17},
    )
    assert whole.run_dir.name == "sac_Pendulum-v1_seed0"
    with pytest.raises(CrashError):
        train(own_config(), env=make(), callbacks=[CrashAt(57)])
    second = whole.run_dir.with_name("sac_Pendulum-v1_seed0_2")
    resumed = resume(second)
    one, two = (each.checkpoint_path for each in (whole, resumed))
    assert (one / MODEL).read_bytes() == (two / MODEL).read_bytes()
    assert evaluate_checkpoint(second, episodes=1)["eval_length_mean"] == 17
    with pytest.raises(ConfigError, match=r"trained in Pendulum-v1 .*'g': 9.0.*, but env is Pend"):
        resume(second, ["total_timesteps=130"], env=gym.make("Pendulum-v1"))
    with pytest.raises(
        ConfigError, match=r"but env is <Doubled\(Pendulum-v1\)> with .*: leave env"
    ):
        resume(second, ["total_timesteps=130"], env=Doubled(gym.make("Pendulum-v1")))


def test_run_records_what_is_known(own_config: Config) -> None:
    result = train(own_config(total_timesteps=40), env=make_pendulum)
    manifest = json.loads((result.checkpoint_path / "manifest.json").read_text())
    assert manifest["environment"] == {
        "given": "function",
        "name": "RescaleAction(Pendulum-v1)",
        "class": "gymnasium.envs.classic_control.pendulum:PendulumEnv",
        "wrappers": ["RescaleAction", "TimeLimit", "OrderEnforcing", "PassiveEnvChecker"],
        "id": "Pendulum-v1",
        "entry_point": "gymnasium.envs.classic_control.pendulum:PendulumEnv",
        "time_limit": 17,
    }
    assert manifest["config"]["env_id"] == "<RescaleAction(Pendulum-v1)>"
    assert result.run_dir.name == "sac_RescaleAction-Pendulum-v1_seed0"
    by_id = train(own_config(env_id="Pendulum-v1", total_timesteps=40))
    manifest = json.loads((by_id.checkpoint_path / "manifest.json").read_text())
    assert "environment" not in manifest


# --- Several environments ---------------------------------------------------------------


@pytest.mark.parametrize("vectorization", ["sync", "async"])
@pytest.mark.parametrize("env", [Drift, lambda: Doubled(Drift())], ids=["class", "lambda"])
def test_several_environments(own_config: Config, vectorization: str, env: Any) -> None:
    config = own_config(num_envs=2, env_kwargs={"vectorization": vectorization})
    whole = train(config, env=env)
    assert whole.metrics["episodes"] == 6  # 60 steps in each of two environments
    if vectorization == "async":
        with pytest.raises(CrashError):
            train(config, env=env, callbacks=[CrashAt(57)])
        second = whole.run_dir.with_name(f"{whole.run_dir.name}_2")
        assert_same_run(whole, resume(second, env=env))


def test_instance_is_refused_for_several_environments() -> None:
    for options in ({"num_envs": 2}, {"env_kwargs": {"vectorization": "async"}}):
        with pytest.raises(ConfigError, match=r"a class or a function .*lambda: Drift\(…\), inst"):
            SAC(Drift(), **SMALL, **options).learn(40)


@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_vector_environment_is_trained_like_its_environments(own_config: Config, kind: Any) -> None:
    config = own_config(eval_episodes=1)
    with closing(kind([Drift, Drift])) as several:
        whole = train(config, env=several)
    with closing(kind([Drift, Drift])) as several, pytest.raises(CrashError):
        train(config, env=several, callbacks=[CrashAt(57)])
    second = whole.run_dir.with_name(f"{whole.run_dir.name}_2")
    with closing(kind([Drift, Drift])) as several:
        assert_same_run(whole, resume(second, env=several))
    vectorization = "sync" if kind is SyncVectorEnv else "async"
    options = {"num_envs": 2, "env_kwargs": {"vectorization": vectorization}}
    parts = train({**config, **options}, env=Drift)
    one, other = (run.checkpoint_path / MODEL for run in (whole, parts))
    assert one.read_bytes() == other.read_bytes()
    assert whole.metrics["eval_return_mean"] == parts.metrics["eval_return_mean"]


def test_environments_of_a_vector_environment_are_used_and_not_closed(
    own_config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    envs = [Drift(), Drift()]
    several = SyncVectorEnv([lambda: envs[0], lambda: envs[1]])
    train(own_config(eval_episodes=1), env=several)
    assert (
        "evaluation is skipped, because SyncVectorEnv cannot be created" in capsys.readouterr().err
    )
    assert all(env.resets > 1 and not env.is_closed for env in envs)


def test_vector_environment_that_gymnasium_made_is_not_asked_for(own_config: Config) -> None:
    run = train(own_config(), env=gym.make_vec("Pendulum-v1", 2, vectorization_mode="sync"))
    assert read_config_file(run.run_dir).env_id == "Pendulum-v1"
    resume(run.run_dir, ["total_timesteps=140"])


@pytest.mark.parametrize(
    ("env", "options", "sentence"),
    [
        (
            lambda: gym.make_vec("CartPole-v1", 2, vectorization_mode="vector_entry_point"),
            {},
            "env is a CartPoleVectorEnv, but of vector environments, only gymnasium.vector.SyncVec",
        ),
        (
            lambda: RecordEpisodeStatistics(SyncVectorEnv([Drift, Drift])),
            {},
            "SyncVectorEnv and AsyncVectorEnv are supported: pass a function that makes one enviro",
        ),
        (
            lambda: SyncVectorEnv([Drift, Drift]),
            {"num_envs": 3},
            "num_envs = 3: the vector environment has 2 environments, so leave it out.",
        ),
        (
            lambda: SyncVectorEnv([Drift, Drift]),
            {"env_kwargs": {"vectorization": "async"}},
            "env_kwargs.vectorization = async: the environments of a SyncVectorEnv run in this pro",
        ),
    ],
)
def test_vector_environment_that_does_not_fit_is_refused(
    own_config: Config, env: Callable[[], Any], options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        train(own_config(**options), env=env())


def test_resumed_vector_environment_has_the_same_number(own_config: Config) -> None:
    run = train(own_config(), env=SyncVectorEnv([Drift, Drift])).run_dir
    with pytest.raises(ConfigError, match="num_envs = 2: the vector environment has 3 environm"):
        resume(run, ["total_timesteps=140"], env=SyncVectorEnv([Drift] * 3))


def test_function_that_cannot_be_sent_to_a_worker_is_refused(tmp_path: Path) -> None:
    lock = __import__("threading").Lock()

    def make() -> Any:
        with lock:
            return Drift()

    options: Any = SMALL | {"output_dir": tmp_path, "env_kwargs": {"vectorization": "async"}}
    with pytest.raises(
        ConfigError, match=r"^make cannot be sent to a worker process \(TypeError: "
    ):
        SAC(make, num_envs=2, **options).learn(40)
    assert not list(tmp_path.iterdir())


def test_arguments_of_a_class_are_env_kwargs(tmp_path: Path) -> None:
    agent = SAC(Drift, env_kwargs={"size": 5}, output_dir=tmp_path, **SMALL).learn(40)
    assert agent.predict(np.zeros(5)).shape == (1,)
    assert agent.evaluate(1)["eval_length_mean"] == 17
    assert agent.evaluate(1, env_kwargs={"length": 9})["eval_length_mean"] == 9
    loaded = SAC.load(str(agent.run_dir), Drift)
    assert loaded.evaluate(1)["eval_length_mean"] == 17
    assert loaded.learn(20).checkpoint.step == 60
    with pytest.raises(ConfigError, match=r"env_kwargs.size = 5: Drift is already created, so set"):
        SAC(Drift(), env_kwargs={"size": 5})
    with pytest.raises(ConfigError, match=r"env_kwargs.length = 5: Drift is already created, so"):
        agent.evaluate(1, env=Drift(5), env_kwargs={"length": 5})


# --- Ownership ------------------------------------------------------------------------


def test_instance_is_not_closed_and_not_evaluated(own_config: Config) -> None:
    env, other = Drift(), Drift()
    result = train(own_config(eval_episodes=3), env=env, eval_env=other)
    assert result.metrics["eval_return_mean"] < 0
    assert (env.is_closed, other.is_closed) == (False, False)
    assert env.resets == 9  # the check, the first reset, and 120 // 17 more episodes
    evaluate_checkpoint(result.run_dir, env=env, episodes=1)
    assert not env.is_closed


def test_made_environments_are_closed(own_config: Config) -> None:
    made: list[Drift] = []

    def make() -> Drift:
        made.append(Drift())
        return made[-1]

    train(own_config(eval_episodes=1), env=make)
    assert len(made) == 3  # one to check, one to train, one to evaluate
    assert all(env.is_closed for env in made)


def test_wrappers_of_the_user_keep_working(own_config: Config) -> None:
    env: Any = gym.wrappers.RecordEpisodeStatistics(gym.wrappers.TimeLimit(Drift(length=99), 17))
    train(own_config(), env=env)
    assert list(env.length_queue) == [17] * 7
    assert env.return_queue[-1] < 0


def test_evaluation_environment_must_not_be_the_training_environment() -> None:
    env = Drift()
    with pytest.raises(ConfigError, match=r"eval_env is the training environment, whose episodes"):
        SAC(env, eval_env=Doubled(env))


# --- Evaluation without eval_env ----------------------------------------------------------


def test_evaluation_is_skipped_with_one_warning(
    own_config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    config = own_config(eval_episodes=1)
    result = train(config, env=Drift())
    assert "eval_return_mean" not in result.metrics
    sentence = (
        "Warning: evaluation is skipped, because Drift was not created by gymnasium.make. Pass "
        "eval_env=… (an environment, a class or a function), or set eval_episodes=0.\n"
    )
    assert capsys.readouterr().err == sentence
    resume(result.run_dir, ["total_timesteps=130"], env=Drift())
    assert capsys.readouterr().err == sentence
    resumed = resume(result.run_dir, ["total_timesteps=140"], env=Drift(), eval_env=Drift)
    assert resumed.metrics["eval_return_mean"] < 0
    config["algo_kwargs"] |= {"early_stopping": {"patience": 3}, "eval_interval": 50}
    with pytest.raises(ConfigError, match=r"requires an environment to evaluate in: pass eval_env"):
        train(config, env=Drift())


def test_wrapper_that_gymnasium_cannot_create_again(
    own_config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    result = train(own_config(eval_episodes=1), env=Doubled(gym.make("Pendulum-v1")))
    assert "eval_return_mean" not in result.metrics
    told = capsys.readouterr().err
    assert "because Doubled(Pendulum-v1) cannot be created again (Doubled(Pendulum-v1)() " in told
    assert "does not inherit from `gymnasium.utils.RecordConstructorArgs`" in told


def test_instance_is_created_again_for_evaluation(own_config: Config) -> None:
    config = own_config(eval_episodes=2)
    result = train(config, env=make_pendulum())
    again = evaluate_checkpoint(result.run_dir, env=make_pendulum, episodes=2, seed=5)
    assert again["eval_length_mean"] == 17
    assert result.metrics["eval_length_mean"] == 17


def test_evaluation_environment_must_have_the_same_spaces(own_config: Config) -> None:
    with pytest.raises(ConfigError, match=r"^eval_env has 5 observation values and 1 .* has 3 obs"):
        train(own_config(eval_episodes=1), env=Drift, eval_env=Drift(5))


# --- Offline ---------------------------------------------------------------------------


def test_offline_run_evaluates_in_the_instance(small_config: Config) -> None:
    config = small_config(algo="iql", total_timesteps=20, eval_episodes=1)
    env: Any = gym.wrappers.RecordEpisodeStatistics(gym.make("Pendulum-v1"))
    result = train(config, env=env)
    assert result.metrics["eval_return_mean"] == pytest.approx(env.return_queue[-1], abs=1e-3)
    assert evaluate_checkpoint(result.run_dir, fqe=True, fqe_updates=3)["fqe_updates"] == 3
    run = IQL.load(result.run_dir, env)
    assert run.evaluate(1)["env_id"] == "<RecordEpisodeStatistics(Pendulum-v1)>"


def test_random_data_is_recorded_in_the_object(own_config: Config) -> None:
    kwargs = {"dataset_kind": "random", "dataset_size": 60, "dataset_path": None}
    config = own_config(algo="td3_bc", total_timesteps=20, algo_kwargs=kwargs)
    one, two = (train(config, env=env).checkpoint_path / MODEL for env in (Drift, Drift()))
    assert one.read_bytes() == two.read_bytes()


# --- Runs that need their object ---------------------------------------------------------


def test_environment_is_asked_for_in_one_sentence(own_config: Config) -> None:
    run_dir = train(own_config(total_timesteps=40), env=Drift).run_dir
    calls: list[Callable[[], Any]] = [
        lambda: resume(run_dir, ["total_timesteps=50"]),
        lambda: SAC.load(run_dir).learn(10),
        lambda: SAC.load(run_dir).evaluate(1),
        lambda: evaluate_checkpoint(run_dir),
        lambda: finetune(run_dir),
    ]
    for call in calls:
        with pytest.raises(ConfigError, match=r"^The environment <Drift> was passed as an object"):
            call()
    assert SAC.load(run_dir).predict(np.zeros(3)).shape == (1,)
    gym.register("tests/Drift-v0", "tests.own_envs:Drift")
    assert evaluate_checkpoint(run_dir, env_id="tests/Drift-v0", episodes=1)["step"] == 40
    resumed = resume(run_dir, ["total_timesteps=50", "env_id=tests/Drift-v0"])
    assert read_config_file(resumed.run_dir).env_id == "tests/Drift-v0"
    assert resume(run_dir, ["total_timesteps=60"]).metrics["step"] == 60


def test_registered_id_continues_an_object_exactly(own_config: Config) -> None:
    """Wrappers that Gymnasium adds, such as OrderEnforcing, have no state."""
    gym.register("tests/Drift-v1", "tests.own_envs:Drift")
    whole = train(own_config(), env=Drift)
    with pytest.raises(CrashError):
        train(own_config(), env=Drift, callbacks=[CrashAt(57)])
    second = whole.run_dir.with_name(f"{whole.run_dir.name}_2")
    resumed = resume(second, env="tests/Drift-v1")
    one, two = (each.checkpoint_path / MODEL for each in (whole, resumed))
    assert one.read_bytes() == two.read_bytes()


def test_other_object_is_named(own_config: Config, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = train(own_config(total_timesteps=40), env=Drift).run_dir
    with pytest.raises(ConfigError, match=r"expects 3 .*, but <Drift> has 5 .*: choose an env"):
        resume(run_dir, ["total_timesteps=50"], env=lambda: Drift(5))
    with pytest.raises(CheckpointError, match=r"has 1 layers, but this one has 2"):
        resume(run_dir, ["total_timesteps=50"], env=make_doubled)
    assert (
        "Warning: the run was trained in <Drift>, but continues in <Doubled(Drift)>."
        in capsys.readouterr().err
    )


def test_uncapturable_object_starts_a_new_episode(
    own_config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    result = train(own_config(total_timesteps=50), env=Uncapturable)
    resume(result.run_dir, ["total_timesteps=60"], env=Uncapturable())
    assert (
        "Warning: <Uncapturable> continues with a new episode: Uncapturable.lock is a object"
        in capsys.readouterr().err
    )


# --- Wrong objects ----------------------------------------------------------------------


class NeedsArguments(Drift):
    def __init__(self, size: int) -> None:
        super().__init__(size)


class OldStep(Drift):
    def step(self, action: Any) -> Any:
        return super().step(action)[:4]


class NoSpaces(gym.Env[Any, Any]):
    pass


class Breaks(Drift):
    def reset(self, **kwargs: Any) -> Any:
        raise RuntimeError("the robot is off")


SHARED = Drift()


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        (NeedsArguments, "NeedsArguments() failed with TypeError: NeedsArguments.__init__() miss"),
        (NeedsArguments, "; pass its arguments as env_kwargs={…}, or pass a function, such as la"),
        (lambda: NeedsArguments(), "lambda() failed with TypeError: NeedsArguments.__init__() mi"),  # type: ignore[call-arg]
        (lambda: 5, "lambda() returned 5, but the environment should be an environment id, a g"),
        (lambda: gym.make_vec("Pendulum-v1"), "lambda() returned a vector environment: pass the"),
        (lambda: SHARED, "lambda() returned the same environment twice, but should make a new o"),
        (lambda: Doubled(SHARED), "lambda() returned the same environment twice, but should mak"),
        (OldStep(), "OldStep: step() returns 4 values (the interface of Gym before 0.26), but"),
        (NoSpaces, "NoSpaces has no observation_space: set self.observation_space to a space"),
        (Breaks(), "Breaks: the first reset() failed with RuntimeError: the robot is off; fix"),
        (dict, "env is the class dict, but the environment should be an environment id, a gymn"),
        (7, "env = 7: the environment should be an environment id, a gymnasium.Env, a class or"),
        ([Drift, Drift], "env is a list of 2 functions: pass one of them, and set num_envs=2."),
        (np.zeros(3), "env = array([0., 0., 0.]): the environment should be an environment id"),
    ],
)
def test_wrong_objects_raise_one_sentence(own_config: Config, env: Any, sentence: str) -> None:
    config = own_config()
    with pytest.raises(RLTrainingError, match=re.escape(sentence)):
        train(config, env=env)
    assert not list(Path(config["output_dir"]).glob("*"))


def test_old_gym_environment_is_named() -> None:
    old = type("OldEnv", (), {"__module__": "gym.core"})
    for env in (old, old()):
        with pytest.raises(ConfigError, match=r"environments of the gym package are not supported"):
            SAC(env)
    vec = type("DummyVecEnv", (), {"__module__": "stable_baselines3.common.vec_env"})()
    with pytest.raises(ConfigError, match=r"of Stable-Baselines3 are not supported: pass the fun"):
        SAC(vec)


def test_env_and_env_id_together_are_refused(tmp_path: Path) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: SAC(Drift, env_id="Pendulum-v1"),
        lambda: finetune(tmp_path, Drift, env_id="Pendulum-v1"),
        lambda: evaluate_checkpoint(tmp_path, env=Drift, env_id="Pendulum-v1"),
    ]
    for call in calls:
        with pytest.raises(ConfigError, match=r"^env = .*Drift.* and env_id = 'Pendulum-v1': pass"):
            call()


def test_env_replaces_the_environment_of_a_config(own_config: Config) -> None:
    config = own_config(total_timesteps=40, env_id="Pendulum-v1")
    assert train_sac(config, env=Drift).run_dir.name == "sac_Drift_seed0"
    assert train_sac(config, env="Pendulum-v1").run_dir.name == "sac_Pendulum-v1_seed0"


# --- Trust ----------------------------------------------------------------------------


def test_file_cannot_choose_the_object_or_its_arguments(tmp_path: Path) -> None:
    agent = SAC(Drift, env_kwargs={"size": 3}, output_dir=tmp_path, **SMALL).learn(40)
    assert agent.run_dir is not None
    path = agent.checkpoint.path
    forge(path, lambda manifest: manifest["config"].update(env_kwargs={"size": "/etc/passwd"}))
    with pytest.raises(ConfigError, match=r"env_kwargs.size = '/etc/passwd' is neither a number"):
        evaluate_checkpoint(agent.run_dir, env=Drift)
    forge(path, lambda manifest: manifest["config"].update(env_id="<tests.own_envs:Doubled>"))
    with pytest.raises(ConfigError, match=r"^The environment <tests.own_envs:Doubled> was passed"):
        evaluate_checkpoint(agent.run_dir)


def test_nothing_is_pickled(own_config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("an environment was pickled")

    for name in ("pickle.dumps", "pickle.dump", "cloudpickle.dumps", "cloudpickle.dump"):
        monkeypatch.setattr(name, refuse)
    result = train(own_config(eval_episodes=1), env=Drift)
    assert read_run_info(result.run_dir)["state"] == "completed"

"""Goal environments in the package: spaces, success, prediction and errors."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rl_training import (
    HER,
    ConfigError,
    TrainConfig,
    TrainingError,
    evaluate_checkpoint,
    predict_checkpoint,
    resume,
    train,
)
from rl_training.algorithms.registry import REGISTRY, HindsightEntry
from rl_training.algorithms.sac import SACAlgorithm, SACConfig
from rl_training.data import HindsightReplay
from rl_training.envs import (
    POINT_GOAL,
    PointGoalEnv,
    capture_env,
    make_env,
    name_env,
    restore_env,
)
from rl_training.experiment.config import make_config
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.evaluation import EvaluationResult, Evaluator, Policy
from rl_training.runtime.session import Session
from tests import goal_envs
from tests.cli.test_cli import SMALL, cli, only_json
from tests.comparing import CrashAt, CrashError, assert_same_run
from tests.runtime.test_exact_resume import crash_and_resume

Config = Callable[..., dict[str, Any]]
ROBOTICS = importlib.util.find_spec("gymnasium_robotics") is not None
BASE: dict[str, Any] = {"algo": "her", "env_id": POINT_GOAL, "total_timesteps": 100}


@pytest.fixture(autouse=True)
def _registered() -> None:
    goal_envs.register()


# --- PointGoal ----------------------------------------------------------------


def test_point_goal_is_a_valid_environment() -> None:
    env = gym.make(POINT_GOAL, render_mode="rgb_array")
    check_env(env.unwrapped)
    obs, info = env.reset(seed=0)
    assert np.linalg.norm(obs["desired_goal"] - obs["achieved_goal"]) >= 0.5
    assert info == {"is_success": False}
    for step in range(1, 51):
        obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
        assert (terminated, truncated) == (False, step == 50)
        goals = obs["achieved_goal"], obs["desired_goal"]
        assert reward == env.unwrapped.compute_reward(*goals, info)  # type: ignore[attr-defined]
    assert env.render().shape == (160, 160, 3)  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match="min_distance = 3"):
        make_env(POINT_GOAL, {"min_distance": 3})


def test_point_goal_can_be_reached_and_terminates_if_enabled() -> None:
    env = PointGoalEnv(terminates=True)
    obs, _ = env.reset(seed=1)
    for _ in range(50):
        away = obs["desired_goal"] - obs["achieved_goal"] - 4 * obs["observation"][2:]
        obs, reward, terminated, _, info = env.step(4 * away)
        assert terminated == info["is_success"] == (reward == 0)
        if terminated:
            return
    pytest.fail("a controller that brakes in time reaches every goal")


def test_uniform_play_succeeds_in_under_five_percent_of_episodes() -> None:
    """Measured twice: at the last step, and at any step."""
    env, rng, last, ever, episodes = make_env(POINT_GOAL), np.random.default_rng(0), 0, 0, 600
    for episode in range(episodes):
        env.reset(seed=episode)
        successes = []
        for _ in range(50):
            info = env.step(rng.uniform(-1, 1, 2).astype(np.float32))[-1]
            successes.append(info["is_success"])
        last, ever = last + successes[-1], ever + any(successes)
    assert last / episodes <= ever / episodes < 0.05


def test_point_goal_continues_exactly_after_a_capture() -> None:
    first, second = make_env(POINT_GOAL), make_env(POINT_GOAL)
    first.reset(seed=3)
    second.reset(seed=4)
    actions = np.random.default_rng(0).uniform(-1, 1, (120, 2)).astype(np.float32)
    assert_continues_exactly(first, second, actions)


def assert_continues_exactly(first: Any, second: Any, actions: Any) -> None:
    def play(env: Any, chosen: Any) -> list[Any]:
        rows = []
        for action in chosen:
            obs, reward, terminated, truncated, _ = env.step(action)
            rows.append((obs.tolist(), reward, terminated, truncated))
            if terminated or truncated:
                rows.append(env.reset()[0].tolist())
        return rows

    play(first, actions[:17])
    restore_env(second, capture_env(first))
    assert play(first, actions) == play(second, actions)


def test_observations_are_flat_rows_of_observation_and_desired_goal() -> None:
    env, plain = make_env(POINT_GOAL), gym.make(POINT_GOAL)
    row, _ = env.reset(seed=5)
    obs, _ = plain.reset(seed=5)
    np.testing.assert_array_equal(row, np.concatenate([obs["observation"], obs["desired_goal"]]))
    assert row.dtype == np.float32
    assert env.observation_space.contains(row)
    assert make_env("tests/CountingGoals-v0").reset(seed=0)[0].dtype == np.float64


# --- Runs ---------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_resume_in_the_middle_of_an_episode(small_config: Config, strategy: str) -> None:
    kwargs = {"her_strategy": strategy, "eval_interval": 50, "buffer_capacity": 70}
    config = small_config(algo="her", eval_episodes=1)
    config["algo_kwargs"] |= kwargs
    config["env_kwargs"] = {"max_episode_steps": 17}
    assert_same_run(train(config), crash_and_resume(config, 57, 99))


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_resume_of_vector_environments(small_config: Config, vectorization: str) -> None:
    config = small_config(algo="her", num_envs=3, total_timesteps=180)
    config["env_kwargs"] = {"vectorization": vectorization, "max_episode_steps": 17}
    assert_same_run(train(config), crash_and_resume(config, 100))


def test_episodes_are_not_joined_if_an_environment_cannot_be_restored(
    small_config: Config,
) -> None:
    """At step 40, the third episodes are running; after the resume, new episodes start."""
    config = small_config(algo="her", env_id="tests/OpaqueGoals-v0")
    with pytest.raises(CrashError):
        train(config, callbacks=[CrashAt(75)])
    (run_dir,) = Path(config["output_dir"]).glob("*")
    seen: list[Any] = []

    class Look(Callback):
        def on_end(self, session: Session) -> None:
            assert session.collector is not None
            assert isinstance(session.collector.buffer, HindsightReplay)
            seen.append(session.collector.buffer.rows[:120].clone())

    warnings: list[str] = []
    resume(run_dir, callbacks=[Look()], on_warning=warnings.append)
    assert any("new episode" in text for text in warnings)
    (rows,) = seen
    ended = rows[:, -1].bool()
    changes = rows[1:, 0] != rows[:-1, 0]  # rows at which the episode number changes
    assert bool(ended[39])
    assert (ended[:-1] == changes).all()


def test_reward_keys_apply(small_config: Config) -> None:
    """Evaluation reports untransformed rewards, and training uses transformed ones."""
    config = small_config(algo="her", eval_episodes=1, total_timesteps=150)
    config["algo_kwargs"] |= {"reward_shift": 1.0, "her_ratio": 1.0}
    seen: list[Any] = []

    class Look(Callback):
        def on_end(self, session: Session) -> None:
            batch = session.engine.sampler.sample(500, session.engine.generator)
            seen.append(set(batch.rewards.tolist()))

    result = train(config, callbacks=[Look()])
    assert seen == [{0.0, 1.0}]
    assert result.metrics["eval_return_mean"] < 0


def test_every_base_algorithm_trains_with_hindsight(small_config: Config) -> None:
    bases = HindsightEntry.bases()
    assert "sac" in bases
    assert "her" not in bases
    for base in bases:
        config = small_config(algo="her", total_timesteps=60)
        config["algo_kwargs"] |= {"base_algo": base, "normalize_rewards": False}
        learners: list[str] = []

        class Look(Callback):
            def on_end(self, session: Session) -> None:
                learners.append(session.algorithm.name)  # noqa: B023

        result = train(config, callbacks=[Look()])
        assert (learners, result.metrics["updates"] > 0) == ([base], True)


# --- Success ------------------------------------------------------------------


def test_success_is_read_from_the_last_step() -> None:
    """CountingGoals succeeds only in its last step and reports it under either name."""
    for name in ("is_success", "success"):
        evaluator = Evaluator("tests/CountingGoals-v0", {"success": name}, seed=0)
        policy = Policy(SACAlgorithm.build(_spec(), SACConfig(hidden_sizes=(8,))), _spec())
        result = evaluator.evaluate(policy, 3)
        assert result.successes == (True, True, True)
        assert result.metrics()["eval_success_rate"] == 1.0
        evaluator.close()
    assert EvaluationResult((1.0, 2.0), (3, 3), (True, False)).metrics()["eval_success_rate"] == 0.5
    assert "eval_success_rate" not in EvaluationResult((1.0,), (3,), (None,)).metrics()


def _spec() -> Any:
    from rl_training.envs import EnvConfig, describe_env

    return describe_env("tests/CountingGoals-v0", EnvConfig())


def test_early_stopping_can_watch_success(small_config: Config) -> None:
    stopping = {"metric": "eval_success_rate", "target_value": 1.0}
    config = small_config(algo="her", env_id="tests/CountingGoals-v0", eval_episodes=1)
    config["algo_kwargs"] |= {"eval_interval": 50, "early_stopping": stopping}
    result = train(config)
    assert (result.metrics["step"], result.metrics["eval_success_rate"]) == (50, 1.0)
    config = small_config(eval_episodes=1)
    config["algo_kwargs"] |= {"eval_interval": 50, "early_stopping": stopping}
    with pytest.raises(TrainingError, match="does not report success"):
        train(config)


# --- Prediction, the managed class, the command line ----------------------------


def test_managed_class(tmp_path: Path) -> None:
    agent = HER(
        POINT_GOAL,
        base_algo="sac",
        her_ratio=0.5,
        output_dir=str(tmp_path / "runs"),
        hidden_sizes=[16],
        batch_size=16,
        learning_starts=30,
        eval_episodes=1,
        logging={"tensorboard": False},
        num_threads=1,
    )
    agent.learn(80)
    assert 0 <= agent.evaluate(2)["eval_success_rate"] <= 1
    obs, _ = gym.make(POINT_GOAL).reset(seed=0)
    action = agent.predict(obs)
    row = np.concatenate([obs["observation"], obs["desired_goal"]])
    np.testing.assert_array_equal(agent.predict(row), action)
    several = {key: np.stack([value] * 3) for key, value in obs.items()}
    np.testing.assert_allclose(agent.predict(several), np.stack([action] * 3), rtol=1e-5)
    loaded = HER.load(agent.save(tmp_path / "copy"))
    np.testing.assert_array_equal(loaded.predict(row), action)
    loaded.learn(40, overrides=[f"output_dir={tmp_path / 'more'}"])
    agent.learn(40)
    np.testing.assert_array_equal(loaded.predict(row), agent.predict(row))
    for wrong, sentence in {
        "wide": (
            np.zeros(8),
            r"\(observation: Box\(4\), desired_goal: Box\(2\)\), or an array of shape \[6\] or "
            r"\[batch, 6\] in this order, is expected",
        ),
        "keys": ({"observation": np.zeros(4)}, "has the entries observation, but should have"),
        "rows": (
            {"observation": np.zeros((2, 4)), "desired_goal": np.zeros((3, 2))},
            "need the same number of rows",
        ),
    }.values():
        with pytest.raises(ConfigError, match=sentence):
            agent.predict(wrong)


def test_flat_policy_rejects_a_dict(small_config: Config) -> None:
    result = train(small_config(total_timesteps=40))
    with pytest.raises(ConfigError, match=r"the keys a, but an array of shape \[3\]"):
        predict_checkpoint(result.run_dir, {"a": np.zeros(3)})


def test_command_line(tmp_path: Path) -> None:
    result = only_json("train", "-c", "her/point_goal", *SMALL, cwd=tmp_path)
    assert "eval_success_rate" in result["metrics"]
    run = result["run_dir"]
    assert "success" in cli("evaluate", run, "--episodes", "2", cwd=tmp_path).stdout
    assert only_json("evaluate", run, "--episodes", "2", cwd=tmp_path)["eval_success_rate"] <= 1
    np.save(tmp_path / "obs.npy", np.zeros((4, 6), np.float32))
    actions = only_json("predict", run, "--obs", "obs.npy", cwd=tmp_path)["actions"]
    assert np.shape(actions) == (4, 2)
    assert only_json("resume", run, "total_timesteps=150", cwd=tmp_path)["metrics"]["step"] == 150
    refused = cli("resume", run, "total_timesteps=200", "her_ratio=0.1", cwd=tmp_path)
    assert (refused.returncode, "her_ratio = 0.1 contradicts" in refused.stderr) == (2, True)
    assert only_json("configs", "show", "her/point_goal", cwd=tmp_path)["algo"] == "her"
    (entry,) = [
        e for e in only_json("algorithms", cwd=tmp_path)["algorithms"] if e["name"] == "her"
    ]
    assert entry["goals"] is True
    film = cli("evaluate", run, "--episodes", "1", "--video", "film.gif", cwd=tmp_path)
    assert film.returncode == 0, film.stderr


# --- Errors -------------------------------------------------------------------

NEEDS_ROBOTICS = pytest.mark.skipif(ROBOTICS, reason="gymnasium-robotics is installed")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"algo": "sac"}, r"PointGoal-v0 has the observation space Dict\(.*use algo: her with"),
        ({"env_id": "Pendulum-v1"}, r"observation space Box\(3\), but her needs a Dict.*algo: sac"),
        ({"env_id": "tests/NoReward-v0"}, "NoReward-v0 has no method compute_reward"),
        ({"env_id": "tests/DiscreteGoals-v0"}, r"her needs a bounded Box .* Discrete\(3\)"),
        pytest.param(
            {"env_id": "PointMaze_UMaze-v3"},
            r"gymnasium-robotics.*pip install 'rl-training\[robotics\]'",
            marks=NEEDS_ROBOTICS,
        ),
    ],
)
def test_unsupported_environments_get_a_clear_error(
    tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence) as caught:
        train(BASE | {"output_dir": str(tmp_path / "runs")} | changes)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("kwargs", "sentence"),
    [
        ({"base_algo": "her"}, "base_algo = 'her': should be .*sac"),
        ({"base_algo": ["sac"]}, r"base_algo = \['sac'\]"),
        ({"her_ratio": 1.5}, "her_ratio = 1.5: should be less than or equal to 1"),
        ({"her_ratio": -0.1}, "her_ratio = -0.1"),
        ({"her_strategy": "past"}, "her_strategy = 'past'"),
        ({"her_ration": 0.5}, "did you mean 'her_ratio'"),
        ({"alpa": 0.5}, "did you mean 'alpha'"),
        ({"gamma": 3}, "gamma = 3"),
    ],
)
def test_wrong_keys_get_a_clear_error(kwargs: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        make_config(BASE | {"algo_kwargs": kwargs})


def test_keys_of_the_base_algorithm_and_of_her_are_valid() -> None:
    config = make_config(BASE | {"algo_kwargs": {"alpha": 0.2, "her_ratio": 0.3}})
    settings = config.parts.algorithm
    assert isinstance(settings, SACConfig)
    assert settings.model_dump().items() >= {"alpha": 0.2, "her_ratio": 0.3}.items()
    assert REGISTRY["her"].learner_class({"base_algo": "sac"}) is SACAlgorithm
    with pytest.raises(ConfigError, match="'her_ratio' is not an option of SAC"):
        make_config(BASE | {"algo": "sac", "algo_kwargs": {"her_ratio": 0.3}})


def test_environment_is_registered_on_import(tmp_path: Path) -> None:
    code = (
        "import gymnasium, json, rl_training.envs;"
        "print(json.dumps(gymnasium.make('rl_training/PointGoal-v0').spec.max_episode_steps))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == 50


# --- gymnasium-robotics -------------------------------------------------------

WITH_ROBOTICS = pytest.mark.skipif(not ROBOTICS, reason="needs the extra robotics")


@WITH_ROBOTICS
def test_pointmaze_trains_and_resumes_exactly(small_config: Config) -> None:
    config = small_config(algo="her", env_id="PointMaze_UMaze-v3", eval_episodes=1)
    config["env_kwargs"] = {"max_episode_steps": 47, "continuing_task": False}
    whole = train(config)
    assert "eval_success_rate" in whole.metrics
    assert_same_run(whole, crash_and_resume(config, 57, 99))
    assert evaluate_checkpoint(whole.run_dir, episodes=1)["eval_length_mean"] <= 47


@WITH_ROBOTICS
def test_pointmaze_continues_exactly_after_a_capture() -> None:
    name_env("PointMaze_UMaze-v3")
    first, second = make_env("PointMaze_UMaze-v3"), make_env("PointMaze_UMaze-v3")
    first.reset(seed=3)
    second.reset(seed=4)
    actions = np.random.default_rng(0).uniform(-1, 1, (700, 2)).astype(np.float32)
    assert_continues_exactly(first, second, actions)


def test_maze_config_is_valid() -> None:
    config = TrainConfig.load("her/pointmaze")
    assert (config.algo, config.env_id) == ("her", "PointMaze_UMaze-v3")

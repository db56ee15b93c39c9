"""Same seed, same bits; N steps equal k steps, a crash and a resume, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rl_training import resume, train
from rl_training.envs import capture_env, make_env, restore_env
from rl_training.runtime.checkpointing import MODEL
from tests.comparing import CrashAt, CrashError, assert_same_run, untimed_metrics

Config = Callable[..., dict[str, Any]]
CONTINUOUS = ["Pendulum-v1", "MountainCarContinuous-v0"]
DISCRETE = ["CartPole-v1", "MountainCar-v0", "Acrobot-v1"]
MUJOCO = ["HalfCheetah-v5", "Hopper-v5", "Ant-v5", "Humanoid-v5"]


def crash_and_resume(config: dict[str, Any], *steps: int) -> Any:
    """Train, crash at each of ``steps``, resume each time, and finish."""
    runs = Path(config["output_dir"])
    before = set(runs.glob("*")) if runs.exists() else set()
    with pytest.raises(CrashError):
        train(config, callbacks=[CrashAt(steps[0])])
    (run_dir,) = set(runs.glob("*")) - before
    for step in steps[1:]:
        with pytest.raises(CrashError):
            resume(run_dir, callbacks=[CrashAt(step)])
    return resume(run_dir)


def test_two_runs_give_the_same_bits(small_config: Config) -> None:
    first, second = train(small_config()), train(small_config())
    assert first.run_dir != second.run_dir
    assert_same_run(first, second)


def test_another_seed_gives_other_bits(small_config: Config) -> None:
    first, second = train(small_config()), train(small_config(seed=1))
    one, two = first.checkpoint_path / MODEL, second.checkpoint_path / MODEL
    assert one.read_bytes() != two.read_bytes()


# Updates of the target every 7: the checkpoints at steps 40 and 80 follow 10 and 50 updates.
DQN = {"train_frequency": 1, "target_update_interval": 7, "epsilon_decay_steps": 100}


@pytest.mark.parametrize(
    ("algo", "env_id", "kwargs"),
    [("sac", env_id, {}) for env_id in CONTINUOUS + MUJOCO]
    + [("dqn", env_id, DQN) for env_id in DISCRETE]
    + [("dqn", "CartPole-v1", DQN | {"double": True, "tau": 0.3, "target_update_interval": 1})],
)
def test_resume_in_the_middle_of_an_episode(
    small_config: Config, algo: str, env_id: str, kwargs: dict[str, Any]
) -> None:
    config = small_config(algo=algo, env_id=env_id, eval_episodes=1, log_interval=25)
    config["env_kwargs"] = {"max_episode_steps": 47}  # episodes end between the checkpoints
    config["algo_kwargs"] |= {"eval_interval": 50} | kwargs
    whole = train(config)
    assert_same_run(whole, crash_and_resume(config, 57, 99))


# The checkpoints at steps 40 and 80 follow 10 and 50 updates: both cut TD3's delay of 3.
FAMILY: dict[str, dict[str, Any]] = {
    "ddpg": {},
    "td3": {"policy_delay": 3},
    "redq": {"gradient_updates_per_step": 4, "num_critics": 3},
    "tqc": {"num_critics": 3, "num_quantiles": 5, "critic_hidden_sizes": [16, 16]},
}


@pytest.mark.parametrize("algo", FAMILY)
@pytest.mark.parametrize("num_envs", [1, 2])
def test_resume_in_the_middle_of_a_delay(small_config: Config, algo: str, num_envs: int) -> None:
    config = small_config(algo=algo, algo_kwargs=FAMILY[algo], num_envs=num_envs, eval_episodes=1)
    config["env_kwargs"] = {"max_episode_steps": 47}
    config["algo_kwargs"] |= {"eval_interval": 50}
    assert_same_run(train(config), crash_and_resume(config, 57, 99))


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_resume_of_vector_environments(small_config: Config, vectorization: str) -> None:
    config = small_config(num_envs=3, total_timesteps=180)
    config["env_kwargs"] = {"vectorization": vectorization, "max_episode_steps": 17}
    assert_same_run(train(config), crash_and_resume(config, 100))


def test_async_equals_sync(small_config: Config) -> None:
    results = [
        train(small_config(num_envs=2, env_kwargs={"vectorization": kind}))
        for kind in ("sync", "async")
    ]
    one, two = (result.checkpoint_path / MODEL for result in results)
    assert one.read_bytes() == two.read_bytes()


def test_resume_with_a_wrapped_replay_and_schedules(small_config: Config) -> None:
    config = small_config()
    config["algo_kwargs"] |= {
        "buffer_capacity": 50,
        "learning_rate_schedule": "cosine",
        "learning_rate_warmup": 40,
        "train_frequency": 3,
        "gradient_updates_per_step": 2,
    }
    assert_same_run(train(config), crash_and_resume(config, 61, 95))


def test_a_stop_between_checkpoints_leaves_no_trace(small_config: Config) -> None:
    """A signal saves at a step of its own; the end is the same as without it."""
    from rl_training.runtime.callbacks import Callback
    from rl_training.runtime.trainer import SIGNAL, Session

    class StopAt(Callback):
        def on_step(self, session: Session) -> None:
            if session.state.step == 71:
                session.state.request_stop(SIGNAL + "SIGINT")

    config = small_config()
    stopped = train(config, callbacks=[StopAt()])
    assert stopped.interrupted_by == "SIGINT"
    assert stopped.checkpoint_path.name == "step_000000071"
    assert_same_run(train(config), resume(stopped.run_dir))


@pytest.mark.parametrize("interval", [0, 30, 7])
def test_evaluation_does_not_change_training(small_config: Config, interval: int) -> None:
    plain = train(small_config())
    config = small_config(eval_episodes=2)
    config["algo_kwargs"] |= {"eval_interval": interval}
    evaluated = train(config)
    one, two = (result.checkpoint_path / MODEL for result in (plain, evaluated))
    assert one.read_bytes() == two.read_bytes()
    losses = [
        [row for row in untimed_metrics(result.run_dir) if "eval_return_mean" not in row]
        for result in (plain, evaluated)
    ]
    assert losses[0] == losses[1]


def test_extending_a_finished_run_equals_the_longer_run(small_config: Config) -> None:
    """The schedule keeps its first horizon, so the longer run is told it too."""
    short = train(small_config(total_timesteps=80))
    longer = resume(short.run_dir, ["total_timesteps=120"])
    config = small_config(total_timesteps=120)
    config["algo_kwargs"] |= {"schedule_horizon": 80}
    assert_same_run(train(config), longer)


def rollout(env: gym.Env[Any, Any], actions: list[Any]) -> list[Any]:
    rows = []
    for action in actions:
        obs, reward, terminated, truncated, _ = env.step(action)
        rows.append((obs.tolist(), float(reward), terminated, truncated))
        if terminated or truncated:
            rows.append((env.reset()[0].tolist(), 0.0, False, False))
    return rows


@pytest.mark.parametrize("env_id", [*CONTINUOUS, *MUJOCO, "Walker2d-v5", *DISCRETE])
def test_captured_environment_continues_exactly(env_id: str) -> None:
    first, second = make_env(env_id), make_env(env_id)
    first.reset(seed=3)
    second.reset(seed=99)
    first.action_space.seed(0)
    actions = [first.action_space.sample() for _ in range(120)]
    rollout(first, actions[:17])
    state = capture_env(first)
    expected = rollout(first, actions)
    restore_env(second, state)
    assert rollout(second, actions) == expected


class Opaque(gym.Env[Any, Any]):
    """An environment with something inside that cannot be saved."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self) -> None:
        self.secret = object()

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), 0.0, False, False, {}


def test_an_environment_that_cannot_be_captured_is_declared(small_config: Config) -> None:
    if "tests/Opaque-v0" not in gym.registry:
        gym.register("tests/Opaque-v0", entry_point=lambda **_: Opaque(), max_episode_steps=30)
    config = small_config(env_id="tests/Opaque-v0")
    with pytest.raises(CrashError):
        train(config, callbacks=[CrashAt(90)])
    (run_dir,) = Path(config["output_dir"]).glob("*")
    warnings: list[str] = []
    result = resume(run_dir, on_warning=warnings.append)
    assert any("new episode" in text and "secret" in text for text in warnings)
    assert "secret" in (result.checkpoint_path / "manifest.json").read_text()

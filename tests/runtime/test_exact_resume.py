"""Equal seeds give equal bits, and a crashed and resumed run equals an uninterrupted one."""

from __future__ import annotations

import enum
import os
import shutil
import signal
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest

from rl_training import resume, train
from rl_training.api.training import start_run
from rl_training.boundary import json_codec
from rl_training.envs import CaptureError, capture_env, make_env, restore_env
from rl_training.errors import ConfigError, TrainingError
from rl_training.runtime import evaluation
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.checkpointing import MODEL, list_steps
from rl_training.runtime.evaluation import Evaluator
from rl_training.runtime.session import Session
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


# The target is updated every 7 updates; the checkpoints at steps 40 and 80 follow 10 and 50.
DQN = {"train_frequency": 1, "target_update_interval": 7, "epsilon_decay_steps": 100}


@pytest.mark.parametrize(
    ("algo", "env_id", "kwargs"),
    [("sac", env_id, {}) for env_id in ["CartPole-v1", *CONTINUOUS, *MUJOCO]]
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


# The checkpoints at steps 40 and 80 follow 10 and 50 updates, inside TD3's delay of 3.
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
    config["env_kwargs"]["wrappers"] = {"reward": {"scale": 0.5}}
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


def test_stop_between_checkpoints_changes_nothing(small_config: Config) -> None:
    """A signal saves an additional checkpoint; the final result is the same."""

    class StopAt(Callback):
        def on_step(self, session: Session) -> None:
            if session.state.step == 71:
                session.state.request_stop("signal: SIGINT")

    config = small_config()
    stopped = train(config, callbacks=[StopAt()])
    assert stopped.interrupted_by == "SIGINT"
    assert stopped.checkpoint_path.name == "step_000000071"
    assert_same_run(train(config), resume(stopped.run_dir))


@pytest.mark.parametrize(
    ("name", "raised"), [("SIGINT", KeyboardInterrupt), ("SIGTERM", SystemExit)]
)
def test_signal_in_the_last_step_changes_nothing(
    small_config: Config, name: str, raised: type[BaseException]
) -> None:
    """Otherwise a resume would continue beyond the end of an uninterrupted run."""

    class SendAt(Callback):
        def on_step(self, session: Session) -> None:
            if session.state.step == 60:
                os.kill(os.getpid(), signal.Signals[name])

    config = small_config(eval_episodes=1, env_kwargs={"max_episode_steps": 20})
    stopping = {"target_value": -1e6, "min_steps": 50}
    config["algo_kwargs"] |= {"eval_interval": 30, "early_stopping": stopping}
    whole, signalled = train(config), start_run(config, [SendAt()])
    assert (whole.metrics["step"], whole.stop_reason[:14]) == (60, "early_stopping")
    assert (signalled.stop_reason, signalled.interrupted_by) == (whole.stop_reason, None)
    assert_same_run(whole, signalled)
    with pytest.raises(raised):  # a script must not continue with its next run
        train(config, callbacks=[SendAt()])


@pytest.mark.parametrize("interval", [0, 30, 7])
def test_evaluation_does_not_change_training(small_config: Config, interval: int) -> None:
    short = {"max_episode_steps": 20}
    plain = train(small_config(env_kwargs=short))
    config = small_config(eval_episodes=2, env_kwargs=short)
    config["algo_kwargs"] |= {"eval_interval": interval}
    evaluated = train(config)
    one, two = (result.checkpoint_path / MODEL for result in (plain, evaluated))
    assert one.read_bytes() == two.read_bytes()
    losses = [
        [row for row in untimed_metrics(result.run_dir) if "eval_return_mean" not in row]
        for result in (plain, evaluated)
    ]
    assert losses[0] == losses[1]


def fail_evaluation(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Make the n-th evaluation, counted from 1, raise an error."""
    evaluate, calls = Evaluator.evaluate, list[int]()

    def failing(self: Evaluator, *args: Any) -> Any:
        calls.append(1)
        if len(calls) == number:
            raise TrainingError("the simulator is gone")
        return evaluate(self, *args)

    monkeypatch.setattr(Evaluator, "evaluate", failing)


@pytest.mark.parametrize(("number", "step"), [(2, 60), (4, 120)])
def test_failed_evaluation_loses_nothing(
    small_config: Config, monkeypatch: pytest.MonkeyPatch, number: int, step: int
) -> None:
    """The resumed run repeats the evaluation and equals an uninterrupted run."""
    config = small_config(eval_episodes=1, env_kwargs={"max_episode_steps": 20})
    config["algo_kwargs"]["eval_interval"] = 30
    whole = train(config)
    fail_evaluation(monkeypatch, number)
    with pytest.raises(TrainingError, match=f"the simulator is gone at step {step}"):
        train(config | {"output_dir": config["output_dir"] + "_failed"})
    (run_dir,) = Path(config["output_dir"] + "_failed").glob("*")
    assert list_steps(run_dir)[-1].name == f"step_{step:09d}"
    resumed = resume(run_dir)
    assert_same_run(whole, resumed)
    assert resumed.best_checkpoint_path is not None
    assert whole.best_checkpoint_path is not None
    assert resumed.best_checkpoint_path.name == whole.best_checkpoint_path.name


def test_pending_evaluation_can_be_skipped_or_stop_the_run(
    small_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config(eval_episodes=1, env_kwargs={"max_episode_steps": 20})
    config["algo_kwargs"] |= {"eval_interval": 30, "early_stopping": {"target_value": -1e9}}
    fail_evaluation(monkeypatch, 1)
    with pytest.raises(TrainingError, match="at step 30"):
        train(config)
    (run_dir,) = Path(config["output_dir"]).glob("*")
    copied = Path(shutil.copytree(run_dir, f"{run_dir}_copy"))
    stopped = resume(run_dir)
    assert (stopped.metrics["step"], stopped.stop_reason[:14]) == (30, "early_stopping")
    with pytest.raises(ConfigError, match="stopped early at step 30"):
        resume(run_dir)
    overrides = ["eval_episodes=0", "early_stopping=null"]
    assert resume(copied, overrides).metrics["step"] == 120


def test_evaluation_error_is_raised_if_its_save_fails_too(
    small_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = Session.save

    def full(self: Session, **kwargs: Any) -> None:
        if self.state.step == 30:
            raise TrainingError("the disk is full")
        save(self, **kwargs)

    monkeypatch.setattr(Session, "save", full)
    fail_evaluation(monkeypatch, 1)
    config = small_config(eval_episodes=1)
    config["algo_kwargs"]["eval_interval"] = 30
    with pytest.raises(TrainingError, match="the simulator is gone at step 30"):
        train(config)


def test_endless_episode_stops_the_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "MAX_EPISODE_STEPS", 300)
    policy: Any = lambda _obs: np.zeros(1, dtype=np.float32)  # noqa: E731
    endless = Evaluator("Pendulum-v1", {"max_episode_steps": -1}, seed=0)
    with pytest.raises(TrainingError, match=r"did not end within 300 steps: .*max_episode_steps=N"):
        endless.evaluate(policy, 1)
    limited = Evaluator("Pendulum-v1", {"max_episode_steps": 300}, seed=0)
    assert limited.evaluate(policy, 1).lengths == (300,)


def test_extending_a_finished_run_equals_the_longer_run(small_config: Config) -> None:
    """The schedule keeps its horizon, which is therefore also set for the longer run."""
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
    """An environment with an attribute that cannot be saved."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self) -> None:
        self.secret = object()

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), 0.0, False, False, {}


def test_environment_that_cannot_be_captured_is_reported(small_config: Config) -> None:
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


class Grade(enum.IntEnum):
    """A subclass of a number."""

    LOW = 1


class Place(NamedTuple):
    """A subclass of a tuple."""

    x: float


class Holding(gym.Env[Any, Any]):
    """An environment that stores its argument."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, **held: Any) -> None:
        vars(self).update(held)


def saved_and_read(env: gym.Env[Any, Any]) -> Any:
    """Return a captured state after a round trip through a checkpoint file."""
    return json_codec.loads(json_codec.dumps(capture_env(env)))


BODIES = np.zeros((2, 3))
INEXACT = {
    "views": {"bodies": BODIES, "agent": BODIES[0]},
    "overlapping views": {"one": BODIES[0, :2], "other": [BODIES[0, 1:]]},
    "memory of another object": {"view": np.asarray(memoryview(bytearray(8)))},
    "defaultdict": {"table": defaultdict(float, a=1.0)},
    "OrderedDict": {"table": OrderedDict(a=1.0)},
    "number of dict keys": {"table": {1: 2.0}},
    "key that looks like a tag": {"table": {"@shared": 0}},
    "IntEnum": {"grade": Grade.LOW},
    "namedtuple": {"place": Place(1.0)},
    "nested namedtuple": {"places": [Place(1.0)]},
    "np.str_": {"word": np.str_("a")},
    "np.datetime64": {"day": np.datetime64("2024-01-01")},
    "np.complex128": {"z": np.complex128(1j)},
    "another bit generator": {"rng": np.random.Generator(np.random.MT19937(0))},
    "masked array": {"values": np.ma.masked_array([1.0, 2.0], [True, False])},
}


@pytest.mark.parametrize("name", INEXACT)
def test_values_that_do_not_round_trip_are_refused(name: str) -> None:
    held = INEXACT[name]
    with pytest.raises(CaptureError, match=rf"Holding\.({'|'.join(held)}) .* exactly"):
        capture_env(Holding(**held))


def test_recursive_list_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(CaptureError, match="contains itself"):
        capture_env(Holding(loop=loop))


def test_view_of_the_simulator_is_refused() -> None:
    env = make_env("Hopper-v5")
    env.reset(seed=0)
    vars(env.unwrapped)["joints"] = env.unwrapped.data.qpos  # type: ignore[attr-defined]
    with pytest.raises(CaptureError, match=r"HopperEnv\.joints is a view of memory"):
        capture_env(env)


def test_shared_objects_stay_shared() -> None:
    def holding() -> Any:
        array, log, rng = np.zeros(2), [[1]], np.random.default_rng(5)
        inner = Holding(array=array)
        return Holding(a=array, b=(array, 2), log=log, last=log[0], rng=rng, own=rng, inner=inner)

    first, second = holding(), holding()
    second.a, second.b, second.rng = np.ones(2), (0, 0), np.random.default_rng(6)
    first.rng.random(3)
    restore_env(second, saved_and_read(first))
    assert second.a is second.b[0] is second.inner.array
    assert second.log == [[1]]
    assert second.log[0] is second.last
    assert second.rng is second.own
    assert second.rng.random() == first.rng.random()


def test_dict_order_and_clock_attribute_are_restored() -> None:
    first = Holding(table={"b": 1, "a": {"d": 2, "c": 3}}, clock=7)
    second = Holding(table={}, clock=0)
    restore_env(second, saved_and_read(first))
    assert list(second.table.items()) == [("b", 1), ("a", {"d": 2, "c": 3})]  # type: ignore[attr-defined]
    assert list(second.table["a"]) == ["d", "c"]  # type: ignore[attr-defined]
    assert second.clock == 7  # type: ignore[attr-defined]

"""Values from environments are copied and checked, and their errors become one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rl_training import train
from rl_training.algorithms.sac import SACAlgorithm, SACConfig
from rl_training.api.video import Recorder
from rl_training.data import ReplayBuffer
from rl_training.envs import (
    ActionScaler,
    EnvConfig,
    GuardedEnv,
    describe_env,
    examine_env,
    make_env,
    make_training_envs,
    read_env_spec,
    read_goal_task,
)
from rl_training.errors import ConfigError, EnvError, TrainingError
from rl_training.runtime.acting import Explorer
from rl_training.runtime.collector import Collector
from rl_training.runtime.evaluation import Evaluator
from rl_training.runtime.recording import record, record_random
from rl_training.types import EnvSpec
from tests.envs.odd_envs import CLOCK, GOALS, WALK, Walk

Config = Callable[..., dict[str, Any]]
MODES = [("sync", 1), ("sync", 3), ("async", 2)]


def collect(
    env_id: str = WALK, steps: int = 23, mode: tuple[str, int] = ("sync", 1), **kwargs: Any
) -> tuple[torch.Tensor, Collector]:
    """Return rows of random play and the collector that stored them."""
    vectorization, num_envs = mode
    config = EnvConfig(vectorization=vectorization, **kwargs)
    spec = describe_env(env_id, config)
    learner = SACAlgorithm.build(spec, SACConfig(hidden_sizes=(8,)))
    buffer = ReplayBuffer(1000, spec.obs_dim + spec.goal_dim, spec.action_width)
    envs = make_training_envs(env_id, config, num_envs)
    explorer = Explorer(learner, num_envs, torch.Generator().manual_seed(0))
    collector = Collector(envs, explorer, buffer, spec, seed=0)
    try:
        collector.reset()
        for step in range(steps):
            collector.request_actions(random=True)
            collector.step(step * num_envs)
    finally:
        collector.close()
    return buffer.rows[: len(buffer)].clone(), collector


@contextmanager
def registered(kind: Callable[..., Walk]) -> Iterator[str]:
    """Register a class that a test defines and return its id."""
    gym.register("odd/Local-v0", entry_point=lambda **kwargs: kind(**kwargs))
    try:
        yield "odd/Local-v0"
    finally:
        del gym.registry["odd/Local-v0"]


# --- Copies -------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("reuse", ["own", "all"])
def test_environment_may_always_return_the_same_array(mode: tuple[str, int], reuse: str) -> None:
    rows, collector = collect(mode=mode, reuse=reuse)
    assert torch.equal(rows, collect(mode=mode)[0])
    clock, next_clock = rows[:, CLOCK], rows[:, 5 + CLOCK]
    assert torch.equal(next_clock, clock + 1)  # also where an episode ends, at 5
    assert collector.episodes == 4 * mode[1]


def test_parts_of_a_goal_observation_may_be_the_same_arrays() -> None:
    rows, _ = collect(GOALS, mode=("sync", 2), reuse=True)
    assert torch.equal(rows, collect(GOALS, mode=("sync", 2))[0])
    assert torch.equal(rows[:, 5], rows[:, 0] + 1)  # the clock


def test_goal_function_may_write_into_its_arguments() -> None:
    """The function gets the goals in HER's batches, not copies."""
    task = read_goal_task(GOALS, EnvConfig(reuse=True))
    achieved, desired = np.ones((4, 1), np.float32), np.zeros((4, 1), np.float32)
    assert task.rewards(achieved, desired).tolist() == [-1.0] * 4
    assert achieved.tolist() == [[1.0]] * 4
    assert desired.tolist() == [[0.0]] * 4


class Watching:
    """A policy that stores its observations."""

    def __init__(self) -> None:
        self.shown: list[Any] = []

    def __call__(self, obs: Any) -> Any:
        self.shown.append(obs)
        return np.array([0.5], np.float32)


@pytest.mark.parametrize(("env_id", "reuse"), [(WALK, "own"), (GOALS, True)])
def test_evaluation_uses_copies_of_observations(env_id: str, reuse: Any) -> None:
    results = []
    for kwargs in ({}, {"reuse": reuse}):
        policy: Any = Watching()
        result = Evaluator(env_id, kwargs, seed=3).evaluate(policy, 2)
        results.append((np.array(policy.shown).tolist(), result))
    assert results[0] == results[1]
    assert len(results[0][0]) == 10


@pytest.mark.parametrize("kwargs", [{"reuse": "own"}, {"writes_actions": True}])
def test_recorded_data_matches_the_observations_and_actions(kwargs: dict[str, Any]) -> None:
    expected = record_random(WALK, {}, 23, 0)
    found = record_random(WALK, kwargs, 23, 0)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
    np.testing.assert_array_equal(expected["next_observations"][:, 2], expected["actions"][:, 0])


def test_stored_actions_do_not_change_if_an_environment_writes_into_them() -> None:
    for mode in MODES:
        assert torch.equal(collect(mode=mode, writes_actions=True)[0], collect(mode=mode)[0])


def test_actions_kept_by_an_environment_do_not_change() -> None:
    kept: list[tuple[Any, Any]] = []

    class Keeping(Walk):
        def step(self, action: Any) -> Any:
            kept.append((action, np.array(action)))
            return super().step(action)

    held = np.zeros(1, np.float32)

    def choose(_obs: Any) -> Any:
        held[:] += 1
        return held

    with registered(Keeping) as env_id:
        collect(env_id, mode=("sync", 2))
    record(GuardedEnv(Keeping()), choose, steps=4, seed=0)
    assert len(kept) == 50
    assert all(np.array_equal(*pair) for pair in kept)


# --- Bounds of actions --------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.floats(-1e30, 1e30), st.floats(-1e30, 1e30)).filter(lambda x: x[0] < x[1]),
        min_size=1,
        max_size=4,
    ),
    st.lists(st.floats(-1.0, 1.0, width=32), min_size=1, max_size=4),
)
def test_actions_stay_inside_the_bounds_of_a_float64_space(
    bounds: list[tuple[float, float]], actions: list[float]
) -> None:
    low, high = np.array(bounds).T
    env = Walk()
    env.action_space = gym.spaces.Box(low, high, dtype=np.float64)
    try:
        spec = read_env_spec(env, "Some-v0")
    except ConfigError as error:
        assert "float32 cannot represent this range" in str(error)  # noqa: PT017
        return
    model = np.array([[-1.0], [1.0], *[[action] for action in actions]], np.float32)
    scaled = ActionScaler(spec).to_env(np.repeat(model, len(bounds), axis=1))
    assert scaled.dtype == np.float32
    assert all(env.action_space.contains(action) for action in scaled)


@given(st.floats(-1e3, 1e3, width=32), st.floats(2**-10, 1e3, width=32))
def test_float32_bounds_are_reached_exactly(low: float, size: float) -> None:
    high = float(np.float32(low + size))
    ends = ActionScaler(EnvSpec(1, 1, (low,), (high,))).to_env(
        np.array([[-1.0], [1.0]], np.float32)
    )
    scale = np.float32(0.5 * (low + high)) + np.float32(0.5 * (high - low)) * np.array(
        [-1, 1], np.float32
    )
    np.testing.assert_array_equal(ends[:, 0], np.clip(scale, np.float32(low), np.float32(high)))


def test_upper_bound_that_float32_rounds_up_is_kept() -> None:
    env = Walk()
    env.action_space = gym.spaces.Box(-0.1, 0.1, (1,), np.float64)
    scaler = ActionScaler(read_env_spec(env, "Some-v0"))
    ends = scaler.to_env(np.array([[-1.0], [1.0]], np.float32))
    assert np.float64(np.float32(0.1)) > 0.1  # the rounded bound would exceed 0.1
    assert ends.astype(np.float64).max() <= 0.1
    assert ends.astype(np.float64).min() >= -0.1


@pytest.mark.parametrize(("low", "high"), [(0.1, 0.1 + 1e-12), (-1e300, 1e300)])
def test_bounds_that_float32_cannot_represent_are_rejected(low: float, high: float) -> None:
    env = Walk()
    env.action_space = gym.spaces.Box(low, high, (1,), np.float64)
    with pytest.raises(ConfigError, match="float32 cannot represent this range"):
        read_env_spec(env, "Some-v0")


# --- Settings of the process --------------------------------------------------


def settings() -> tuple[Any, ...]:
    return (
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.get_num_threads(),
        torch.get_default_device(),
        np.geterr(),
    )


@pytest.mark.parametrize("method", ["__init__", "reset", "step"])
def test_settings_changed_by_an_environment_do_not_affect_training(
    method: str, small_config: Config
) -> None:
    """Default dtype and device, gradients, threads, NumPy's error state, the shared generators."""
    before = settings()
    plain = train(small_config(env_id=WALK, total_timesteps=60, eval_episodes=1))
    kwargs = {"trouble": "settings", "method": method}
    config = small_config(env_id=WALK, total_timesteps=60, eval_episodes=1, env_kwargs=kwargs)
    changed = train(config)
    assert settings() == before
    assert_same_weights(plain, changed)


def assert_same_weights(one: Any, other: Any) -> None:
    names = ("model.safetensors", "optimizers.safetensors")
    for name in names:
        files = [result.checkpoint_path / name for result in (one, other)]
        assert files[0].read_bytes() == files[1].read_bytes(), name
    rows = [(result.run_dir / "replay").iterdir() for result in (one, other)]
    assert {file.name for file in rows[0]} == {file.name for file in rows[1]}


def test_environment_keeps_its_own_settings() -> None:
    """Settings from its constructor apply to its steps, but nowhere else."""
    seen = []

    class Double(Walk):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            torch.set_default_dtype(torch.float64)
            np.seterr(under="raise")

        def step(self, action: Any) -> Any:
            seen.append((torch.zeros(1).dtype, np.geterr()["under"]))
            return super().step(action)

    before = settings()
    with registered(Double) as env_id:
        env = make_env(env_id)
    env.reset(seed=0)
    for _ in range(3):
        env.step(np.zeros(1, np.float32))
        assert settings() == before
    assert seen == [(torch.float64, "raise")] * 3


def test_settings_of_the_caller_are_unchanged() -> None:
    env = make_env(WALK)
    env.reset(seed=0)
    with torch.no_grad(), torch.device("meta"), np.errstate(all="print"):
        before = settings()
        env.step(np.zeros(1, np.float32))
        assert settings() == before
    assert torch.is_grad_enabled()


# --- Infos --------------------------------------------------------------------


@pytest.mark.parametrize("trouble", ["odd_infos", "alternating_infos"])
@pytest.mark.parametrize("method", ["reset", "step"])
@pytest.mark.parametrize("mode", MODES)
def test_infos_do_not_change_training(trouble: str, method: str, mode: tuple[str, int]) -> None:
    if mode[0] == "async" and trouble == "odd_infos" and method == "reset":
        pytest.skip("one kind of infos is enough in processes of their own")
    rows, collector = collect(mode=mode, trouble=trouble, method=method)
    expected, plain = collect(mode=mode)
    assert torch.equal(rows, expected)
    assert collector.pop_metrics() == plain.pop_metrics()


@pytest.mark.parametrize("trouble", ["odd_infos", "alternating_infos"])
def test_infos_do_not_change_an_evaluation(trouble: str) -> None:
    policy: Any = Watching()
    result, expected = (
        Evaluator(WALK, kwargs, seed=0).evaluate(policy, 3) for kwargs in ({"trouble": trouble}, {})
    )
    assert result.returns == expected.returns


def test_returns_ignore_keys_of_the_info() -> None:
    """With and without the wrapper, the environment's key is not mistaken for the wrapper's."""
    for scale in (1.0, 0.5):
        wrappers = {"reward": {"scale": scale}}
        odd = collect(trouble="odd_infos", wrappers=wrappers)[1]
        assert odd.last_return == collect(wrappers=wrappers)[1].last_return


# --- Errors -------------------------------------------------------------------

WRONG = {
    "error": r"step\(\) failed with ZeroDivisionError: division by zero; fix the environment$",
    "odd_error": r"step\(\) failed with OddError: broken 3; fix the environment$",
    "unprintable": r"step\(\) failed with UnprintableError; fix the environment$",
    "exit": r"step\(\) failed with SystemExit: 0; fix the environment$",
    "none": r"step\(\) failed with TypeError: cannot unpack non-iterable NoneType object; fix",
    "four_values": r"step\(\) failed with ValueError: not enough values to unpack",
    "no_reward": r"step\(\) returns None for the reward, but should return a single number",
    "array_reward": r"step\(\) returns an array of float64 of shape \(1,\) for the reward, but",
    "text_reward": r"step\(\) returns '1.0' for the reward, but should return a single number",
    "huge_reward": r"step\(\) returns a value of type int for the reward, but should",
    "no_flag": r"step\(\) returns None for terminated, but should return True or False",
    "text_flag": r"step\(\) returns 'False' for truncated, but should return True or False",
    "other_shape": r"step\(\) returns an array of float64 of shape \(4,\) for the observation, but",
    "scalar": r"step\(\) returns 1.0 for the .*, but its space declares numbers of shape \(3,\)",
    "objects": r"step\(\) returns an array of object of shape",
    "text": r"step\(\) returns an array of <U1 of shape",
}


@pytest.mark.parametrize("trouble", WRONG)
def test_step_that_fails_later_gets_a_clear_error(trouble: str) -> None:
    with pytest.raises(EnvError, match=f"^at step 14, {WALK}: {WRONG[trouble]}") as caught:
        collect(trouble=trouble, at=14)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("trouble", ["odd_error", "exit", "no_reward", "objects"])
def test_failing_step_in_a_worker_process_gets_a_clear_error(trouble: str) -> None:
    name = rf"{WALK} \(environment [01]\)"
    with pytest.raises(EnvError, match=f"^at step 27, {name}: {WRONG[trouble]}") as caught:
        collect(mode=("async", 2), trouble=trouble, at=14)
    failure = caught.value.__cause__
    assert failure is not None
    assert "_misbehave" in str(failure.__cause__) or trouble == "no_reward" or trouble == "objects"


def test_invalid_transformed_reward_gets_the_same_error() -> None:
    with pytest.raises(EnvError, match="None for the reward, but should return a single number"):
        collect(trouble="no_reward", at=14, wrappers={"reward": {"scale": 0.5}})


def test_nonfinite_reward_is_reported_with_its_step() -> None:
    with pytest.raises(TrainingError, match="the reward of environment 0 is nan at step 14"):
        collect(trouble="nan_reward", at=14)


@pytest.mark.parametrize("mode", MODES)
def test_reset_that_fails_later_gets_a_clear_error(mode: tuple[str, int]) -> None:
    with pytest.raises(EnvError, match=r"^at step \d+, .* reset\(\) failed with ZeroDivisionErr"):
        collect(mode=mode, trouble="error", method="reset", at=3)


def test_failing_evaluation_gets_a_clear_error() -> None:
    policy: Any = Watching()
    for kwargs, sentence in (
        ({"at": 7}, rf"^after 1 steps of an evaluation episode, {WALK}: step\(\) failed with Zer"),
        ({"at": 2, "method": "reset"}, r"^after 0 steps of an evaluation episode, .*reset\(\)"),
    ):
        with pytest.raises(EnvError, match=sentence):
            Evaluator(WALK, {"trouble": "error", **kwargs}, seed=0).evaluate(policy, 3)


def test_failing_recording_gets_a_clear_error() -> None:
    with pytest.raises(EnvError, match=r"^at step 7, .* step\(\) failed with ZeroDivisionError"):
        record_random(WALK, {"trouble": "error", "at": 7}, 20, 0)


def test_failing_rendering_gets_a_clear_error() -> None:
    evaluator = Evaluator(WALK, {"trouble": "error", "method": "render"}, seed=0, render=True)
    policy: Any = Watching()
    with pytest.raises(EnvError, match=r"render\(\) failed with ZeroDivisionError: division"):
        evaluator.evaluate(policy, 1, Recorder(1))


def test_failing_relabeling_gets_a_clear_error() -> None:
    task = read_goal_task(GOALS, EnvConfig(fails=True))
    goals = np.zeros((4, 1), np.float32)
    for _ in range(3):
        task.rewards(goals, goals)
    with pytest.raises(EnvError, match=r"compute_reward\(\) failed with ZeroDivisionError"):
        task.rewards(goals, goals)


@pytest.mark.parametrize("trouble", ["error", "odd_error", "exit"])
@pytest.mark.parametrize("method", ["__init__", "reset", "step"])
def test_immediate_failure_leaves_no_files(
    trouble: str, method: str, small_config: Config, tmp_path: Path
) -> None:
    name = "constructor" if method == "__init__" else rf"first {method}\(\)"
    kwargs = {"trouble": trouble, "method": method}
    with pytest.raises(ConfigError, match=f"^{WALK}: the {name} failed with") as caught:
        train(small_config(env_id=WALK, env_kwargs=kwargs))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("trouble", ["error", "exit"])
def test_failing_close_is_a_warning(
    trouble: str, small_config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    kwargs = {"trouble": trouble, "method": "close"}
    result = train(small_config(env_id=WALK, env_kwargs=kwargs, total_timesteps=40))
    assert result.stop_reason == "completed"
    assert f"\nWarning: {WALK}: close() failed with " in capsys.readouterr().err


def test_failing_close_does_not_hide_an_earlier_error(small_config: Config) -> None:
    class Failing(Walk):
        def close(self) -> None:
            raise RuntimeError("cannot close")

    kwargs = {"trouble": "error", "at": 30}
    with registered(Failing) as env_id, pytest.raises(EnvError, match="ZeroDivisionError"):
        train(small_config(env_id=env_id, env_kwargs=kwargs))


@pytest.mark.parametrize("trouble", ["error", "exit"])
def test_run_with_a_failing_environment_is_marked_failed(
    trouble: str, small_config: Config, tmp_path: Path
) -> None:
    kwargs = {"trouble": trouble, "at": 50}
    with pytest.raises(EnvError, match=r"^at step 50, "):
        train(small_config(env_id=WALK, env_kwargs=kwargs))
    (run_dir,) = (tmp_path / "runs").iterdir()
    info = json.loads((run_dir / "run.json").read_text())
    assert info["state"] == "failed"
    assert "at step 50" in info["error"]
    assert (run_dir / "checkpoints" / "step_000000040").is_dir()


# --- Render modes -------------------------------------------------------------


@pytest.mark.parametrize("env_id", [WALK, "Pendulum-v1"])
def test_unknown_render_mode_is_rejected(env_id: str) -> None:
    with pytest.raises(
        ConfigError,
        match=f"^env_kwargs.render_mode = 'nope': the render modes of {env_id} are: human",
    ):
        examine_env(env_id, EnvConfig(render_mode="nope"))


@pytest.mark.parametrize("mode", ["rgb_array", "rgb_array_list", None])
def test_render_modes_that_gymnasium_adds_are_accepted(mode: str | None) -> None:
    assert examine_env(WALK, EnvConfig(render_mode=mode))[0].obs_dim == 3

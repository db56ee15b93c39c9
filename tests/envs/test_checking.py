"""Invalid environments raise one sentence before files are written; odd ones cause a warning."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from rl_training.api import train
from rl_training.envs import EnvConfig, examine_env
from rl_training.errors import ConfigError
from rl_training.runtime.logging import read_metrics
from tests import goal_envs

ENV = "tests/Mine-v0"
HOME = np.zeros(3, dtype=np.float32)


class Sound(gym.Env[Any, Any]):
    """A valid environment."""

    observation_space: Any = gym.spaces.Box(-10.0, 10.0, (3,), np.float32)
    action_space: Any = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return HOME, {}

    def step(self, action: Any) -> Any:
        return HOME, 1.0, False, False, {}


class OldStep(Sound):
    def step(self, action: Any) -> Any:
        return HOME, 1.0, False, {}


class NoSeed(Sound):
    def reset(self) -> Any:  # type: ignore[override]
        return HOME, {}


class NoOptions(Sound):
    def reset(self, seed: int | None = None) -> Any:  # type: ignore[override]
        return HOME, {}


class ObservationAlone(Sound):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return HOME


class ArrayReward(Sound):
    def step(self, action: Any) -> Any:
        return HOME, np.array([1.0]), False, False, {}


class NoReward(Sound):
    def step(self, action: Any) -> Any:
        return HOME, None, False, False, {}


class WrongShape(Sound):
    def step(self, action: Any) -> Any:
        return np.zeros(4), 1.0, False, False, {}


class WrongFirstShape(Sound):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros((3, 1)), {}


class NoFlag(Sound):
    def step(self, action: Any) -> Any:
        return HOME, 1.0, None, False, {}


class NoInfo(Sound):
    def step(self, action: Any) -> Any:
        return HOME, 1.0, False, False, None


class Broken(Sound):
    def step(self, action: Any) -> Any:
        raise KeyError("power")


class NoSpace(Sound):
    observation_space = None


class HalfGoal(Sound):
    """A goal environment whose step omits one part."""

    observation_space = gym.spaces.Dict(
        {
            key: gym.spaces.Box(-1.0, 1.0, (2,))
            for key in ("observation", "achieved_goal", "desired_goal")
        }
    )

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return {key: np.zeros(2) for key in self.observation_space}, {}

    def step(self, action: Any) -> Any:
        return {"observation": np.zeros(2), "desired_goal": np.zeros(2)}, 0.0, False, False, {}


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    gym.registry.pop(ENV, None)


def register(make: Callable[[], gym.Env[Any, Any]], limit: int | None = 50) -> None:
    gym.register(ENV, entry_point=lambda **_: make(), max_episode_steps=limit)


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (
            OldStep,
            r"step\(\) returns 4 values .the interface of Gym before 0.26., but should return five",
        ),
        (NoSeed, "NoSeed.reset does not accept seed and options: define it as reset"),
        (NoOptions, "NoOptions.reset does not accept options: define it as reset"),
        (ObservationAlone, r"reset\(\) returns only the observation, but should return two values"),
        (
            ArrayReward,
            r"an array of float64 of shape \(1,\) for the reward, but should return a single",
        ),
        (NoReward, "None for the reward, but should return a single number"),
        (
            WrongShape,
            r"step\(\) returns an array of .*shape \(4,\).* declares numbers of shape \(3,\)",
        ),
        (WrongFirstShape, r"reset\(\) returns an array of float64 of shape \(3, 1\)"),
        (NoFlag, "None for terminated, but should return True or False"),
        (NoInfo, r"step\(\) returns None for info, but should return a dict"),
        (Broken, r"the first step\(\) failed with KeyError: 'power'"),
        (NoSpace, "has no observation_space: set self.observation_space"),
    ],
)
def test_invalid_environment_gets_a_clear_error_before_any_write(
    kind: type[Sound], sentence: str, small_config: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    register(kind)
    with pytest.raises(ConfigError, match=rf"(?s)^{ENV}:? .*{sentence}") as caught:
        train(small_config(env_id=ENV))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "runs").exists()


def test_error_inside_a_wrapper_is_found() -> None:
    register(lambda: gym.wrappers.RecordEpisodeStatistics(OldStep()))
    with pytest.raises(ConfigError, match=r"step\(\) returns 4 values"):
        examine_env(ENV, EnvConfig())


def test_wrapper_may_fix_an_old_environment() -> None:
    class Mended(gym.Wrapper[Any, Any, Any, Any]):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return self.env.reset()

    register(lambda: Mended(NoSeed()))
    assert examine_env(ENV, EnvConfig())[0].obs_dim == 3


def test_each_part_of_a_goal_observation_is_checked() -> None:
    register(HalfGoal)
    with pytest.raises(ConfigError, match="a dict of observation, desired_goal for the observ"):
        examine_env(ENV, EnvConfig())
    goal_envs.register()
    assert examine_env("rl_training/PointGoal-v0", EnvConfig())[0].goal_dim == 2


def test_check_does_one_reset_and_one_step() -> None:
    calls = []

    class Counted(Sound):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            calls.append("reset")
            return super().reset(seed=seed)

        def step(self, action: Any) -> Any:
            calls.append("step")
            assert self.action_space.contains(action)
            return super().step(action)

        def close(self) -> None:
            calls.append("close")

    register(Counted)
    examine_env(ENV, EnvConfig())
    assert calls == ["reset", "step", "close"]


def test_check_leaves_global_generators_unchanged() -> None:
    class Gambling(Sound):
        def step(self, action: Any) -> Any:
            reward = np.random.random() + random.random() + float(torch.rand(()))
            return HOME, reward, False, False, {}

    def draw() -> list[float]:
        return [np.random.random(), random.random(), float(torch.rand(()))]

    def seed() -> None:
        np.random.seed(0)
        random.seed(0)
        torch.manual_seed(0)

    register(Gambling)
    seed()
    expected = draw()
    seed()
    examine_env(ENV, EnvConfig())
    assert draw() == expected


def test_observation_outside_its_bounds_causes_a_note() -> None:
    class Far(Sound):
        def step(self, action: Any) -> Any:
            return np.array([0.0, 300.0, 0.0]), 1.0, False, False, {}

    register(Far)
    _, notes = examine_env(ENV, EnvConfig())
    assert notes == (
        f"{ENV}: entry 1 of an observation is 300, outside the bounds [-10, 10] of its space.",
    )


def test_evaluating_without_a_time_limit_gives_a_note(
    small_config: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    class Ends(Sound):
        time = 0

        def step(self, action: Any) -> Any:
            self.time += 1
            return HOME, 1.0, self.time % 20 == 0, False, {}

    register(Ends, limit=None)
    train(small_config(env_id=ENV, eval_episodes=1, total_timesteps=40))
    assert f"Warning: {ENV} has no time limit, so an evaluation waits" in capsys.readouterr().err
    train(small_config(env_id=ENV, eval_episodes=0, total_timesteps=40))
    kwargs = {"max_episode_steps": 30}
    train(small_config(env_id=ENV, eval_episodes=1, total_timesteps=40, env_kwargs=kwargs))
    assert "time limit" not in capsys.readouterr().err


@pytest.mark.parametrize("limit", [30, None])
def test_time_limit_is_found_in_any_layer(limit: int | None) -> None:
    register(lambda: Sound() if limit else gym.wrappers.TimeLimit(Sound(), 30), limit)
    assert examine_env(ENV, EnvConfig(), evaluated=True)[1] == ()


@pytest.mark.parametrize(
    "wrapper", [gym.wrappers.NormalizeObservation, gym.wrappers.NormalizeReward]
)
def test_running_statistics_give_a_note(
    wrapper: Any, small_config: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    register(lambda: wrapper(Sound()))
    result = train(small_config(env_id=ENV, eval_episodes=0, total_timesteps=40))
    told = capsys.readouterr().err
    assert f"Warning: {wrapper.__name__} in {ENV} keeps running statistics" in told
    assert list(read_metrics(result.run_dir))

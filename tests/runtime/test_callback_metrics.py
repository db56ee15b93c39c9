"""Callbacks: own metrics, what they see of a step, and runs that stop and continue."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from rl_training import SAC, Callback, resume, train
from rl_training.api.training import warn
from rl_training.errors import ConfigError
from rl_training.runtime.logging import read_metrics
from rl_training.runtime.session import ReadOnlyMetrics, Session
from tests.comparing import untimed_metrics

Config = Callable[..., dict[str, Any]]


class Logs(Callback):
    """Logs given values at one step."""

    def __init__(self, values: Mapping[str, Any], step: int = 40) -> None:
        self.values, self.step = values, step

    def on_step(self, session: Session) -> None:
        if session.state.step == self.step:
            session.log(self.values)


def own_rows(run_dir: Path) -> list[dict[str, Any]]:
    return [row for row in untimed_metrics(run_dir) if any(key.startswith("my/") for key in row)]


def test_own_metrics_are_written_for_the_current_step(small_config: Config) -> None:
    values = {
        "my/int": 3,
        "my/float": 0.5,
        "my/numpy": np.float32(1.5),
        "my/array": np.array(2.0),
        "my/tensor": torch.tensor(2.5, requires_grad=True),
        "my/flag": np.bool_(True),
    }
    result = train(small_config(total_timesteps=60), callbacks=[Logs(values)])
    assert own_rows(result.run_dir) == [
        {
            "step": 40,
            "my/int": 3.0,
            "my/float": 0.5,
            "my/numpy": 1.5,
            "my/array": 2.0,
            "my/tensor": 2.5,
            "my/flag": 1.0,
        }
    ]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"my/vector": np.zeros(2)}, "my/vector = "),
        ({"my/tensor": torch.zeros(2)}, "my/tensor = "),
        ({"my/text": "3"}, "my/text = '3', but a value should be a single number"),
        ({"my/none": None}, "my/none = None"),
        ({"step": 1}, "the name 'step'"),
        ({"": 1}, "the name ''"),
        ({3: 1}, "the name 3"),
        (["my/metric", 1], "session.log received ['my/metric', 1]: pass a mapping"),
    ],
    ids=["array", "tensor", "text", "none", "step", "empty", "number", "list"],
)
def test_values_that_cannot_be_logged_are_one_sentence(
    small_config: Config, values: Any, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        train(small_config(total_timesteps=60), callbacks=[Logs(values)])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


class Listens(Callback):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_message(self, session: Session, text: str) -> None:
        self.heard.append(text)


def test_values_that_are_not_finite_are_left_out_with_one_message(small_config: Config) -> None:
    class LogsNaN(Callback):
        def on_step(self, session: Session) -> None:
            session.log({"my/nan": float("nan"), "my/one": 1.0})

    listener = Listens()
    result = train(small_config(total_timesteps=45), callbacks=[LogsNaN(), listener])
    assert {tuple(row) for row in own_rows(result.run_dir)} == {("step", "my/one")}
    assert [text for text in listener.heard if "my/nan" in text] == [
        "my/nan is nan at step 1: values that are not finite are not logged."
    ]


@pytest.mark.parametrize("hook", ["on_log", "on_evaluation"])
@pytest.mark.parametrize(
    "change",
    [
        lambda metrics: metrics.__setitem__("my/metric", 1.0),
        lambda metrics: metrics.update(a=1.0),
        lambda metrics: metrics.pop("updates", None),
        lambda metrics: metrics.clear(),
    ],
    ids=["set", "update", "pop", "clear"],
)
def test_metrics_of_a_hook_are_read_only(
    small_config: Config, hook: str, change: Callable[[Any], object]
) -> None:
    def write(self: Callback, session: Session, metrics: Any) -> None:
        change(metrics)

    callback = type("Writes", (Callback,), {hook: write})()
    with pytest.raises(TypeError, match=r"read-only.*session\.log"):
        train(small_config(total_timesteps=60, eval_episodes=1), callbacks=[callback])


def test_copies_of_a_hooks_metrics_are_ordinary() -> None:
    """A callback may send them to another process."""
    metrics = ReadOnlyMetrics({"a": 1.0})
    for copied in (copy.copy(metrics), copy.deepcopy(metrics), pickle.loads(pickle.dumps(metrics))):
        assert type(copied) is dict
        copied["b"] = 2.0
    assert metrics == {"a": 1.0}


# --- What a callback sees of a step ---------------------------------------------


class Counts(gym.Env[Any, Any]):
    """Episodes of three or four steps; the reward is the step, the info says which."""

    observation_space = gym.spaces.Box(-10.0, 10.0, (2,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    episode = -1
    count = 0

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode += 1
        self.count = 0
        return np.zeros(2, np.float32), {"count": -1}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        ended = self.count == 3 + self.episode % 2
        info = {"count": self.count, "episode": self.episode, "word": "abc"}
        return np.full(2, self.count, np.float32), float(self.count), ended, False, info


gym.register("CountsForCallbacks-v0", entry_point=f"{__name__}:Counts")


class Watches(Callback):
    def __init__(self) -> None:
        self.infos: list[Any] = []
        self.rewards: list[Any] = []
        self.terminations: list[Any] = []
        self.episodes: list[Any] = []

    def on_step(self, session: Session) -> None:
        assert session.collector is not None
        latest = session.collector.latest
        assert latest is not None
        self.infos.append([dict(info) for info in latest.infos])
        self.rewards.append(latest.rewards.tolist())
        self.terminations.append(latest.terminations.tolist())
        self.episodes += latest.episodes
        assert not latest.truncations.any()


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_callbacks_see_rewards_infos_and_episode_ends(
    small_config: Config, vectorization: str
) -> None:
    watching = Watches()
    config = small_config(
        env_id="CountsForCallbacks-v0",
        num_envs=2,
        total_timesteps=14,
        eval_episodes=0,
        env_kwargs={"vectorization": vectorization},
    )
    train(config, callbacks=[watching])
    steps = [1, 2, 3, 1, 2, 3, 4]  # an episode of three steps, then one of four
    assert watching.rewards == [[float(step)] * 2 for step in steps]
    counted = [[info["count"] for info in infos] for infos in watching.infos]
    assert counted == [[step] * 2 for step in steps]
    assert watching.infos[2][0]["episode"] == watching.infos[0][0]["episode"]
    assert watching.infos[0][0]["word"] == "abc"
    assert watching.terminations == [[index in (2, 6)] * 2 for index in range(7)]
    ends = [(0, 6.0, 3), (1, 6.0, 3), (0, 10.0, 4), (1, 10.0, 4)]
    assert [tuple(episode) for episode in watching.episodes] == ends


# --- Runs that stop and continue --------------------------------------------------


class StopsAt(Callback):
    """Requests a stop once, and counts the evaluations across a resume."""

    def __init__(self, step: int) -> None:
        self.step, self.evaluations = step, 0

    def on_step(self, session: Session) -> None:
        if session.state.step == self.step:
            session.state.request_stop("enough")

    def on_evaluation(self, session: Session, metrics: Mapping[str, float]) -> None:
        self.evaluations += 1

    def state_dict(self) -> dict[str, Any]:
        return {"evaluations": self.evaluations}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.evaluations = state["evaluations"]


INTERVALS = {"log_interval": 20, "eval_episodes": 1, "checkpoint_interval": 50}


def test_requested_stop_and_resume_give_the_metrics_of_one_run(
    small_config: Config, tmp_path: Path
) -> None:
    def config(folder: str) -> dict[str, Any]:
        return small_config(
            total_timesteps=120,
            output_dir=str(tmp_path / folder),
            algo_kwargs={"eval_interval": 40},
            env_kwargs={"max_episode_steps": 7},
            **INTERVALS,
        )

    whole = train(config("whole"), callbacks=[StopsAt(-1)])
    stopped = train(config("parts"), callbacks=[StopsAt(53)])
    assert stopped.stop_reason == "enough"
    assert [row["step"] for row in read_metrics(stopped.run_dir)][-1] == 53
    counting = StopsAt(-1)
    again = resume(stopped.run_dir, callbacks=[counting], on_warning=warn)
    assert untimed_metrics(again.run_dir) == untimed_metrics(whole.run_dir)
    assert counting.evaluations == 3


@pytest.mark.parametrize(("first", "num_envs"), [(33, 1), (40, 1), (50, 1), (50, 4)])
def test_learning_in_two_parts_gives_the_metrics_of_one(
    tmp_path: Path, first: int, num_envs: int
) -> None:
    """Also if the first part ends where a line, an evaluation or a checkpoint is due anyway.

    Four environments make 52 steps in the first part, and the second one ends at step 120.
    """

    def model(folder: str) -> SAC:
        options: dict[str, Any] = dict(INTERVALS)
        return SAC(
            "Pendulum-v1",
            learning_starts=10,
            batch_size=8,
            hidden_sizes=(8,),
            buffer_capacity=200,
            output_dir=str(tmp_path / folder),
            num_threads=1,
            eval_interval=40,
            logging={"tensorboard": False},
            early_stopping={"patience": 4},
            schedule_horizon=120,
            num_envs=num_envs,
            **options,
        )

    whole = model("whole").learn(120)
    parts = model("parts").learn(first)
    assert parts.run_dir is not None
    assert whole.run_dir is not None
    last = [row for row in read_metrics(parts.run_dir) if row["step"] == parts.checkpoint.step]
    assert any("eval_return_mean" in row for row in last), "a finished run is evaluated"
    assert any("updates" in row for row in last), "a finished run logs its last line"
    parts.learn(120 - first)
    assert untimed_metrics(parts.run_dir) == untimed_metrics(whole.run_dir)
    files = ("model.safetensors", "optimizers.safetensors")
    for name in files:
        one, two = (m.checkpoint.path / name for m in (whole, parts))
        assert one.read_bytes() == two.read_bytes()


def test_offline_training_in_two_parts_gives_the_metrics_of_one(
    small_config: Config, tmp_path: Path
) -> None:
    def config(folder: str, steps: int) -> dict[str, Any]:
        return small_config(
            algo="bc",
            total_timesteps=steps,
            output_dir=str(tmp_path / folder),
            algo_kwargs={"eval_interval": 40, "schedule_horizon": 110},
            **INTERVALS,
        )

    whole = train(config("whole", 110))
    parts = train(config("parts", 53))
    again = resume(parts.run_dir, ["total_timesteps=110"])
    assert untimed_metrics(again.run_dir) == untimed_metrics(whole.run_dir)


def test_every_call_of_learn_trains(tmp_path: Path) -> None:
    """Also if the steps past the budget are more than the call asks for."""
    model = SAC(
        "Pendulum-v1",
        num_envs=4,
        learning_starts=10,
        hidden_sizes=(8,),
        output_dir=str(tmp_path),
        num_threads=1,
        eval_episodes=0,
    )
    steps = [model.learn(total).checkpoint.step for total in (5, 1, 1, 6)]
    assert steps == [8, 12, 16, 20]

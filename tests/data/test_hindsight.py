"""Hindsight replay: goals, rewards and episodes against the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_training.algorithms.sac import SACAlgorithm, SACConfig
from rl_training.data import HindsightReplay, replay_buffer
from rl_training.envs import (
    POINT_GOAL,
    EnvConfig,
    describe_env,
    make_training_envs,
    read_goal_task,
)
from rl_training.errors import ConfigError
from rl_training.experiment.build import build_algorithm, build_collector, build_replay
from rl_training.experiment.config import make_config
from rl_training.experiment.task import check_config
from rl_training.rewards import RewardTransformConfig
from rl_training.runtime.acting import Explorer
from rl_training.runtime.collector import Collector
from rl_training.types import Batch, FloatArray
from tests import goal_envs
from tests.reference import her as reference

D, G, A = 3, 2, 1  # sizes of observation, goal, action
COUNTING = "tests/CountingGoals-v0"
STRATEGIES = ("future", "final", "episode")


class Task:
    """Return success within a distance that some of the random goals have."""

    def __init__(self, terminates: bool = True) -> None:
        self.terminates = terminates
        self.calls = 0

    def rewards(self, achieved: FloatArray, desired: FloatArray) -> FloatArray:
        self.calls += 1
        return np.where(np.abs(achieved - desired).max(-1) < 0.7, 0.0, -1.0).astype(np.float32)

    def terminations(self, achieved: FloatArray, desired: FloatArray) -> Any:
        return self.rewards(achieved, desired) == 0 if self.terminates else None


class Story:
    """Adds random episodes of several environments to a replay and to the reference."""

    def __init__(self, steps: int, num_envs: int, seed: int, end: float, **options: Any) -> None:
        self.task = options.setdefault("task", Task())
        self.capacity = max(options.pop("capacity", 10_000), num_envs)
        self.options = options | {"goal_dim": G, "num_envs": num_envs}
        self.replay = self.empty()
        self.history: list[reference.Transition] = []
        rng = np.random.default_rng(seed)
        for _ in range(steps):
            rows = rng.normal(size=(2, num_envs, D + 2 * G)).astype(np.float32)
            actions = rng.uniform(-1, 1, (num_envs, A)).astype(np.float32)
            rewards = rng.normal(size=num_envs).astype(np.float32)
            flags = rng.uniform(size=(2, num_envs)) < end / 2
            self.replay.add(rows[0], actions, rewards, rows[1], flags[0], flags[1])
            for env in range(num_envs):
                old, new = rows[0, env], rows[1, env]
                self.history.append(
                    reference.Transition(
                        *(env, old[:D], old[D : D + G], actions[env], float(rewards[env])),
                        *(new[:D], new[D : D + G], new[D + G :]),
                        *(bool(flags[0, env]), bool(flags[:, env].any())),
                    )
                )

    def empty(self) -> HindsightReplay:
        return HindsightReplay(self.capacity, D + G, A, **self.options)

    def expect(self, replay: HindsightReplay, batch_size: int = 40, seed: int = 0) -> None:
        """Assert that a batch of ``replay`` equals the reference's exactly."""
        uniform = torch.rand(
            3, batch_size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
        )
        task = self.task
        expected = reference.sample(
            self.history,
            uniform.numpy(),
            capacity=self.capacity,
            strategy=replay.strategy,
            ratio=replay.ratio,
            reward=lambda achieved, goal: float(task.rewards(achieved[None], goal[None])[0]),
            terminated=(
                (lambda achieved, goal: task.terminations(achieved[None], goal[None])[0])
                if task.terminates
                else None
            ),
        )
        batch = replay.sample(batch_size, torch.Generator().manual_seed(seed))
        assert_equal(batch, expected)


def assert_equal(batch: Batch, expected: list[reference.Transition]) -> None:
    np.testing.assert_array_equal(
        batch.obs.numpy(), np.stack([np.concatenate([t.observation, t.goal]) for t in expected])
    )
    following = [np.concatenate([t.next_observation, t.next_goal]) for t in expected]
    np.testing.assert_array_equal(batch.next_obs.numpy(), np.stack(following))
    np.testing.assert_array_equal(batch.actions.numpy(), np.stack([t.action for t in expected]))
    np.testing.assert_array_equal(
        batch.rewards.numpy(), np.array([t.reward for t in expected], dtype=np.float32)
    )
    np.testing.assert_array_equal(batch.terminations.numpy(), [t.terminated for t in expected])


@settings(deadline=None, max_examples=60)
@given(
    steps=st.integers(1, 40),
    num_envs=st.integers(1, 4),
    capacity=st.integers(1, 60),
    seed=st.integers(0, 1000),
    end=st.sampled_from([0.0, 0.1, 0.4, 1.0]),
    strategy=st.sampled_from(STRATEGIES),
    ratio=st.sampled_from([0.0, 0.5, 0.8, 1.0]),
    terminates=st.booleans(),
)
def test_batches_match_the_reference(
    steps: int, num_envs: int, capacity: int, seed: int, end: float, **options: Any
) -> None:
    """For any episodes, environments and wrap-around."""
    task = Task(options.pop("terminates"))
    story = Story(steps, num_envs, seed, end, capacity=capacity, task=task, **options)
    story.expect(story.replay, seed=seed)


@settings(deadline=None, max_examples=30)
@given(
    steps=st.integers(1, 30),
    num_envs=st.integers(1, 3),
    capacity=st.integers(1, 50),
    seed=st.integers(0, 1000),
    strategy=st.sampled_from(STRATEGIES),
)
def test_restored_segments_give_the_same_batches(
    steps: int, num_envs: int, capacity: int, seed: int, strategy: str
) -> None:
    """Save by segments, restore and continue."""
    original = replay_buffer.SEGMENT_ROWS
    replay_buffer.SEGMENT_ROWS = 8
    try:
        story = Story(steps, num_envs, seed, 0.3, capacity=capacity, strategy=strategy)
        copy = story.empty()
        copy.load_state_dict(story.replay.state_dict())
        assert story.replay.dirty == set(range(copy.num_segments()))
        for index in range(copy.num_segments()):
            copy.load_segment(index, story.replay.segment(index).copy())
        story.expect(copy)
        further = np.ones((num_envs, D + 2 * G), np.float32), np.ones((num_envs, A), np.float32)
        flags = np.arange(num_envs) == 0, np.arange(num_envs) > 1
        for replay in (story.replay, copy):
            replay.add(*further, np.zeros(num_envs, np.float32), further[0], *flags)
        batches = [r.sample(30, torch.Generator().manual_seed(1)) for r in (story.replay, copy)]
        assert all(torch.equal(a, b) for a, b in zip(*(x.tensors() for x in batches), strict=True))
    finally:
        replay_buffer.SEGMENT_ROWS = original


# --- Choice of goals ----------------------------------------------------------


def collect(steps: int, num_envs: int, env_id: str = COUNTING, **options: Any) -> Any:
    """Collect rows of an environment that achieves (episode, time)."""
    goal_envs.register()
    config = EnvConfig(**options.pop("env_kwargs", {}))
    spec = describe_env(env_id, config)
    replay = HindsightReplay(
        options.pop("capacity", 1000),
        spec.obs_dim,
        spec.action_dim,
        goal_dim=spec.goal_dim,
        num_envs=num_envs,
        task=read_goal_task(env_id, config),
        **options,
    )
    learner = SACAlgorithm.build(spec, SACConfig(hidden_sizes=(8,)))
    envs = make_training_envs(env_id, config, num_envs)
    explorer = Explorer(learner, num_envs, torch.Generator().manual_seed(0))
    collector = Collector(envs, explorer, replay, spec, seed=0)
    collector.reset()
    for step in range(steps):
        collector.request_actions(random=step % 2 == 0)
        collector.step(step)
    collector.close()
    return replay


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("capacity", [1000, 37])
def test_goals_come_from_the_same_episode_and_the_strategys_range(
    strategy: str, capacity: int
) -> None:
    replay = collect(50, 3, strategy=strategy, ratio=1.0, capacity=capacity)
    batch = replay.sample(3000, torch.Generator().manual_seed(0))
    episode, time, goal_episode, goal_time = batch.obs.numpy().T
    relabeled = goal_episode >= 0
    last = 3 + episode % 3
    running = episode == episode.max()  # 50 steps: the last episodes are unfinished
    assert (relabeled == ~running).all()
    assert (goal_episode[relabeled] == episode[relabeled]).all()
    earliest = {"future": time + 1, "final": last, "episode": 0 * time + 1}[strategy]
    assert (goal_time >= earliest)[relabeled].all()
    assert (goal_time <= last)[relabeled].all()
    pairs = set(zip(time[relabeled], goal_time[relabeled], strict=True))
    if strategy == "future":  # including the state that follows the action
        assert {(0.0, 1.0), (0.0, 5.0), (4.0, 5.0)} <= pairs
    if strategy == "episode":
        assert {(0.0, 5.0), (4.0, 1.0)} <= pairs
    np.testing.assert_array_equal(batch.obs[:, 2:], batch.next_obs[:, 2:])
    reached = goal_time == time + 1
    np.testing.assert_array_equal(batch.rewards[relabeled], (reached - 1.0)[relabeled])


def test_future_goals_are_uniform() -> None:
    replay = collect(12, 1, ratio=1.0)  # episodes of 3, 4 and 5 steps
    batch = replay.sample(30_000, torch.Generator().manual_seed(0))
    episode, time, _, goal_time = batch.obs.numpy().T
    drawn = goal_time[(episode == 2) & (time == 1)]
    counts = np.bincount(drawn.astype(int))[2:]
    assert len(counts) == 4
    assert np.abs(counts - len(drawn) / 4).max() < 5 * (len(drawn) * 0.25 * 0.75) ** 0.5


@pytest.mark.parametrize("ratio", [0.3, 0.8])
def test_ratio_is_exact_in_expectation(ratio: float) -> None:
    replay = collect(12, 2, ratio=ratio)
    batch = replay.sample(20_000, torch.Generator().manual_seed(0))
    share = float((batch.obs[:, 2] >= 0).double().mean())
    assert abs(share - ratio) < 5 * (ratio * (1 - ratio) / 20_000) ** 0.5


def test_ratio_of_zero_equals_a_plain_replay() -> None:
    story = Story(30, 2, 0, 0.3, ratio=0.0)
    story.expect(story.replay)
    assert story.task.calls == 0


def test_truncated_episode_is_not_continued() -> None:
    replay = collect(5, 2, ratio=1.0, strategy="final")  # 3 steps, then 2 of 4
    replay.cut_episodes(2)
    row = np.full((2, 6), 9.0, np.float32)
    zeros = np.zeros(2, np.float32)
    replay.add(row, np.zeros((2, 1), np.float32), zeros, row, zeros > 0, zeros > 0)
    batch = replay.sample(500, torch.Generator().manual_seed(0))
    episode, _, goal_episode, goal_time = batch.obs.numpy().T
    assert set(goal_time[episode == 1]) == {2.0}
    assert set(goal_episode[episode == 9]) == {
        9.0
    }  # the original goal, since this episode continues
    assert set(replay.rows[:12, -1].tolist()) == {0.0, 1.0}


def test_block_contains_the_batches_of_its_updates_in_order() -> None:
    """Batches of one size always use the same memory, which a graph reads again."""
    story = Story(30, 2, 0, 0.3)
    one, two = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)
    singles = [story.replay.sample(16, one).map(torch.clone) for _ in range(3)]
    story.replay.prepare(16, two, 3)
    block = story.replay.gather(16, two, 3)
    for index, single in enumerate(singles):
        part = slice(16 * index, 16 * (index + 1))
        assert all(
            torch.equal(a[part], b) for a, b in zip(block.tensors(), single.tensors(), strict=True)
        )
    assert len({tuple(row) for row in block.obs.tolist()}) > 20
    place = block.obs.data_ptr()
    story.replay.prepare(16, two, 1)
    story.replay.prepare(16, two, 3)
    assert story.replay.gather(16, two, 3).obs.data_ptr() == place
    assert not torch.equal(block.obs[:16], singles[0].obs)


def test_rows_of_another_number_of_environments_are_rejected() -> None:
    story = Story(1, 2, 0, 0.0)
    row = np.zeros((3, D + 2 * G), np.float32)
    flags = np.zeros(3, bool)
    with pytest.raises(ValueError, match=r"3 transitions, .* a multiple of num_envs = 2"):
        story.replay.add(row, row[:, :A], row[:, 0], row, flags, flags)
    with pytest.raises(ValueError, match="empty"):
        story.empty().sample(1, torch.Generator())


# --- Rewards and terminations -------------------------------------------------


@pytest.mark.parametrize("terminates", [False, True])
def test_relabeled_rows_match_the_environment(terminates: bool) -> None:
    kwargs = {"terminates": terminates}
    replay = collect(400, 2, POINT_GOAL, ratio=1.0, env_kwargs=kwargs)
    batch = replay.sample(2000, torch.Generator().manual_seed(0))
    env: Any = gym.make(POINT_GOAL, **kwargs).unwrapped
    achieved, goals = batch.next_obs[:, :2].numpy(), batch.next_obs[:, 4:].numpy()
    rewards = env.compute_reward(achieved, goals, {})
    np.testing.assert_array_equal(batch.rewards.numpy(), rewards)
    assert 0.02 < (rewards == 0).mean() < 0.5
    expected = (rewards == 0) & terminates
    np.testing.assert_array_equal(batch.terminations.numpy(), expected)
    np.testing.assert_array_equal(batch.obs[:, 4:], batch.next_obs[:, 4:])


def test_reward_wrappers_reach_relabeled_rewards() -> None:
    transform = {"scale": 3.0, "shift": 1.0, "clip_min": -1.5}
    replay = collect(12, 1, ratio=0.5, env_kwargs={"wrappers": {"reward": transform}})
    batch = replay.sample(500, torch.Generator().manual_seed(0))
    assert set(batch.rewards.tolist()) == {1.0, -1.5}
    raw = np.where(batch.rewards.numpy() == 1.0, 0.0, -1.0)
    np.testing.assert_array_equal(RewardTransformConfig(**transform)(raw), batch.rewards)


@pytest.mark.parametrize("kind", ["SingleGoals", "JointGoals"])
def test_functions_for_a_single_goal_are_called_for_each_goal(kind: str) -> None:
    goal_envs.register()
    task = read_goal_task(f"tests/{kind}-v0", EnvConfig())
    goals = np.array([[0, 0], [1, 0], [2, 2]], np.float32)
    wanted = np.array([[0, 0], [9, 0], [2, 2]], np.float32)
    assert task.rewards(goals, wanted).tolist() == [0.0, -1.0, 0.0]
    terminations = task.terminations(goals, wanted)
    assert terminations is not None
    assert terminations.tolist() == [True, False, True]
    counting = read_goal_task(COUNTING, EnvConfig())
    assert counting.terminations(goals, wanted) is None


def test_actions_are_computed_on_the_learners_device(
    small_config: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replay stays in host memory for any device of the learner."""
    task = check_config(make_config(small_config(algo="her")))
    learner = build_algorithm(task.config, task.spec, torch.device("cpu"))
    learner.obs_shift = learner.obs_shift.to("meta")
    replay = build_replay(task.config, task.spec, torch.device("cpu"))
    asked: list[str] = []
    made = torch.Generator

    def generator(device: Any = "cpu") -> torch.Generator:
        asked.append(str(device))
        return made()

    monkeypatch.setattr(torch, "Generator", generator)
    build_collector(task, learner, replay, "eager").close()
    assert asked == ["meta"]


@pytest.mark.parametrize(("num_envs", "capacity"), [(1, 1000), (3, 40), (2, 31)])
@pytest.mark.parametrize("terminates", [False, True])
def test_declared_fields_come_from_the_same_episode(
    num_envs: int, capacity: int, terminates: bool
) -> None:
    """The next action is the recorded one, unless the new goal ends the episode earlier."""
    story = Story(40, num_envs, 3, 0.2, capacity=capacity, task=Task(terminates), ratio=0.7)
    replay, history = story.replay, story.history
    fields = ("next_actions", "next_action_mask", "truncations", "indices", "discounts", "weights")
    replay.supply(fields, gamma=0.5)
    batch = replay.sample(300, torch.Generator().manual_seed(0))
    for place in range(300):
        index = int(batch.indices[place])
        row = max(i for i in range(len(history)) if i % capacity == index)
        assert np.array_equal(batch.actions[place], history[row].action)
        ended = history[row].ended or bool(batch.terminations[place])
        known = row + num_envs < len(history) and not ended
        assert float(batch.next_action_mask[place]) == known
        following = history[row + num_envs].action if known else np.zeros(A)
        assert np.array_equal(batch.next_actions[place], following)
    assert (batch.terminations * (1 - batch.next_action_mask)).sum() == batch.terminations.sum()
    assert set(batch.discounts.tolist()) == {0.5}
    assert set(batch.weights.tolist()) == {1.0}
    places = batch.indices.data_ptr(), batch.next_actions.data_ptr()
    replay.prepare(300, torch.Generator().manual_seed(1))
    again = replay.gather(300, torch.Generator())
    assert (again.indices.data_ptr(), again.next_actions.data_ptr()) == places


def test_settings_that_relabeling_would_break_are_rejected() -> None:
    replay = Story(3, 1, 0, 0.0).replay
    with pytest.raises(ConfigError, match="'returns_to_go', which experience"):
        replay.supply(("returns_to_go",))
    with pytest.raises(ConfigError, match="n_step = 3 cannot be used with HER"):
        replay.supply((), n_step=3)

"""MultiDiscrete actions: behavior cloning of several independent numbers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch.distributions import Categorical

from rl_training import BC, IQL, SAC, finetune, resume
from rl_training.algorithms.bc import BCAlgorithm, BCConfig
from rl_training.algorithms.fqe import FittedQ, FQEConfig
from rl_training.envs import ActionScaler, EnvConfig, describe_env
from rl_training.errors import CheckpointError, ConfigError
from rl_training.experiment.saved_run import SavedRun
from rl_training.models.categorical import MultiCategoricalActor
from rl_training.runtime.checkpointing import MODEL
from rl_training.runtime.recording import record_random
from rl_training.types import EnvSpec
from tests.faults.runs import forge

CHOICES, STARTS = (3, 4), (0, -2)


class Copying(gym.Env[Any, Any]):
    """Rewards each number of the action that equals that of the observation."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.MultiDiscrete(list(CHOICES))
        self.action_space = gym.spaces.MultiDiscrete(list(CHOICES), start=list(STARTS))
        self.time, self.shown = 0, np.zeros(2, dtype=np.int64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time, self.shown = 0, self.np_random.integers(CHOICES)
        return self.shown, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        reward = float((action - np.array(STARTS) == self.shown).sum())
        self.time, self.shown = self.time + 1, self.np_random.integers(CHOICES)
        return self.shown, reward, False, self.time >= 10, {}


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    """Return random observations with the best actions."""
    arrays = record_random(Copying, {}, size=300, seed=0)
    numbers = np.split(arrays["observations"], [CHOICES[0]], axis=1)
    actions = np.stack([one_hot.argmax(1) for one_hot in numbers], axis=1)
    return {**arrays, "actions": actions + STARTS}


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    return {
        "hidden_sizes": [32],
        "batch_size": 64,
        "learning_rate": 3e-3,
        "eval_episodes": 1,
        "engine": "eager",
        "num_threads": 1,
        "output_dir": tmp_path,
    }


def test_random_actions_cover_the_space() -> None:
    actions = record_random(Copying, {}, size=300, seed=0)["actions"]
    assert actions.dtype == np.int64
    for numbers, count, start in zip(actions.T, CHOICES, STARTS, strict=True):
        assert set(numbers.tolist()) == set(range(start, start + count))


def test_cloned_policy_is_the_recorded_one(recorded: Any, options: dict[str, Any]) -> None:
    agent = BC(Copying, dataset=recorded, **options).learn(300)
    assert agent.evaluate(2)["eval_return_mean"] == 20.0
    np.testing.assert_array_equal(agent.predict(np.array([2, 3])), [2, 1])
    np.testing.assert_array_equal(agent.predict(np.array([[2, 3], [0, 1]])), [[2, 1], [0, -1]])


def test_resumed_run_equals_an_uninterrupted_one(recorded: Any, options: dict[str, Any]) -> None:
    whole = BC(Copying, dataset=recorded, **options).learn(40).checkpoint.path
    half = BC(Copying, dataset=recorded, schedule_horizon=40, **options).learn(20)
    assert half.run_dir is not None
    again = resume(half.run_dir, ["total_timesteps=40"], env=Copying, dataset=recorded)
    assert (whole / MODEL).read_bytes() == (again.checkpoint_path / MODEL).read_bytes()


def test_log_likelihood_is_the_sum_over_the_numbers() -> None:
    generator = torch.Generator().manual_seed(0)
    actor = MultiCategoricalActor(5, CHOICES, (16,), generator=generator)
    obs = torch.randn(50, 5, generator=generator)
    actions = torch.stack([torch.arange(50) % count for count in CHOICES], dim=-1)
    logits = actor(obs).split(list(CHOICES), dim=-1)
    chosen: list[Any] = [Categorical(logits=x) for x in logits]
    expected = sum(x.log_prob(a) for x, a in zip(chosen, actions.unbind(-1), strict=True))
    torch.testing.assert_close(actor.log_prob(obs, actions.float()), expected)
    best = torch.stack([x.argmax(-1) for x in logits], dim=-1)
    torch.testing.assert_close(actor.mode(obs), best.float())


def test_samples_have_the_probabilities_of_the_policy() -> None:
    generator = torch.Generator().manual_seed(0)
    actor = MultiCategoricalActor(5, CHOICES, (16,), generator=generator)
    obs = 3.0 * torch.randn(1, 5, generator=generator).expand(40_000, 5)
    sampled = actor.explore(obs, torch.rand(40_000, sum(CHOICES), generator=generator)).long()
    for logits, numbers in zip(actor(obs[:1]).split(list(CHOICES), -1), sampled.T, strict=True):
        shares = torch.bincount(numbers, minlength=logits.shape[-1]) / len(numbers)
        torch.testing.assert_close(shares, logits[0].softmax(-1), rtol=0.0, atol=0.02)


def test_fitted_q_has_one_input_for_each_value() -> None:
    policy = BCAlgorithm.build(describe_env(Copying, EnvConfig()), BCConfig(hidden_sizes=(8,)))
    learner = FittedQ(policy, FQEConfig(hidden_sizes=(8,)), torch.Generator().manual_seed(0))
    one_hot = learner._one_hot(torch.tensor([[2.0, 3.0], [0.0, 1.0]]))
    assert one_hot.int().tolist() == [[0, 0, 1, 0, 0, 0, 1], [1, 0, 0, 0, 1, 0, 0]]
    assert learner.values(torch.zeros(2, 7), torch.zeros(2, 2)).shape[-1] == 2


def test_actions_are_converted_both_ways() -> None:
    scaler = ActionScaler(describe_env(Copying, EnvConfig()))
    indices = np.array([[2, 3], [0, 0]], dtype=np.float32)
    numbers = scaler.to_env(indices)
    np.testing.assert_array_equal(numbers, [[2, 1], [0, -2]])
    np.testing.assert_array_equal(scaler.tensors_to_env(torch.from_numpy(indices)), numbers)
    np.testing.assert_array_equal(scaler.to_model(numbers), indices)


def test_wrong_data_is_named(recorded: Any, options: dict[str, Any]) -> None:
    wrong = {**recorded, "actions": recorded["actions"] + [0, 5]}
    with pytest.raises(ConfigError, match=r"number 1 of the action in row 0 is .* from -2 to 1\."):
        BC(Copying, dataset=wrong, **options).learn(10)


def test_other_algorithms_and_masks_are_refused(recorded: Any, options: dict[str, Any]) -> None:
    sentence = re.escape("does not support the action space MultiDiscrete([3, 4]): use bc, or conv")
    with pytest.raises(ConfigError, match=sentence):
        SAC(Copying, **options).learn(40)
    with pytest.raises(ConfigError, match=sentence):
        IQL(Copying, dataset=recorded, **options).learn(10)
    agent = BC(Copying, dataset=recorded, **options).learn(10)
    with pytest.raises(ConfigError, match="bc does not support action masks here"):
        agent.predict(np.array([2, 3]), action_mask=np.ones(7))
    assert agent.run_dir is not None
    with pytest.raises(ConfigError, match="train iql or awac on the same data instead"):
        finetune(agent.run_dir, Copying)


@pytest.mark.parametrize(
    "change",
    [
        {"action_choices": [3, 5]},
        {"action_choices": [7, 0]},
        {"action_starts": [0]},
        {"action_choices": []},
        {"action_start": 1},
        {"action_masks": True},
        {"action_starts": [0, 2**60]},
        {"action_choices": [3.0, 4.0]},
    ],
    ids=str,
)
def test_invalid_sizes_in_a_checkpoint_are_rejected(
    recorded: Any, options: dict[str, Any], change: dict[str, Any]
) -> None:
    agent = BC(Copying, dataset=recorded, **options).learn(2)
    path = agent.checkpoint.path
    assert SavedRun.load(path).spec.action_choices == CHOICES
    forge(path, lambda manifest: manifest["env_spec"].update(change))
    with pytest.raises(CheckpointError, match="invalid env_spec"):
        SavedRun.load(path).spec  # noqa: B018


def test_sizes_are_plain_data() -> None:
    spec = describe_env(Copying, EnvConfig())
    assert EnvSpec.from_dict(spec.to_dict()) == spec
    assert str(spec).endswith("and actions of 2 numbers with 3, 4 values")
    assert (spec.action_dim, spec.action_width) == (7, 2)

"""Exploration noise that lasts for several steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from rl_training import train
from rl_training.algorithms.base import draw_noise
from rl_training.algorithms.registry import REGISTRY
from rl_training.algorithms.sac import SACAlgorithm, SACConfig
from rl_training.boundary.values import StateError
from rl_training.errors import ConfigError
from rl_training.runtime.acting import Explorer
from rl_training.runtime.held_noise import HeldNoise, duration_probabilities
from rl_training.types import EnvSpec, NoiseField, NoiseSpec
from tests.comparing import assert_same_run
from tests.runtime.test_exact_resume import crash_and_resume

SPEC = EnvSpec(3, 2, (-1.0,) * 2, (1.0,) * 2)
CPU = torch.device("cpu")


def field(num_envs: int) -> NoiseSpec:
    return {"action": NoiseField("normal", (num_envs, 2))}


def sequence(num_envs: int, longest: int, steps: int, seed: int = 0) -> torch.Tensor:
    """Return the first number of each environment's noise in every step, ``[steps, num_envs]``."""
    held = HeldNoise(field(num_envs), num_envs, longest, CPU)
    generator = torch.Generator().manual_seed(seed)
    noise = (held.next(draw_noise(held.spec, generator)) for _ in range(steps))
    return torch.stack([step["action"][:, 0].clone() for step in noise])


def durations(values: torch.Tensor) -> Any:
    """Return how long each value of a sequence lasts, without the last one, which may go on."""
    changes = (values[1:] != values[:-1]).nonzero().squeeze(-1) + 1
    return np.diff(np.concatenate([[0], changes.numpy()]))


def test_probabilities_are_proportional_to_the_inverse_square() -> None:
    found = duration_probabilities(3).numpy()
    np.testing.assert_allclose(found, np.array([36, 9, 4]) / 49)
    assert duration_probabilities(16)[0] == pytest.approx(0.63118, abs=1e-5)


def test_durations_have_these_probabilities() -> None:
    columns = sequence(8, 16, 6_000).T
    found = np.concatenate([durations(column) for column in columns])
    assert set(found) == set(range(1, 17))
    wanted, count = duration_probabilities(16).numpy(), len(found)
    shares = np.bincount(found, minlength=17)[1:] / count
    deviations = np.sqrt(wanted * (1 - wanted) / count)
    assert (np.abs(shares - wanted) < 4.5 * deviations).all()


def test_environments_hold_their_noise_independently() -> None:
    values = sequence(2, 16, 400)
    changed = values[1:] != values[:-1]
    assert (changed[:, 0] != changed[:, 1]).any()
    assert abs(float(np.corrcoef(values.T)[0, 1])) < 0.3


def test_new_noise_is_standard_normal() -> None:
    """The choice of when to draw does not depend on what is drawn."""
    fresh = np.unique(sequence(4, 16, 5_000).numpy())
    assert abs(float(fresh.mean())) < 0.05
    assert float(fresh.std()) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("entry", REGISTRY.values(), ids=lambda entry: entry.name)
def test_every_learner_that_collects_explores_with_held_noise(entry: Any) -> None:
    config_class = entry.config_class()
    if "exploration_hold" not in config_class.model_fields:
        pytest.skip("it does not collect data")
    spec = EnvSpec(3, 2, discrete=True) if entry.actions == "discrete" else SPEC
    learner = entry.learner_class().build(spec, config_class(exploration_hold=4))
    explorer = Explorer(learner, 3, torch.Generator().manual_seed(0))
    for _ in range(5):
        explorer.request_actions(np.zeros((3, 3), dtype=np.float32), random=False)
        assert explorer.take_actions().shape == (3, spec.action_width)


def make_explorer(hold: int) -> Explorer:
    learner = SACAlgorithm.build(SPEC, SACConfig(hidden_sizes=(8,), exploration_hold=hold))
    return Explorer(learner, 1, torch.Generator().manual_seed(0))


def act(explorer: Explorer, steps: int, *, random: bool = False) -> list[Any]:
    actions = []
    for _ in range(steps):
        explorer.request_actions(np.zeros((1, 3), dtype=np.float32), random=random)
        actions.append(explorer.take_actions())
    return actions


def test_explorer_repeats_noise_but_not_random_actions() -> None:
    """At an unchanged observation, equal noise gives equal actions."""
    held = np.concatenate(act(make_explorer(16), 60))[:, 0]
    assert len(np.unique(held)) < 50
    assert len(np.unique(np.concatenate(act(make_explorer(1), 60))[:, 0])) == 60
    assert len(np.unique(np.concatenate(act(make_explorer(16), 60, random=True))[:, 0])) == 60


@pytest.mark.parametrize("steps", range(1, 9))
def test_the_state_continues_exactly(steps: int) -> None:
    whole, first, second = make_explorer(16), make_explorer(16), make_explorer(16)
    expected = act(whole, steps + 12)
    act(first, steps)
    second.load_state_dict(first.state_dict())
    act(first, 3)  # the saved state does not change with its source
    assert np.array_equal(np.concatenate(act(second, 12)), np.concatenate(expected[steps:]))


def test_default_has_no_state_and_draws_as_before() -> None:
    explorer = make_explorer(1)
    assert set(explorer.state_dict()) == {"generator", "answer"}
    noise = torch.randn(1, 2, generator=torch.Generator().manual_seed(0))
    learner = SACAlgorithm.build(SPEC, SACConfig(hidden_sizes=(8,)))
    wanted = learner.act(torch.zeros(1, 3), deterministic=False, noise={"action": noise})
    assert np.array_equal(act(explorer, 1)[0], wanted.numpy())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"remaining": np.array([17])}, "remaining contains values outside 0 to 15"),
        ({"remaining": np.array([-1])}, "remaining contains values outside 0 to 15"),
        ({"noise": {}}, "other names"),
        ({"noise": {"action": np.zeros((2, 2), np.float32)}}, r"action is float32\[2, 2\]"),
    ],
)
def test_damaged_state_is_rejected(change: dict[str, Any], message: str) -> None:
    held = HeldNoise(field(1), 1, 16, CPU)
    with pytest.raises(StateError, match=message):
        held.load_state_dict(held.state_dict() | change)


def test_noise_that_is_not_per_environment_raises_an_error() -> None:
    with pytest.raises(ConfigError, match=r"exploration_hold = 4: the exploration noise 'weights'"):
        HeldNoise({"weights": NoiseField("normal", (7,))}, 2, 4, CPU)


@pytest.mark.parametrize("algo", ["sac", "ddpg", "dqn"])
def test_runs_resume_bit_for_bit(small_config: Callable[..., Any], algo: str) -> None:
    config = small_config(algo=algo, num_envs=3, algo_kwargs={"exploration_hold": 16})
    assert_same_run(train(config), crash_and_resume(config, 81, 99))


def test_offline_learners_have_no_such_key(small_config: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match="exploration_hold"):
        train(small_config(algo="iql", algo_kwargs={"exploration_hold": 16}))

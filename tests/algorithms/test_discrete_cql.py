"""CQL for discrete actions against a float64 NumPy reference, and its exploration."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms.base import draw_noise
from rl_training.algorithms.cql import CQLAlgorithm
from rl_training.algorithms.discrete_cql import (
    DiscreteCQLAlgorithm,
    all_action_gaps,
    best_actions,
    discrete_cql_loss,
)
from tests.golden import (
    RATES,
    TOLERANCE,
    assert_same_metrics,
    assert_same_network,
    assert_trace_is_the_update,
    discrete_reference_batch,
    freeze,
    layers,
    make_discrete_batch,
    make_discrete_learner,
)
from tests.reference import discrete

MASKS = ("legal_actions", "next_legal_actions")


def make(**changes: Any) -> Any:
    settings = {"conservative_weight": 1.5, "conservative_temperature": 0.7}
    return make_discrete_learner(CQLAlgorithm, **settings | changes)


@pytest.mark.parametrize("masks", [(), MASKS])
@pytest.mark.parametrize("threshold", [None, 0.4])
def test_updates_equal_the_reference(masks: tuple[str, ...], threshold: float | None) -> None:
    learner = make(lagrange_threshold=threshold, num_critics=3)
    assert isinstance(learner, DiscreteCQLAlgorithm)
    model = learner.model
    state = discrete.initial_state(
        critics=layers(model.critic), target_critics=layers(model.critic, model.target)
    )
    hyper: Any = {**RATES, "weight": 1.5, "temperature": 0.7, "threshold": threshold}
    for step in range(6):
        batch = make_discrete_batch(step, masks=masks)
        ours = learner.update(batch, {})
        state, theirs = discrete.cql_update(state, discrete_reference_batch(batch), hyper)
        assert_same_metrics(ours, theirs)
    assert_same_network(layers(model.critic), state["critics"])
    assert_same_network(layers(model.critic, model.target), state["target_critics"])
    if threshold is not None:
        assert learner.log_multiplier is not None
        found = float(learner.log_multiplier.detach())
        assert found == pytest.approx(float(state["log_multiplier"]), rel=1e-9)


@pytest.mark.parametrize("threshold", [None, 0.4])
def test_loss_helper_equals_the_update_at_frozen_parameters(threshold: float | None) -> None:
    learner, batch = make(lagrange_threshold=threshold), make_discrete_batch(masks=MASKS)
    losses = discrete_cql_loss(
        learner.model,
        batch,
        conservative_weight=1.5,
        conservative_temperature=0.7,
        lagrange_threshold=threshold,
        log_multiplier=learner.log_multiplier,
    )
    freeze(learner)
    metrics = learner.update(batch, {})
    assert {name for name in metrics if name.startswith("loss/")} == set(losses)
    for name, value in losses.items():
        assert torch.equal(value.detach(), metrics[name])
    assert_trace_is_the_update(learner, batch)


def test_gap_of_equal_values_is_the_logarithm_of_the_number_of_actions() -> None:
    values = torch.full((2, 7, 4), 3.0)
    gaps = all_action_gaps(values, values[..., 0], temperature=0.5)
    torch.testing.assert_close(gaps, torch.full((2,), 0.5 * np.log(4.0)).float())


def test_choices_are_greedy_in_the_mean_of_the_critics_or_random() -> None:
    learner = make(epsilon=0.25)
    g = torch.Generator().manual_seed(0)
    obs = torch.randn(4_000, 5, generator=g, dtype=torch.float64)
    values = learner.model.critic.all_q_values(obs).mean(0)
    greedy = learner.act(obs, deterministic=True)
    assert torch.equal(greedy[:, 0].long(), values.argmax(-1))
    noise = draw_noise(learner.act_noise(len(obs)), g, torch.float64)
    explored = learner.act(obs, deterministic=False, noise=noise)
    changed = (explored != greedy).double().mean().item()
    assert changed == pytest.approx(0.25 * 3 / 4, abs=0.02)
    legal = torch.zeros(len(obs), 4).scatter(-1, torch.randint(4, (len(obs), 1), generator=g), 1.0)
    for deterministic in (True, False):
        only = learner.act(obs, deterministic=deterministic, noise=noise, legal=legal)
        assert torch.equal(only[:, 0].long(), legal.argmax(-1))
    assert torch.equal(best_actions(learner.model, obs, legal)[:, 0], legal.argmax(-1))


def test_terms_of_the_reference_equal_numerical_derivatives() -> None:
    rng = np.random.default_rng(0)
    values, action = rng.normal(size=(2, 5, 4)), rng.integers(4, size=5)
    legal = np.ones((5, 4))
    legal[0, (action[0] + 1) % 4] = 0.0
    gaps, grad = discrete.soft_gap(values, action, 0.7, legal)
    direction = rng.normal(size=values.shape)
    ahead, behind = (
        discrete.soft_gap(values + h * direction, action, 0.7, legal)[0] for h in (1e-6, -1e-6)
    )
    np.testing.assert_allclose(
        (grad * direction).sum(axis=(1, 2)), (ahead - behind) / 2e-6, rtol=1e-6
    )
    tensors = torch.from_numpy(values)
    q = torch.from_numpy(discrete.taken(values, action))
    masked = torch.where(torch.from_numpy(legal) > 0, tensors, torch.finfo(tensors.dtype).min)
    np.testing.assert_allclose(all_action_gaps(masked, q, temperature=0.7), gaps, **TOLERANCE)

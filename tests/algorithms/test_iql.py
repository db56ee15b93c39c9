"""IQL against a reference written from the paper in float64 NumPy (tests/reference)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms.advantage import clipped_weights, imitation_loss
from rl_training.algorithms.iql import (
    IQLAlgorithm,
    IQLConfig,
    dataset_q_values,
    expectile_loss,
    iql_loss,
    policy_terms,
    state_values,
)
from tests.golden import (
    RATE,
    RATES,
    ROWS,
    TOLERANCE,
    assert_same_metrics,
    assert_same_network,
    assert_trace_is_the_update,
    discrete_reference_batch,
    freeze,
    gaussian_layers,
    layers,
    make_batch,
    make_discrete_batch,
    make_discrete_learner,
    make_learner,
    make_noise,
    reached_by,
    reference_batch,
    set_log_std,
)
from tests.reference import discrete
from tests.reference import iql as reference

SETTINGS: Any = {"expectile": 0.8, "beta": 2.0, "weight_clip": 1.5}


def make(**changes: Any) -> IQLAlgorithm:
    learner: IQLAlgorithm = make_learner(IQLAlgorithm, **SETTINGS | changes)
    set_log_std(learner.model.actor, -0.3, 0.2, 0.4)  # type: ignore[arg-type]
    return learner


def helper_losses(learner: IQLAlgorithm, batch: Any) -> Any:
    return iql_loss(learner.model, batch, gamma=0.99, **SETTINGS)


@pytest.mark.parametrize("bounds", [(-5.0, 2.0), (-0.2, 0.3)])
def test_updates_equal_the_reference(bounds: tuple[float, float]) -> None:
    """Bounds that include every log σ, and bounds that clip two of three."""
    learner = make(log_std_bounds=bounds)
    model: Any = learner.model
    state = reference.initial_state(
        gaussian_layers(model.actor),
        layers(model.critic),
        layers(model.value),
        layers(model.critic, model.target),
    )
    hyper: Any = {**RATES, **SETTINGS, "value_lr": RATE, "log_std_bounds": bounds}
    for step in range(6):
        batch = make_batch(step)
        ours = learner.update(batch, make_noise(learner))
        state, theirs = reference.full_update(state, reference_batch(batch), hyper)
        assert_same_metrics(ours, theirs)
    assert_same_network(gaussian_layers(model.actor), state["actor"])
    assert_same_network(layers(model.critic), state["critics"])
    assert_same_network(layers(model.critic, model.target), state["target_critics"])
    assert_same_network(layers(model.value), state["value"])


def test_terms_equal_the_reference() -> None:
    rng = np.random.default_rng(0)
    v, q = rng.normal(size=ROWS), rng.normal(size=ROWS)
    value = torch.from_numpy(v).requires_grad_()
    loss = expectile_loss(value, torch.from_numpy(q), expectile=0.9)
    expected, slope = reference.value_loss(v, q, 0.9)
    np.testing.assert_allclose(loss.item(), expected, **TOLERANCE)
    np.testing.assert_allclose(torch.autograd.grad(loss, value)[0], slope, **TOLERANCE)
    weights = clipped_weights(3.0 * torch.from_numpy(q - v), clip=5.0)
    np.testing.assert_allclose(weights, reference.advantage_weights(q, v, 3.0, 5.0), **TOLERANCE)
    assert 0 < int((weights == weights.max()).sum()) < ROWS  # the clip matters in this draw


def test_expectile_of_equal_parts_is_the_minimizer() -> None:
    """The minimizer for equal parts of 0 and 1 is the expectile itself."""
    q = torch.tensor([0.0, 1.0], dtype=torch.float64)
    v = torch.full((2,), 0.7, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(expectile_loss(v, q, expectile=0.7), v)
    assert slope.sum().item() == pytest.approx(0.0, abs=1e-12)


def test_actor_loss_and_gradient_equal_the_reference() -> None:
    learner = make()
    model: Any = learner.model
    batch = make_batch()
    batch.actions[0] = torch.tensor([1.0, -1.0, 0.0])  # saturated actions have a density
    advantage = torch.linspace(-1, 1, ROWS, dtype=torch.float64)
    loss, metrics = policy_terms(model, batch, advantage, beta=2.0, weight_clip=1.5)
    weights = clipped_weights(2.0 * advantage, clip=1.5)
    torch.testing.assert_close(metrics["advantage/weight"], weights.mean())
    actor = gaussian_layers(model.actor)
    at = batch.obs.numpy(), batch.actions.numpy(), weights.numpy()
    expected, grads = reference.actor_loss(actor, *at, (-5.0, 2.0))
    np.testing.assert_allclose(loss.item(), expected, **TOLERANCE)
    (flat,) = torch.autograd.grad(loss, model.actor.flat)
    assert_same_network(gaussian_layers(model.actor, flat), grads)


def test_no_gradient_through_the_weights() -> None:
    advantage = torch.zeros(4, requires_grad=True)
    log_prob = torch.ones(4, requires_grad=True)
    loss = imitation_loss(log_prob, clipped_weights(advantage, clip=2.0))
    assert reached_by(loss, {"advantage": advantage, "log_prob": log_prob}) == {"log_prob"}


def test_large_advantage_stays_finite() -> None:
    weights = clipped_weights(torch.tensor([1e4, 0.0]), clip=100.0)
    torch.testing.assert_close(weights, torch.tensor([100.0, 1.0]))


def test_loss_helper_equals_the_stages_at_frozen_parameters() -> None:
    learner = make()
    batch = make_batch()
    losses = helper_losses(learner, batch)
    freeze(learner)
    metrics = learner.update(batch, {})
    assert set(losses) == {"loss/value", "loss/actor", "loss/critic"}
    for name, value in losses.items():
        torch.testing.assert_close(metrics[name], value.detach(), rtol=0, atol=0)


def test_held_out_losses_equal_the_losses_and_change_nothing() -> None:
    learner = make()
    before = {name: tensor.clone() for name, tensor in learner.state_dict().items()}
    held_out = learner.held_out_losses(make_batch(), {})
    for name, value in helper_losses(learner, make_batch()).items():
        torch.testing.assert_close(held_out[name], value.detach(), rtol=0, atol=0)
    assert all(torch.equal(t, before[name]) for name, t in learner.state_dict().items())


def test_each_loss_has_gradients_for_its_own_networks() -> None:
    learner = make()
    model = learner.model
    leaves = {"critic": model.critic.flat, "actor": model.actor.flat, "value": model.value.flat}
    for name, loss in helper_losses(learner, make_batch()).items():
        assert reached_by(loss, leaves) == {name.removeprefix("loss/")}


def test_values_come_from_the_target_critics_minimum() -> None:
    model, batch = make().model, make_batch()
    expected = model.critic.q_values(batch.obs, batch.actions, model.target).detach()
    assert (expected[0] < expected[1]).any()
    assert (expected[0] > expected[1]).any()
    torch.testing.assert_close(dataset_q_values(model, batch), expected.min(0).values)


def test_state_values_evaluates_both_states_in_one_pass() -> None:
    model, batch = make().model, make_batch()
    v, next_v = state_values(model, batch)
    torch.testing.assert_close(v, model.values(batch.obs).detach(), **TOLERANCE)
    torch.testing.assert_close(next_v, model.values(batch.next_obs).detach(), **TOLERANCE)


def test_schedule_applies_to_the_actor_only() -> None:
    learner = make()
    learner.scale_learning_rates(0.25)
    rates = {key: float(o.learning_rate) for key, o in learner.optimizers.items()}  # type: ignore[arg-type]
    assert rates == {"actor": RATE / 4, "critic": RATE, "value": RATE}
    assert reference.cosine_rate(RATE, 2, 3) == pytest.approx(RATE / 4)


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("expectile", 0.0, "greater than 0"),
        ("expectile", 1.0, "less than 1"),
        ("beta", 0.0, "greater than 0"),
        ("weight_clip", -1.0, "greater than 0"),
        ("log_std_bounds", (1.0, -1.0), "the lower bound should be less than the upper"),
        ("expectile", float("nan"), "finite"),
    ],
)
def test_bad_values_fail_at_construction(field: str, value: Any, allowed: str) -> None:
    with pytest.raises(ValueError, match=rf"{field}\n.*{allowed}"):
        IQLConfig(**{field: value})


# --- Discrete actions -------------------------------------------------------------


@pytest.mark.parametrize("masks", [(), ("legal_actions",)])
def test_discrete_updates_equal_the_reference(masks: tuple[str, ...]) -> None:
    learner = make_discrete_learner(IQLAlgorithm, **SETTINGS)
    model = learner.model
    networks = layers(model.actor), layers(model.critic), layers(model.critic, model.target)
    state = discrete.initial_state(*networks, value=layers(model.value))
    hyper: Any = {**RATES, **SETTINGS, "value_lr": RATE}
    for step in range(6):
        batch = make_discrete_batch(step, masks=masks)
        ours = learner.update(batch, {})
        state, theirs = discrete.iql_update(state, discrete_reference_batch(batch), hyper)
        assert_same_metrics(ours, theirs)
    assert_same_network(layers(model.actor), state["actor"])
    assert_same_network(layers(model.critic), state["critics"])
    assert_same_network(layers(model.critic, model.target), state["target_critics"])
    assert_same_network(layers(model.value), state["value"])


def test_discrete_loss_helper_equals_the_update_at_frozen_parameters() -> None:
    learner, batch = make_discrete_learner(IQLAlgorithm, **SETTINGS), make_discrete_batch()
    losses = helper_losses(learner, batch)
    freeze(learner)
    metrics = learner.update(batch, {})
    for name, value in losses.items():
        assert torch.equal(value.detach(), metrics[name])
    assert_trace_is_the_update(learner, batch)

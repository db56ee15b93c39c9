"""TD3+BC against a reference written from the paper in float64 NumPy (tests/reference)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms.td3_bc import (
    TD3BCAlgorithm,
    TD3BCConfig,
    actor_terms,
    policy_terms,
    td3_bc_loss,
)
from tests.golden import (
    RATES,
    TOLERANCE,
    assert_same_metrics,
    assert_same_network,
    freeze,
    layers,
    make_batch,
    make_learner,
    make_noise,
    reached_by,
    reference_batch,
)
from tests.reference import td3, td3_bc

SMOOTHING: Any = {"target_noise": 0.4, "target_noise_clip": 0.5}


def make(**changes: Any) -> TD3BCAlgorithm:
    learner: TD3BCAlgorithm = make_learner(TD3BCAlgorithm, alpha=1.5, **SMOOTHING, **changes)
    return learner


def reference_terms(learner: TD3BCAlgorithm, batch: Any) -> Any:
    networks = layers(learner.model.actor), layers(learner.model.critic)[0]
    return td3_bc.actor_loss(*networks, batch.obs.numpy(), batch.actions.numpy(), 1.5)


@pytest.mark.parametrize("delay", [1, 2, 3])
def test_updates_equal_the_reference(delay: int) -> None:
    """Seven updates cross the policy delay several times and end within one."""
    learner = make(policy_delay=delay)
    model = learner.model
    state = td3.initial_state(
        layers(model.actor),
        layers(model.critic),
        layers(model.actor, model.actor_target),
        layers(model.critic, model.target),
    )
    hyper: Any = {
        **RATES,
        **{"target_noise": 0.4, "noise_clip": 0.5, "policy_delay": delay, "alpha": 1.5},
    }
    for step in range(7):
        batch, noise = make_batch(step), make_noise(learner, 100 + step)
        due = learner.due(step)
        ours = dict(learner.update(batch, noise, due))
        draws: Any = {"next_action": noise["smoothing"].numpy()}
        state, theirs = td3_bc.full_update(state, reference_batch(batch), draws, hyper)
        own = {name: ours.pop(name, None) for name in ("loss/imitation", "policy/value_weight")}
        assert all((value is not None) == (step % delay == delay - 1) for value in own.values())
        assert_same_metrics(ours, theirs)
    assert_same_network(layers(model.actor), state["actor"])
    assert_same_network(layers(model.critic), state["critics"])
    assert_same_network(layers(model.actor, model.actor_target), state["target_actor"])
    assert_same_network(layers(model.critic, model.target), state["target_critics"])


def test_actor_terms_and_gradient_equal_the_reference() -> None:
    learner = make()
    batch, actor = make_batch(), learner.model.actor
    terms = policy_terms(learner.model, batch, alpha=1.5)
    expected = reference_terms(learner, batch)
    names = "loss/actor", "policy/value_weight", "loss/imitation"
    values = [terms.metrics[name].item() for name in names]
    theirs = [expected.loss, expected.value_weight, expected.imitation]
    np.testing.assert_allclose(values, theirs, **TOLERANCE)
    (flat,) = torch.autograd.grad(terms.loss, actor.flat)
    assert_same_network(layers(actor, flat), expected.grads.network)


def test_loss_does_not_depend_on_the_scale_of_rewards() -> None:
    q = torch.randn(16, dtype=torch.float64)
    actions, data = (torch.randn(16, 3, dtype=torch.float64) for _ in range(2))
    one = actor_terms(q, actions, data, alpha=2.5)
    other = actor_terms(1000 * q, actions, data, alpha=2.5)
    torch.testing.assert_close(one.loss, other.loss, **TOLERANCE)
    weights = [terms.metrics["policy/value_weight"] for terms in (one, other)]
    torch.testing.assert_close(weights[0], 1000 * weights[1], **TOLERANCE)


def test_no_gradient_through_the_weight() -> None:
    q = torch.tensor([1.0, 3.0], requires_grad=True)
    zeros = torch.zeros(2, 1)
    loss, metrics = actor_terms(q, zeros, zeros, alpha=2.0)
    assert not metrics["policy/value_weight"].requires_grad
    (slope,) = torch.autograd.grad(loss, q)
    torch.testing.assert_close(slope, torch.full((2,), -0.5))  # −λ / B, with λ = 2 / 2


def test_loss_helper_equals_the_stages_at_frozen_parameters() -> None:
    learner = make()
    batch, noise = make_batch(), make_noise(learner)
    losses = td3_bc_loss(learner.model, batch, noise, gamma=0.99, alpha=1.5, **SMOOTHING)
    freeze(learner)
    metrics = learner.update(batch, noise, frozenset({"actor"}))
    assert set(losses) == {"loss/critic", "loss/actor", "loss/imitation"}
    for name, value in losses.items():
        torch.testing.assert_close(metrics[name], value.detach(), rtol=0, atol=0)


def test_each_loss_has_gradients_for_its_own_networks() -> None:
    learner = make()
    model = learner.model
    losses = td3_bc_loss(model, make_batch(), make_noise(learner), **SMOOTHING)
    leaves = {"critic": model.critic.flat, "actor": model.actor.flat}
    reached = {name: reached_by(loss, leaves) for name, loss in losses.items()}
    assert reached == {
        "loss/critic": {"critic"},
        "loss/actor": {"actor"},
        "loss/imitation": {"actor"},
    }


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("alpha", 0.0, "greater than 0"),
        ("alpha", -2.5, "greater than 0"),
        ("alpha", float("inf"), "finite"),
        ("policy_delay", 0, "greater than 0"),
        ("target_noise", -0.1, "greater than or equal to 0"),
    ],
)
def test_bad_values_fail_at_construction(field: str, value: Any, allowed: str) -> None:
    with pytest.raises(ValueError, match=rf"{field}\n.*{allowed}"):
        TD3BCConfig(**{field: value})


def test_collection_key_raises() -> None:
    with pytest.raises(ValueError, match=r"buffer_capacity\n.*not permitted"):
        TD3BCConfig(buffer_capacity=10)  # type: ignore[call-arg]

"""CQL against a reference written from the paper in float64 NumPy (tests/reference)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms.cql import (
    CQLAlgorithm,
    CQLConfig,
    conservative_gaps,
    cql_loss,
    multiplier_loss,
    sampled_actions,
)
from rl_training.models.kernels import plain_operations
from tests.golden import (
    ACT,
    RATE,
    ROWS,
    SOFT,
    TOLERANCE,
    arrays,
    assert_same_metrics,
    assert_same_network,
    assert_trace_is_the_update,
    freeze,
    layers,
    make_batch,
    make_learner,
    make_noise,
    reference_batch,
)
from tests.reference import cql as reference
from tests.reference import sac as reference_sac

SMALL: Any = {"num_sampled_actions": 4, "policy_learning_rate": RATE / 2}
CONSERVATIVE: Any = {
    **SOFT,
    "actor_lr": RATE / 2,
    "alpha_lr": RATE / 2,
    "alpha_prime_lr": RATE,
    "imitation_updates": 0,
}


def reference_noise(noise: dict[str, torch.Tensor]) -> Any:
    """Our uniform numbers are in [0, 1), the reference's in [-1, 1]."""
    return arrays(noise | {"random_actions": 2 * noise["random_actions"] - 1})


@pytest.mark.parametrize(
    ("alpha", "changes"),
    [
        ("auto", {}),
        (0.25, {"backup_entropy": True}),
        ("auto", {"lagrange_threshold": 3.0, "conservative_temperature": 0.5}),
        (0.0, {"lagrange_threshold": 40.0, "conservative_weight": 2.0, "backup_entropy": True}),
    ],
)
def test_updates_equal_the_reference(alpha: Any, changes: Any) -> None:
    learner = make_learner(CQLAlgorithm, **SMALL, alpha=alpha, **changes)
    model, config = learner.model, learner.config
    start = reference_sac.initial_state(
        layers(model.actor),
        layers(model.critic),
        fixed_alpha=None if alpha == "auto" else alpha,
        target_critics=layers(model.critic, model.target),
    )
    state = reference.initial_state(start)
    hyper: Any = {
        **CONSERVATIVE,
        "conservative_weight": config.conservative_weight,
        "conservative_temperature": config.conservative_temperature,
        "threshold": config.lagrange_threshold,
        "backup_entropy": config.backup_entropy,
    }
    for step in range(5):
        batch, noise = make_batch(step), make_noise(learner, 100 + step)
        ours = learner.update(batch, noise)
        state, theirs = reference.full_update(
            state, reference_batch(batch), reference_noise(noise), hyper
        )
        if alpha != "auto":
            theirs.pop("alpha_loss")
        assert_same_metrics(ours, theirs)
    assert_same_network(layers(model.actor), state["actor"])
    assert_same_network(layers(model.critic), state["critics"])
    assert_same_network(layers(model.critic, model.target), state["target_critics"])
    if learner.log_multiplier is not None:
        found = learner.log_multiplier.item()
        np.testing.assert_allclose(found, state["log_alpha_prime"], **TOLERANCE)
        assert found != 0.0


def test_sampled_actions_equal_the_reference_and_are_constants() -> None:
    learner = make_learner(CQLAlgorithm, **SMALL)
    batch, noise = make_batch(), make_noise(learner)
    ours = sampled_actions(learner.model, batch, noise)
    theirs = reference.sampled_actions(
        layers(learner.model.actor), reference_batch(batch), reference_noise(noise)
    )
    assert ours.actions.shape == (12, ROWS, ACT)
    np.testing.assert_allclose(ours.actions.numpy(), theirs[0], **TOLERANCE)
    np.testing.assert_allclose(ours.log_prob.numpy(), theirs[1], **TOLERANCE)
    np.testing.assert_allclose(ours.log_prob[0].numpy(), ACT * math.log(0.5))
    assert not ours.log_prob.requires_grad


@pytest.mark.parametrize("temperature", [1.0, 0.3, 5.0])
def test_gaps_and_their_gradients_equal_the_reference(temperature: float) -> None:
    rng = np.random.default_rng(0)
    q, sampled = rng.normal(size=(2, ROWS)), 30.0 * rng.normal(size=(2, 7, ROWS))
    density = rng.normal(size=(7, ROWS))
    tensors = [torch.from_numpy(x).requires_grad_() for x in (q, sampled)]
    log_density = torch.from_numpy(density)
    ours = conservative_gaps(tensors[0], tensors[1], log_density, temperature=temperature)
    theirs = reference.conservative_gap(q, sampled, density, temperature)
    gradients = torch.autograd.grad(ours.sum(), tensors)
    for mine, expected in zip((ours.detach(), *gradients), theirs, strict=True):
        np.testing.assert_allclose(mine.numpy(), expected, **TOLERANCE)


@pytest.mark.parametrize("log", [-2.0, 0.0, 3.0, 20.0])
def test_multiplier_loss_and_slope_equal_the_reference(log: float) -> None:
    gaps = np.array([4.0, 7.0])
    parameter = torch.tensor(log, dtype=torch.float64, requires_grad=True)
    loss = multiplier_loss(parameter, torch.from_numpy(2.0 * gaps - 5.0))
    (slope,) = torch.autograd.grad(loss, parameter)
    expected = reference.multiplier_loss(log, gaps, 2.0, 5.0)
    np.testing.assert_allclose([loss.item(), slope.item()], expected, **TOLERANCE)


def test_gap_above_the_threshold_increases_the_multiplier() -> None:
    for threshold, direction in ((0.0, 1), (1e3, -1)):
        learner = make_learner(CQLAlgorithm, **SMALL, lagrange_threshold=threshold)
        learner.update(make_batch(), make_noise(learner))
        assert math.copysign(1, learner.log_multiplier.item()) == direction


def test_all_sampled_actions_are_scored_at_s_by_both_paths() -> None:
    """Splitting the first layer into observation and action does not change the values."""
    learner = make_learner(CQLAlgorithm, **SMALL)
    critic, batch = learner.model.critic, make_batch()
    actions = sampled_actions(learner.model, batch, make_noise(learner)).actions
    node = critic.sampled_q_values(batch.obs, actions)
    one_by_one = torch.stack([critic.q_values(batch.obs, each) for each in actions], 1)
    torch.testing.assert_close(node, one_by_one, **TOLERANCE)
    with plain_operations():
        plain = critic.sampled_q_values(batch.obs, actions)
    torch.testing.assert_close(plain, node, **TOLERANCE)
    gradients = [torch.autograd.grad(x.square().sum(), critic.flat)[0] for x in (plain, node)]
    torch.testing.assert_close(*gradients, **TOLERANCE)


@pytest.mark.parametrize("threshold", [None, 4.0])
def test_loss_helper_equals_the_stages_at_frozen_parameters(threshold: Any) -> None:
    learner = make_learner(CQLAlgorithm, **SMALL, lagrange_threshold=threshold)
    batch, noise = make_batch(), make_noise(learner)
    losses = cql_loss(
        *(learner.model, batch, noise),
        alpha=learner.alpha,
        log_alpha=learner.log_alpha,
        target_entropy=learner.target_entropy,
        lagrange_threshold=threshold,
        log_multiplier=learner.log_multiplier,
    )
    freeze(learner)
    metrics = learner.update(batch, noise)
    assert ("loss/multiplier" in losses) == (threshold is not None)
    for name, value in losses.items():
        torch.testing.assert_close(metrics[name], value.detach(), rtol=0, atol=0)


def test_each_loss_has_gradients_for_its_own_networks() -> None:
    learner = make_learner(CQLAlgorithm, **SMALL, lagrange_threshold=4.0)
    model = learner.model
    losses = cql_loss(
        *(model, make_batch(), make_noise(learner)),
        alpha=learner.alpha,
        log_alpha=learner.log_alpha,
        lagrange_threshold=4.0,
        log_multiplier=learner.log_multiplier,
    )
    leaves = {
        "critic": model.critic.flat,
        "actor": model.actor.flat,
        "temperature": learner.log_alpha,
        "multiplier": learner.log_multiplier,
    }
    for name in leaves:
        found = torch.autograd.grad(
            losses[f"loss/{name}"], list(leaves.values()), allow_unused=True
        )
        reached = {key for key, grad in zip(leaves, found, strict=True) if grad is not None}
        assert reached == {name}


def test_actor_and_temperature_use_the_policy_learning_rate() -> None:
    learner = CQLAlgorithm.build(
        make_learner(CQLAlgorithm).spec, CQLConfig(lagrange_threshold=5.0), seed=0
    )
    rates = {key: optimizer.base_learning_rate for key, optimizer in learner.optimizers.items()}
    assert rates == {"actor": 1e-4, "temperature": 1e-4, "critic": 3e-4, "multiplier": 3e-4}


@pytest.mark.parametrize("threshold", [None, 4.0])
def test_traced_updates_equal_eager_ones(threshold: Any) -> None:
    assert_trace_is_the_update(make_learner(CQLAlgorithm, **SMALL, lagrange_threshold=threshold))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("conservative_temperature", 0.0),
        ("conservative_weight", -1.0),
        ("num_sampled_actions", 0),
        ("policy_learning_rate", 0.0),
        ("lagrange_threshold", -1.0),
        ("learning_starts", 5),
    ],
)
def test_bad_values_fail_at_construction(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        CQLConfig(**{field: value})

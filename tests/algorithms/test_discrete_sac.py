"""SAC for discrete actions against a float64 NumPy reference, and its exploration."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms.base import draw_noise
from rl_training.algorithms.discrete_sac import (
    DiscreteSACAlgorithm,
    actor_loss,
    discrete_sac_loss,
    target_entropies,
)
from rl_training.algorithms.sac import SACAlgorithm
from tests.golden import (
    RATE,
    RATES,
    assert_same_metrics,
    assert_same_network,
    assert_trace_is_the_update,
    discrete_reference_batch,
    freeze,
    layers,
    make_discrete_batch,
    make_discrete_learner,
    reached_by,
)
from tests.reference import discrete

MASKS = ("legal_actions", "next_legal_actions")


def make(**changes: Any) -> Any:
    return make_discrete_learner(SACAlgorithm, **{"entropy_fraction": 0.7} | changes)


def wanted(batch: Any) -> Any:
    """Return 0.7 of the largest entropy in each row."""
    legal = batch.get("legal")
    return 0.7 * np.log(4.0 if legal is None else legal.sum(axis=1))


@pytest.mark.parametrize("masks", [(), MASKS])
def test_updates_equal_the_reference(masks: tuple[str, ...]) -> None:
    learner = make()
    assert isinstance(learner, DiscreteSACAlgorithm)
    model = learner.model
    networks = layers(model.actor), layers(model.critic), layers(model.critic, model.target)
    state = discrete.initial_state(*networks)
    for step in range(6):
        batch = make_discrete_batch(step, masks=masks)
        arrays = discrete_reference_batch(batch)
        ours = learner.update(batch, {})
        hyper: Any = {**RATES, "alpha_lr": RATE, "target_entropy": wanted(arrays)}
        state, theirs = discrete.sac_update(state, arrays, hyper)
        assert_same_metrics(ours, theirs)
    assert_same_network(layers(model.actor), state["actor"])
    assert_same_network(layers(model.critic), state["critics"])
    assert_same_network(layers(model.critic, model.target), state["target_critics"])
    assert learner.log_alpha is not None
    assert float(learner.log_alpha.detach()) == pytest.approx(float(state["log_alpha"]), rel=1e-9)


@pytest.mark.parametrize("given", [{}, {"target_entropy": 0.3}, {"alpha": 0.0}, {"alpha": 0.2}])
def test_loss_helper_equals_the_update_at_frozen_parameters(given: Any) -> None:
    learner, batch = make(**given), make_discrete_batch(masks=MASKS)
    losses = discrete_sac_loss(
        learner.model,
        batch,
        alpha=learner.alpha,
        log_alpha=learner.log_alpha,
        target_entropy=learner.target_entropy,
        entropy_fraction=learner.entropy_fraction,
    )
    freeze(learner)
    metrics = learner.update(batch, {})
    assert {name for name in metrics if name.startswith("loss/")} == set(losses)
    for name, value in losses.items():
        assert torch.equal(value.detach(), metrics[name])
    assert_trace_is_the_update(learner, batch)


def test_large_temperatures_are_finite_with_masks() -> None:
    """0 · log 0 of illegal actions stays 0 however large α is."""
    learner = make(initial_alpha=1e6)
    metrics = learner.update(make_discrete_batch(masks=MASKS), {})
    assert all(bool(value.isfinite()) for value in metrics.values())


def test_only_the_actor_learns_from_its_loss() -> None:
    q = torch.randn(2, 5, 4, requires_grad=True)
    logits = torch.randn(5, 4, requires_grad=True)
    alpha = torch.tensor(0.3, requires_grad=True)
    loss = actor_loss(q, logits.log_softmax(-1), alpha=alpha.detach())
    assert reached_by(loss, {"q": q, "logits": logits, "alpha": alpha}) == {"logits"}


def test_optimum_is_the_softmax_of_the_values() -> None:
    """The minimum of the actor loss is π ∝ exp(min Q / α), where its gradient is 0."""
    q, alpha = torch.randn(2, 5, 4, dtype=torch.float64), torch.tensor(0.3)
    best = (q.amin(0) / alpha).requires_grad_()
    (gradient,) = torch.autograd.grad(actor_loss(q, best.log_softmax(-1), alpha=alpha), best)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-12)


def test_target_entropy_counts_legal_actions() -> None:
    batch = make_discrete_batch(masks=MASKS)
    legal = batch.legal_actions.sum(-1)
    torch.testing.assert_close(target_entropies(batch, 4, fraction=0.5), 0.5 * legal.log())
    plain = target_entropies(make_discrete_batch(), 4, fraction=0.98)
    assert plain.tolist() == pytest.approx([0.98 * math.log(4.0)] * len(plain))


def test_actions_are_samples_of_the_policy() -> None:
    learner = make()
    g = torch.Generator().manual_seed(0)
    obs = torch.randn(1, 5, generator=g, dtype=torch.float64).expand(40_000, -1)
    noise = draw_noise(learner.act_noise(len(obs)), g, torch.float64)
    for legal in (None, torch.tensor([[1.0, 0.0, 1.0, 1.0]]).expand(len(obs), -1)):
        sampled = learner.act(obs, deterministic=False, noise=noise, legal=legal)
        share = torch.bincount(sampled[:, 0].long(), minlength=4) / len(obs)
        first = None if legal is None else legal[:1]
        expected = learner.model.actor.log_probs(obs[:1], first)
        torch.testing.assert_close(share.double(), expected.exp()[0], rtol=0, atol=0.015)
        likely = learner.act(
            obs[:1], deterministic=True, legal=None if legal is None else legal[:1]
        )
        assert int(likely) == int(expected.argmax())


@pytest.mark.parametrize("value", [0.0, 1.0 - 2.0**-24])
def test_extreme_random_numbers_give_legal_actions(value: float) -> None:
    learner = make().float()
    legal = torch.tensor([[0.0, 0.0, 1.0, 0.0]])
    noise = {"action": torch.full((1, 4), value)}
    chosen = learner.act(torch.randn(1, 5), deterministic=False, noise=noise, legal=legal)
    assert chosen.tolist() == [[2.0]]


def test_terms_of_the_reference_equal_numerical_derivatives() -> None:
    rng = np.random.default_rng(0)
    logits, values = rng.normal(size=(5, 4)), rng.normal(size=(2, 5, 4))
    legal = np.ones((5, 4))
    legal[0, 1] = legal[3, 2] = 0.0
    _, grad = discrete.policy_objective(logits, values, 0.4, legal)
    direction = rng.normal(size=logits.shape)
    ahead, behind = (
        discrete.policy_objective(logits + h * direction, values, 0.4, legal)[0]
        for h in (1e-6, -1e-6)
    )
    assert (grad * direction).sum() == pytest.approx((ahead - behind) / 2e-6, rel=1e-6)

"""AWAC against a reference written from the paper in float64 NumPy (tests/reference)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms.advantage import clipped_weights, softmax_weights
from rl_training.algorithms.awac import (
    AWACAlgorithm,
    AWACConfig,
    advantages,
    awac_loss,
    awac_target,
    policy_terms,
)
from tests.golden import (
    ACT,
    RATES,
    ROWS,
    TOLERANCE,
    arrays,
    assert_same_metrics,
    assert_same_network,
    freeze,
    gaussian_layers,
    layers,
    make_batch,
    make_learner,
    make_noise,
    reached_by,
    reference_batch,
    set_log_std,
)
from tests.reference import awac as reference

SETTINGS: Any = {"temperature": 0.3, "weight_clip": 1.2}
DECAY = 2.0**-6


def make(**changes: Any) -> AWACAlgorithm:
    settings = {**SETTINGS, "critic_hidden_sizes": (12, 12), "weight_decay": DECAY, **changes}
    learner: AWACAlgorithm = make_learner(AWACAlgorithm, **settings)
    if learner.config.policy == "tanh_mean":
        set_log_std(learner.model.actor, -0.7, -0.2, -0.1)  # type: ignore[arg-type]
    return learner


def helper_losses(learner: AWACAlgorithm, batch: Any, noise: Any) -> Any:
    weighting = learner.config.weighting
    return awac_loss(learner.model, batch, noise, gamma=0.99, weighting=weighting, **SETTINGS)


@pytest.mark.parametrize("weighting", ["clip", "softmax"])
@pytest.mark.parametrize("bounds", [(-6.0, 0.0), (-0.5, -0.15)])
def test_updates_equal_the_reference(weighting: Any, bounds: tuple[float, float]) -> None:
    """Bounds that include every log σ, and bounds that clip two of three."""
    learner = make(weighting=weighting, log_std_bounds=bounds)
    model: Any = learner.model
    state = reference.initial_state(
        gaussian_layers(model.actor), layers(model.critic), layers(model.critic, model.target)
    )
    hyper: Any = {
        **RATES,
        **SETTINGS,
        "weight_decay": DECAY,
        "weight_form": weighting,
        "log_std_bounds": bounds,
        "clip_actions": True,
    }
    for step in range(6):
        batch, noise = make_batch(step), make_noise(learner, 100 + step)
        ours = learner.update(batch, noise)
        state, theirs = reference.full_update(state, reference_batch(batch), arrays(noise), hyper)
        assert_same_metrics(ours, theirs)
    assert_same_network(gaussian_layers(model.actor), state["actor"])
    assert_same_network(layers(model.critic), state["critics"])
    assert_same_network(layers(model.critic, model.target), state["target_critics"])


@pytest.mark.parametrize("form", ["clip", "softmax"])
def test_weights_equal_the_reference(form: Any) -> None:
    advantage = np.random.default_rng(0).normal(size=ROWS)
    scores = torch.from_numpy(advantage) / 0.5
    ours = clipped_weights(scores, clip=3.0) if form == "clip" else softmax_weights(scores)
    expected = reference.advantage_weights(advantage, 0.5, form, 3.0)
    np.testing.assert_allclose(ours.numpy(), expected, **TOLERANCE)


def advantages_and_weights(model: Any, batch: Any, noise: Any, form: str) -> Any:
    """Return the values of the dataset's actions and of sampled actions, each ``[B]``."""
    own = model.actor.explore(batch.obs, noise["action"]).detach()
    advantage = advantages(model, batch, own)
    scores = advantage / SETTINGS["temperature"]
    clipped = clipped_weights(scores, clip=SETTINGS["weight_clip"])
    return advantage, clipped if form == "clip" else softmax_weights(scores)


def test_actor_loss_and_gradient_equal_the_reference() -> None:
    learner = make()
    model: Any = learner.model
    batch, noise = make_batch(), make_noise(learner)
    loss, metrics = policy_terms(model, batch, noise, weighting="clip", **SETTINGS)
    advantage, weights = advantages_and_weights(model, batch, noise, "clip")
    torch.testing.assert_close(metrics["advantage/mean"], advantage.mean(), **TOLERANCE)
    torch.testing.assert_close(metrics["advantage/weight"], weights.mean(), **TOLERANCE)
    assert 0 < int((advantage / 0.3 > np.log(1.2)).sum()) < ROWS  # the clip matters here
    at = batch.obs.numpy(), batch.actions.numpy(), weights.numpy()
    expected, grads = reference.actor_loss(gaussian_layers(model.actor), *at, (-6.0, 0.0))
    np.testing.assert_allclose(loss.item(), expected, **TOLERANCE)
    (flat,) = torch.autograd.grad(loss, model.actor.flat)
    assert_same_network(gaussian_layers(model.actor, flat), grads)


@pytest.mark.parametrize("weighting", ["clip", "softmax"])
@pytest.mark.parametrize("policy", ["tanh_mean", "squashed"])
def test_loss_helper_equals_the_stages_at_frozen_parameters(weighting: Any, policy: Any) -> None:
    learner = make(weighting=weighting, policy=policy)
    batch, noise = make_batch(), make_noise(learner)
    losses = helper_losses(learner, batch, noise)
    freeze(learner)
    metrics = learner.update(batch, noise)
    assert set(losses) == {"loss/critic", "loss/actor"}
    for name, value in losses.items():
        torch.testing.assert_close(metrics[name], value.detach(), rtol=0, atol=0)


@pytest.mark.parametrize("policy", ["tanh_mean", "squashed"])
def test_each_loss_has_gradients_for_its_own_networks(policy: Any) -> None:
    learner = make(policy=policy)
    leaves = {"critic": learner.model.critic.flat, "actor": learner.model.actor.flat}
    for name, loss in helper_losses(learner, make_batch(), make_noise(learner)).items():
        assert reached_by(loss, leaves) == {name.removeprefix("loss/")}


def test_squashed_policy_loss_uses_its_log_probabilities() -> None:
    learner = make(policy="squashed", weighting="softmax")
    model, batch, noise = learner.model, make_batch(), make_noise(learner)
    loss, metrics = policy_terms(model, batch, noise, weighting="softmax", **SETTINGS)
    advantage, weights = advantages_and_weights(model, batch, noise, "softmax")
    torch.testing.assert_close(metrics["advantage/mean"], advantage.mean(), **TOLERANCE)
    expected = -(weights * model.action_logprobs(batch.obs, batch.actions)).mean()
    torch.testing.assert_close(loss, expected, **TOLERANCE)


def test_advantages_are_differences_of_minima() -> None:
    learner = make()
    model, batch = learner.model, make_batch()
    own = make_batch(9).actions
    taken, other = (model.q_values(batch.obs, actions).detach() for actions in (batch.actions, own))
    expected = taken.min(0).values - other.min(0).values
    torch.testing.assert_close(advantages(model, batch, own), expected, **TOLERANCE)


def test_target_clips_the_current_policys_actions() -> None:
    learner = make()
    model, batch = learner.model, make_batch()
    noise = {"next_action": torch.full((ROWS, ACT), 9.0, dtype=torch.float64)}
    target = awac_target(model, batch, noise, gamma=0.99)
    ones = torch.ones(ROWS, ACT, dtype=torch.float64)
    q = model.target_q_values(batch.next_obs, ones).min(0).values
    expected = batch.rewards + 0.99 * (1 - batch.terminations) * q
    torch.testing.assert_close(target, expected.detach(), **TOLERANCE)


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("temperature", 0.0, "greater than 0"),
        ("temperature", -1.0, "greater than 0"),
        ("weight_clip", 0.0, "greater than 0"),
        ("weight_decay", -1e-4, "greater than or equal to 0"),
        ("weighting", "max", "'clip' or 'softmax'"),
        ("policy", "beta", "'tanh_mean' or 'squashed'"),
        ("log_std_bounds", (0.0, 0.0), "the lower bound should be less than the upper"),
        ("critic_hidden_sizes", (), "at least 1"),
    ],
)
def test_bad_values_fail_at_construction(field: str, value: Any, allowed: str) -> None:
    with pytest.raises(ValueError, match=rf"{field}\n.*{allowed}"):
        AWACConfig(**{field: value})

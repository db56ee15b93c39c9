"""AWAC for discrete actions against a float64 NumPy reference."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
import torch

from rl_training.algorithms.awac import AWACAlgorithm
from rl_training.algorithms.discrete_awac import (
    DiscreteAWACAlgorithm,
    advantages,
    discrete_awac_loss,
    policy_terms,
)
from tests.golden import (
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
SIZES = {"critic_hidden_sizes": (16, 16)}


def make(weighting: Literal["clip", "softmax"] = "clip") -> Any:
    options: Any = {"weighting": weighting, "weight_clip": 1.5, "temperature": 0.6}
    return make_discrete_learner(AWACAlgorithm, weight_decay=0.01, **SIZES, **options)


@pytest.mark.parametrize("masks", [(), MASKS])
@pytest.mark.parametrize("weighting", ["clip", "softmax"])
def test_updates_equal_the_reference(
    masks: tuple[str, ...], weighting: Literal["clip", "softmax"]
) -> None:
    learner = make(weighting)
    assert isinstance(learner, DiscreteAWACAlgorithm)
    model = learner.model
    networks = layers(model.actor), layers(model.critic), layers(model.critic, model.target)
    state = discrete.initial_state(*networks)
    hyper: Any = {**RATES, "temperature": 0.6, "weight_form": weighting, "weight_clip": 1.5}
    hyper["weight_decay"] = 0.01
    for step in range(6):
        batch = make_discrete_batch(step, masks=masks)
        ours = learner.update(batch, {})
        state, theirs = discrete.awac_update(state, discrete_reference_batch(batch), hyper)
        assert_same_metrics(ours, theirs)
    assert_same_network(layers(model.actor), state["actor"])
    assert_same_network(layers(model.critic), state["critics"])
    assert_same_network(layers(model.critic, model.target), state["target_critics"])


@pytest.mark.parametrize("weighting", ["clip", "softmax"])
def test_loss_helper_equals_the_update_at_frozen_parameters(
    weighting: Literal["clip", "softmax"],
) -> None:
    learner, batch = make(weighting), make_discrete_batch(masks=MASKS)
    losses = discrete_awac_loss(
        learner.model, batch, temperature=0.6, weighting=weighting, weight_clip=1.5
    )
    freeze(learner)
    metrics = learner.update(batch, {})
    assert {name for name in metrics if name.startswith("loss/")} == set(losses)
    for name, value in losses.items():
        assert torch.equal(value.detach(), metrics[name])
    assert_trace_is_the_update(learner, batch)


def test_advantages_of_the_policy_are_0_on_average() -> None:
    """Σ_a π(a|s) A(s, a) = 0 in every state."""
    model, batch = make().model, make_discrete_batch()
    log_probs = model.actor.log_probs(batch.obs)
    total = torch.zeros(len(batch.obs), dtype=torch.float64)
    for action in range(4):
        taken = batch._replace(actions=torch.full_like(batch.actions, action))
        total += log_probs[:, action].exp() * advantages(model, taken, log_probs)
    np.testing.assert_allclose(total.detach(), 0.0, atol=1e-12)


def test_only_the_actor_learns_from_its_loss() -> None:
    model, batch = make().model, make_discrete_batch()
    terms = policy_terms(model, batch, temperature=0.6, weighting="clip", weight_clip=1.5)
    leaves = {"actor": model.actor.flat, "critic": model.critic.flat}
    assert reached_by(terms.loss, leaves) == {"actor"}

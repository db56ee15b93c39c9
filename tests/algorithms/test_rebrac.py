"""ReBRAC against a reference written from the paper in float64 NumPy (tests/reference)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms.rebrac import (
    ReBRACAlgorithm,
    ReBRACConfig,
    policy_terms,
    rebrac_loss,
    rebrac_target,
    squared_distance,
)
from rl_training.types import Batch
from tests import golden
from tests.golden import (
    ACT,
    RATES,
    ROWS,
    TOLERANCE,
    assert_same_metrics,
    assert_same_network,
    assert_trace_is_the_update,
    freeze,
    layers,
    make_learner,
    make_noise,
    move_norms,
    reached_by,
    reference_batch,
)
from tests.reference import rebrac, td3

SETTINGS: Any = {"actor_penalty": 0.7, "critic_penalty": 0.3}
SETTINGS |= {"target_noise": 0.4, "target_noise_clip": 0.5}


def make_batch(seed: int = 0) -> Batch:
    """Rows that end an episode, and some others, have no next action."""
    g = torch.Generator().manual_seed(1000 + seed)
    batch = golden.make_batch(seed)
    known = (torch.rand(ROWS, generator=g, dtype=torch.float64) < 0.7).double()
    next_actions = torch.rand(ROWS, ACT, generator=g, dtype=torch.float64) * 2 - 1
    mask = known * (1 - batch.terminations)
    return batch._replace(extra={"next_actions": next_actions, "next_action_mask": mask})


def make(**changes: Any) -> ReBRACAlgorithm:
    learner: ReBRACAlgorithm = make_learner(ReBRACAlgorithm, **(SETTINGS | changes))
    move_norms(learner.model.critic)
    return learner


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
    assert set(state["critics"][0]) == {"weights", "biases", "scales_after", "shifts_after"}
    assert set(state["actor"]) == {"weights", "biases"}
    smoothing = {"target_noise": 0.4, "noise_clip": 0.5, "policy_delay": delay}
    hyper: Any = {**RATES, **smoothing, "actor_penalty": 0.7, "critic_penalty": 0.3}
    for step in range(7):
        batch, noise = make_batch(step), make_noise(learner, 100 + step)
        ours = dict(learner.update(batch, noise, learner.due(step)))
        draws: Any = {"next_action": noise["smoothing"].numpy()}
        following: Any = {
            "next_action": batch.next_actions.numpy(),
            "next_action_mask": batch.next_action_mask.numpy(),
        }
        data = reference_batch(batch) | following
        state, theirs = rebrac.full_update(state, data, draws, hyper)
        own = {name: ours.pop(name, None) for name in ("loss/imitation", "policy/value_weight")}
        assert all((value is not None) == (step % delay == delay - 1) for value in own.values())
        assert_same_metrics(ours, theirs)
    assert_same_network(layers(model.actor), state["actor"])
    assert_same_network(layers(model.critic), state["critics"])
    assert_same_network(layers(model.actor, model.actor_target), state["target_actor"])
    assert_same_network(layers(model.critic, model.target), state["target_critics"])


def test_actor_terms_and_gradient_equal_the_reference() -> None:
    learner, batch = make(), make_batch()
    actor = learner.model.actor
    terms = policy_terms(learner.model, batch, learner.config)
    at = batch.obs.numpy(), batch.actions.numpy()
    expected = rebrac.actor_loss(layers(actor), layers(learner.model.critic), *at, 0.7)
    names = "loss/actor", "policy/value_weight", "loss/imitation"
    values = [terms.metrics[name].item() for name in names]
    theirs = [expected.loss, expected.value_weight, expected.imitation]
    np.testing.assert_allclose(values, theirs, **TOLERANCE)
    (flat,) = torch.autograd.grad(terms.loss, actor.flat)
    assert_same_network(layers(actor, flat), expected.grads.network)


def test_distances_are_summed_over_action_axes() -> None:
    distance = squared_distance(torch.tensor([[1.0, 2.0], [0.0, 3.0]]), torch.zeros(2, 2))
    assert distance.tolist() == [5.0, 9.0]


def test_target_penalty_is_the_distance_of_the_smoothed_action() -> None:
    """Row by row: no penalty without a next action or at the end of an episode."""
    learner, batch = make(), make_batch()
    model, noise = learner.model, make_noise(learner)
    # Large noise: every smoothed action is the target action ± the clip, clipped to [-1, 1].
    noise = {"smoothing": 10 * noise["smoothing"].sign()}
    free, bound = (
        rebrac_target(model, batch, noise, ReBRACConfig(**SETTINGS | {"critic_penalty": penalty}))
        for penalty in (0.0, 0.3)
    )
    moved = model.target_actions(batch.next_obs) + 0.5 * noise["smoothing"].sign()
    distance = (moved.clamp(-1, 1) - batch.next_actions).square().sum(-1)
    penalty = 0.99 * 0.3 * batch.next_action_mask * distance
    torch.testing.assert_close(free - bound, penalty.detach(), **TOLERANCE)
    masked = batch.next_action_mask == 0
    assert masked.any()
    assert (batch.terminations[masked] == 0).any()
    assert torch.equal(free[masked], bound[masked])


@pytest.mark.parametrize("discounted", [False, True])
def test_without_penalties_the_target_is_td3s(discounted: bool) -> None:
    learner, batch = make(critic_penalty=0.0), make_batch()
    noise = make_noise(learner)
    if discounted:  # n_step: a discount for each row
        extra = {**batch.extra, "discounts": torch.rand(ROWS, dtype=torch.float64)}
        batch = batch._replace(extra=extra)
    plain = super(ReBRACAlgorithm, learner).critic_target(batch, noise)
    torch.testing.assert_close(learner.critic_target(batch, noise), plain, **TOLERANCE)


def test_loss_helper_equals_the_stages_at_frozen_parameters() -> None:
    learner = make()
    batch, noise = make_batch(), make_noise(learner)
    losses = rebrac_loss(learner.model, batch, noise, gamma=0.99, **SETTINGS)
    freeze(learner)
    metrics = learner.update(batch, noise, frozenset({"actor"}))
    assert set(losses) == {"loss/critic", "loss/actor", "loss/imitation"}
    for name, value in losses.items():
        torch.testing.assert_close(metrics[name], value.detach(), rtol=0, atol=0)
    with pytest.raises(ValueError, match="actor_penaltyy"):
        rebrac_loss(learner.model, batch, noise, actor_penaltyy=0.1)


def test_each_loss_has_gradients_for_its_own_networks() -> None:
    learner = make()
    model = learner.model
    losses = rebrac_loss(model, make_batch(), make_noise(learner), **SETTINGS)
    leaves = {"critic": model.critic.flat, "actor": model.actor.flat}
    reached = {name: reached_by(loss, leaves) for name, loss in losses.items()}
    assert reached == {
        "loss/critic": {"critic"},
        "loss/actor": {"actor"},
        "loss/imitation": {"actor"},
    }


def test_traced_updates_equal_eager_ones() -> None:
    assert_trace_is_the_update(make(), make_batch())


def test_defaults_are_the_authors() -> None:
    config = ReBRACConfig()
    assert config.hidden_sizes == (256, 256, 256)
    assert (config.batch_size, config.learning_rate) == (1024, 1e-3)
    assert (config.policy_delay, config.target_noise, config.target_noise_clip) == (2, 0.2, 0.5)
    layer_norm = {name: trunk.option("layer_norm") for name, trunk in config.trunks().items()}
    assert layer_norm == {"actor": False, "critic": "after"}
    bare = ReBRACConfig(networks={"critic": {"layer_norm": False}})
    assert not bare.trunks()["critic"].option("layer_norm")


@pytest.mark.parametrize("field", ["actor_penalty", "critic_penalty"])
@pytest.mark.parametrize(
    ("value", "allowed"), [(-0.1, "greater than or equal to 0"), (float("nan"), "finite")]
)
def test_bad_values_fail_at_construction(field: str, value: float, allowed: str) -> None:
    with pytest.raises(ValueError, match=rf"{field}\n.*{allowed}"):
        ReBRACConfig(**{field: value})

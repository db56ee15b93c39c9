"""REDQ against a reference written from the paper in float64 NumPy (tests/reference)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms.base import draw_noise
from rl_training.algorithms.redq import (
    REDQAlgorithm,
    REDQConfig,
    mean_actor_loss,
    random_subset,
    redq_loss,
    redq_target,
)
from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig
from tests.golden import (
    SOFT,
    TOLERANCE,
    arrays,
    assert_same_metrics,
    assert_same_network,
    freeze,
    layers,
    make_batch,
    make_learner,
    make_noise,
    reference_batch,
)
from tests.reference import redq as reference

SMALL: Any = {"num_critics": 5, "subset_size": 2, "gradient_updates_per_step": 3}


@pytest.mark.parametrize("alpha", ["auto", 0.25, 0.0])
def test_updates_equal_the_reference(alpha: Any) -> None:
    """Eight updates: two blocks of three, and two updates of the next block."""
    learner = make_learner(REDQAlgorithm, **SMALL, alpha=alpha)
    model = learner.model
    state = reference.initial_state(
        layers(model.actor),
        layers(model.critic),
        log_alpha=0.0,
        fixed_alpha=None if alpha == "auto" else alpha,
        target_critics=layers(model.critic, model.target),
    )
    hyper: Any = {**SOFT, "subset_size": 2, "block": 3}
    assert learner.intervals == {"actor": 3}
    for step in range(8):
        batch, noise = make_batch(step), make_noise(learner, 100 + step)
        ours = learner.update(batch, noise, learner.due(step))
        state, theirs = reference.full_update(state, reference_batch(batch), arrays(noise), hyper)
        if alpha != "auto":
            theirs.pop("alpha_loss", None)
        assert_same_metrics(ours, theirs)
        assert ("loss/actor" in ours) == (step % 3 == 2) == (learner.due(step) == {"actor"})
    assert_same_network(layers(model.actor), state["actor"])
    assert_same_network(layers(model.critic), state["critics"])
    assert_same_network(layers(model.critic, model.target), state["target_critics"])
    if alpha == "auto":
        np.testing.assert_allclose(learner.log_alpha.item(), state["log_alpha"], **TOLERANCE)


def test_actor_loss_and_gradient_equal_the_reference() -> None:
    learner = make_learner(REDQAlgorithm, **SMALL)
    model, batch, noise = learner.model, make_batch(), make_noise(learner)
    policy = model.sample(batch.obs, noise["action"])
    q = model.frozen_q_values(batch.obs, policy.actions)
    loss = mean_actor_loss(q, policy.log_prob, alpha=torch.tensor(0.4, dtype=torch.float64))
    expected = reference.actor_loss(
        layers(model.actor), layers(model.critic), batch.obs.numpy(), noise["action"].numpy(), 0.4
    )
    np.testing.assert_allclose(loss.item(), expected.loss, **TOLERANCE)
    (flat,) = torch.autograd.grad(loss, model.actor.flat)
    pairs = zip(layers(model.actor, flat)["weights"], expected.grads.weights, strict=True)
    for mine, theirs in pairs:
        np.testing.assert_allclose(mine, theirs, **TOLERANCE)


def test_subsets_equal_the_reference_and_are_uniform() -> None:
    counts = torch.zeros(6, 6)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3000):
        uniform = torch.rand(6, generator=generator)
        members = random_subset(uniform, 2)
        assert set(members.tolist()) == set(reference.subset(uniform.numpy(), 2).tolist())
        low, high = sorted(members.tolist())
        counts[low, high] += 1
    pairs = counts[counts > 0]
    assert len(pairs) == 15
    assert pairs.min() > 140  # 200 expected, standard deviation 14
    assert pairs.max() < 260


def test_each_update_draws_a_new_subset() -> None:
    """The subset depends on the update's noise: other noise gives another target."""
    learner = make_learner(REDQAlgorithm, **SMALL)
    batch, noise = make_batch(), make_noise(learner)
    spec = learner.noise(32)
    assert (spec["subset"].kind, spec["subset"].shape) == ("uniform", (5,))
    generator = torch.Generator().manual_seed(9)
    subsets = {
        frozenset(random_subset(draw_noise(spec, generator)["subset"], 2).tolist())
        for _ in range(60)
    }
    assert len(subsets) == 10
    targets = []
    for order in ([0, 1, 2, 3, 4], [1, 0, 2, 3, 4], [4, 3, 2, 1, 0]):
        uniform = torch.tensor(order, dtype=torch.float64) / 5
        targets.append(learner.critic_target(batch, {**noise, "subset": uniform}))
    torch.testing.assert_close(targets[0], targets[1])  # the same two critics
    assert not torch.allclose(targets[0], targets[2])


def test_subset_of_all_is_the_minimum_over_all() -> None:
    learner = make_learner(REDQAlgorithm, **(SMALL | {"subset_size": 5}))
    model, batch, noise = learner.model, make_batch(), make_noise(learner)
    actions = batch.actions
    chosen = model.critic.subset_q_values(
        batch.obs, actions, model.target, random_subset(noise["subset"], 5)
    )
    whole = model.target_q_values(batch.obs, actions)
    torch.testing.assert_close(chosen.amin(0), whole.amin(0), **TOLERANCE)


@pytest.mark.parametrize("alpha", ["auto", 0.2])
def test_loss_helper_equals_the_stages_at_frozen_parameters(alpha: Any) -> None:
    learner = make_learner(REDQAlgorithm, **SMALL, alpha=alpha)
    batch, noise = make_batch(), make_noise(learner)
    losses = redq_loss(
        learner.model,
        batch,
        noise,
        alpha=learner.alpha,
        subset_size=2,
        log_alpha=learner.log_alpha,
        target_entropy=learner.target_entropy,
    )
    freeze(learner)
    metrics = learner.update(batch, noise, frozenset({"actor"}))
    assert {"loss/critic", "loss/actor"} <= set(losses)
    for name, value in losses.items():
        torch.testing.assert_close(metrics[name], value.detach(), rtol=0, atol=0)


def test_target_samples_the_current_actor_and_the_target_critics() -> None:
    learner = make_learner(REDQAlgorithm, **SMALL)
    model, batch, noise = learner.model, make_batch(), make_noise(learner)

    def target() -> torch.Tensor:
        return redq_target(model, batch, noise, alpha=learner.alpha, subset_size=2, gamma=0.99)

    first = target()
    with torch.no_grad():
        model.critic.flat.add_(1.0)
        torch.testing.assert_close(target(), first)
        model.actor.flat.add_(0.1)
        assert not torch.allclose(target(), first)


def test_targets_update_every_time_and_the_actor_at_the_end_of_a_block() -> None:
    learner = make_learner(REDQAlgorithm, **SMALL)
    model = learner.model
    for step in range(3):
        before = [model.target.clone(), model.actor.flat.clone(), learner.log_alpha.clone()]
        learner.update(make_batch(), make_noise(learner), learner.due(step))
        after = [model.target, model.actor.flat, learner.log_alpha]
        moved = [not torch.equal(a, b) for a, b in zip(after, before, strict=True)]
        assert moved == [True, step == 2, step == 2]


@pytest.mark.parametrize(
    ("field", "value"), [("num_critics", 0), ("subset_size", 0), ("gradient_updates_per_step", 0)]
)
def test_bad_values_fail_at_construction(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        REDQConfig(**{field: value})


def test_subset_larger_than_the_ensemble_raises_a_clear_error() -> None:
    with pytest.raises(ConfigError) as caught:
        TrainConfig.load("redq/pendulum", ["subset_size=11"])
    assert str(caught.value) == "subset_size = 11: should be at most num_critics, which is 10."

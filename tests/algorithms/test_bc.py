"""BC against float64 NumPy references (tests/reference), and on data from a known policy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms.bc import (
    BCAlgorithm,
    BCConfig,
    bc_loss,
    negative_log_likelihood,
    squared_error,
)
from rl_training.data import TransitionDataset
from rl_training.runtime.engine import Engine
from rl_training.types import EnvSpec
from tests.golden import (
    ACT,
    DISCRETE,
    RATE,
    SPEC,
    TOLERANCE,
    assert_same_metrics,
    assert_same_network,
    discrete_reference_batch,
    freeze,
    layers,
    make_batch,
    make_discrete_batch,
    reference_batch,
)
from tests.reference import bc as reference
from tests.reference import discrete
from tests.reference import nn as reference_nn
from tests.reference import sac as sac_reference


def make(loss: Any = "mse") -> Any:
    config = BCConfig(hidden_sizes=(16, 16), learning_rate=RATE, loss=loss)
    return BCAlgorithm.build(SPEC, config, seed=3).double()


def test_updates_equal_the_reference() -> None:
    learner = make()
    state = reference.initial_state(layers(learner.model))
    for step in range(5):
        batch = make_batch(step)
        ours = learner.update(batch, {})
        state, theirs = reference.full_update(state, reference_batch(batch), {"actor_lr": RATE})
        assert_same_metrics(ours, theirs)
    assert_same_network(layers(learner.model), state["actor"])


def test_squared_error_equals_the_reference() -> None:
    rng = np.random.default_rng(0)
    predicted, actions = rng.normal(size=(7, 3)), rng.normal(size=(7, 3))
    expected, gradient = reference.imitation_loss(predicted, actions)
    tensor = torch.from_numpy(predicted).requires_grad_()
    loss = squared_error(tensor, torch.from_numpy(actions))
    np.testing.assert_allclose(loss.item(), expected, **TOLERANCE)
    (slope,) = torch.autograd.grad(loss, tensor)
    np.testing.assert_allclose(slope.numpy(), gradient, **TOLERANCE)


def test_likelihood_and_gradient_equal_the_reference() -> None:
    learner, batch = make("likelihood"), make_batch()
    model = learner.model

    def expected(flat: torch.Tensor) -> float:
        outputs, _ = reference_nn.forward(layers(model, flat), batch.obs.numpy())
        mean, log_std, _ = sac_reference.split_actor_output(outputs)
        density = sac_reference.log_prob_of_action(mean, log_std, batch.actions.numpy())
        return -float(density.mean())

    loss = bc_loss(model, batch)["loss/actor"]
    np.testing.assert_allclose(loss.item(), expected(model.flat), **TOLERANCE)
    (slope,) = torch.autograd.grad(loss, model.flat)
    direction = torch.randn(slope.shape, generator=torch.Generator().manual_seed(0)).double()
    ahead, behind = (expected(model.flat + h * direction) for h in (1e-5, -1e-5))
    assert float(slope @ direction) == pytest.approx((ahead - behind) / 2e-5, rel=1e-6)
    assert negative_log_likelihood(torch.tensor([1.0, 3.0])).item() == -2.0


@pytest.mark.parametrize("loss", ["mse", "likelihood"])
def test_loss_helper_equals_the_update_at_frozen_parameters(loss: str) -> None:
    learner, batch = make(loss), make_batch()
    losses = bc_loss(learner.model, batch)
    freeze(learner)
    metrics = learner.update(batch, {})
    assert set(losses) == set(metrics) == {"loss/actor"}
    torch.testing.assert_close(metrics["loss/actor"], losses["loss/actor"].detach())
    held_out = learner.held_out_losses(batch, {})
    torch.testing.assert_close(held_out["loss/actor"], metrics["loss/actor"])


def test_rewards_and_next_observations_are_ignored() -> None:
    batch = make_batch()
    other = batch._replace(
        rewards=batch.rewards + 1, next_obs=-batch.next_obs, terminations=1 - batch.terminations
    )
    learners = make(), make()
    for learner, data in zip(learners, (batch, other), strict=True):
        learner.update(data, {})
    assert torch.equal(learners[0].model.flat, learners[1].model.flat)


def test_only_a_distribution_explores() -> None:
    obs, noise = make_batch().obs, torch.ones(32, ACT).double()
    for loss, differs in (("mse", False), ("likelihood", True)):
        learner = make(loss)
        best = learner.act(obs, deterministic=True)
        tried = learner.act(obs, deterministic=False, noise={"action": noise})
        assert torch.equal(best, tried) != differs


@pytest.mark.parametrize("loss", ["mse", "likelihood"])
def test_learns_the_recorded_policy(loss: Any) -> None:
    """The policy learns actions tanh(2 s1 - s2) from slightly noisy data."""
    rng = np.random.default_rng(0)
    obs = rng.uniform(-1, 1, (2000, 2))
    rule = np.tanh(2 * obs[:, :1] - obs[:, 1:])
    data = {
        "observations": obs,
        "next_observations": obs,
        "actions": np.clip(rule + 0.02 * rng.normal(size=rule.shape), -1, 1),
        "rewards": np.zeros(2000),
        "terminals": np.zeros(2000),
    }
    spec = EnvSpec(2, 1, (-1.0,), (1.0,))
    config = BCConfig(hidden_sizes=(32, 32), batch_size=64, learning_rate=3e-3, loss=loss)
    learner = BCAlgorithm.build(spec, config, seed=0)
    before = learner.act(torch.from_numpy(obs).float(), deterministic=True).numpy()
    assert np.abs(before - rule).mean() > 0.3
    Engine(learner, TransitionDataset.from_dict(data, spec=spec), seed=0).run(500)
    after = learner.act(torch.from_numpy(obs).float(), deterministic=True).numpy()
    assert np.abs(after - rule).mean() < 0.03


# --- Discrete actions -------------------------------------------------------------


@pytest.mark.parametrize("masks", [(), ("legal_actions",)])
def test_discrete_updates_equal_the_reference(masks: tuple[str, ...]) -> None:
    config = BCConfig(hidden_sizes=(16, 16), learning_rate=RATE)
    learner = BCAlgorithm.build(DISCRETE, config, seed=3).double()
    model: Any = learner.model
    state = discrete.initial_state(layers(model))
    for step in range(5):
        batch = make_discrete_batch(step, masks=masks)
        helper = bc_loss(model, batch)
        ours = learner.update(batch, {})
        state, theirs = discrete.bc_update(
            state, discrete_reference_batch(batch), {"actor_lr": RATE}
        )
        assert_same_metrics(ours, theirs)
        assert torch.equal(helper["loss/actor"].detach(), ours["loss/actor"])
    assert_same_network(layers(model), state["actor"])


def test_discrete_likelihood_is_the_cross_entropy() -> None:
    learner = BCAlgorithm.build(DISCRETE, BCConfig(hidden_sizes=(16, 16)), seed=3).double()
    model, batch = learner.model, make_discrete_batch()
    expected = torch.nn.functional.cross_entropy(model(batch.obs), batch.actions[:, 0].long())
    torch.testing.assert_close(bc_loss(model, batch)["loss/actor"], expected)

"""DDPG and TD3 against references written from the papers in float64 NumPy (tests/reference)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms.base import polyak_update, td_target
from rl_training.algorithms.ddpg import (
    DDPGAlgorithm,
    DDPGConfig,
    actor_loss,
    ddpg_loss,
    ddpg_target,
)
from rl_training.algorithms.td3 import (
    TD3Algorithm,
    TD3Config,
    smoothed_actions,
    td3_loss,
    td3_target,
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
    reference_batch,
)
from tests.reference import ddpg as ddpg_reference
from tests.reference import td3 as reference

SMOOTHING: Any = {"target_noise": 0.4, "target_noise_clip": 0.5}


def helper_losses(learner: Any, batch: Any, noise: Any) -> Any:
    if isinstance(learner, TD3Algorithm):
        return td3_loss(learner.model, batch, noise, gamma=0.99, **SMOOTHING)
    return ddpg_loss(learner.model, batch, gamma=0.99)


def make(kind: Any, **changes: Any) -> Any:
    return make_learner(kind, **(SMOOTHING if kind is TD3Algorithm else {}), **changes)


@pytest.mark.parametrize("delay", [1, 2, 3])
def test_td3_updates_equal_the_reference(delay: int) -> None:
    """Seven updates cross the policy delay several times and end within one."""
    learner = make(TD3Algorithm, policy_delay=delay)
    model = learner.model
    state = reference.initial_state(
        layers(model.actor),
        layers(model.critic),
        layers(model.actor, model.actor_target),
        layers(model.critic, model.target),
    )
    hyper: Any = {**RATES, "target_noise": 0.4, "noise_clip": 0.5, "policy_delay": delay}
    assert learner.intervals == {"actor": delay}
    for step in range(7):
        batch, noise = make_batch(step), make_noise(learner, 100 + step)
        ours = learner.update(batch, noise, learner.due(step))
        draws: Any = {"next_action": noise["smoothing"].numpy()}
        state, theirs = reference.full_update(state, reference_batch(batch), draws, hyper)
        assert_same_metrics(ours, theirs)
        assert ("loss/actor" in ours) == (step % delay == delay - 1)
    assert_same_network(layers(model.actor), state["actor"])
    assert_same_network(layers(model.critic), state["critics"])
    assert_same_network(layers(model.actor, model.actor_target), state["target_actor"])
    assert_same_network(layers(model.critic, model.target), state["target_critics"])


def test_ddpg_updates_equal_the_reference() -> None:
    learner = make(DDPGAlgorithm)
    model = learner.model
    state = ddpg_reference.initial_state(
        layers(model.actor),
        layers(model.critic)[0],
        layers(model.actor, model.actor_target),
        layers(model.critic, model.target)[0],
    )
    for step in range(5):
        batch = make_batch(step)
        ours = learner.update(batch, make_noise(learner))
        state, theirs = ddpg_reference.full_update(state, reference_batch(batch), RATES)
        assert_same_metrics(ours, theirs)
    assert_same_network(layers(model.actor), state["actor"])
    assert_same_network(layers(model.critic), [state["critic"]])
    assert_same_network(layers(model.actor, model.actor_target), state["target_actor"])
    assert_same_network(layers(model.critic, model.target), [state["target_critic"]])


def test_terms_equal_the_reference() -> None:
    rng = np.random.default_rng(0)
    actions, noise = np.tanh(2 * rng.normal(size=(64, 3))), rng.normal(size=(64, 3))
    tensors = torch.from_numpy(actions), torch.from_numpy(noise)
    ours = smoothed_actions(*tensors, scale=0.6, clip=0.5)
    expected = reference.smoothed_action(actions, noise, 0.6, 0.5)
    np.testing.assert_allclose(ours.numpy(), expected, **TOLERANCE)
    assert (np.abs(0.6 * noise) > 0.5).any()  # both clips matter in this draw
    assert (np.abs(actions + np.clip(0.6 * noise, -0.5, 0.5)) > 1).any()


@pytest.mark.parametrize("kind", [DDPGAlgorithm, TD3Algorithm])
def test_actor_loss_and_gradient_equal_the_reference(kind: Any) -> None:
    learner = make(kind)
    model, batch = learner.model, make_batch()
    loss = actor_loss(model.policy_q_values(batch.obs))
    expected = ddpg_reference.actor_loss(
        layers(model.actor), layers(model.critic)[0], batch.obs.numpy()
    )
    np.testing.assert_allclose(loss.item(), expected.loss, **TOLERANCE)
    (flat,) = torch.autograd.grad(loss, model.actor.flat)
    pairs = zip(layers(model.actor, flat)["weights"], expected.grads.weights, strict=True)
    for mine, theirs in pairs:
        np.testing.assert_allclose(mine, theirs, **TOLERANCE)


@pytest.mark.parametrize("kind", [DDPGAlgorithm, TD3Algorithm])
def test_loss_helper_equals_the_stages_at_frozen_parameters(kind: Any) -> None:
    learner = make(kind)
    batch, noise = make_batch(), make_noise(learner)
    losses = helper_losses(learner, batch, noise)
    freeze(learner)
    metrics = learner.update(batch, noise, frozenset({"actor"}))
    assert set(losses) == {"loss/critic", "loss/actor"}
    for name, value in losses.items():
        torch.testing.assert_close(metrics[name], value.detach(), rtol=0, atol=0)


@pytest.mark.parametrize("kind", [DDPGAlgorithm, TD3Algorithm])
def test_each_loss_has_gradients_for_its_own_networks(kind: Any) -> None:
    learner = make(kind)
    losses = helper_losses(learner, make_batch(), make_noise(learner))
    leaves = {"critic": learner.model.critic.flat, "actor": learner.model.actor.flat}
    for name, loss in losses.items():
        found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        reached = {key for key, grad in zip(leaves, found, strict=True) if grad is not None}
        assert reached == {name.removeprefix("loss/")}


@pytest.mark.parametrize("kind", [DDPGAlgorithm, TD3Algorithm])
def test_target_uses_only_the_target_networks(kind: Any) -> None:
    learner = make(kind)
    model, batch, noise = learner.model, make_batch(), make_noise(learner)

    def target() -> torch.Tensor:
        result: torch.Tensor = learner.critic_target(batch, noise)
        return result

    first = target()
    with torch.no_grad():
        model.critic.flat.add_(1.0)
        model.actor.flat.add_(1.0)
    torch.testing.assert_close(target(), first)
    polyak_update(model.actor_target, model.actor.flat, 0.5)
    assert not torch.allclose(target(), first)


def test_only_critics_update_between_policy_steps() -> None:
    learner = make(TD3Algorithm)
    model = learner.model
    kept = [model.actor.flat, model.actor_target, model.target]
    before = [tensor.detach().clone() for tensor in kept]
    critic = model.critic.flat.detach().clone()
    metrics = learner.update(make_batch(), make_noise(learner), learner.due(0))
    assert all(torch.equal(a, b) for a, b in zip(kept, before, strict=True))
    assert not torch.equal(model.critic.flat, critic)
    assert "loss/actor" not in metrics
    learner.update(make_batch(), make_noise(learner), learner.due(1))
    assert not any(torch.equal(a, b) for a, b in zip(kept, before, strict=True))


def test_td3_without_its_additions_is_ddpg() -> None:
    """Without smoothing and with equal twins, the target is DDPG's."""
    twin = make_learner(TD3Algorithm, target_noise=0.0)
    model, batch = twin.model, make_batch()
    views = model.critic.views(model.target)
    for view in views:
        view[1] = view[0]
    smoothed = td3_target(
        model, batch, make_noise(twin), gamma=0.9, target_noise=0.0, target_noise_clip=0.5
    )
    torch.testing.assert_close(smoothed, ddpg_target(model, batch, gamma=0.9))


def test_time_limits_bootstrap_and_terminations_do_not() -> None:
    one = torch.ones(1)
    value = torch.full((1,), 10.0)
    assert td_target(one, 0 * one, value, gamma=0.5).item() == 6.0
    assert td_target(one, one, value, gamma=0.5).item() == 1.0


@pytest.mark.parametrize("kind", [DDPGAlgorithm, TD3Algorithm])
def test_exploration_is_gaussian_and_clipped(kind: Any) -> None:
    learner = make(kind, exploration_noise=0.7)
    obs = 5 * make_batch().obs
    noise = {"action": torch.randn(len(obs), 3, dtype=torch.float64)}
    explored = learner.act(obs, deterministic=False, noise=noise)
    expected = ddpg_reference.exploration_action(
        learner.act(obs, deterministic=True).numpy(), noise["action"].numpy(), 0.7
    )
    np.testing.assert_allclose(explored.numpy(), expected, **TOLERANCE)
    assert (explored.abs() == 1).any()


@pytest.mark.parametrize(
    ("config", "field", "value"),
    [
        (DDPGConfig, "exploration_noise", -0.1),
        (DDPGConfig, "tau", 0.0),
        (TD3Config, "policy_delay", 0),
        (TD3Config, "target_noise", -0.1),
        (TD3Config, "target_noise_clip", -1.0),
        (TD3Config, "target_noise", float("nan")),
    ],
)
def test_bad_values_fail_at_construction(config: Any, field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        config(**{field: value})


def test_first_critic_equals_its_member_of_the_stack() -> None:
    learner = make(TD3Algorithm)
    model, batch = learner.model, make_batch()
    actions = batch.actions.clone().requires_grad_()
    alone = model.critic.first_q_values(batch.obs, actions)
    stacked = model.frozen_q_values(batch.obs, actions)[0]
    torch.testing.assert_close(alone, stacked, **TOLERANCE)
    slopes = [torch.autograd.grad(q.sum(), actions)[0] for q in (alone, stacked)]
    torch.testing.assert_close(*slopes, **TOLERANCE)

"""DQN against a float64 NumPy reference written from the papers, and its exploration."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms.base import draw_noise, td_target
from rl_training.algorithms.dqn import (
    DQNAlgorithm,
    DQNConfig,
    dqn_loss,
    dqn_target,
    huber_loss,
    next_values,
)
from rl_training.algorithms.optimizers import clip_norm
from rl_training.types import Batch, EnvSpec
from tests import golden
from tests.golden import RATE, TOLERANCE, assert_same_network, layers
from tests.reference import dqn as reference
from tests.reference.ddpg import td_target as reference_target
from tests.reference.nn import forward, mlp_backward

OBS, ACTIONS, ROWS = 5, 4, 32
SPEC = EnvSpec(OBS, ACTIONS, discrete=True)


def make_batch(seed: int = 0) -> Batch:
    g = torch.Generator().manual_seed(seed)
    kind = torch.float64
    return Batch(
        obs=torch.randn(ROWS, OBS, generator=g, dtype=kind),
        actions=torch.randint(ACTIONS, (ROWS, 1), generator=g).double(),
        rewards=3 * torch.randn(ROWS, generator=g, dtype=kind),  # errors on both sides of 1
        next_obs=torch.randn(ROWS, OBS, generator=g, dtype=kind),
        terminations=(torch.rand(ROWS, generator=g, dtype=kind) < 0.3).double(),
    )


def make_learner(**changes: Any) -> DQNAlgorithm:
    settings = {"hidden_sizes": (16, 16), "learning_rate": RATE, **changes}
    return DQNAlgorithm.build(SPEC, DQNConfig(**settings), seed=3).double()


def reference_batch(batch: Batch) -> Any:
    arrays = golden.reference_batch(batch)
    return arrays | {"action": arrays["action"][:, 0].astype(np.int64)}


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize(("interval", "tau"), [(3, 1.0), (1, 0.1), (2, 0.3), (1, 1.0)])
def test_updates_equal_the_reference(
    double: bool, layer_norm: bool, interval: int, tau: float
) -> None:
    """Eight updates, with hard copies and with soft target updates at intervals of 1 and 2."""
    settings = {"double": double, "layer_norm": layer_norm}
    learner = make_learner(**settings, target_update_interval=interval, tau=tau, gamma=0.9)
    model = learner.model
    assert ("scales" in layers(model)) == layer_norm
    with torch.no_grad():
        model.target.mul_(0.7).add_(0.05)  # the target differs from the first update on
    state = reference.initial_state(layers(model), layers(model, model.target))
    hyper: Any = {
        "gamma": 0.9,
        "tau": tau,
        "target_period": interval,
        "learning_rate": RATE,
        "double": double,
        "max_grad_norm": 10.0,
    }
    copies = 0
    for step in range(8):
        batch = make_batch(step)
        ours = learner.update(batch, {}, learner.due(step))
        state, theirs = reference.full_update(state, reference_batch(batch), hyper)
        pairs = {"loss/q": "loss", "q/mean": "q_mean", "q/target": "target_mean"}
        assert set(ours) == set(pairs) | {"policy/epsilon"}
        for mine, expected in pairs.items():
            np.testing.assert_allclose(float(ours[mine]), theirs[expected], **TOLERANCE)
        assert_same_network(layers(model), state["network"])
        assert_same_network(layers(model, model.target), state["target_network"])
        copies += torch.equal(model.target, model.flat)
    assert copies == (8 // interval if tau == 1.0 else 0)


@pytest.mark.parametrize("limit", [0.1, 0.24, None])
def test_gradient_clipping_equals_the_reference(limit: float | None) -> None:
    """Unclipped norms are 0.15 to 0.4: one limit is below all of them, one in between."""
    learner = make_learner(max_grad_norm=limit, gamma=0.9, target_update_interval=3)
    model = learner.model
    state = reference.initial_state(layers(model))
    hyper: Any = {"gamma": 0.9, "tau": 1.0, "target_period": 3, "learning_rate": RATE}
    hyper |= {"double": False, "max_grad_norm": limit}
    for step in range(8):
        batch = make_batch(step)
        learner.update(batch, {}, learner.due(step))
        state, _ = reference.full_update(state, reference_batch(batch), hyper)
        assert_same_network(layers(model), state["network"])


def test_gradients_are_clipped_per_member() -> None:
    gradient = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]], dtype=torch.float64)
    clipped = clip_norm(gradient, 1.0)
    torch.testing.assert_close(clipped[0], torch.tensor([0.6, 0.8]).double(), rtol=1e-6, atol=0)
    assert torch.equal(clipped[1:], gradient[1:])


@pytest.mark.parametrize("double", [False, True])
def test_loss_and_gradient_equal_the_reference(double: bool) -> None:
    learner = make_learner()
    model, batch = learner.model, make_batch()
    with torch.no_grad():
        model.target.mul_(-0.5)
    loss = dqn_loss(model, batch, gamma=0.9, double=double)["loss/q"]
    (flat,) = torch.autograd.grad(loss, model.flat)
    arrays = reference_batch(batch)
    online, target_net = layers(model), layers(model, model.target)
    next_q = forward(online, arrays["next_observation"])[0]
    next_target = forward(target_net, arrays["next_observation"])[0]
    value = reference.next_value(next_q, next_target, double)
    target = reference_target(arrays["reward"], arrays["termination"], value, 0.9)
    q, cache = forward(online, arrays["observation"])
    expected, slope = reference.dqn_loss(q, arrays["action"], target)
    np.testing.assert_allclose(loss.item(), expected, **TOLERANCE)
    assert_same_network(layers(model, flat), mlp_backward(cache, slope).network)


def test_terms_equal_the_reference() -> None:
    error = np.array([-3.0, -1.0, -0.4, 0.0, 0.7, 1.0, 2.5])
    value, slope = reference.huber(error)
    q = torch.from_numpy(error).requires_grad_()
    loss = huber_loss(q, torch.zeros(7, dtype=torch.float64))
    (gradient,) = torch.autograd.grad(loss, q)
    np.testing.assert_allclose(loss.item(), value.mean(), **TOLERANCE)
    np.testing.assert_allclose(gradient.numpy(), slope / 7, **TOLERANCE)


def test_double_dqn_selects_online_and_evaluates_with_the_target() -> None:
    online = torch.tensor([[1.0, 5.0, 5.0], [9.0, 0.0, 0.0]])
    target = torch.tensor([[10.0, 20.0, 30.0], [40.0, 50.0, 60.0]])
    values = target.unsqueeze(-1)  # [B, A, 1]
    assert next_values(values, online).tolist() == [[20.0], [40.0]]  # ties select the first
    assert next_values(values, target).tolist() == [[30.0], [60.0]]


@pytest.mark.parametrize("double", [False, True])
def test_target_ranges_over_the_legal_actions(double: bool) -> None:
    model, batch = make_learner().model, make_batch()
    with torch.no_grad():
        model.target.mul_(-0.5)
    legal = (torch.rand(ROWS, ACTIONS, generator=torch.Generator().manual_seed(1)) < 0.4).double()
    legal[torch.arange(ROWS), torch.arange(ROWS) % ACTIONS] = 1.0
    masked = batch._replace(extra={"next_legal_actions": legal})
    found = dqn_target(model, masked, gamma=0.9, double=double).squeeze(-1)
    arrays = reference_batch(batch)
    next_q = forward(layers(model), arrays["next_observation"])[0]
    next_target = forward(layers(model, model.target), arrays["next_observation"])[0]
    value = reference.next_value(next_q, next_target, double, legal.numpy())
    expected = reference_target(arrays["reward"], arrays["termination"], value, 0.9)
    np.testing.assert_allclose(found.numpy(), expected, **TOLERANCE)
    free = dqn_target(model, batch, gamma=0.9, double=double).squeeze(-1)
    assert not torch.allclose(found, free)


def test_loss_helper_equals_the_update_at_frozen_parameters() -> None:
    learner = make_learner(double=True, gamma=0.95)
    batch = make_batch()
    losses = dqn_loss(learner.model, batch, gamma=0.95, double=True)
    learner.scale_learning_rates(0.0)
    metrics = learner.update(batch, {}, learner.due(0))
    for name, value in losses.items():
        torch.testing.assert_close(metrics[name], value.detach(), rtol=0, atol=0)


def test_target_depends_on_the_target_network_only() -> None:
    learner, batch = make_learner(), make_batch()

    def target() -> torch.Tensor:
        return dqn_target(learner.model, batch, gamma=0.99, double=False)

    first = target()
    assert not first.requires_grad
    with torch.no_grad():
        learner.model.flat.add_(1.0)
        torch.testing.assert_close(target(), first)
        learner.model.target.add_(0.1)
        assert not torch.allclose(target(), first)


def test_time_limits_bootstrap_and_terminations_do_not() -> None:
    one = torch.ones(1, dtype=torch.float64)
    running = td_target(one, 0 * one, 10 * one, gamma=0.5)
    ended = td_target(one, one, 10 * one, gamma=0.5)
    assert (running.item(), ended.item()) == (6.0, 1.0)


def test_target_is_due_at_the_end_of_its_interval() -> None:
    learner = make_learner(target_update_interval=4)
    assert ["target" in learner.due(updates) for updates in range(5)] == [0, 0, 0, 1, 0]
    soft = make_learner(target_update_interval=1, tau=0.005)
    assert soft.all_due() == [soft.due(0)] == [{"target"}]


# --- Acting -------------------------------------------------------------------


def test_epsilon_decays_linearly_with_environment_steps() -> None:
    learner = make_learner(epsilon_start=0.9, epsilon_end=0.1, epsilon_decay_steps=80)
    assert float(learner.epsilon) == pytest.approx(0.9)
    found = []
    for step in (0, 20, 40, 80, 10_000):
        learner.explore_at(step)
        found.append(float(learner.epsilon))
    assert found == pytest.approx([0.9, 0.7, 0.5, 0.1, 0.1])
    for step in range(5):
        learner.update(make_batch(step), {}, learner.due(step))
    assert float(learner.epsilon) == pytest.approx(0.1)
    assert "epsilon" in learner.state_dict()


def test_greedy_action_is_the_first_maximum() -> None:
    learner = make_learner()
    with torch.no_grad():
        learner.model.flat.zero_()
        learner.model.views(learner.model.flat)[-1].copy_(torch.tensor([1.0, 7.0, 7.0, 2.0]))
    actions = learner.act(torch.randn(6, OBS, dtype=torch.float64), deterministic=True)
    assert actions.tolist() == [[1.0]] * 6


@pytest.mark.parametrize("epsilon", [0.0, 0.25, 1.0])
def test_actions_are_random_with_probability_epsilon(epsilon: float) -> None:
    learner = make_learner(epsilon_start=epsilon, epsilon_end=epsilon).float()
    rows = 40_000
    obs = torch.randn(1, OBS).expand(rows, OBS)
    greedy = learner.act(obs, deterministic=True)
    noise = draw_noise(learner.act_noise(rows), torch.Generator().manual_seed(0))
    explored = learner.act(obs, deterministic=False, noise=noise)
    assert explored.shape == (rows, 1)
    counts = torch.bincount(explored.long().flatten(), minlength=ACTIONS) / rows
    expected = torch.full((ACTIONS,), epsilon / ACTIONS)
    expected[int(greedy[0])] += 1 - epsilon
    torch.testing.assert_close(counts, expected, atol=0.01, rtol=0)


def test_actions_are_legal_with_and_without_exploration() -> None:
    learner = make_learner(epsilon_start=0.5).float()
    rows = 2_000
    obs = torch.randn(rows, OBS, generator=torch.Generator().manual_seed(0))
    noise = draw_noise(learner.act_noise(rows), torch.Generator().manual_seed(1))
    free = learner.act(obs, deterministic=True)
    legal = torch.ones(rows, ACTIONS).scatter(-1, free.long(), 0.0)  # all but the best one
    greedy = learner.act(obs, deterministic=True, legal=legal)
    explored = learner.act(obs, deterministic=False, noise=noise, legal=legal)
    for actions in (greedy, explored):
        assert (legal.gather(-1, actions.long()) == 1).all()
    second = learner.model.q_values(obs).topk(2).indices[:, 1:]
    assert torch.equal(greedy.long(), second)
    assert 0.2 < (explored != greedy).float().mean() < 0.5


@pytest.mark.parametrize("actions", [2, 3, 7, 1000, 65_537])
def test_largest_uniform_number_gives_the_last_action(actions: int) -> None:
    learner = DQNAlgorithm.build(EnvSpec(1, actions, discrete=True), DQNConfig(hidden_sizes=(2,)))
    largest = torch.tensor([[0.0, 1.0 - 2.0**-24]])
    action = learner.act(torch.zeros(1, 1), deterministic=False, noise={"explore": largest})
    assert action.item() == actions - 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epsilon_start", 1.5),
        ("epsilon_end", -0.1),
        ("epsilon_decay_steps", 0),
        ("target_update_interval", 0),
        ("double", "perhaps"),
        ("max_grad_norm", 0.0),
        ("tau", 0.0),
        ("hidden_sizes", ()),
        ("learning_rate", float("nan")),
        ("batch_size", 0),
        ("train_frequency", 0),
        ("buffer_capacity", 0),
        ("learning_starts", -1),
    ],
)
def test_bad_values_fail_at_construction(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        DQNConfig(**{field: value})

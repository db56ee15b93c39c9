"""Gradients of the references against central differences, and their limiting cases."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pytest

from tests.reference import (
    awac,
    bc,
    cql,
    ddpg,
    dqn,
    dqn_extensions,
    edac,
    gaussian,
    iql,
    nn,
    rebrac,
    redq,
    rlpd,
    sac,
    td3,
    td3_bc,
    tqc,
)

OBS, ACT, ROWS, RATE = 3, 2, 5, 1e-2
DETERMINISTIC: Any = {"gamma": 0.9, "tau": 0.1, "actor_lr": RATE, "critic_lr": 2 * RATE}
SOFT: Any = {
    **DETERMINISTIC,
    "alpha_lr": RATE,
    "target_entropy": -float(ACT),
    "temperature_form": "log_alpha",
}
SMOOTHED: Any = {**DETERMINISTIC, "target_noise": 0.4, "noise_clip": 0.5, "policy_delay": 2}


def make_network(
    rng: np.random.Generator, *layers: int, norm: bool | Literal["after"] = False
) -> nn.Network:
    pairs = list(pairwise(layers))
    net = {
        "weights": [rng.normal(size=pair) / np.sqrt(pair[0]) for pair in pairs],
        "biases": [0.3 * rng.normal(size=out) for _, out in pairs],
    }
    if norm:
        scales, shifts = nn.norm_keys(norm == "after")
        net[scales] = [1.0 + 0.3 * rng.normal(size=out) for _, out in pairs[:-1]]
        net[shifts] = [0.3 * rng.normal(size=out) for _, out in pairs[:-1]]
    return net


def make_actor(rng: np.random.Generator, outputs: int = ACT) -> nn.Network:
    return make_network(rng, OBS, 7, 6, outputs)


def make_critics(rng: np.random.Generator, count: int, **changes: Any) -> list[nn.Network]:
    outputs = changes.pop("outputs", 1)
    return [make_network(rng, OBS + ACT, 8, 7, outputs, **changes) for _ in range(count)]


def make_batch(rng: np.random.Generator) -> nn.Batch:
    return {
        "observation": rng.normal(size=(ROWS, OBS)),
        "action": rng.uniform(-1.0, 1.0, size=(ROWS, ACT)),
        "reward": rng.normal(size=ROWS),
        "next_observation": rng.normal(size=(ROWS, OBS)),
        "termination": (np.arange(ROWS) % 3 == 0).astype(np.float64),
    }


def differences(loss: Callable[[nn.Array], float], at: nn.Array, step: float = 1e-6) -> nn.Array:
    """Compute central differences at an array, entry by entry."""
    grad = np.zeros_like(at)
    for index in np.ndindex(at.shape):
        values = []
        for sign in (1.0, -1.0):
            moved = at.copy()
            moved[index] += sign * step
            values.append(loss(moved))
        grad[index] = (values[0] - values[1]) / (2.0 * step)
    return grad


def assert_slopes(loss: Callable[[nn.Array], float], at: nn.Array, grad: nn.Array) -> None:
    expected = differences(loss, at)
    assert np.abs(expected).max() > 0.0, "the loss has no gradient"
    np.testing.assert_allclose(grad, expected, rtol=1e-6, atol=1e-8)


def assert_gradient(
    loss: Callable[[nn.Network], float], net: nn.Network, grads: nn.Network
) -> None:
    """Assert that the gradient of every array of a network equals central differences."""
    assert set(grads) == set(net)
    for key, arrays in net.items():
        for i, array in enumerate(arrays):

            def moved(value: nn.Array, key: str = key, i: int = i) -> float:
                changed = {**net, key: [*net[key][:i], value, *net[key][i + 1 :]]}
                return loss(changed)

            assert_slopes(moved, array, grads[key][i])


def assert_equal_networks(first: nn.Network, second: nn.Network) -> None:
    assert set(first) == set(second)
    for key in first:
        for one, two in zip(first[key], second[key], strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-14)


def changed(first: nn.Network, second: nn.Network) -> bool:
    pairs = zip(first["weights"], second["weights"], strict=True)
    return any(not np.array_equal(one, two) for one, two in pairs)


@pytest.mark.parametrize("norm", [False, True, "after"])
@pytest.mark.parametrize("layers", [(3, 2), (3, 5, 1), (3, 5, 4, 6, 2)])
def test_backward_equals_differences(
    layers: tuple[int, ...], norm: bool | Literal["after"]
) -> None:
    rng = np.random.default_rng(0)
    net = make_network(rng, *layers, norm=norm if len(layers) > 2 else False)
    x, mix = rng.normal(size=(ROWS, layers[0])), rng.normal(size=(ROWS, layers[-1]))
    grads = nn.mlp_backward(nn.forward(net, x)[1], mix)
    assert_gradient(lambda net: float((nn.forward(net, x)[0] * mix).sum()), net, grads.network)
    assert_slopes(lambda x: float((nn.forward(net, x)[0] * mix).sum()), x, grads.inputs)


def test_weight_decay_is_added_to_the_gradient_before_the_moments() -> None:
    rng = np.random.default_rng(1)
    net, grads = make_actor(rng), make_actor(rng)
    joined = {key: [g + 0.1 * p for p, g in zip(net[key], grads[key], strict=True)] for key in net}
    with_decay, _ = nn.adam_network(net, grads, nn.fresh_adam(net), RATE, weight_decay=0.1)
    without, _ = nn.adam_network(net, joined, nn.fresh_adam(net), RATE)
    assert_equal_networks(with_decay, without)


def test_deterministic_actor_gradient() -> None:
    rng = np.random.default_rng(2)
    actor, (critic,), batch = make_actor(rng), make_critics(rng, 1), make_batch(rng)
    observation = batch["observation"]
    result = ddpg.actor_loss(actor, critic, observation)
    assert_gradient(
        lambda net: ddpg.actor_loss(net, critic, observation).loss, actor, result.grads.network
    )
    q, target = rng.normal(size=ROWS), rng.normal(size=ROWS)
    assert_slopes(lambda q: ddpg.critic_loss(q, target)[0], q, ddpg.critic_loss(q, target)[1])


def test_td3_without_its_three_changes_is_ddpg() -> None:
    rng = np.random.default_rng(3)
    actor, critics = make_actor(rng), make_critics(rng, 1)
    batches = [make_batch(rng) for _ in range(5)]
    noise = {"next_action": rng.normal(size=(ROWS, ACT))}
    one, _ = nn.run_updates(
        ddpg.full_update,
        ddpg.initial_state(actor, critics[0]),
        [(batch,) for batch in batches],
        DETERMINISTIC,
    )
    hyper = {**SMOOTHED, "target_noise": 0.0, "policy_delay": 1}
    two, _ = nn.run_updates(
        td3.full_update,
        td3.initial_state(actor, critics),
        [(batch, noise) for batch in batches],
        hyper,
    )
    for name in ("actor", "target_actor"):
        assert_equal_networks(one[name], two[name])
    assert_equal_networks(one["critic"], two["critics"][0])
    assert_equal_networks(one["target_critic"], two["target_critics"][0])


def test_td3_updates_actor_and_targets_on_policy_steps_only() -> None:
    rng = np.random.default_rng(4)
    state: Any = td3.initial_state(make_actor(rng), make_critics(rng, 2))
    for count in range(1, 6):
        before = state
        noise: Any = {"next_action": 3.0 * rng.normal(size=(ROWS, ACT))}
        state, metrics = td3.full_update(before, make_batch(rng), noise, SMOOTHED)
        assert changed(before["critics"][0], state["critics"][0])
        moved = {
            changed(before["actor"], state["actor"]),
            changed(before["target_actor"], state["target_actor"]),
            changed(before["target_critics"][1], state["target_critics"][1]),
            "actor_loss" in metrics,
        }
        assert moved == {count % 2 == 0}
        assert (before["updates"], state["updates"]) == (count - 1, count)


def test_td3_target_is_the_minimum_of_the_target_critics() -> None:
    rng = np.random.default_rng(32)
    actors, batch = [make_actor(rng) for _ in range(2)], make_batch(rng)
    critics, targets = make_critics(rng, 2), make_critics(rng, 2)
    state = td3.initial_state(actors[0], critics, actors[1], targets)
    noise: Any = {"next_action": normals(rng)}
    _, metrics = td3.full_update(state, batch, noise, SMOOTHED)
    seen = batch["next_observation"]
    smoothing = np.clip(0.4 * noise["next_action"], -0.5, 0.5)
    action = np.clip(nn.tanh_forward(actors[1], seen)[0] + smoothing, -1.0, 1.0)
    pair = np.concatenate([seen, action], axis=1)
    one, two = (nn.forward(net, pair)[0][:, 0] for net in targets)
    target = batch["reward"] + 0.9 * (1.0 - batch["termination"]) * np.minimum(one, two)
    assert metrics["target_mean"] == pytest.approx(target.mean(), rel=1e-12)


def test_smoothing_clips_the_noise_and_then_the_action() -> None:
    action, noise = np.array([0.0, 0.9, 0.0, -0.9]), np.array([1.0, 1.0, 10.0, -10.0])
    smoothed = td3.smoothed_action(action, noise, 0.2, 0.5)
    np.testing.assert_allclose(smoothed, [0.2, 1.0, 0.5, -1.0])


def make_discrete_batch(rng: np.random.Generator, actions: int) -> dqn.DiscreteBatch:
    batch = make_batch(rng)
    return {
        "observation": batch["observation"],
        "action": rng.integers(actions, size=ROWS),
        "reward": 3.0 * batch["reward"],
        "next_observation": batch["next_observation"],
        "termination": batch["termination"],
    }


def test_dqn_gradient_in_both_parts_of_the_huber_loss() -> None:
    rng = np.random.default_rng(5)
    net, batch = make_network(rng, OBS, 6, 4), make_discrete_batch(rng, 4)
    target = 2.0 * rng.normal(size=ROWS)

    def loss(net: nn.Network) -> float:
        q, _ = nn.forward(net, batch["observation"])
        return dqn.dqn_loss(q, batch["action"], target)[0]

    q, cache = nn.forward(net, batch["observation"])
    large = np.abs(q[np.arange(ROWS), batch["action"]] - target) > 1.0
    assert large.any()
    assert not large.all()
    _, grad = dqn.dqn_loss(q, batch["action"], target)
    assert_gradient(loss, net, nn.mlp_backward(cache, grad).network)


def test_double_dqn_scores_the_online_choice_with_the_target() -> None:
    online, target = np.array([[1.0, 2.0, 0.0]]), np.array([[5.0, 3.0, 9.0]])
    assert dqn.next_value(online, target, double=False) == [9.0]
    assert dqn.next_value(online, target, double=True) == [3.0]


@pytest.mark.parametrize("double", [False, True])
def test_dqn_target_row_by_row(double: bool) -> None:
    rng = np.random.default_rng(33)
    online, target = make_network(rng, OBS, 6, 4), make_network(rng, OBS, 6, 4)
    batch = make_discrete_batch(rng, 4)
    hyper: Any = {"gamma": 0.9, "tau": 1.0, "target_period": 2, "learning_rate": RATE}
    _, metrics = dqn.full_update(
        dqn.initial_state(online, target), batch, hyper | {"double": double, "max_grad_norm": None}
    )
    expected = []
    for row in range(ROWS):
        scores = nn.forward(target, batch["next_observation"][row : row + 1])[0][0]
        chosen = nn.forward(online, batch["next_observation"][row : row + 1])[0][0].argmax()
        value = scores[chosen] if double else max(scores)
        expected.append(batch["reward"][row] + 0.9 * (1.0 - batch["termination"][row]) * value)
    assert metrics["target_mean"] == pytest.approx(np.mean(expected), rel=1e-12)


@pytest.mark.parametrize(("period", "tau"), [(3, 1.0), (1, 0.1)])
def test_dqn_target_updates_at_its_interval(period: int, tau: float) -> None:
    rng = np.random.default_rng(6)
    state: Any = dqn.initial_state(make_network(rng, OBS, 6, 4))
    hyper: Any = {"gamma": 0.9, "tau": tau, "target_period": period, "learning_rate": RATE}
    for count in range(1, 8):
        before = state
        hyper |= {"double": count > 3, "max_grad_norm": None}
        state, _ = dqn.full_update(before, make_discrete_batch(rng, 4), hyper)
        due = count % period == 0
        assert changed(before["target_network"], state["target_network"]) == due
        if due and tau == 1.0:
            assert_equal_networks(state["target_network"], state["network"])


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("quantiles", [1, 3])
def test_extended_dqn_gradient(dueling: bool, quantiles: int) -> None:
    rng = np.random.default_rng(8)
    actions, width = 4, 5
    net = make_network(rng, OBS, 6, 2 * width if dueling else actions * quantiles)
    for name, outputs in (("value", quantiles), ("advantage", actions * quantiles)):
        if dueling:
            net[name] = [rng.normal(size=(width, outputs)), rng.normal(size=outputs)]
    batch, target = make_discrete_batch(rng, actions), 2.0 * rng.normal(size=(ROWS, quantiles))
    rows = np.arange(ROWS)

    def loss(net: nn.Network) -> float:
        values = dqn_extensions.evaluate(net, batch["observation"], actions).values
        losses, _ = dqn_extensions.quantile_loss(values[rows, batch["action"]], target)
        return float(losses.mean())

    run = dqn_extensions.evaluate(net, batch["observation"], actions)
    grad = np.zeros_like(run.values)
    theta = run.values[rows, batch["action"]]
    grad[rows, batch["action"]] = dqn_extensions.quantile_loss(theta, target)[1] / ROWS
    assert_gradient(loss, net, dqn_extensions.backward(net, run, grad))


def normals(rng: np.random.Generator) -> nn.Array:
    return rng.normal(size=(ROWS, ACT))


def soft_noise(rng: np.random.Generator, **more: Any) -> Any:
    return {"next_action": normals(rng), "action": normals(rng), **more}


@pytest.mark.parametrize(("module", "outputs"), [(sac, 1), (redq, 1), (tqc, 3)])
def test_soft_actor_gradient(module: Any, outputs: int) -> None:
    rng = np.random.default_rng(7)
    actor, critics = make_actor(rng, 2 * ACT), make_critics(rng, 4, outputs=outputs)
    observation, noise = make_batch(rng)["observation"], normals(rng)
    result = module.actor_loss(actor, critics, observation, noise, 0.3)
    assert_gradient(
        lambda net: float(module.actor_loss(net, critics, observation, noise, 0.3).loss),
        actor,
        result.grads.network,
    )


def test_subset_has_the_smallest_uniform_numbers() -> None:
    members = redq.subset(np.array([0.9, 0.1, 0.5, 0.3, 0.2]), 2)
    np.testing.assert_array_equal(members, [1, 4])
    next_q = np.array([[0.0], [5.0], [1.0], [2.0], [4.0]])
    one = np.ones(1)
    target = redq.critic_target(one, 0 * one, next_q, members, one, 0.5, 0.1)
    np.testing.assert_allclose(target, [1.0 + 0.1 * (4.0 - 0.5)])


def test_redq_updates_the_actor_at_the_end_of_a_block_only() -> None:
    rng = np.random.default_rng(8)
    state: Any = redq.initial_state(make_actor(rng, 2 * ACT), make_critics(rng, 4))
    hyper: Any = {**SOFT, "subset_size": 2, "block": 3}
    for count in range(1, 8):
        before, last = state, count % 3 == 0
        noise: Any = soft_noise(rng, subset=rng.random(4))
        if not last:
            del noise["action"]
        state, metrics = redq.full_update(before, make_batch(rng), noise, hyper)
        assert ("actor_loss" in metrics) == last
        assert changed(before["actor"], state["actor"]) == last
        assert (before["log_alpha"] != state["log_alpha"]) == last
        for i in range(4):
            assert changed(before["critics"][i], state["critics"][i])
            assert changed(before["target_critics"][i], state["target_critics"][i])


def test_redq_with_both_critics_differs_from_sac_in_the_actor_only() -> None:
    rng = np.random.default_rng(9)
    actor, critics = make_actor(rng, 2 * ACT), make_critics(rng, 2)
    batch, noise = make_batch(rng), soft_noise(rng, subset=rng.random(2))
    hyper: Any = {**SOFT, "subset_size": 2, "block": 1}
    one, first = redq.full_update(redq.initial_state(actor, critics), batch, noise, hyper)
    two, second = sac.full_update(sac.initial_state(actor, critics), batch, noise, hyper)
    assert first["critic_loss"] == pytest.approx(second["critic_loss"], rel=1e-12)
    assert first["actor_loss"] != second["actor_loss"]
    for i in range(2):
        assert_equal_networks(one["critics"][i], two["critics"][i])
        assert_equal_networks(one["target_critics"][i], two["target_critics"][i])
    assert changed(one["actor"], two["actor"])


@pytest.mark.parametrize(("reduction", "scale"), [("mean", 1.0), ("sum", 2.0)])
def test_quantile_loss_gradient(reduction: Any, scale: float) -> None:
    rng = np.random.default_rng(10)
    critics, batch = make_critics(rng, 2, outputs=3), make_batch(rng)
    atoms = 2.0 * rng.normal(size=(ROWS, 4))
    at = batch["observation"], batch["action"]

    def loss(net: nn.Network) -> float:
        return tqc.quantile_loss(nn.critic_outputs([net, critics[1]], *at)[0], atoms, reduction)[0]

    quantiles, caches = nn.critic_outputs(critics, *at)
    value, grad = tqc.quantile_loss(quantiles, atoms, reduction)
    assert value == pytest.approx(scale * tqc.quantile_loss(quantiles, atoms)[0])
    assert_gradient(loss, critics[0], nn.mlp_backward(caches[0], grad[0]).network)


def test_quantile_loss_pair_by_pair() -> None:
    quantiles = np.array([[[0.0, 1.0]], [[-1.0, 3.0]]])  # two critics, one row, two quantiles
    atoms = np.array([[0.5, 2.5, -4.0]])
    total = 0.0
    for critic in quantiles:
        for tau, theta in zip((0.25, 0.75), critic[0], strict=True):
            for y in atoms[0]:
                u = y - theta
                size = 0.5 * u * u if abs(u) <= 1.0 else abs(u) - 0.5
                total += (tau if u > 0 else 1.0 - tau) * size
    assert tqc.quantile_loss(quantiles, atoms)[0] == pytest.approx(total / 12)
    assert tqc.quantile_loss(quantiles, atoms, "sum")[0] == pytest.approx(total / 6)


def test_truncation_pools_before_dropping() -> None:
    quantiles = np.array([[[9.0, 1.0, 8.0]], [[2.0, 3.0, 7.0]]])
    np.testing.assert_array_equal(tqc.truncated_atoms(quantiles, 1), [[1.0, 2.0, 3.0, 7.0]])
    np.testing.assert_array_equal(tqc.truncated_atoms(quantiles, 2), [[1.0, 2.0]])
    one = np.ones((1,))
    target = tqc.target_atoms(one, 0 * one, np.array([[1.0, 2.0]]), one, 0.5, 0.1)
    np.testing.assert_allclose(target, [[1.05, 1.15]])


def test_tqc_learns_a_fixed_target() -> None:
    rng = np.random.default_rng(11)
    actor, critics = make_actor(rng, 2 * ACT), make_critics(rng, 2, outputs=3)
    hyper: Any = {**SOFT, "gamma": 0.0, "drop_per_critic": 1, "critic_reduction": "mean"}
    batch = make_batch(rng)
    inputs = [(batch, soft_noise(rng)) for _ in range(200)]
    state = sac.initial_state(actor, critics)
    _, history = nn.run_updates(tqc.full_update, state, inputs, hyper)
    assert history[-1]["critic_loss"] < 0.02 * history[0]["critic_loss"]
    assert history[0]["target_mean"] == pytest.approx(batch["reward"].mean())


def test_imitation_gradient_and_learning() -> None:
    rng = np.random.default_rng(12)
    actor, batch = make_actor(rng), make_batch(rng)
    at = batch["observation"], batch["action"]
    assert_gradient(
        lambda net: bc.actor_loss(net, *at)[0], actor, bc.actor_loss(actor, *at)[1].network
    )
    hyper: Any = {"actor_lr": RATE}
    _, history = nn.run_updates(bc.full_update, bc.initial_state(actor), [(batch,)] * 300, hyper)
    assert history[-1]["actor_loss"] < 0.01 * history[0]["actor_loss"]


def test_normalization_centers_and_scales() -> None:
    data = np.array([[0.0, 5.0], [2.0, 5.0]])
    mean, scale = bc.normalization(data, eps=1e-3)
    np.testing.assert_allclose((mean, scale), [[1.0, 5.0], [1.001, 0.001]])


def test_td3_bc_gradient_treats_lambda_as_constant() -> None:
    rng = np.random.default_rng(13)
    actor, (critic,), batch = make_actor(rng), make_critics(rng, 1), make_batch(rng)
    critic["biases"][-1] -= 0.7  # values of both signs
    at = batch["observation"], batch["action"]
    result = td3_bc.actor_loss(actor, critic, *at, 2.5)
    q, _ = nn.critic_values([critic], at[0], nn.tanh_forward(actor, at[0])[0])
    assert q.min() < 0.0 < q.max()
    assert result.value_weight == pytest.approx(2.5 / np.abs(q).mean())

    def loss(net: nn.Network) -> float:
        value = ddpg.actor_loss(net, critic, at[0]).loss
        return result.value_weight * value + bc.actor_loss(net, *at)[0]

    assert result.loss == pytest.approx(loss(actor), rel=1e-12)
    assert_gradient(loss, actor, result.grads.network)


def test_td3_bc_runs_with_the_delay() -> None:
    rng = np.random.default_rng(14)
    state = td3.initial_state(make_actor(rng), make_critics(rng, 2))
    inputs = [(make_batch(rng), {"next_action": normals(rng)}) for _ in range(4)]
    new, history = nn.run_updates(td3_bc.full_update, state, inputs, {**SMOOTHED, "alpha": 2.5})
    assert ["actor_loss" in metrics for metrics in history] == [False, True, False, True]
    assert new["updates"] == 4


def test_rebrac_gradient_uses_the_minimum_with_constant_lambda() -> None:
    rng = np.random.default_rng(17)
    actor, critics, batch = make_actor(rng), make_critics(rng, 2, norm="after"), make_batch(rng)
    critics[0]["biases"][-1] -= 0.7  # each critic gives the minimum of some rows
    at = batch["observation"], batch["action"]
    result = rebrac.actor_loss(actor, critics, *at, 0.3)

    def values(net: nn.Network) -> tuple[nn.Array, nn.Array]:
        action, _ = nn.tanh_forward(net, at[0])
        return nn.critic_values(critics, at[0], action)[0], action

    q, _ = values(actor)
    assert set(q.argmin(axis=0)) == {0, 1}
    assert result.value_weight == pytest.approx(1 / np.abs(q.min(axis=0)).mean())

    def loss(net: nn.Network) -> float:
        q, action = values(net)
        distance = float(((action - at[1]) ** 2).mean()) * ACT
        return 0.3 * distance - result.value_weight * float(q.min(axis=0).mean())

    assert result.loss == pytest.approx(loss(actor), rel=1e-12)
    assert_gradient(loss, actor, result.grads.network)


def test_rebrac_target_row_by_row() -> None:
    """Rows that end an episode, rows without a next action, and rows with one."""
    rng = np.random.default_rng(18)
    actors, critics = [make_actor(rng) for _ in range(2)], make_critics(rng, 2, norm="after")
    targets = make_critics(rng, 2, norm="after")
    mask = np.array([0.0, 0.0, 1.0, 0.0, 1.0])
    batch: Any = make_batch(rng)
    batch |= {"next_action": rng.uniform(-1, 1, size=(ROWS, ACT)), "next_action_mask": mask}
    noise: Any = {"next_action": normals(rng)}
    state = td3.initial_state(actors[0], critics, actors[1], targets)
    hyper: Any = {**SMOOTHED, "actor_penalty": 0.3, "critic_penalty": 0.7}
    _, metrics = rebrac.full_update(state, batch, noise, hyper)
    expected = []
    for row in range(ROWS):
        seen = batch["next_observation"][row]
        action = np.tanh(nn.forward(actors[1], seen[None])[0][0])
        action = np.clip(action + np.clip(0.4 * noise["next_action"][row], -0.5, 0.5), -1.0, 1.0)
        pair = np.concatenate([seen, action])[None]
        value = min(float(nn.forward(net, pair)[0][0, 0]) for net in targets)
        if mask[row]:
            value -= 0.7 * sum((action - batch["next_action"][row]) ** 2)
        going = 0.0 if batch["termination"][row] else 0.9
        expected.append(batch["reward"][row] + going * value)
    assert metrics["target_mean"] == pytest.approx(np.mean(expected), rel=1e-12)


def make_gaussian_actor(rng: np.random.Generator) -> nn.Network:
    return make_actor(rng) | {"log_std": [0.3 * rng.normal(size=ACT) - 1.0]}


def test_weighted_imitation_gradient() -> None:
    rng = np.random.default_rng(15)
    actor, batch, weights = make_gaussian_actor(rng), make_batch(rng), rng.random(ROWS)
    rest = batch["observation"], batch["action"], weights, (-5.0, 2.0)
    _, grads = gaussian.weighted_imitation(actor, *rest)
    assert_gradient(lambda net: gaussian.weighted_imitation(net, *rest)[0], actor, grads)


def test_clipped_deviation_has_no_gradient() -> None:
    rng = np.random.default_rng(16)
    actor, batch = make_gaussian_actor(rng), make_batch(rng)
    actor["log_std"] = [np.array([-7.0, -1.0])]
    rest = batch["observation"], batch["action"], np.ones(ROWS), (-6.0, 0.0)
    _, grads = gaussian.weighted_imitation(actor, *rest)
    assert grads["log_std"][0][0] == 0.0
    assert grads["log_std"][0][1] != 0.0
    np.testing.assert_array_equal(gaussian.deviation(actor, (-6.0, 0.0))[0], [-6.0, -1.0])


def test_expectile_loss_gradient_and_asymmetry() -> None:
    rng = np.random.default_rng(17)
    v, q = rng.normal(size=ROWS), rng.normal(size=ROWS)
    assert_slopes(lambda v: iql.value_loss(v, q, 0.8)[0], v, iql.value_loss(v, q, 0.8)[1])
    one = np.ones(1)
    assert iql.value_loss(0 * one, one, 0.8)[0] == pytest.approx(0.8)  # Q above V
    assert iql.value_loss(one, 0 * one, 0.8)[0] == pytest.approx(0.2)


def test_iql_updates_in_the_authors_order() -> None:
    rng = np.random.default_rng(18)
    state: Any = iql.initial_state(
        make_gaussian_actor(rng),
        make_critics(rng, 2),
        make_network(rng, OBS, 6, 1),
        target_critics=make_critics(rng, 2),
    )
    hyper: Any = {
        **DETERMINISTIC,
        **{"value_lr": RATE, "expectile": 0.7, "beta": 3.0, "weight_clip": 4.0},
        "log_std_bounds": (-5.0, 2.0),
    }
    for _ in range(3):
        before, batch = state, make_batch(rng)
        state, metrics = iql.full_update(before, batch, hyper)
        at = batch["observation"], batch["action"]
        q = nn.critic_values(before["target_critics"], *at)[0].min(axis=0)
        v = nn.forward(state["value"], at[0])[0][:, 0]  # after its step
        weights = np.minimum(np.exp(3.0 * (q - v)), 4.0)
        log_prob = gaussian.log_prob(before["actor"], *at, (-5.0, 2.0)).log_prob
        assert metrics["actor_loss"] == pytest.approx(-(weights * log_prob).mean())
        next_v = nn.forward(state["value"], batch["next_observation"])[0][:, 0]
        target = batch["reward"] + 0.9 * (1.0 - batch["termination"]) * next_v
        assert metrics["target_mean"] == pytest.approx(target.mean())
        assert changed(before["target_critics"][0], state["target_critics"][0])


def test_cosine_rate_decays_from_1_to_0() -> None:
    rates = [iql.cosine_rate(2.0, step, 4) for step in (0, 2, 4)]
    np.testing.assert_allclose(rates, [2.0, 1.0, 0.0], atol=1e-15)


def test_awac_weights() -> None:
    advantage = np.array([-1.0, 0.0, 3.0])
    clipped = awac.advantage_weights(advantage, 0.5, "clip", 100.0)
    np.testing.assert_allclose(clipped, [np.exp(-2.0), 1.0, 100.0])
    soft = awac.advantage_weights(advantage, 0.5, "softmax", 100.0)
    expected = 3.0 * np.exp(advantage / 0.5) / np.exp(advantage / 0.5).sum()
    np.testing.assert_allclose(soft, expected)


@pytest.mark.parametrize("form", ["clip", "softmax"])
def test_awac_computes_advantages_with_the_updated_critics(form: Any) -> None:
    rng = np.random.default_rng(19)
    state: Any = awac.initial_state(
        make_gaussian_actor(rng), make_critics(rng, 2), make_critics(rng, 2)
    )
    hyper: Any = {
        **DETERMINISTIC,
        **{"weight_decay": 1e-2, "temperature": 0.5, "weight_form": form, "weight_clip": 100.0},
        **{"log_std_bounds": (-6.0, 0.0), "clip_actions": True},
    }
    for _ in range(3):
        before, batch, noise = state, make_batch(rng), soft_noise(rng)
        state, metrics = awac.full_update(before, batch, noise, hyper)
        own = gaussian.sample(
            before["actor"], batch["observation"], noise["action"], (-6.0, 0.0)
        ).clip(-1.0, 1.0)
        values = [
            nn.critic_values(state["critics"], batch["observation"], action)[0].min(axis=0)
            for action in (batch["action"], own)
        ]
        assert metrics["advantage_mean"] == pytest.approx((values[0] - values[1]).mean())
        seen = batch["next_observation"]
        following = gaussian.sample(before["actor"], seen, noise["next_action"], (-6.0, 0.0))
        next_q, _ = nn.critic_values(before["target_critics"], seen, following.clip(-1.0, 1.0))
        target = batch["reward"] + 0.9 * (1.0 - batch["termination"]) * next_q.min(axis=0)
        assert metrics["target_mean"] == pytest.approx(target.mean(), rel=1e-12)
        free, _ = awac.full_update(before, batch, noise, hyper | {"weight_decay": 0.0})
        assert changed(free["actor"], state["actor"])


def test_edac_gradient_with_its_double_backward() -> None:
    rng = np.random.default_rng(20)
    critics, batch = make_critics(rng, 3), make_batch(rng)
    at, target = (batch["observation"], batch["action"]), rng.normal(size=ROWS)
    loss, diversity, q, grads = edac.critic_loss(critics, *at, target, 1.5)
    bellman = nn.squared_loss(q, target)[0]
    assert loss == pytest.approx(bellman + 1.5 * diversity, rel=1e-12)
    for i in range(3):

        def total(net: nn.Network, i: int = i) -> float:
            changed = [*critics[:i], net, *critics[i + 1 :]]
            return edac.critic_loss(changed, *at, target, 1.5)[0]

        assert_gradient(total, critics[i], grads[i])


def test_edac_action_gradients_equal_differences() -> None:
    rng = np.random.default_rng(21)
    (critic,), batch = make_critics(rng, 1), make_batch(rng)
    observation, action = batch["observation"], batch["action"]
    _, caches = nn.critic_values([critic], observation, action)
    assert_slopes(
        lambda action: float(nn.critic_values([critic], observation, action)[0].sum()),
        action,
        edac.q_action_gradient(caches[0], ACT),
    )


def test_diversity_of_aligned_orthogonal_and_opposed_gradients() -> None:
    axis, other = np.array([[2.0, 0.0]]), np.array([[0.0, 0.5]])
    assert edac.diversity_loss(np.stack([axis] * 4))[0] == pytest.approx(4.0)
    assert edac.diversity_loss(np.stack([axis, other]))[0] == pytest.approx(0.0)
    assert edac.diversity_loss(np.stack([axis, -3.0 * axis]))[0] == pytest.approx(-2.0)
    rng = np.random.default_rng(22)
    gradients = rng.normal(size=(3, ROWS, ACT))
    slopes = edac.diversity_loss(gradients)[1]
    assert_slopes(lambda g: edac.diversity_loss(g)[0], gradients, slopes)
    gradients[1, 0] = 0.0  # a critic whose units are all dead
    assert np.isfinite(edac.diversity_loss(gradients)[1]).all()


def test_edac_without_diversity_is_sac() -> None:
    rng = np.random.default_rng(23)
    state = sac.initial_state(make_actor(rng, 2 * ACT), make_critics(rng, 4))
    inputs = [(make_batch(rng), soft_noise(rng)) for _ in range(4)]
    one, _ = nn.run_updates(sac.full_update, state, inputs, SOFT)
    two, _ = nn.run_updates(edac.full_update, state, inputs, {**SOFT, "eta": 0.0})
    three, _ = nn.run_updates(edac.full_update, state, inputs, {**SOFT, "eta": 1.0})
    assert_equal_networks(one["actor"], two["actor"])
    for i in range(4):
        assert_equal_networks(one["critics"][i], two["critics"][i])
        assert_equal_networks(one["target_critics"][i], two["target_critics"][i])
    assert changed(one["critics"][0], three["critics"][0])


@pytest.mark.parametrize("backup", [True, False])
def test_rlpd_normalizes_critics_and_may_drop_the_entropy(backup: bool) -> None:
    rng = np.random.default_rng(24)
    actor, critics = make_actor(rng, 2 * ACT), make_critics(rng, 4, norm=True)
    state = rlpd.initial_state(actor, critics, fixed_alpha=0.5)
    hyper: Any = {**SOFT, "subset_size": 2, "block": 2, "backup_entropy": backup}
    inputs = [(make_batch(rng), soft_noise(rng, subset=rng.random(4))) for _ in range(4)]
    one, history = nn.run_updates(rlpd.full_update, state, inputs, hyper)
    two, others = nn.run_updates(redq.full_update, state, inputs, hyper)
    assert (history[0]["target_mean"] == others[0]["target_mean"]) == backup
    assert changed(one["critics"][0], two["critics"][0]) != backup
    for key in ("scales", "shifts"):
        assert not np.array_equal(one["critics"][0][key][0], critics[0][key][0])
        assert not np.array_equal(one["target_critics"][0][key][0], critics[0][key][0])
    plain = rlpd.initial_state(actor, make_critics(rng, 4))
    with pytest.raises(KeyError, match="scales"):
        rlpd.full_update(plain, *inputs[0], hyper)


def test_soft_actor_gradient_through_normalized_critics() -> None:
    rng = np.random.default_rng(25)
    actor, critics = make_actor(rng, 2 * ACT), make_critics(rng, 3, norm=True)
    rest = critics, make_batch(rng)["observation"], normals(rng), 0.3
    result = rlpd.actor_loss(actor, *rest)
    assert_gradient(lambda net: rlpd.actor_loss(net, *rest).loss, actor, result.grads.network)


SAMPLES = 3


def conservative(**changes: Any) -> Any:
    extra = {
        **{"conservative_weight": 5.0, "conservative_temperature": 1.5, "threshold": None},
        **{"alpha_prime_lr": RATE, "backup_entropy": False, "imitation_updates": 0},
    }
    return {**SOFT, **extra, **changes}


def conservative_noise(rng: np.random.Generator) -> Any:
    shape = (SAMPLES, ROWS, ACT)
    return soft_noise(
        rng,
        random_actions=rng.uniform(-1.0, 1.0, size=shape),
        current_actions=rng.normal(size=shape),
        next_actions=rng.normal(size=shape),
    )


@pytest.mark.parametrize("threshold", [None, 2.0])
def test_cql_critic_gradient(threshold: float | None) -> None:
    rng = np.random.default_rng(26)
    critics, batch = make_critics(rng, 2), make_batch(rng)
    actor, noise = make_actor(rng, 2 * ACT), conservative_noise(rng)
    hyper, target = conservative(threshold=threshold), rng.normal(size=ROWS)
    actions, density = cql.sampled_actions(actor, batch, noise)
    assert actions.shape == (3 * SAMPLES, ROWS, ACT)

    def loss(net: nn.Network) -> float:
        scored = cql.score([net, critics[1]], batch, actions)
        return cql.critic_loss(scored, target, density, 0.7, hyper).loss

    scored = cql.score(critics, batch, actions)
    result = cql.critic_loss(scored, target, density, 0.7, hyper)
    grad = np.concatenate([result.grad_q[0], result.grad_sampled[0].ravel()])
    grads = nn.mlp_backward(scored.caches[0], grad[:, None])
    assert_gradient(loss, critics[0], grads.network)


def test_cql_gap_scores_every_action_at_the_state_itself() -> None:
    rng = np.random.default_rng(27)
    critics, batch = make_critics(rng, 2), make_batch(rng)
    actor, noise = make_actor(rng, 2 * ACT), conservative_noise(rng)
    observation, heat = batch["observation"], 1.5
    columns = []
    for k in range(SAMPLES):
        q = nn.critic_values(critics, observation, noise["random_actions"][k])[0]
        columns.append(q - np.log(0.5**ACT))
        for name, key in (("observation", "current_actions"), ("next_observation", "next_actions")):
            output = nn.forward(actor, batch[name])[0]  # type: ignore[literal-required]
            sample = sac.policy_sample(output, noise[key][k])
            columns.append(nn.critic_values(critics, observation, sample.action)[0])
            columns[-1] = columns[-1] - sample.log_prob
    total = heat * np.log(sum(np.exp(column / heat) for column in columns))
    expected = (total - nn.critic_values(critics, observation, batch["action"])[0]).mean(axis=1)
    actions, density = cql.sampled_actions(actor, batch, noise)
    scored = cql.score(critics, batch, actions)
    gaps, _, _ = cql.conservative_gap(scored.q, scored.sampled, density, heat)
    np.testing.assert_allclose(gaps, expected, rtol=1e-12)


def test_cql_multiplier_gradient_grows_above_the_threshold() -> None:
    gaps = np.array([1.0, 3.0])
    at = np.array(0.4)
    for threshold, sign in ((2.0, -1.0), (20.0, 1.0)):

        def loss(log: nn.Array, threshold: float = threshold) -> float:
            return cql.multiplier_loss(float(log), gaps, 5.0, threshold)[0]

        grad = np.array(cql.multiplier_loss(0.4, gaps, 5.0, threshold)[1])
        assert_slopes(loss, at, grad)
        assert np.sign(grad) == sign
    assert cql.multiplier_loss(50.0, gaps, 5.0, 2.0) == (-8.0e6, 0.0)


def test_cql_imitation_gradient() -> None:
    rng = np.random.default_rng(28)
    actor, rest = make_actor(rng, 2 * ACT), (make_critics(rng, 2), make_batch(rng), normals(rng))
    result = cql.imitation_actor_loss(actor, *rest, 0.3)
    assert_gradient(
        lambda net: cql.imitation_actor_loss(net, *rest, 0.3).loss, actor, result.grads.network
    )


def test_cql_with_weight_0_is_sac() -> None:
    rng = np.random.default_rng(29)
    actor, critics = make_actor(rng, 2 * ACT), make_critics(rng, 2)
    inputs = [(make_batch(rng), conservative_noise(rng)) for _ in range(4)]
    one, _ = nn.run_updates(sac.full_update, sac.initial_state(actor, critics), inputs, SOFT)
    state = cql.initial_state(sac.initial_state(actor, critics))
    hyper = conservative(conservative_weight=0.0, backup_entropy=True)
    two, _ = nn.run_updates(cql.full_update, state, inputs, hyper)
    for i in range(2):
        assert_equal_networks(one["critics"][i], two["critics"][i])
    assert_equal_networks(one["actor"], two["actor"])


def test_cql_updates_its_multiplier_and_switches_from_imitation() -> None:
    rng = np.random.default_rng(30)
    start = sac.initial_state(make_actor(rng, 2 * ACT), make_critics(rng, 2))
    state = cql.initial_state(start)
    inputs = [(make_batch(rng), conservative_noise(rng)) for _ in range(4)]
    hyper = conservative(threshold=-10.0, imitation_updates=2)
    new, history = nn.run_updates(cql.full_update, state, inputs, hyper)
    assert new["log_alpha_prime"] > 0.0
    late, others = nn.run_updates(
        cql.full_update, state, inputs, conservative(threshold=-10.0, imitation_updates=4)
    )
    same = [
        one["actor_loss"] == two["actor_loss"] for one, two in zip(history, others, strict=True)
    ]
    assert same == [True, True, False, False]
    assert changed(new["actor"], late["actor"])


FAMILY: dict[str, tuple[Any, Any, Any]] = {
    "sac": (sac, sac.actor_loss, SOFT),
    "redq": (redq, redq.actor_loss, {**SOFT, "subset_size": 2, "block": 1}),
    "rlpd": (
        rlpd,
        rlpd.actor_loss,
        {**SOFT, "subset_size": 2, "block": 1, "backup_entropy": False},
    ),
    "tqc": (tqc, tqc.actor_loss, {**SOFT, "drop_per_critic": 1, "critic_reduction": "sum"}),
    "edac": (edac, sac.actor_loss, {**SOFT, "eta": 1.0}),
    "cql": (cql, sac.actor_loss, conservative(threshold=1.0)),
}


def family_target(name: str, state: Any, batch: nn.Batch, noise: Any, alpha: float) -> nn.Array:
    """Return the target of each variant, written out."""
    seen = batch["next_observation"]
    sample = sac.policy_sample(nn.forward(state["actor"], seen)[0], noise["next_action"])
    outputs, _ = nn.critic_outputs(state["target_critics"], seen, sample.action)
    if name == "tqc":
        value = np.stack([np.sort(outputs[:, row].ravel())[:6] for row in range(ROWS)], axis=1)
    elif name in ("redq", "rlpd"):
        value = np.delete(outputs[..., 0], noise["subset"].argmax(), axis=0).min(axis=0)
    else:
        value = outputs[..., 0].min(axis=0)
    bonus = 0.0 if name in ("rlpd", "cql") else alpha * sample.log_prob
    return batch["reward"] + 0.9 * (1.0 - batch["termination"]) * (value - bonus)


@pytest.mark.parametrize("name", FAMILY)
def test_sac_variants_update_in_the_same_order(name: str) -> None:
    module, actor_loss, hyper = FAMILY[name]
    rng = np.random.default_rng(31)
    kind: Any = {"outputs": 3 if name == "tqc" else 1, "norm": name == "rlpd"}
    critics, targets = make_critics(rng, 3, **kind), make_critics(rng, 3, **kind)
    actor = make_actor(rng, 2 * ACT)
    state: Any = sac.initial_state(actor, critics, log_alpha=-0.5, target_critics=targets)
    if name == "cql":
        state = cql.initial_state(state)
    elif name in ("redq", "rlpd"):
        state["updates"] = 0
    for _ in range(3):
        before, batch = state, make_batch(rng)
        noise = conservative_noise(rng) | {"subset": rng.random(3)}
        state, metrics = module.full_update(before, batch, noise, hyper)
        alpha = float(np.exp(before["log_alpha"]))
        target = family_target(name, before, batch, noise, alpha)
        assert metrics["target_mean"] == pytest.approx(target.mean(), rel=1e-12)
        policy = actor_loss(  # the updated critics, the actor and alpha from before
            before["actor"], state["critics"], batch["observation"], noise["action"], alpha
        )
        assert metrics["actor_loss"] == pytest.approx(policy.loss, rel=1e-12)
        assert metrics["alpha"] == alpha
        gap = float(policy.log_prob.mean()) - ACT
        assert metrics["alpha_loss"] == pytest.approx(-float(before["log_alpha"]) * gap)
        for i in range(3):
            averaged = nn.polyak_network(
                before["target_critics"][i], state["critics"][i], hyper["tau"]
            )
            assert_equal_networks(state["target_critics"][i], averaged)

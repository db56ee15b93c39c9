"""DQN with dueling streams, quantiles and their combinations, against a float64 reference."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from rl_training import train
from rl_training.algorithms.dqn import DQNAlgorithm, DQNConfig, dqn_loss, return_loss
from rl_training.types import TD_ERROR, Batch, EnvSpec
from tests.comparing import assert_same_run
from tests.golden import (
    RATE,
    TOLERANCE,
    assert_same_network,
    assert_trace_is_the_update,
    layers,
)
from tests.reference import dqn as plain_reference
from tests.reference import dqn_extensions as reference
from tests.runtime.test_exact_resume import crash_and_resume

OBS, ACTIONS, ROWS = 5, 4, 24
SPEC = EnvSpec(OBS, ACTIONS, discrete=True)
HEADS = [{"dueling": True}, {"num_quantiles": 6}, {"dueling": True, "num_quantiles": 6}]
HEAD_IDS = ["dueling", "quantiles", "both"]


def make_learner(**changes: Any) -> DQNAlgorithm:
    settings = {"hidden_sizes": (16, 10), "learning_rate": RATE, **changes}
    learner = DQNAlgorithm.build(SPEC, DQNConfig(**settings), seed=3).double()
    with torch.no_grad():
        learner.model.target.mul_(0.7).add_(0.05)  # the target differs from the first update on
    return learner


def make_batch(seed: int = 0, *, masked: bool = True, weighted: bool = True) -> Batch:
    """Return a batch with n-step discounts and, optionally, masks and importance weights."""
    g = torch.Generator().manual_seed(seed)
    kind = torch.float64
    legal = (torch.rand(ROWS, ACTIONS, generator=g) < 0.5).double()
    legal[torch.arange(ROWS), torch.arange(ROWS) % ACTIONS] = 1.0
    extra = {"discounts": 0.9 ** torch.randint(1, 4, (ROWS,), generator=g).double()}
    extra |= {"next_legal_actions": legal} if masked else {}
    extra |= {"weights": torch.rand(ROWS, generator=g, dtype=kind) + 0.1} if weighted else {}
    return Batch(
        obs=torch.randn(ROWS, OBS, generator=g, dtype=kind),
        actions=torch.randint(ACTIONS, (ROWS, 1), generator=g).double(),
        rewards=3 * torch.randn(ROWS, generator=g, dtype=kind),  # errors on both sides of 1
        next_obs=torch.randn(ROWS, OBS, generator=g, dtype=kind),
        terminations=(torch.rand(ROWS, generator=g, dtype=kind) < 0.3).double(),
        extra=extra,
    )


def reference_batch(batch: Batch) -> Any:
    ones = torch.ones(ROWS, ACTIONS).double()
    return {
        "observation": batch.obs.numpy(),
        "action": batch.actions[:, 0].long().numpy(),
        "reward": batch.rewards.numpy(),
        "next_observation": batch.next_obs.numpy(),
        "termination": batch.terminations.numpy(),
        "next_legal": batch.extra.get("next_legal_actions", ones).numpy(),
        "discount": batch.discounts.numpy(),
        "weight": batch.extra.get("weights", ones[:, 0]).numpy(),
    }


@pytest.mark.parametrize("head", HEADS, ids=HEAD_IDS)
@pytest.mark.parametrize(("double", "layer_norm"), [(False, False), (True, True)])
@pytest.mark.parametrize(("masked", "weighted"), [(False, False), (True, True)])
def test_updates_equal_the_reference(
    head: dict[str, Any], double: bool, layer_norm: bool, masked: bool, weighted: bool
) -> None:
    """Every combination of heads with Double DQN, masks, n-step discounts and weights."""
    learner = make_learner(
        **head, double=double, layer_norm=layer_norm, target_update_interval=2, tau=0.3
    )
    model = learner.model
    state = plain_reference.initial_state(layers(model), layers(model, model.target))
    hyper: Any = {"gamma": 0.9, "tau": 0.3, "target_period": 2, "learning_rate": RATE}
    hyper |= {"double": double, "max_grad_norm": 10.0}
    for step in range(5):
        batch = make_batch(step, masked=masked, weighted=weighted)
        ours = learner.update(batch, {}, learner.due(step))
        state, theirs, errors = reference.full_update(state, reference_batch(batch), hyper)
        for mine, expected in (
            ("loss/q", "loss"),
            ("q/mean", "q_mean"),
            ("q/target", "target_mean"),
        ):
            np.testing.assert_allclose(float(ours[mine]), theirs[expected], **TOLERANCE)
        assert (TD_ERROR in ours) == weighted
        if weighted:
            np.testing.assert_allclose(ours[TD_ERROR].numpy(), errors, **TOLERANCE)
        assert_same_network(layers(model), state["network"])
        assert_same_network(layers(model, model.target), state["target_network"])


@pytest.mark.parametrize("head", HEADS, ids=HEAD_IDS)
def test_traced_update_equals_the_update(head: dict[str, Any]) -> None:
    assert_trace_is_the_update(make_learner(**head, double=True), make_batch())


@pytest.mark.parametrize("head", HEADS, ids=HEAD_IDS)
def test_loss_helper_equals_the_update_at_frozen_parameters(head: dict[str, Any]) -> None:
    learner, batch = make_learner(**head, gamma=0.95), make_batch()
    losses = dqn_loss(learner.model, batch, gamma=0.95)
    learner.scale_learning_rates(0.0)
    metrics = learner.update(batch, {}, learner.due(0))
    torch.testing.assert_close(metrics["loss/q"], losses["loss/q"].detach(), rtol=0, atol=0)


def test_plain_network_has_the_same_weights_as_before() -> None:
    """Without the extensions, the parameters of a seed do not change."""
    learner = make_learner()
    assert learner.model.flat.shape == (16 * OBS + 16 + 16 * 10 + 10 + 10 * ACTIONS + ACTIONS,)
    assert learner.model.quantiles(make_batch().obs).shape == (ROWS, ACTIONS, 1)


def test_advantages_sum_to_zero_in_every_quantile() -> None:
    learner = make_learner(dueling=True, num_quantiles=3)
    obs = make_batch().obs
    values = learner.model.quantiles(obs)  # [B, A, M]
    with torch.no_grad():
        learner.model.views(learner.model.flat)[-4:][0].zero_()  # V is then its bias
    bias = learner.model.views(learner.model.flat)[-3]
    centered = learner.model.quantiles(obs)
    torch.testing.assert_close(centered.mean(-2), bias.expand(ROWS, -1))
    differences = values - values.mean(-2, keepdim=True)
    torch.testing.assert_close(differences, centered - centered.mean(-2, keepdim=True))


def test_value_stream_learns_from_every_action() -> None:
    """The gradient of V does not depend on the action, only on the error."""
    learner = make_learner(dueling=True)
    model, obs = learner.model, make_batch().obs[:1]
    gradients = []
    for action in range(ACTIONS):
        (flat,) = torch.autograd.grad(model.q_values(obs)[0, action], model.flat)
        gradients.append(model.views(flat)[-4])
    for gradient in gradients[1:]:
        torch.testing.assert_close(gradient, gradients[0])
    assert gradients[0].abs().sum() > 0


def test_quantiles_converge_to_those_of_the_target() -> None:
    """With the target 0 or 10 at random, low quantiles approach 0 and high ones 10."""
    theta = torch.full((1, 4), 5.0, requires_grad=True)
    target = torch.tensor([[0.0, 0.0, 10.0, 10.0]])
    optimizer = torch.optim.Adam([theta], lr=0.1)
    for _ in range(400):
        optimizer.zero_grad()
        (theta.grad,) = torch.autograd.grad(return_loss(theta, target), theta)
        optimizer.step()
    found = theta.detach()[0]
    assert (found[:2] < 2.5).all()
    assert (found[2:] > 7.5).all()
    assert found.mean() == pytest.approx(5.0, abs=0.5)


def test_streams_are_as_wide_as_the_last_hidden_layer() -> None:
    model = make_learner(dueling=True, num_quantiles=3).model
    shapes = [tuple(view.shape) for view in model.views(model.flat)[-6:]]
    assert shapes == [(10, 20), (20,), (10, 3), (3,), (10, 3 * ACTIONS), (3 * ACTIONS,)]


@pytest.mark.parametrize(
    "networks",
    [{"q": {"trunk": "residual", "width": 12, "blocks": 1}}, {"q": {"trunk": "batch_norm"}}],
)
@pytest.mark.parametrize("head", HEADS, ids=HEAD_IDS)
def test_heads_work_with_every_trunk(networks: Any, head: dict[str, Any]) -> None:
    learner = DQNAlgorithm.build(SPEC, DQNConfig(networks=networks, **head)).double()
    before = learner.model.flat.detach().clone()
    metrics = learner.update(make_batch(), {}, learner.due(0))
    assert all(value.isfinite().all() for value in metrics.values())
    assert not torch.equal(before, learner.model.flat)
    assert learner.act(make_batch().obs, deterministic=True).shape == (ROWS, 1)


def test_hidden_sizes_belong_to_the_streams_of_another_trunk() -> None:
    networks = {"q": {"trunk": "residual", "width": 12}}
    with pytest.raises(ValueError, match="has no effect, because no network uses it"):
        DQNConfig(networks=networks, hidden_sizes=(7,))
    config = DQNConfig(networks=networks, hidden_sizes=(7,), dueling=True)
    model = DQNAlgorithm.build(SPEC, config).model
    assert model.views(model.flat)[-4].shape == (7, 1)


def test_streams_can_be_projected() -> None:
    config = DQNConfig(dueling=True, optimizers={"q": {"projection": "unit_rows"}})
    learner = DQNAlgorithm.build(SPEC, config).double()
    learner.update(make_batch(), {}, learner.due(0))
    for weight in learner.model.views(learner.model.flat)[::2]:
        torch.testing.assert_close(weight.norm(dim=-2), torch.ones_like(weight[0]))


@pytest.mark.parametrize("value", [0, -3, 2.5, "many"])
def test_bad_number_of_quantiles(value: Any) -> None:
    with pytest.raises(ValueError, match="num_quantiles"):
        DQNConfig(num_quantiles=value)


COMBINATIONS = [
    dict(zip(("double", "dueling", "num_quantiles", "n_step", "replay"), values, strict=True))
    for values in product((False, True), (False, True), (1, 5), (1, 3), ("uniform", "prioritized"))
]


@pytest.mark.parametrize("keys", [COMBINATIONS[i] for i in (13, 22, 31)], ids=str)
@pytest.mark.parametrize("engine", ["eager", "compiled"])
@pytest.mark.usefixtures("without_compiler")
def test_resume_is_exact(small_config: Any, keys: dict[str, Any], engine: str) -> None:
    config = small_config(algo="dqn", env_id="CartPole-v1", eval_episodes=1)
    config["env_kwargs"] = {"max_episode_steps": 17}
    config["algo_kwargs"] |= keys | {"engine": engine, "train_frequency": 1, "eval_interval": 50}
    assert_same_run(train(config), crash_and_resume(config, 57, 99))


@pytest.mark.parametrize("keys", COMBINATIONS, ids=str)
def test_every_combination_updates(keys: dict[str, Any]) -> None:
    settings = {key: value for key, value in keys.items() if key not in ("n_step", "replay")}
    learner = make_learner(**settings)
    batch = make_batch(weighted=keys["replay"] == "prioritized", masked=keys["n_step"] == 3)
    metrics = learner.update(batch, {}, learner.due(0))
    assert all(value.isfinite().all() for value in metrics.values())

"""SAC against a reference written from the papers in float64 NumPy (tests/reference)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms.base import critic_loss
from rl_training.algorithms.sac import (
    SACAlgorithm,
    SACConfig,
    actor_loss,
    sac_loss,
    sac_target,
    soft_target,
    temperature_loss,
)
from rl_training.models import MLPREDQModel, MLPSACModel
from tests.golden import (
    ACT,
    OBS,
    RATE,
    ROWS,
    SOFT,
    SPEC,
    TOLERANCE,
    assert_same_network,
    layers,
    make_batch,
    make_noise,
    reference_batch,
)
from tests.reference import sac as reference


def make_learner(**changes: Any) -> SACAlgorithm:
    settings = {"hidden_sizes": (16, 16), "learning_rate": RATE, "tau": 0.1, **changes}
    return SACAlgorithm.build(SPEC, SACConfig(**settings), seed=3).double()


def reference_state(learner: SACAlgorithm) -> Any:
    model = learner.model
    return reference.initial_state(
        layers(model.actor),
        layers(model.critic),
        log_alpha=0.0 if learner.log_alpha is None else learner.log_alpha.item(),
        fixed_alpha=float(learner.fixed_alpha) if learner.log_alpha is None else None,
        target_critics=layers(model.critic, model.target),
    )


@pytest.mark.parametrize("alpha", ["auto", 0.25, 0.0])
def test_updates_equal_the_reference(alpha: Any) -> None:
    learner = make_learner(alpha=alpha)
    state = reference_state(learner)
    if alpha != "auto":
        state["fixed_alpha"] = alpha  # from the config, not from the learner
    for step in range(5):
        batch, noise = make_batch(step), make_noise(learner, 100 + step)
        ours = learner.update(batch, noise)
        arrays: Any = {key: value.numpy() for key, value in noise.items()}
        state, theirs = reference.full_update(state, reference_batch(batch), arrays, SOFT)
        pairs = {
            "loss/critic": "critic_loss",
            "loss/actor": "actor_loss",
            "q/mean": "q_mean",
            "q/target": "target_mean",
            "policy/entropy": "entropy",
            "policy/alpha": "alpha",
        }
        if alpha == "auto":
            pairs["loss/temperature"] = "alpha_loss"
        assert set(ours) == set(pairs)
        for mine, expected in pairs.items():
            np.testing.assert_allclose(float(ours[mine]), theirs[expected], **TOLERANCE)
    model = learner.model
    assert_same_network(layers(model.actor), state["actor"])
    for i in range(2):
        assert_same_network(layers(model.critic)[i], state["critics"][i])
        assert_same_network(layers(model.critic, model.target)[i], state["target_critics"][i])
    if learner.log_alpha is not None:
        np.testing.assert_allclose(learner.log_alpha.item(), state["log_alpha"], **TOLERANCE)


def test_terms_equal_the_reference() -> None:
    rng = np.random.default_rng(0)
    q, log_prob = rng.normal(size=(2, ROWS)), rng.normal(size=ROWS)
    reward, done = rng.normal(size=ROWS), (rng.random(ROWS) < 0.5).astype(float)
    target = reference.critic_target(reward, done, q.min(axis=0), log_prob, 0.3, 0.9)
    tensors = [torch.from_numpy(x) for x in (reward, done, q, log_prob)]
    ours = soft_target(*tensors, alpha=torch.tensor(0.3, dtype=torch.float64), gamma=0.9)
    np.testing.assert_allclose(ours.numpy(), target, **TOLERANCE)
    loss = critic_loss(tensors[2], ours)
    np.testing.assert_allclose(float(loss), reference.critic_loss(q, target)[0], **TOLERANCE)
    log_alpha = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    temperature = temperature_loss(log_alpha, tensors[3], target_entropy=-2.0)
    value, slope = reference.temperature_loss(0.7, log_prob, -2.0)
    (gradient,) = torch.autograd.grad(temperature, log_alpha)
    np.testing.assert_allclose([temperature.item(), gradient.item()], [value, slope], **TOLERANCE)


def test_actor_loss_and_gradient_equal_the_reference() -> None:
    learner = make_learner()
    model, batch, noise = learner.model, make_batch(), make_noise(learner)
    alpha = torch.tensor(0.4, dtype=torch.float64)
    policy = model.sample(batch.obs, noise["action"])
    q = model.frozen_q_values(batch.obs, policy.actions)
    loss = actor_loss(q, policy.log_prob, alpha=alpha)
    expected = reference.actor_loss(
        layers(model.actor), layers(model.critic), batch.obs.numpy(), noise["action"].numpy(), 0.4
    )
    np.testing.assert_allclose(loss.item(), expected.loss, **TOLERANCE)
    (flat,) = torch.autograd.grad(loss, model.actor.flat)
    gradient = layers(model.actor, flat)
    for mine, theirs in zip(gradient["weights"], expected.grads.weights, strict=True):
        np.testing.assert_allclose(mine, theirs, **TOLERANCE)
    np.testing.assert_allclose(policy.log_prob.detach(), expected.log_prob, **TOLERANCE)


def test_dataset_action_logprobs_equal_the_reference() -> None:
    model = MLPSACModel(OBS, ACT, (16, 16)).double()
    batch = make_batch()
    actions = batch.actions.clone()
    actions[0] = torch.tensor([1.0, -1.0, 0.0])  # saturated: clipped before atanh
    mean, log_std = model.actor.distribution(batch.obs)
    expected = reference.log_prob_of_action(
        mean.detach().numpy(), log_std.detach().numpy(), actions.numpy()
    )
    ours = model.action_logprobs(batch.obs, actions)
    assert ours.isfinite().all()
    np.testing.assert_allclose(ours.detach().numpy(), expected, rtol=1e-7)


@pytest.mark.parametrize("alpha", ["auto", 0.2])
def test_loss_helper_equals_the_stages_at_frozen_parameters(alpha: Any) -> None:
    learner = make_learner(alpha=alpha)
    batch, noise = make_batch(), make_noise(learner)
    losses = sac_loss(
        learner.model,
        batch,
        noise,
        alpha=learner.alpha,
        gamma=0.99,
        log_alpha=learner.log_alpha,
        target_entropy=learner.target_entropy,
    )
    for optimizer in learner.optimizers.values():
        optimizer.scale_learning_rate(0.0)  # type: ignore[operator]
    metrics = learner.update(batch, noise)
    for name, value in losses.items():
        torch.testing.assert_close(metrics[name], value.detach(), rtol=0, atol=0)


def test_each_loss_has_gradients_for_its_own_networks() -> None:
    learner = make_learner()
    model, batch, noise = learner.model, make_batch(), make_noise(learner)
    losses = sac_loss(
        model,
        batch,
        noise,
        alpha=learner.alpha,
        log_alpha=learner.log_alpha,
        target_entropy=-3.0,
    )
    assert learner.log_alpha is not None
    leaves = {"critic": model.critic.flat, "actor": model.actor.flat, "alpha": learner.log_alpha}
    reached = {
        name: {
            key
            for key, leaf in leaves.items()
            if torch.autograd.grad(loss, leaf, retain_graph=True, allow_unused=True)[0] is not None
        }
        for name, loss in losses.items()
    }
    assert reached == {
        "loss/critic": {"critic"},
        "loss/actor": {"actor"},
        "loss/temperature": {"alpha"},
    }


def test_target_samples_the_current_actor_and_the_target_critics() -> None:
    learner = make_learner()
    model, batch, noise = learner.model, make_batch(), make_noise(learner)

    def target() -> torch.Tensor:
        return sac_target(model, batch, noise, alpha=learner.alpha, gamma=0.99)

    first = target()
    with torch.no_grad():
        model.critic.flat.add_(1.0)
        torch.testing.assert_close(target(), first)
        model.actor.flat.add_(0.1)
        assert not torch.allclose(target(), first)


def test_time_limits_bootstrap_and_terminations_do_not() -> None:
    one = torch.ones(1, dtype=torch.float64)
    next_q = torch.full((2, 1), 10.0, dtype=torch.float64)
    alpha = torch.tensor(0.0, dtype=torch.float64)
    running = soft_target(one, 0 * one, next_q, one, alpha=alpha, gamma=0.5)
    ended = soft_target(one, one, next_q, one, alpha=alpha, gamma=0.5)
    assert (running.item(), ended.item()) == (6.0, 1.0)


def test_ensemble_equals_its_members_one_by_one() -> None:
    model = MLPREDQModel(OBS, ACT, (16, 16), num_critics=4).double()
    batch = make_batch()
    together = model.q_values(batch.obs, batch.actions).detach().numpy()
    one_by_one, _ = reference.critic_values(
        layers(model.critic), batch.obs.numpy(), batch.actions.numpy()
    )
    np.testing.assert_allclose(together, one_by_one, **TOLERANCE)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("alpha", -0.1),
        ("initial_alpha", 0.0),
        ("gamma", 1.5),
        ("tau", 0.0),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("batch_size", 0),
        ("hidden_sizes", ()),
        ("hidden_sizes", (256, 0)),
        ("learning_starts", -1),
        ("train_frequency", 0),
        ("gradient_updates_per_step", 0),
        ("buffer_capacity", 0),
    ],
)
def test_bad_values_fail_at_construction(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        SACConfig(**{field: value})

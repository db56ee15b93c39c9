"""EDAC against a reference written from the paper in float64 NumPy (tests/reference)."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_training.algorithms.edac import (
    EDACAlgorithm,
    EDACConfig,
    critic_diversity_loss,
    edac_loss,
)
from rl_training.errors import ConfigError
from rl_training.models import EnsembleCritic
from rl_training.models.kernels import plain_operations
from tests.golden import (
    ACT,
    OBS,
    ROWS,
    SOFT,
    TOLERANCE,
    arrays,
    assert_same_metrics,
    assert_same_network,
    assert_trace_is_the_update,
    freeze,
    layers,
    make_batch,
    make_learner,
    make_noise,
    reference_batch,
)
from tests.reference import edac as reference
from tests.reference import sac as reference_sac

SMALL: Any = {"num_critics": 4}


def diverse_learner(**changes: Any) -> Any:
    """Critics away from their small initial values, so that all terms matter."""
    learner = make_learner(EDACAlgorithm, **(SMALL | changes))
    learner.model.critic.views(learner.model.critic.flat.detach())[-2].mul_(100.0)
    return learner


@pytest.mark.parametrize(
    ("alpha", "eta", "hidden"),
    [("auto", 1.0, (16, 16)), (0.25, 5.0, (16, 8, 12)), (0.0, 0.0, (16, 16)), (0.125, 2.0, (16,))],
)
def test_updates_equal_the_reference(alpha: Any, eta: float, hidden: Any) -> None:
    learner = diverse_learner(alpha=alpha, eta=eta, hidden_sizes=hidden)
    model = learner.model
    state = reference_sac.initial_state(
        layers(model.actor),
        layers(model.critic),
        fixed_alpha=None if alpha == "auto" else alpha,
        target_critics=layers(model.critic, model.target),
    )
    hyper: Any = {**SOFT, "eta": eta}
    for step in range(5):
        batch, noise = make_batch(step), make_noise(learner, 100 + step)
        ours = learner.update(batch, noise)
        state, theirs = reference.full_update(state, reference_batch(batch), arrays(noise), hyper)
        if alpha != "auto":
            theirs.pop("alpha_loss")
        if eta == 0:
            theirs.pop("diversity_loss")
        assert_same_metrics(ours, theirs)
    assert_same_network(layers(model.actor), state["actor"])
    assert_same_network(layers(model.critic), state["critics"])
    assert_same_network(layers(model.critic, model.target), state["target_critics"])


def test_diversity_and_its_gradient_equal_the_reference() -> None:
    gradients = np.random.default_rng(0).normal(size=(5, ROWS, ACT))
    gradients[1, 3] = 0.0  # a critic that does not depend on the action
    tensor = torch.from_numpy(gradients).requires_grad_()
    loss = critic_diversity_loss(tensor)
    (slope,) = torch.autograd.grad(loss, tensor)
    value, expected = reference.diversity_loss(gradients)
    np.testing.assert_allclose(loss.item(), value, **TOLERANCE)
    clear = np.abs(gradients).sum(-1) > 0  # at 0 the slope is a rounding error times 1e10
    np.testing.assert_allclose(slope.numpy()[clear], expected[clear], **TOLERANCE)
    assert slope.isfinite().all()


@pytest.mark.parametrize("count", [2, 3, 10])
def test_aligned_gradients_give_the_number_of_critics(count: int) -> None:
    one = torch.randn(1, 8, 3, dtype=torch.float64)
    scales = torch.arange(1.0, count + 1).double().view(-1, 1, 1)
    aligned = critic_diversity_loss(one * scales)
    torch.testing.assert_close(aligned.item(), float(count), rtol=1e-8, atol=0)


def test_orthogonal_gradients_give_zero_and_opposed_ones_minus_two() -> None:
    axes = torch.eye(3, dtype=torch.float64).view(3, 1, 3)
    assert abs(critic_diversity_loss(axes * 7.0).item()) < 1e-9
    opposed = torch.cat((axes[:1], -3.0 * axes[:1]))
    assert critic_diversity_loss(opposed).item() == pytest.approx(-2.0)


def test_single_critic_and_transposed_axes_raise() -> None:
    for shape in ((1, 8, 3), (8, 3), (3,)):
        with pytest.raises(ConfigError, match=r"\[critics, batch, action\] with 2 or more critics"):
            critic_diversity_loss(torch.ones(shape))
    with pytest.raises(ConfigError, match=r"shape \[8, 5, 3\].* with 5 critics"):
        critic_diversity_loss(torch.ones(8, 5, 3), num_critics=5)


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000), count=st.integers(2, 6), scale=st.floats(1e-3, 1e3))
def test_diversity_is_invariant_to_order_and_scale(seed: int, count: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    gradients = torch.randn(count, 6, 3, generator=generator, dtype=torch.float64)
    first = critic_diversity_loss(gradients)
    order = torch.randperm(count, generator=generator)
    torch.testing.assert_close(critic_diversity_loss(gradients[order]), first, rtol=0, atol=1e-6)
    gradients[0] *= scale
    torch.testing.assert_close(critic_diversity_loss(gradients), first, rtol=0, atol=1e-5)


@pytest.mark.parametrize("hidden", [(16,), (16, 8), (16, 8, 12)])
@pytest.mark.parametrize("node", [True, False])
def test_action_gradients_equal_a_double_backward(hidden: Any, node: bool) -> None:
    """Compare values, action gradients, and the parameter gradient of a function of both."""
    critic = EnsembleCritic(OBS, ACT, hidden, 3).double()
    batch = make_batch()
    actions = batch.actions.clone().requires_grad_()
    expected_q = critic.plain_forward(actions, prefix=batch.obs).squeeze(-1)
    rows = [torch.autograd.grad(q.sum(), actions, create_graph=True)[0] for q in expected_q]
    expected = torch.stack(rows)
    with nullcontext() if node else plain_operations():
        q, gradients = critic.action_gradients(batch.obs, batch.actions)
    torch.testing.assert_close(q, expected_q, **TOLERANCE)
    torch.testing.assert_close(gradients, expected, **TOLERANCE)

    def slope(values: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
        loss = values.sin().sum() + (slopes.sin() * torch.arange(ACT)).sum()
        return torch.autograd.grad(loss, critic.flat)[0]

    torch.testing.assert_close(slope(q, gradients), slope(expected_q, expected), **TOLERANCE)


def test_action_gradients_of_other_trunks_equal_autograd() -> None:
    critic = EnsembleCritic(OBS, ACT, (8,), 2, layer_norm=True).double()
    batch = make_batch()
    with torch.no_grad():  # as in held-out losses
        q, gradients = critic.action_gradients(batch.obs, batch.actions)
    for member in range(2):
        actions = batch.actions.clone().requires_grad_()
        expected_q = critic.q_values(batch.obs, actions)[member]
        (expected,) = torch.autograd.grad(expected_q.sum(), actions)
        torch.testing.assert_close(q[member], expected_q)
        torch.testing.assert_close(gradients[member], expected)
    (slope,) = torch.autograd.grad(
        critic.action_gradients(batch.obs, batch.actions)[1].square().sum(), critic.flat
    )
    assert slope.abs().sum() > 0


def test_eta_0_computes_no_action_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner(EDACAlgorithm, **SMALL, eta=0.0)

    def refuse(*_: Any) -> Any:
        raise AssertionError("SAC-N makes no gradient by the action")

    monkeypatch.setattr(EnsembleCritic, "action_gradients", refuse)
    assert "loss/diversity" not in learner.update(make_batch(), make_noise(learner))


def test_penalty_makes_critics_diverse() -> None:
    """The diversity term decreases when it is the only loss."""
    found = {}
    for eta in (0.0, 5.0):
        learner = diverse_learner(eta=eta)
        for _ in range(30):
            learner.update(make_batch(), make_noise(learner))
        batch = make_batch()
        gradients = learner.model.critic.action_gradients(batch.obs, batch.actions)[1]
        found[eta] = critic_diversity_loss(gradients).item()
    assert found[5.0] < found[0.0] - 0.5


@pytest.mark.parametrize("eta", [0.0, 1.0])
def test_loss_helper_equals_the_stages_at_frozen_parameters(eta: float) -> None:
    learner = diverse_learner(eta=eta)
    batch, noise = make_batch(), make_noise(learner)
    losses = edac_loss(
        *(learner.model, batch, noise),
        alpha=learner.alpha,
        eta=eta,
        log_alpha=learner.log_alpha,
        target_entropy=learner.target_entropy,
    )
    freeze(learner)
    metrics = learner.update(batch, noise)
    assert ("loss/diversity" in losses) == (eta > 0)
    for name, value in losses.items():
        torch.testing.assert_close(metrics[name], value.detach(), rtol=0, atol=0)


def test_only_the_critics_last_layers_start_small() -> None:
    learner = EDACAlgorithm.build(make_learner(EDACAlgorithm).spec, seed=0)
    views = learner.model.critic.views(learner.model.critic.flat)
    for last in views[-2:]:
        assert last.abs().max() <= 3e-3
    assert views[-2].abs().max() > 2.9e-3
    assert views[-4].abs().max() > 0.06
    assert learner.model.actor.views(learner.model.actor.flat)[-2].abs().max() > 0.06


@pytest.mark.parametrize("eta", [0.0, 1.0])
def test_traced_updates_equal_eager_ones(eta: float) -> None:
    assert_trace_is_the_update(diverse_learner(eta=eta))


@pytest.mark.parametrize(
    ("field", "value"), [("eta", -0.1), ("num_critics", 1), ("alpha", -1.0), ("train_frequency", 1)]
)
def test_bad_values_fail_at_construction(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        EDACConfig(**{field: value})

"""Categorical distributions against NumPy: projection, selection and cross-entropy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms.return_bins import (
    categorical_loss,
    lower_distribution,
    project_onto_bins,
)
from rl_training.models import BinnedCritic
from rl_training.models.kernels import plain_operations
from rl_training.models.network_config import trunk_config
from tests.golden import ACT, OBS, TOLERANCE, make_batch
from tests.reference import return_bins as reference

BINS = np.linspace(-2.0, 2.0, 9)
RNG = np.random.default_rng(0)


def project(probs: Any, values: Any, *, plain: bool) -> Any:
    tensors = [torch.from_numpy(np.asarray(x, dtype=float)) for x in (probs, values, BINS)]
    if not plain:
        return project_onto_bins(*tensors).numpy()
    with plain_operations():
        return project_onto_bins(*tensors).numpy()


@pytest.mark.parametrize("plain", [True, False])
def test_projection_equals_the_reference(plain: bool) -> None:
    """Atoms inside, outside, on a bin, at the ends, and several in one place."""
    probs = reference.softmax(RNG.normal(size=(6, 7)))
    values = RNG.normal(scale=2.0, size=(6, 7))
    values[0] = [-9.0, -2.0, -1.5, 0.0, 2.0, 9.0, 1.999]
    values[1] = 0.3
    found = project(probs, values, plain=plain)
    np.testing.assert_allclose(found, reference.project(probs, values, BINS), **TOLERANCE)
    np.testing.assert_allclose(found.sum(1), 1.0)
    inside = np.abs(values).max(1) <= 2.0
    assert inside.any()
    np.testing.assert_allclose((found @ BINS)[inside], (probs * values).sum(1)[inside])


@pytest.mark.parametrize("plain", [True, False])
def test_a_single_value_becomes_two_hot(plain: bool) -> None:
    found = project([[1.0], [1.0]], [[0.6], [-1.0]], plain=plain)
    wanted = np.zeros((2, 9))
    wanted[0, 5], wanted[0, 6], wanted[1, 2] = 0.8, 0.2, 1.0
    np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_both_forms_are_equal_in_float32() -> None:
    bins = torch.linspace(-5.0, 5.0, 101)
    probs, values = torch.rand(64, 101).softmax(-1), 4.0 * torch.randn(64, 101)
    with plain_operations():
        plain = project_onto_bins(probs, values, bins)
    torch.testing.assert_close(project_onto_bins(probs, values, bins), plain, rtol=0, atol=1e-6)


def test_the_lower_mean_selects_whole_distributions() -> None:
    """Not a minimum of probabilities: every row is one critic's distribution."""
    logits = 3.0 * RNG.normal(size=(3, 20, 9))
    probs = reference.softmax(logits)
    expected = reference.lower_distribution(probs, BINS)
    found = lower_distribution(torch.from_numpy(probs), torch.from_numpy(probs @ BINS))
    np.testing.assert_allclose(found.numpy(), expected, **TOLERANCE)
    assert len({int((probs @ BINS)[:, row].argmin()) for row in range(20)}) == 3


def test_cross_entropy_and_gradient_equal_the_reference() -> None:
    logits, target = RNG.normal(size=(2, 6, 9)), reference.softmax(RNG.normal(size=(6, 9)))
    leaf = torch.from_numpy(logits).requires_grad_()
    loss = categorical_loss(leaf.log_softmax(-1), torch.from_numpy(target))
    expected, slopes = reference.cross_entropy(logits, target)
    np.testing.assert_allclose(loss.item(), expected, **TOLERANCE)
    (gradient,) = torch.autograd.grad(loss, leaf)
    np.testing.assert_allclose(gradient.numpy(), slopes, **TOLERANCE)


def test_rows_are_weighted() -> None:
    log_probs = torch.randn(2, 4, 9).log_softmax(-1)
    target = torch.rand(4, 9).softmax(-1)
    weights = torch.tensor([2.0, 0.0, 0.0, 0.0])
    first = categorical_loss(log_probs[:, :1], target[:1])
    torch.testing.assert_close(categorical_loss(log_probs, target, weights), first / 2)


def make_critic(trunk: str = "mlp") -> Any:
    options = {"hidden_sizes": [8]} if trunk == "mlp" else {"width": 8, "blocks": 1}
    config = trunk_config({"trunk": trunk, **options}, "test")
    generator = torch.Generator().manual_seed(0)
    sizes: Any = {"num_bins": 9, "bound": 2.0, "trunk": config, "generator": generator}
    return BinnedCritic(OBS, ACT, (8,), 3, **sizes).double()


def test_q_values_are_the_means_everywhere() -> None:
    """Also for subsets of critics, sampled actions and gradients of the actions."""
    critic, batch = make_critic(), make_batch()
    inputs = batch.obs, batch.actions
    probs = critic.log_probs(*inputs).exp().detach().numpy()
    q = critic.q_values(*inputs)
    np.testing.assert_allclose(q.detach().numpy(), probs @ critic.bins.numpy(), **TOLERANCE)
    torch.testing.assert_close(critic.first_q_values(*inputs), q[0])
    chosen = torch.tensor([2, 0])
    torch.testing.assert_close(critic.subset_q_values(*inputs, critic.flat, chosen), q[chosen])
    sampled = critic.sampled_q_values(batch.obs, torch.stack((batch.actions, batch.actions)))
    torch.testing.assert_close(sampled, torch.stack((q, q), 1))
    actions = batch.actions.clone().requires_grad_()
    (slopes,) = torch.autograd.grad(critic.q_values(batch.obs, actions)[1].sum(), actions)
    values, gradients = critic.action_gradients(*inputs)
    torch.testing.assert_close(values, q)
    torch.testing.assert_close(gradients[1], slopes)


@pytest.mark.parametrize("training", [True, False])
def test_target_critics_do_not_change_the_running_statistics(training: bool) -> None:
    critic, batch = make_critic("flash"), make_batch()
    before = {name: value.clone() for name, value in critic.state.items()}
    with torch.no_grad():
        probs = critic.target_probs(batch.obs, batch.actions, critic.flat, training=training)
    assert all(torch.equal(value, before[name]) for name, value in critic.state.items())
    with critic.in_mode(training=training):
        online = critic.log_probs(batch.obs, batch.actions).exp()
    torch.testing.assert_close(probs, online)
    changed = not torch.equal(critic.state["running_mean"], before["running_mean"])
    assert changed == training

"""RLPD against a reference written from the paper in float64 NumPy (tests/reference)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms.rlpd import RLPDAlgorithm, RLPDConfig, rlpd_loss
from rl_training.models import MLP
from tests.golden import (
    ACT,
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
    move_norms,
    reference_batch,
)
from tests.reference import nn as reference_nn
from tests.reference import rlpd as reference

SMALL: Any = {"num_critics": 4, "gradient_updates_per_step": 3}


def normalized_learner(**changes: Any) -> Any:
    learner = make_learner(RLPDAlgorithm, **(SMALL | changes))
    move_norms(learner.model.critic)
    return learner


@pytest.mark.parametrize(("alpha", "backup"), [("auto", True), ("auto", False), (0.25, True)])
def test_updates_equal_the_reference(alpha: Any, backup: bool) -> None:
    """Eight updates: two blocks of three, and two updates of the next block."""
    learner = normalized_learner(alpha=alpha, backup_entropy=backup)
    model = learner.model
    state = reference.initial_state(
        layers(model.actor),
        layers(model.critic),
        fixed_alpha=None if alpha == "auto" else alpha,
        target_critics=layers(model.critic, model.target),
    )
    assert set(state["critics"][0]) == {"weights", "biases", "scales", "shifts"}
    assert set(state["actor"]) == {"weights", "biases"}
    hyper: Any = {
        **SOFT,
        "subset_size": 2,
        "block": 3,
        "backup_entropy": backup,
        "target_entropy": -ACT / 2,
    }
    for step in range(8):
        batch, noise = make_batch(step), make_noise(learner, 100 + step)
        ours = learner.update(batch, noise, learner.due(step))
        state, theirs = reference.full_update(state, reference_batch(batch), arrays(noise), hyper)
        if alpha != "auto":
            theirs.pop("alpha_loss", None)
        assert_same_metrics(ours, theirs)
    assert_same_network(layers(model.actor), state["actor"])
    assert_same_network(layers(model.critic), state["critics"])
    assert_same_network(layers(model.critic, model.target), state["target_critics"])
    if alpha == "auto":
        np.testing.assert_allclose(learner.log_alpha.item(), state["log_alpha"], **TOLERANCE)


@pytest.mark.parametrize("ensemble", [None, 3])
def test_normalized_networks_equal_the_reference(ensemble: int | None) -> None:
    net = MLP(4, (8, 6), 2, ensemble=ensemble, layer_norm=True).double()
    with torch.no_grad():
        net.flat.add_(0.2 * torch.randn(net.flat.shape, dtype=torch.float64))
    x = torch.randn(9, 4, dtype=torch.float64, requires_grad=True)
    members = layers(net)
    expected = [
        reference_nn.forward(member, x.detach().numpy())
        for member in (members if ensemble else [members])
    ]
    out = net(x)
    stacked = np.stack([output for output, _ in expected])
    np.testing.assert_allclose(out.detach().numpy().reshape(stacked.shape), stacked, **TOLERANCE)
    with torch.no_grad():
        torch.testing.assert_close(net(x), out.detach(), **TOLERANCE)
    flat, inputs = torch.autograd.grad(out.sum(), (net.flat, x))
    found = layers(net, flat)
    backs = [reference_nn.mlp_backward(cache, np.ones((9, 2))) for _, cache in expected]
    for mine, back in zip(found if ensemble else [found], backs, strict=True):
        assert_same_network(mine, back.network)
    np.testing.assert_allclose(inputs.numpy(), sum(b.inputs for b in backs), **TOLERANCE)


def test_layer_norm_starts_with_scale_1_and_shift_0() -> None:
    net = MLP(4, (8, 6), 2, ensemble=3, layer_norm=True)
    norms = net.views(net.flat)[6:]
    assert [view.shape for view in norms] == [(3, 1, 8), (3, 1, 8), (3, 1, 6), (3, 1, 6)]
    for scale, shift in zip(norms[0::2], norms[1::2], strict=True):
        assert (scale == 1).all()
        assert (shift == 0).all()


@pytest.mark.parametrize("backup", [True, False])
def test_loss_helper_equals_the_stages_at_frozen_parameters(backup: bool) -> None:
    learner = normalized_learner(backup_entropy=backup)
    batch, noise = make_batch(), make_noise(learner)
    losses = rlpd_loss(
        *(learner.model, batch, noise),
        alpha=learner.alpha,
        log_alpha=learner.log_alpha,
        target_entropy=learner.target_entropy,
        backup_entropy=backup,
    )
    freeze(learner)
    metrics = learner.update(batch, noise, frozenset({"actor"}))
    assert {"loss/critic", "loss/actor", "loss/temperature"} == set(losses)
    for name, value in losses.items():
        torch.testing.assert_close(metrics[name], value.detach(), rtol=0, atol=0)


def test_target_entropy_is_half_of_sacs() -> None:
    assert make_learner(RLPDAlgorithm, **SMALL).target_entropy == -ACT / 2
    assert make_learner(RLPDAlgorithm, **SMALL, target_entropy=-7.0).target_entropy == -7.0


def test_defaults_are_the_papers() -> None:
    config = RLPDConfig()
    assert (config.num_critics, config.subset_size) == (10, 2)
    assert config.gradient_updates_per_step == 20
    assert (config.offline_batch_ratio, config.offline_pretrain_updates) == (0.5, 0)
    assert config.layer_norm


def test_traced_updates_equal_eager_ones() -> None:
    assert_trace_is_the_update(normalized_learner())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("offline_batch_ratio", -0.1),
        ("offline_batch_ratio", 1.1),
        ("offline_batch_ratio", float("nan")),
        ("offline_pretrain_updates", -1),
        ("subset_size", 11),
    ],
)
def test_bad_values_fail_at_construction(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        RLPDConfig(**{field: value})

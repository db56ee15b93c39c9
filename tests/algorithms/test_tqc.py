"""TQC against a reference written from the paper in float64 NumPy (tests/reference)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms.quantiles import quantile_huber_loss, quantile_loss
from rl_training.algorithms.tqc import (
    TQCAlgorithm,
    TQCConfig,
    tqc_loss,
    tqc_target,
    truncated_quantiles,
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
from tests.reference import sac as sac_reference
from tests.reference import tqc as reference

SMALL: Any = {
    "num_critics": 3,
    "num_quantiles": 7,
    "top_quantiles_to_drop_per_net": 2,
    "critic_hidden_sizes": (12, 10, 8),
}


def random_quantiles(critics: int = 3, rows: int = 6, count: int = 7) -> Any:
    return 2.0 * np.random.default_rng(0).normal(size=(critics, rows, count))


@pytest.mark.parametrize("alpha", ["auto", 0.25, 0.0])
@pytest.mark.parametrize("drop", [0, 2])
def test_updates_equal_the_reference(alpha: Any, drop: int) -> None:
    changes = SMALL | {"top_quantiles_to_drop_per_net": drop, "alpha": alpha}
    learner = make_learner(TQCAlgorithm, **changes)
    model = learner.model
    state = sac_reference.initial_state(
        layers(model.actor),
        layers(model.critic),
        log_alpha=0.0,
        fixed_alpha=None if alpha == "auto" else alpha,
        target_critics=layers(model.critic, model.target),
    )
    hyper: Any = {**SOFT, "drop_per_critic": drop, "critic_reduction": "sum"}
    for step in range(4):
        batch, noise = make_batch(step), make_noise(learner, 100 + step)
        ours = learner.update(batch, noise)
        state, theirs = reference.full_update(state, reference_batch(batch), arrays(noise), hyper)
        if alpha != "auto":
            theirs.pop("alpha_loss", None)
        assert_same_metrics(ours, theirs)
    assert_same_network(layers(model.actor), state["actor"])
    assert_same_network(layers(model.critic), state["critics"])
    assert_same_network(layers(model.critic, model.target), state["target_critics"])
    if alpha == "auto":
        np.testing.assert_allclose(learner.log_alpha.item(), state["log_alpha"], **TOLERANCE)


@pytest.mark.parametrize("loss_function", [quantile_huber_loss, quantile_loss])
def test_quantile_loss_and_gradient_equal_the_reference(loss_function: Any) -> None:
    """The plain loss and the CPU node, with errors on both sides of 0 and of ±1."""
    quantiles, atoms = random_quantiles(), np.random.default_rng(1).normal(size=(6, 11))
    quantiles[0, 0, 0] = atoms[0, 0]  # an error of exactly 0
    leaf = torch.from_numpy(quantiles).requires_grad_()
    loss = loss_function(leaf, torch.from_numpy(atoms))
    expected, slopes = reference.quantile_loss(quantiles, atoms, "sum")
    np.testing.assert_allclose(loss.item(), expected, **TOLERANCE)
    (gradient,) = torch.autograd.grad(3.0 * loss, leaf)
    np.testing.assert_allclose(gradient.numpy(), 3.0 * slopes, **TOLERANCE)


@pytest.mark.parametrize("drop", [0, 1, 6])
def test_truncation_pools_the_quantiles(drop: int) -> None:
    quantiles = random_quantiles()
    quantiles[0] += 10.0  # all quantiles of the first critic are above the others'
    kept = truncated_quantiles(torch.from_numpy(quantiles), drop)
    expected = reference.truncated_atoms(quantiles, drop)
    np.testing.assert_allclose(kept.numpy(), expected, **TOLERANCE)
    if drop == 6:  # 3 of 21 are kept, none of the first critic
        assert kept.shape == (6, 3)
        assert kept.max() < quantiles[0].min()


def test_actor_maximizes_the_untruncated_mean() -> None:
    learner = make_learner(TQCAlgorithm, **SMALL)
    model, batch, noise = learner.model, make_batch(), make_noise(learner)
    losses = helper_losses(learner, batch, noise)
    expected = reference.actor_loss(
        layers(model.actor), layers(model.critic), batch.obs.numpy(), noise["action"].numpy(), 1.0
    )
    np.testing.assert_allclose(losses["loss/actor"].item(), expected.loss, **TOLERANCE)
    (flat,) = torch.autograd.grad(losses["loss/actor"], model.actor.flat)
    pairs = zip(layers(model.actor, flat)["weights"], expected.grads.weights, strict=True)
    for mine, theirs in pairs:
        np.testing.assert_allclose(mine, theirs, **TOLERANCE)


def helper_losses(learner: Any, batch: Any, noise: Any) -> Any:
    return tqc_loss(
        learner.model,
        batch,
        noise,
        alpha=learner.alpha,
        drop_per_net=2,
        log_alpha=learner.log_alpha,
        target_entropy=learner.target_entropy,
    )


@pytest.mark.parametrize("alpha", ["auto", 0.2])
def test_loss_helper_equals_the_stages_at_frozen_parameters(alpha: Any) -> None:
    learner = make_learner(TQCAlgorithm, **SMALL, alpha=alpha)
    batch, noise = make_batch(), make_noise(learner)
    losses = helper_losses(learner, batch, noise)
    freeze(learner)
    metrics = learner.update(batch, noise)
    assert {"loss/critic", "loss/actor"} <= set(losses)
    for name, value in losses.items():
        torch.testing.assert_close(metrics[name], value.detach(), rtol=0, atol=0)


def test_target_samples_the_current_actor_and_the_target_critics() -> None:
    learner = make_learner(TQCAlgorithm, **SMALL)
    model, batch, noise = learner.model, make_batch(), make_noise(learner)

    def target() -> torch.Tensor:
        return tqc_target(model, batch, noise, alpha=learner.alpha, drop_per_net=2, gamma=0.99)

    first = target()
    assert first.shape == (32, 15)
    with torch.no_grad():
        model.critic.flat.add_(1.0)
        torch.testing.assert_close(target(), first)
        model.actor.flat.add_(0.1)
        assert not torch.allclose(target(), first)


def test_target_at_terminations_is_the_reward() -> None:
    learner = make_learner(TQCAlgorithm, **SMALL)
    batch = make_batch()
    target = learner.critic_target(batch, make_noise(learner))
    ended = batch.terminations > 0
    assert ended.any()
    torch.testing.assert_close(
        target[ended], batch.rewards[ended].unsqueeze(-1).expand(-1, 15), rtol=0, atol=0
    )
    assert (target[~ended].std(-1) > 0).all()


def test_critics_have_their_own_sizes() -> None:
    learner = make_learner(TQCAlgorithm, **SMALL)
    widths = [shape[-1] for shape in learner.model.critic.shapes[0::2]]
    assert widths == [12, 10, 8, 7]
    assert [shape[-1] for shape in learner.model.actor.shapes[0::2]] == [16, 16, 6]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_critics", 0),
        ("num_quantiles", 0),
        ("top_quantiles_to_drop_per_net", -1),
        ("top_quantiles_to_drop_per_net", 25),
        ("critic_hidden_sizes", ()),
        ("critic_hidden_sizes", (64, 0)),
    ],
)
def test_bad_values_fail_at_construction(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        TQCConfig(**{field: value})


def test_dropping_all_quantiles_raises_a_clear_error() -> None:
    with pytest.raises(ConfigError) as caught:
        TrainConfig.load("tqc/pendulum", ["top_quantiles_to_drop_per_net=25"])
    assert str(caught.value) == (
        "top_quantiles_to_drop_per_net = 25: should be less than num_quantiles, which is 25."
    )

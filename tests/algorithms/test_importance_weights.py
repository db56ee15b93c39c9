"""Importance weights and reported TD errors of every learner with critics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms.base import Algorithm, draw_noise
from rl_training.algorithms.discrete_cql import DiscreteCQLAlgorithm, double_q_target
from rl_training.algorithms.quantiles import quantile_huber_loss, quantile_loss
from rl_training.algorithms.registry import AlgorithmEntry
from rl_training.types import TD_ERROR, Batch
from tests.algorithms.test_conformance import build, make_batch
from tests.conftest import CASES, case_id

LEARNERS = [case for case in CASES if case[0].name not in ("bc", "her")]
each_learner = pytest.mark.parametrize(("entry", "kind"), LEARNERS, ids=case_id)
PER_ROW = {"subset"}
"""Noise that is not per row."""


def weighted(batch: Batch, weights: torch.Tensor) -> Batch:
    return batch._replace(extra={**batch.extra, "weights": weights})


def critic_losses(learner: Algorithm, batch: Batch, noise: Any) -> dict[str, float]:
    """Return the weighted part of the losses, without terms added to the squared error."""
    losses = learner.held_out_losses(batch, noise)
    names = {"loss/bellman"} if "loss/bellman" in losses else {"loss/critic", "loss/q"}
    return {name: float(value) for name, value in losses.items() if name in names}


def make(entry: AlgorithmEntry, kind: str) -> tuple[Algorithm, Batch, dict[str, torch.Tensor]]:
    learner = build(entry, kind)
    if hasattr(learner.config, "eta"):  # no diversity term
        learner.config = learner.config.model_copy(update={"eta": 0.0})
    return learner, make_batch(learner), draw_noise(learner.noise(8), torch.Generator())


def first_rows(batch: Batch, noise: Any, count: int) -> tuple[Batch, Any]:
    def cut(name: str, value: torch.Tensor) -> torch.Tensor:
        return value if name in PER_ROW else value[..., :count, :]

    return batch.map(lambda x: x[:count]), {k: cut(k, v) for k, v in noise.items()}


@each_learner
def test_losses_are_weighted_per_row(entry: AlgorithmEntry, kind: str) -> None:
    """With weights 1 and 0, the loss is the loss of the first rows times their share."""
    learner, batch, noise = make(entry, kind)
    half = torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    found = critic_losses(learner, weighted(batch, half), noise)
    alone = critic_losses(learner, *first_rows(batch, noise, 4))
    assert found.keys() == alone.keys() != set()
    assert found == pytest.approx({k: v / 2 for k, v in alone.items()}, rel=1e-5)
    double = critic_losses(learner, weighted(batch, 2 * half), noise)
    assert double == pytest.approx(alone, rel=1e-5)


@each_learner
def test_weights_of_1_have_no_effect(entry: AlgorithmEntry, kind: str) -> None:
    states = []
    for given in (False, True):
        learner, batch, noise = make(entry, kind)
        batch = weighted(batch, torch.ones(8)) if given else batch
        for due in learner.all_due():
            metrics = learner.run_update(batch, noise, due)
            assert (TD_ERROR in metrics) == given
        states.append(learner.state_dict())
    for name, tensor in states[0].items():
        torch.testing.assert_close(tensor, states[1][name], rtol=1e-5, atol=1e-6, msg=name)


def reported_errors(learner: Any, batch: Batch, noise: Any) -> np.ndarray[Any, Any]:
    """Return what an update reports at the current parameters."""
    stages = learner.stages(weighted(batch, torch.ones(8)), noise, frozenset({"actor"}))
    (errors,) = (s.terms.metrics[TD_ERROR] for s in stages if TD_ERROR in s.terms.metrics)
    assert not errors.requires_grad
    return np.asarray(errors)


@each_learner
@torch.no_grad()
def test_errors_are_the_mean_over_critics(entry: AlgorithmEntry, kind: str) -> None:
    learner, batch, noise = make(entry, kind)
    model: Any = learner.model
    if entry.name == "dqn":
        q = model.q_values(batch.obs)[torch.arange(8), batch.actions[:, 0].long()].unsqueeze(0)
        next_value = model.target_q_values(batch.next_obs).max(-1).values
        target = batch.rewards + 0.99 * (1 - batch.terminations) * next_value
    elif isinstance(learner, DiscreteCQLAlgorithm):
        q = model.q_values(batch.obs, batch.actions)
        target = double_q_target(model, batch, gamma=0.99)
    elif entry.name == "iql":
        q = model.q_values(batch.obs, batch.actions)
        target = batch.rewards + 0.99 * (1 - batch.terminations) * model.values(batch.next_obs)
    elif entry.name == "tqc":  # the error of the means of the distributions
        q = model.critic.quantiles(batch.obs, batch.actions).mean(-1)
        target = learner.critic_target(batch, noise).mean(-1)  # type: ignore[operator]
    elif entry.name == "flash_sac":  # also of the means
        q = model.q_values(batch.obs, batch.actions)
        target = model.critic.mean(learner.critic_target(batch, noise))  # type: ignore[operator]
    else:
        q = model.q_values(batch.obs, batch.actions)
        target = learner.critic_target(batch, noise)  # type: ignore[operator]
    wanted = np.abs(q.numpy() - target.numpy()).mean(0)  # of [N, B] and [B]
    np.testing.assert_allclose(reported_errors(learner, batch, noise), wanted, rtol=1e-4)


def test_quantile_kernel_equals_the_formula_with_weights() -> None:
    g = torch.Generator().manual_seed(0)
    target, weights = torch.randn(6, 9, generator=g), torch.rand(6, generator=g)
    values, slopes = [], []
    for function in (quantile_loss, quantile_huber_loss):
        quantiles = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(1))
        quantiles.requires_grad_()
        loss = function(quantiles, target, weights)
        values.append(loss.item())
        slopes.append(torch.autograd.grad(loss, quantiles)[0])
    assert values[0] == pytest.approx(values[1], rel=1e-5)
    torch.testing.assert_close(*slopes)

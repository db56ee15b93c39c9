"""The optimizer's numerics: denormal moments are flushed to 0, and NaN is preserved.

Every golden test checks that its steps are Adam's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch

from rl_training.algorithms.optimizers import FlatAdam
from rl_training.models.kernels import plain_operations

SMALLEST = torch.finfo(torch.float32).smallest_normal


def denormal(values: torch.Tensor) -> bool:
    return bool(((values != 0) & (values.abs() < SMALLEST)).any())


@pytest.fixture(params=["fused", "plain"])
def formula(request: pytest.FixtureRequest) -> Iterator[None]:
    """Eager steps with PyTorch's fused kernel, or with the operations that are compiled."""
    with plain_operations() if request.param == "plain" else nullcontext():
        yield


@pytest.mark.usefixtures("formula")
@pytest.mark.parametrize("weight_decay", [0.0, 1e-4])
def test_dead_units_leave_no_denormal_moments(weight_decay: float) -> None:
    """Half of the units are always dead, the others after 100 steps."""
    torch.manual_seed(0)
    weights = torch.randn(64) / 8
    adam = FlatAdam(weights, 3e-4, weight_decay)
    adam.moment2[48:] = 1e-35  # as after 80,000 steps without a gradient
    for step in range(8_000):
        gradient = torch.zeros(64)
        gradient[:32] = torch.randn(32) if step < 100 else 0.0
        adam.step(weights, gradient)
        assert not any(denormal(each) for each in (weights, adam.moment1, adam.moment2)), step
    dead = weights[32:], adam.moment1[32:]
    assert [bool(each.any()) for each in dead] == [weight_decay == 0, False]


@pytest.mark.usefixtures("formula")
def test_nan_is_preserved() -> None:
    weights = torch.ones(3)
    adam = FlatAdam(weights, 3e-4, 1e-4)
    adam.step(weights, torch.tensor([1.0, float("nan"), float("inf")]))
    assert weights[0] < 1
    for each in (weights, adam.moment1, adam.moment2):
        assert each.isfinite().tolist() == [True, False, False]

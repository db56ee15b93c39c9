"""Choices among legal actions."""

from __future__ import annotations

import pytest
import torch

from rl_training.algorithms.action_masks import legal_only, uniform_actions

LEGAL = torch.tensor([[0.0, 1.0, 1.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0, 1.0], [0, 0, 0, 1.0, 0]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_maximum_and_softmax_ignore_illegal_actions(dtype: torch.dtype) -> None:
    values = torch.tensor([[9.0, -3.0, -2.0, 8.0, -4.0]], dtype=dtype)
    found = legal_only(values, LEGAL[:1])
    assert found.dtype == dtype
    assert found.argmax(-1).tolist() == [2]
    log_probs = found.log_softmax(-1)
    expected = values[:, [1, 2, 4]].softmax(-1)
    torch.testing.assert_close(log_probs.exp()[:, [1, 2, 4]], expected)
    assert log_probs.exp()[0, [0, 3]].tolist() == [0.0, 0.0]
    entropy = -(log_probs.exp() * log_probs).sum(-1)
    torch.testing.assert_close(entropy, -(expected * expected.log()).sum(-1))


def test_illegal_actions_get_no_gradient() -> None:
    values = torch.randn(1, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    (gradient,) = torch.autograd.grad(legal_only(values, LEGAL[:1]).logsumexp(-1).sum(), values)
    assert (gradient[0] > 0).tolist() == [False, True, True, False, True]


def test_without_a_mask_all_actions_are_legal() -> None:
    values = torch.randn(3, 5)
    assert legal_only(values, None) is values
    uniform = torch.rand(1000, generator=torch.Generator().manual_seed(0))
    everything = torch.ones(1000, 5)
    assert torch.equal(uniform_actions(uniform, 5, None), uniform_actions(uniform, 5, everything))


def test_random_actions_are_legal_and_equally_likely() -> None:
    count = 3000
    uniform = (torch.arange(count) + 0.5) / count
    for row, legal in enumerate(LEGAL):
        chosen = uniform_actions(uniform, 5, legal.expand(count, -1))
        share = torch.bincount(chosen.long(), minlength=5) / count
        torch.testing.assert_close(share, LEGAL[row] / LEGAL[row].sum())


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 100, 361])
def test_largest_uniform_number_gives_the_last_legal_action(size: int) -> None:
    largest = torch.tensor([1.0 - 2.0**-24])
    legal = torch.zeros(1, size + 2)
    legal[:, 1 : size + 1] = 1.0
    assert uniform_actions(largest, size + 2, legal).tolist() == [size]
    assert uniform_actions(torch.zeros(1), size + 2, legal).tolist() == [1.0]

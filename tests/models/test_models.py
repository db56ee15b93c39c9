"""Networks and policies."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_training.errors import ConfigError
from rl_training.models import (
    MLP,
    GaussianActorCritic,
    MLPREDQModel,
    MLPSACModel,
    SquashedGaussianActor,
    TanhMeanGaussianActor,
)
from rl_training.models.kernels import plain_operations
from rl_training.models.kernels.products import ManyRowsProduct
from tests.golden import set_log_std


@settings(deadline=None, max_examples=20)
@given(mean=st.floats(-1, 1), log_std=st.floats(-1.5, 0.3))
def test_log_prob_integrates_to_one(mean: float, log_std: float) -> None:
    actor = SquashedGaussianActor(1, 1, (4,)).double()
    grid = torch.linspace(-1 + 1e-7, 1 - 1e-7, 400_001, dtype=torch.float64)[:, None]
    with torch.no_grad():
        actor.flat.zero_()
        bias = actor.views(actor.flat)[-1]
        bias.copy_(torch.tensor([mean, log_std]))
        density = actor.log_prob(torch.zeros(len(grid), 1, dtype=torch.float64), grid).exp()
    mass = torch.trapezoid(density, grid[:, 0])
    assert mass.item() == pytest.approx(1.0, abs=1e-3)


def test_samples_and_given_actions_agree_on_their_log_prob() -> None:
    torch.manual_seed(0)
    model = MLPSACModel(4, 3).double()
    obs = torch.randn(64, 4, dtype=torch.float64)
    sample = model.sample(obs, torch.randn(64, 3, dtype=torch.float64))
    inside = sample.actions.abs().max(-1).values < 0.999
    given_actions = model.action_logprobs(obs, sample.actions)
    torch.testing.assert_close(given_actions[inside], sample.log_prob[inside], rtol=1e-6, atol=1e-6)


def test_explore_returns_the_actions_of_sample() -> None:
    actor = SquashedGaussianActor(4, 3, (8,)).double()
    obs = torch.randn(16, 4, dtype=torch.float64)
    noise = torch.randn(16, 3, dtype=torch.float64)
    with torch.no_grad():
        expected = actor.sample(obs, noise).actions
        torch.testing.assert_close(actor.explore(obs, noise), expected)


def test_extreme_actions_have_finite_log_prob_and_gradient() -> None:
    actor = SquashedGaussianActor(1, 1, (4,))
    with torch.no_grad():
        actor.flat.zero_()
        actor.views(actor.flat)[-1].copy_(torch.tensor([60.0, 2.0]))
    sample = actor.sample(torch.zeros(8, 1), torch.linspace(-4, 4, 8)[:, None])
    (gradient,) = torch.autograd.grad(sample.log_prob.sum(), actor.flat)
    assert sample.log_prob.isfinite().all()
    assert gradient.isfinite().all()


def test_log_std_is_clamped() -> None:
    actor = SquashedGaussianActor(1, 1, (4,))
    with torch.no_grad():
        actor.flat.zero_()
        actor.views(actor.flat)[-1].copy_(torch.tensor([0.0, 50.0]))
    assert actor.distribution(torch.zeros(1, 1))[1].item() == 2.0


def test_views_alias_the_flat_vector_and_follow_it() -> None:
    net = MLP(3, (5,), 2)
    x = torch.randn(7, 3)
    with torch.no_grad():
        before = net(x)
        net.flat.mul_(0.5)  # in place, as an optimizer does
        after = net(x)
        torch.testing.assert_close(after, net(x, net.flat.detach().clone()))
    assert not torch.allclose(before, after)


def test_views_follow_a_change_of_dtype() -> None:
    net = MLP(3, (5,), 2)
    with torch.no_grad():
        net(torch.randn(2, 3))
        assert net.double()(torch.randn(2, 3, dtype=torch.float64)).dtype == torch.float64


def test_initial_weights_are_within_the_bounds_of_linear_layers() -> None:
    net = MLP(16, (64,), 4, ensemble=3, generator=torch.Generator().manual_seed(0))
    views = net.views(net.flat.detach())
    for weight, bias in zip(views[0::2], views[1::2], strict=True):
        bound = 1 / math.sqrt(weight.shape[-2])
        assert weight.abs().max() <= bound
        assert weight.abs().max() > 0.9 * bound
        assert bias.abs().max() <= bound
    assert not torch.equal(views[0][0], views[0][1])  # the members differ


def test_leading_population_axis_is_supported() -> None:
    """Evaluate several parameter vectors together, each with its own result."""
    net = MLP(3, (5,), 2)
    population = torch.stack([net.flat.detach() * scale for scale in (0.5, 1.0, 2.0)])
    x = torch.randn(7, 3)
    singles = torch.stack([net(x, member) for member in population])
    weights = net.views(population)
    hidden = (x @ weights[0] + weights[1].unsqueeze(-2)).relu()
    torch.testing.assert_close(hidden @ weights[2] + weights[3].unsqueeze(-2), singles)


def test_sac_model_is_the_redq_model_with_two_critics() -> None:
    model = MLPSACModel(4, 2, (8,))
    assert isinstance(model, GaussianActorCritic)
    assert issubclass(MLPREDQModel, GaussianActorCritic)
    assert model.q_values(torch.zeros(3, 4), torch.zeros(3, 2)).shape == (2, 3)
    assert torch.equal(model.target, model.critic.flat)


@pytest.mark.parametrize("ensemble", [None, 1, 3])
@pytest.mark.parametrize("out", [1, 4])
@pytest.mark.parametrize("hidden", [(8,), (8, 6, 5), (1,), (1, 4, 1)])
def test_one_node_equals_the_plain_path(
    ensemble: int | None, out: int, hidden: tuple[int, ...]
) -> None:
    net = MLP(3, hidden, out, ensemble=ensemble).double()
    x = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    results = []
    for forward in (net.forward, net.plain_forward):
        value = forward(x)
        weights = torch.linspace(-1, 1, value.numel(), dtype=torch.float64).view_as(value)
        results.append((value, *torch.autograd.grad((value * weights).sum(), (x, net.flat))))
    for one, plain in zip(*results, strict=True):
        torch.testing.assert_close(one, plain, rtol=1e-12, atol=1e-12)


def test_one_node_skips_unneeded_gradients() -> None:
    net = MLP(3, (8,), 2, ensemble=2)
    x = torch.randn(7, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(net(x, net.flat.detach()).sum(), x)
    (expected,) = torch.autograd.grad(net.plain_forward(x, net.flat.detach()).sum(), x)
    torch.testing.assert_close(gradient, expected)
    assert net(torch.randn(7, 3), net.flat.detach()).requires_grad is False


def test_clamp_of_log_std_stops_its_gradient() -> None:
    """For large outputs the exponential is infinite, and its product with 0 would be NaN."""
    actor = SquashedGaussianActor(1, 3, (4,)).double()
    with torch.no_grad():
        actor.flat.zero_()
        bias = torch.tensor([0.0, 0.0, 0.0, 1000.0, -1000.0, 1.0])
        actor.views(actor.flat)[-1].copy_(bias)
    sample = actor.sample(torch.zeros(9, 1).double(), torch.randn(9, 3).double())
    (gradient,) = torch.autograd.grad(sample.log_prob.sum() + sample.actions.sum(), actor.flat)
    assert gradient.isfinite().all()
    assert (gradient[-3:] != 0).tolist() == [False, False, True]


def test_second_derivatives_need_the_plain_path() -> None:
    net = MLP(3, (8,), 1)
    x = torch.randn(2, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"once_differentiable|does not require grad"):
        gradient.sum().backward()  # type: ignore[no-untyped-call]
    (plain,) = torch.autograd.grad(net.plain_forward(x).sum(), x, create_graph=True)
    plain.square().sum().backward()  # type: ignore[no-untyped-call]
    assert net.flat.grad is not None


# --- The Gaussian around a tanh mean ------------------------------------------


def tanh_mean_actor(bounds: tuple[float, float] = (-5.0, 2.0)) -> TanhMeanGaussianActor:
    generator = torch.Generator().manual_seed(0)
    sizes = 4, 3, (8, 8)
    return TanhMeanGaussianActor(*sizes, log_std_bounds=bounds, generator=generator).double()


@pytest.mark.parametrize(
    ("bounds", "start"), [((-5.0, 2.0), 0.0), ((-6.0, 0.0), -3.0), ((-4.0, -2.0), -3.0)]
)
def test_tanh_mean_gaussian_starts_between_its_bounds(
    bounds: tuple[float, float], start: float
) -> None:
    actor = TanhMeanGaussianActor(4, 3, (8,), log_std_bounds=bounds)
    _, log_std = actor.distribution(torch.zeros(1, 4))
    assert log_std.tolist() == [[start] * 3]
    assert (
        torch.autograd.grad(log_std.sum(), actor.flat)[0].sum() == 3
    )  # nonzero in both directions


def test_tanh_mean_gaussian_equals_torch_normal() -> None:
    actor = tanh_mean_actor()
    set_log_std(actor, -1.0, 0.0, 0.5)
    obs, actions = torch.randn(16, 4).double(), torch.randn(16, 3).double()
    std = torch.tensor([-1.0, 0.0, 0.5], dtype=torch.float64).exp()
    normal: Any = torch.distributions.Normal(actor.mode(obs), std)
    expected = normal.log_prob(actions).sum(-1)
    torch.testing.assert_close(actor.log_prob(obs, actions), expected)
    sample = actor.sample(obs, torch.randn(16, 3).double())
    torch.testing.assert_close(actor.log_prob(obs, sample.actions), sample.log_prob)


def test_exploring_a_tanh_mean_gaussian_clips() -> None:
    actor = tanh_mean_actor()
    obs, noise = torch.randn(64, 4).double(), torch.randn(64, 3).double()
    free = actor.sample(obs, noise).actions
    explored = actor.explore(obs, noise)
    assert (free.abs() > 1).any()
    torch.testing.assert_close(explored, free.clamp(-1, 1))
    assert actor.mode(100 * obs).abs().max() <= 1


def test_log_std_out_of_bounds_is_clamped_and_gets_no_gradient() -> None:
    actor = tanh_mean_actor((-1.0, 0.0))
    set_log_std(actor, -3.0, -0.5, 2.0)
    obs = torch.randn(16, 4).double()
    log_std = actor.distribution(obs)[1]
    assert log_std.tolist() == [[-1.0, -0.5, 0.0]]
    log_prob = actor.log_prob(obs, torch.zeros_like(obs[:, :3]))
    (gradient,) = torch.autograd.grad(log_prob.sum(), actor.flat)
    assert (gradient[-3:] != 0).tolist() == [False, True, False]


def test_flat_gradient_equals_separate_operations() -> None:
    """The layers of the mean and log σ share one vector, with and without the kernels."""
    actor = tanh_mean_actor()
    generator = torch.Generator().manual_seed(0)
    obs, actions = (torch.randn(64, n, generator=generator).double() for n in (4, 3))
    gradients = []
    for context in (nullcontext(), plain_operations()):
        with context:
            (gradient,) = torch.autograd.grad(actor.log_prob(obs, actions).sum(), actor.flat)
        gradients.append(gradient)
    torch.testing.assert_close(*gradients)
    assert (gradients[0] != 0).sum() > 100


def test_model_uses_the_requested_policy() -> None:
    sizes = 4, 3, (8, 8)
    squashed = MLPSACModel(*sizes)
    tanh_mean = MLPREDQModel(*sizes, 2, policy="tanh_mean", log_std_bounds=(-6.0, 0.0))
    assert isinstance(squashed.actor, SquashedGaussianActor)
    assert isinstance(tanh_mean.actor, TanhMeanGaussianActor)
    assert tanh_mean.actor.log_std_bounds == (-6.0, 0.0)
    corner = torch.ones(2, 3)
    assert tanh_mean.action_logprobs(torch.zeros(2, 4), corner).isfinite().all()
    other = MLPSACModel(*sizes, critic_hidden_sizes=(5,))
    assert other.critic.shapes[0] == (2, 7, 5)


@pytest.mark.parametrize("count", [1, 3, 5])
@pytest.mark.parametrize("traced", [False, True])
def test_sampled_q_values_equal_the_q_values_of_each_action(
    monkeypatch: pytest.MonkeyPatch, count: int, traced: bool
) -> None:
    """In chunks of two samples, with kernels and with plain operations, including gradients."""
    monkeypatch.setattr("rl_training.models.critics.CACHED_ROWS", 14)
    torch.manual_seed(0)
    critic = MLPREDQModel(4, 2, (8, 8), 3).double().critic
    obs, actions = torch.randn(7, 4).double(), torch.rand(count, 7, 2).double()
    with plain_operations() if traced else nullcontext():
        sampled = critic.sampled_q_values(obs, actions)
    each = torch.stack([critic.q_values(obs, some) for some in actions], dim=1)
    torch.testing.assert_close(sampled, each, rtol=1e-12, atol=1e-12)
    weights = torch.randn_like(each)
    found, expected = (
        torch.autograd.grad((values * weights).sum(), critic.flat)[0] for values in (sampled, each)
    )
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("of_x", [False, True])
def test_chunked_weight_gradient_equals_the_gradient(of_x: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 1024, 5, dtype=torch.float64, requires_grad=of_x)
    weight = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(2, 1024, 3, dtype=torch.float64)
    inputs = (x, weight) if of_x else (weight,)
    products = ManyRowsProduct.apply(x, weight), torch.bmm(x, weight)  # type: ignore[no-untyped-call]
    found, expected = (torch.autograd.grad((p * weights).sum(), inputs) for p in products)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("sizes", "options", "sentence"),
    [
        ((3, 2, [8]), {"policy": "squashd"}, "policy = 'squashd'"),
        ((3, 2, [8], 0), {}, "ensemble size 0"),
        ((0, 2, [8]), {}, "widths"),
        ((3, 2, [8, 0]), {}, "widths"),
    ],
)
def test_invalid_network_sizes_raise(sizes: Any, options: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        MLPREDQModel(*sizes, **options)

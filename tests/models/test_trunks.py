"""Trunks against NumPy references, their state, and training and evaluation mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from rl_training import resume, train
from rl_training.algorithms.registry import REGISTRY
from rl_training.algorithms.sac import SACAlgorithm
from rl_training.models import EnsembleCritic, MLPSACModel, MLPTD3Model, Network
from rl_training.models.network_config import Sizes, TrunkConfig, trunk_config
from tests.comparing import CrashAt, CrashError, assert_same_run
from tests.golden import SPEC, TOLERANCE, assert_trace_is_the_update, make_batch, make_noise
from tests.reference import trunks as reference

ROWS, IN, OUT, MEMBERS = 9, 4, 3, 2
BATCH_NORM: dict[str, Any] = {"momentum": 0.2, "eps": 1e-3, "renormalize": True}
BATCH_NORM |= {"renorm_warmup": 3, "renorm_r_max": 1.3, "renorm_d_max": 0.4}
TRUNKS: dict[str, dict[str, Any]] = {
    "mlp": {"hidden_sizes": [8, 6], "activation": "gelu", "layer_norm": True},
    "mlp, LayerNorm after": {"hidden_sizes": [8, 6], "layer_norm": "after"},
    "dropout": {"hidden_sizes": [8, 6], "dropout": 0.3, "layer_norm": True},
    "residual": {"trunk": "residual", "width": 6, "blocks": 2},
    "batch_norm": {"trunk": "batch_norm", "hidden_sizes": [8, 6], **BATCH_NORM},
    "flash": {"trunk": "flash", "width": 6, "blocks": 2, "momentum": 0.2},
}
FAMILY = [name for name in REGISTRY if name not in ("her", "dqn", "bc", "sac", "rebrac")]
"""The other actor-critics whose batches have only the standard fields."""


def options(name: str, **changes: Any) -> TrunkConfig:
    return trunk_config(TRUNKS[name] | changes, "test")


def make_network(config: TrunkConfig, ensemble: int | None = MEMBERS) -> Network:
    """A network in float64 whose scales and shifts differ from 1 and 0."""
    generator = torch.Generator().manual_seed(2)
    network = Network(config.build(Sizes(IN, OUT, ensemble)), generator).double()
    with torch.no_grad():
        network.flat.add_(0.1 * torch.randn(network.flat.shape, generator=generator))
    return network


def inputs(seed: int = 0, rows: int = ROWS) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.normal(0.3 * seed, 1 + seed, (rows, IN)))


def members_of(network: Network) -> list[list[Any]]:
    """Return each member's parameters as NumPy arrays without singleton axes."""
    views = [view.detach().numpy() for view in network.views(network.flat)]
    return [[v[i] if v.shape[1] > 1 else v[i, 0] for v in views] for i in range(MEMBERS)]


@pytest.mark.parametrize("activation", reference.ACTIVATIONS)
@pytest.mark.parametrize("layer_norm", [False, True, "after"])
def test_mlp_equals_the_reference(activation: str, layer_norm: bool | str) -> None:
    config = options("mlp", activation=activation, layer_norm=layer_norm)
    network = make_network(config)
    norm_after = layer_norm == "after"
    settings: Any = {"layers": 3, "activation": activation, "norm_after": norm_after}
    expected = [reference.mlp(inputs().numpy(), p, **settings) for p in members_of(network)]
    np.testing.assert_allclose(network(inputs()).detach().numpy(), expected, **TOLERANCE)


@pytest.mark.parametrize("activation", ["relu", "silu"])
def test_residual_equals_the_reference(activation: str) -> None:
    network = make_network(options("residual", activation=activation))
    settings: Any = {"blocks": 2, "activation": activation}
    expected = [reference.residual(inputs().numpy(), p, **settings) for p in members_of(network)]
    np.testing.assert_allclose(network(inputs()).detach().numpy(), expected, **TOLERANCE)


def test_residual_blocks_are_initialized_as_in_the_authors_code() -> None:
    config = options("residual", width=64)
    network = Network(config.build(Sizes(8, 1, 2)), torch.Generator().manual_seed(0))
    views = network.views(network.flat.detach())
    for embedding in views[0]:  # [8, 64] with orthogonal rows of length 1
        torch.testing.assert_close(embedding @ embedding.mT, torch.eye(8), atol=1e-5, rtol=0)
    assert views[4].std().item() == pytest.approx((2 / 64) ** 0.5, rel=0.05)
    assert views[6].std().item() == pytest.approx((2 / 256) ** 0.5, rel=0.05)
    assert not any(views[i].any() for i in (1, 5, 7))
    assert views[-2].abs().max() <= 1 / 8


def test_batch_norm_is_initialized_as_in_the_authors_code() -> None:
    config = options("batch_norm", hidden_sizes=[64, 48])
    network = Network(config.build(Sizes(32, 40, 2)), torch.Generator().manual_seed(0))
    views = network.views(network.flat.detach())
    for i, fan_in in ((0, 32), (2, 64), (4, 48)):
        scaled = views[i] * fan_in**0.5
        assert scaled.std().item() == pytest.approx(1.0, rel=0.03)
        assert 2.1 < scaled.abs().max() < 2.28  # two deviations of the normal before its truncation
        assert not views[i + 1].any()


def test_batch_norm_keeps_the_bound_of_a_last_layer() -> None:
    sizes = Sizes(4, 3, 2, last_layer_bound=1e-3)
    network = Network(options("batch_norm").build(sizes), torch.Generator().manual_seed(0))
    *_, hidden, _, weight, bias = network.views(network.flat.detach())[:6]
    assert 0 < max(weight.abs().max(), bias.abs().max()) <= 1e-3
    assert hidden.abs().max() > 0.1


@pytest.mark.parametrize("renormalize", [False, True])
def test_batch_norm_equals_the_reference_through_its_warm_up(renormalize: bool) -> None:
    network = make_network(options("batch_norm", renormalize=renormalize))
    settings = BATCH_NORM | {"renormalize": renormalize}
    theirs = [reference.BatchNorm([IN, 8, 6], **settings) for _ in range(MEMBERS)]
    for step in range(6):  # renormalization starts at step 3, and both limits are reached
        x = inputs(step)
        for training in (True, False):
            with torch.set_grad_enabled(training):
                found = network(x).detach().numpy()
            pairs = zip(theirs, members_of(network), strict=True)
            expected = [t(x.numpy(), params, training=training) for t, params in pairs]
            np.testing.assert_allclose(found, expected, **TOLERANCE, err_msg=f"step {step}")
    for i, member in enumerate(theirs):
        mean, variance = network.state["running_mean"], network.state["running_variance"]
        np.testing.assert_allclose(mean[i, 0], np.concatenate(member.means), **TOLERANCE)
        np.testing.assert_allclose(variance[i, 0], np.concatenate(member.variances), **TOLERANCE)


def test_renormalization_within_its_limits_equals_evaluation_mode() -> None:
    """Also for deviations near √ε, where it matters how ε enters the corrections."""
    wide = {"renorm_warmup": 0, "renorm_r_max": 1e6, "renorm_d_max": 1e6}
    network = make_network(options("batch_norm", **wide))
    for scale in (1.0, 0.03):
        x = scale * inputs(1)
        expected = network(x, network.flat.detach())  # does not move the running statistics
        torch.testing.assert_close(network(x), expected, **TOLERANCE)


def test_corrections_of_renormalization_have_no_gradient() -> None:
    """The gradient of the first scale equals the one computed with constant r and d."""
    network = make_network(options("batch_norm", renorm_warmup=0), None)
    x, weights = inputs(1), inputs(2)[:, :OUT]
    params = [view.clone() for view in network.views(network.flat.detach())]
    (slope,) = torch.autograd.grad((network(x) * weights).sum(), network.flat)

    def renormalized(x: torch.Tensor) -> torch.Tensor:  # from fresh statistics: mean 0, variance 1
        mean, deviation = x.mean(0), (x.var(0, unbiased=False) + 1e-3).sqrt()
        r = (deviation / 1.001**0.5).clamp(1 / 1.3, 1.3).detach()
        d = (mean / 1.001**0.5).clamp(-0.4, 0.4).detach()
        return torch.addcmul(d, (x - mean) / deviation, r)

    first = renormalized(x)
    hidden = after = (first * params[6] + params[7]).requires_grad_()
    for i in range(2):
        hidden = renormalized((hidden @ params[2 * i] + params[2 * i + 1]).relu())
        hidden = hidden * params[8 + 2 * i] + params[9 + 2 * i]
    outputs = hidden @ params[4] + params[5]
    (expected,) = torch.autograd.grad((outputs * weights).sum(), after)
    torch.testing.assert_close(network.views(slope)[6], (expected * first).sum(0), **TOLERANCE)


def test_dropout_equals_the_reference_and_counts() -> None:
    network = make_network(options("dropout", layer_norm=False))
    for _ in range(2):
        counters = network.state["dropout_counter"].flatten().tolist()
        found = network(inputs()).detach().numpy()
        for i, params in enumerate(members_of(network)):
            x = inputs().numpy()
            for layer in range(2):
                x = x @ params[2 * layer] + params[2 * layer + 1]
                mask = reference.dropout_mask(ROWS, x.shape[1], counters[i], 2 * layer + 2, 0.3)
                x = np.maximum(np.where(mask, x / 0.7, 0.0), 0)
            expected = x @ params[4] + params[5]
            np.testing.assert_allclose(found[i], expected, **TOLERANCE)
        assert network.state["dropout_counter"].flatten().tolist() == [c + 1 for c in counters]


def test_dropout_masks_look_random() -> None:
    masks = np.stack(
        [reference.dropout_mask(40, 25, 7 + c, layer, 0.25) for c in range(4) for layer in (2, 4)]
    ).astype(float)
    assert masks.mean() == pytest.approx(0.75, abs=0.02)
    assert masks.mean(1).std() == pytest.approx((0.75 * 0.25 / 40) ** 0.5, rel=0.2)
    correlations = np.corrcoef(masks.reshape(8, -1))[np.triu_indices(8, 1)]
    assert np.abs(correlations).max() < 0.13  # 4 standard deviations of 1/√1000


def test_state_changes_only_while_parameter_gradients_are_recorded() -> None:
    network = make_network(options("batch_norm"))
    before = network.state["running_mean"].clone()

    def moved() -> bool:
        return not torch.equal(before, network.state["running_mean"])

    with torch.no_grad():
        network(inputs(1))
    network(inputs(1), network.flat.detach())
    network.eval()(inputs(1))
    with network.train().in_mode(training=False):
        network(inputs(1))
    assert not moved()
    with torch.no_grad(), network.in_mode(training=True):
        network(inputs(1))
    assert moved()
    before.copy_(network.state["running_mean"])
    network(inputs(2))
    assert moved()


@pytest.mark.parametrize("name", ["batch_norm", "dropout"])
def test_stage_trains_its_own_networks_and_evaluates_the_others(name: str) -> None:
    learner = make_sac(name)
    key = "batches" if name == "batch_norm" else "dropout_counter"
    model, batch, noise = learner.model, make_batch(), make_noise(learner)
    start = {part: getattr(getattr(model, part), key).clone() for part in ("actor", "critic")}

    def passes() -> dict[str, float]:
        return {
            part: float((getattr(getattr(model, part), key) - v).max()) for part, v in start.items()
        }

    learner.critic_stage(batch, noise)
    assert passes() == {"actor": 0, "critic": 1}
    learner.policy_stage(batch, noise)
    assert passes() == {"actor": 1, "critic": 1}
    learner.act(batch.obs, deterministic=True)
    learner.held_out_losses(batch, noise)
    assert passes() == {"actor": 1, "critic": 1}


def make_sac(name: str, algo: str = "sac", **changes: Any) -> Any:
    learner: Any = REGISTRY[algo].learner_class()
    networks = {"all": TRUNKS[name]}
    config = learner.config_class(networks=networks, batch_size=32, **changes)
    return learner.build(SPEC, config, seed=3).double()


@pytest.mark.parametrize("name", TRUNKS)
def test_first_and_subset_q_values_equal_the_whole_ensemble(name: str) -> None:
    critic = EnsembleCritic(IN, 2, (), 3, trunk=options(name)).double()
    obs, actions = inputs(1), torch.from_numpy(np.random.default_rng(3).normal(size=(ROWS, 2)))
    with torch.no_grad():
        whole = critic.q_values(obs, actions)
        torch.testing.assert_close(critic.first_q_values(obs, actions), whole[0])
        some = critic.subset_q_values(obs, actions, critic.flat, torch.tensor([2, 0]))
        torch.testing.assert_close(some, whole[[2, 0]])
        many = torch.stack([actions, -actions])
        sampled = critic.sampled_q_values(obs, many)
        torch.testing.assert_close(sampled[:, 1], critic.q_values(obs, -actions))
        q, gradients = critic.action_gradients(obs, actions)
        torch.testing.assert_close(q, whole)
        assert gradients.shape == (3, ROWS, 2)


@pytest.mark.parametrize("algo", FAMILY)
def test_every_actor_critic_trains_with_batch_norm(algo: str) -> None:
    learner = make_sac("batch_norm", algo)
    batch, noise = make_batch(), make_noise(learner)
    due = frozenset(learner.intervals)
    metrics = learner.update(batch, noise, due) | learner.held_out_losses(batch, noise)
    assert all(value.isfinite() for value in metrics.values())
    assert learner.model.critic.batches.flatten().tolist() == [1] * learner.config.num_critics
    assert learner.model.actor.batches.item() == 1


@pytest.mark.slow
@pytest.mark.parametrize("algo", FAMILY)
def test_every_actor_critic_with_batch_norm_can_be_traced(algo: str) -> None:
    assert_trace_is_the_update(make_sac("batch_norm", algo))


@pytest.mark.parametrize("name", TRUNKS)
def test_traced_updates_with_every_trunk_equal_eager_ones(name: str) -> None:
    learner = make_sac(name)
    before = {key: value.clone() for key, value in learner.state_dict().items()}
    assert_trace_is_the_update(learner)
    moved = {k for k, v in learner.state_dict().items() if not torch.equal(v, before[k])}
    assert {f"model.{n}" for n, _ in learner.model.named_buffers()} <= moved


@pytest.mark.parametrize("name", ["dropout", "batch_norm", "flash"])
def test_resume_restores_the_state(name: str, small_config: Callable[..., Any]) -> None:
    config = small_config(algo_kwargs={"networks": {"all": TRUNKS[name]}})
    config["algo_kwargs"].pop("hidden_sizes")
    whole = train(config)
    with pytest.raises(CrashError):
        train(config, callbacks=[CrashAt(97)])
    assert_same_run(whole, resume(f"{whole.run_dir}_2"))


@pytest.mark.parametrize("name", TRUNKS)
def test_norm_parameters_are_those_of_the_named_norms(name: str) -> None:
    network = make_network(options(name), None)
    named = network.named_tensors(network.flat.detach(), {})
    norms = [part for parts in network.norm_parameters(network.flat.detach()) for part in parts]
    places = [norm.data_ptr() for norm in norms]
    assert places == sorted(x.data_ptr() for key, x in named.items() if "norm" in key)


@pytest.mark.parametrize("name", TRUNKS)
def test_initial_weights_come_from_the_generator(name: str) -> None:
    before = torch.get_rng_state()
    first, same, other = (
        MLPSACModel(
            4,
            2,
            trunks={"critic": options(name), "actor": options(name)},
            generator=torch.Generator().manual_seed(seed),
        ).state_dict()
        for seed in (1, 1, 2)
    )
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(first[key], same[key]) for key in first)
    assert not torch.equal(first["actor.flat"], other["actor.flat"])


def test_model_without_target_has_no_target_to_update() -> None:
    class Targetless(SACAlgorithm):
        def build_model(self, generator: torch.Generator) -> Any:
            return MLPSACModel(5, 3, target=False, generator=generator)

    learner = Targetless.build(SPEC).double()
    assert not any("target" in name for name in learner.state_dict())
    learner.move_targets(frozenset({"actor"}))
    assert not list(MLPTD3Model(5, 3, target=False).buffers())

"""The trunk `flash` against NumPy: both modes, gradients, initial weights and projections."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms.optimizers import FlatAdam, project_rows_and_norms
from rl_training.models import Network
from rl_training.models.network_config import Sizes, trunk_config
from tests.golden import TOLERANCE
from tests.reference import normalized as reference
from tests.reference.trunks import layer_norm

IN, OUT, MEMBERS, ROWS, WIDTH, BLOCKS = 4, 3, 2, 9, 6, 2
WIDTHS = [IN, *([4 * WIDTH, WIDTH] * BLOCKS)]
RULES = reference.Rules(momentum=0.2, eps=1e-2, unbiased=True)


def make_network(ensemble: int | None = MEMBERS, **options: Any) -> Network:
    """A network in float64 whose scales and shifts differ from 1 and 0."""
    settings = {"trunk": "flash", "width": WIDTH, "blocks": BLOCKS, "momentum": 0.2, "eps": 1e-2}
    config = trunk_config(settings | options, "test")
    generator = torch.Generator().manual_seed(2)
    network = Network(config.build(Sizes(IN, OUT, ensemble)), generator).double()
    with torch.no_grad():
        network.flat.add_(0.1 * torch.randn(network.flat.shape, generator=generator))
    return network


def inputs(seed: int = 0) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.normal(0.3 * seed, 1 + seed, (ROWS, IN)))


def layers(network: Network, flat: torch.Tensor | None = None) -> list[Any]:
    """Return the members in the reference's layout."""
    views = network.views(network.flat if flat is None else flat)
    arrays = [view.detach().numpy() for view in views]
    count, members = 2 * BLOCKS + 2, network.trunk.members
    found = []
    for i in range(members or 1):
        own = arrays if members is None else [array[i] for array in arrays]
        norms = [array.reshape(-1) for array in own[count:]]
        kinds = {"weights": own[:count], "biases": norms[:1], "rms": norms[-1:]}
        found.append(kinds | {"scales": norms[1:-1:2], "shifts": norms[2:-1:2]})
    return found


@pytest.mark.parametrize("ensemble", [None, MEMBERS])
def test_outputs_and_running_statistics_equal_the_reference(ensemble: int | None) -> None:
    network = make_network(ensemble)
    running = [reference.fresh_running(WIDTHS) for _ in range(ensemble or 1)]
    for step in range(4):
        x = inputs(step)
        for training in (True, False):
            with torch.set_grad_enabled(training):
                found = network(x).detach().numpy()
            expected = [
                reference.flash(net, stats, x.numpy(), RULES, training=training).output
                for net, stats in zip(layers(network), running, strict=True)
            ]
            np.testing.assert_allclose(
                found, expected if ensemble else expected[0], **TOLERANCE, err_msg=f"step {step}"
            )
    for i, stats in enumerate(running):
        for name, values in (("mean", stats["means"]), ("variance", stats["variances"])):
            ours = network.state[f"running_{name}"].reshape(len(running), -1)[i]
            np.testing.assert_allclose(ours, np.concatenate(values), **TOLERANCE)


@pytest.mark.parametrize("training", [True, False])
def test_gradients_equal_the_reference(training: bool) -> None:
    network, x = make_network(), inputs(1).requires_grad_()
    with torch.no_grad():
        network(inputs(2))
        network.state["running_mean"].add_(0.3)
    running = reference.fresh_running(WIDTHS)
    running["means"] = [mean + 0.3 for mean in running["means"]]
    weights = torch.from_numpy(np.random.default_rng(3).normal(size=(MEMBERS, ROWS, OUT)))
    with network.in_mode(training=training):
        slopes = torch.autograd.grad((network(x) * weights).sum(), (network.flat, x))
    expected_x = np.zeros((ROWS, IN))
    for i, net in enumerate(layers(network)):
        stats = reference.copy_running(running)
        done = reference.flash(net, stats, x.detach().numpy(), RULES, training=training)
        grads, at_inputs = done.backward(weights[i].numpy())
        expected_x += at_inputs
        for kind, arrays in layers(network, slopes[0])[i].items():
            for mine, theirs in zip(arrays, grads[kind], strict=True):
                np.testing.assert_allclose(mine, theirs, **TOLERANCE, err_msg=kind)
    np.testing.assert_allclose(slopes[1].numpy(), expected_x, **TOLERANCE)


@pytest.mark.parametrize("normalization", ["layer", "none"])
def test_other_normalizations_have_no_state(normalization: str) -> None:
    network, x = make_network(None, normalization=normalization), inputs(1)
    assert not network.state
    params = [view.detach().numpy() for view in network.views(network.flat)]
    weights, pairs = params[:6], params[7:-1]

    def norm(x: Any, i: int) -> Any:
        return layer_norm(x, pairs[2 * i], pairs[2 * i + 1]) if pairs else x

    stream = norm(x.numpy(), 0) @ weights[0]
    for i in (1, 3):
        hidden = np.maximum(norm(stream @ weights[i], i), 0.0)
        stream = stream + np.maximum(norm(hidden @ weights[i + 1], i + 1), 0.0)
    expected = reference.rms_norm(stream, params[-1])[0] @ weights[-1] + params[6]
    np.testing.assert_allclose(network(x).detach().numpy(), expected, **TOLERANCE)


def test_initial_weights_are_orthogonal_with_unit_norms() -> None:
    config = trunk_config({"trunk": "flash", "width": 16}, "test")
    network = Network(config.build(Sizes(IN, OUT, MEMBERS)), torch.Generator().manual_seed(0))
    *layers, bias = network.views(network.flat.detach())[:7]
    for weights in layers:
        torch.testing.assert_close(weights.norm(dim=-2), torch.ones_like(weights[:, 0]))
    for narrowing in (layers[2], layers[4], layers[5]):  # no more units than inputs
        units = narrowing.shape[-1]
        torch.testing.assert_close(
            narrowing.mT @ narrowing, torch.eye(units).expand(MEMBERS, -1, -1), atol=1e-5, rtol=0
        )
    assert not torch.equal(layers[0][0], layers[0][1])
    assert not bias.any()
    for scale, *shift in network.norm_parameters(network.flat.detach()):
        assert (scale == 1).all()
        assert not any(part.any() for part in shift)


def test_projection_equals_the_reference() -> None:
    network = make_network()
    expected = [reference.project(net) for net in layers(network)]
    flat = network.flat.detach()
    project_rows_and_norms(network, flat)
    for ours, theirs in zip(layers(network), expected, strict=True):
        for kind, arrays in ours.items():
            for mine, wanted in zip(arrays, theirs[kind], strict=True):
                np.testing.assert_allclose(mine, wanted, **TOLERANCE, err_msg=kind)
    norms = network.norm_parameters(flat)
    assert len(norms) == 2 * BLOCKS + 2
    for parts in norms:
        width = parts[0].shape[-1]
        squares = torch.cat(parts, -1).square().sum(-1)
        torch.testing.assert_close(squares, torch.full_like(squares, width))


def test_projection_leaves_zeros_at_zero() -> None:
    network = make_network()
    flat = network.flat.detach().zero_()
    adam = FlatAdam(flat, 1e-3, project=lambda flat: project_rows_and_norms(network, flat))
    adam.step(flat, torch.zeros_like(flat))
    assert not flat.any()


def test_one_row_has_no_unbiased_variance() -> None:
    network = make_network()
    network(inputs()[:1])
    assert all(value.isfinite().all() for value in network.state.values())


def test_layers_have_the_names_of_the_state() -> None:
    network = make_network()
    named = network.named_tensors(network.flat, network.state)
    own = {name.removeprefix("1.") for name in named if name.startswith("1.")}
    norms = {"input_norm"} | {f"blocks.{i}.{x}_norm" for i in (0, 1) for x in ("expand", "project")}
    parts = ("weight", "bias", "running_mean", "running_var")
    assert own == {f"{norm}.{part}" for norm in norms for part in parts} | {
        *("embedding.weight", "norm.weight", "output.weight", "output.bias"),
        *(f"blocks.{i}.{x}.weight" for i in (0, 1) for x in ("expand", "project")),
    }
    assert named["0.blocks.1.project.weight"].shape == (WIDTH, 4 * WIDTH)
    assert named["0.blocks.1.project_norm.running_var"].shape == (WIDTH,)
    assert sum(named[f"0.{name}"].numel() for name in own if "running" not in name) == (
        network.flat.numel() // 2
    )

"""Weights layer by layer: names, layouts, and that nothing is missing."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rl_training import ConfigError, register_network
from rl_training.algorithms.base import Algorithm
from rl_training.algorithms.bc import BCAlgorithm, BCConfig
from rl_training.algorithms.dqn import DQNAlgorithm, DQNConfig
from rl_training.algorithms.iql import IQLAlgorithm, IQLConfig
from rl_training.algorithms.registry import REGISTRY, AlgorithmEntry
from rl_training.algorithms.td3 import TD3Algorithm, TD3Config
from rl_training.models.named_weights import named_weights
from rl_training.models.network import Network
from rl_training.types import EnvSpec
from tests.algorithms.test_conformance import SPECS
from tests.conftest import TINY

SPEC = EnvSpec(4, 2, (-1.0, -3.0), (1.0, 3.0))
OBS, ACTIONS = torch.randn(5, 4), torch.rand(5, 2) * 2 - 1


class Features(nn.Module):
    """A user's network with a buffer."""

    def __init__(self, in_features: int, width: int = 6) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(in_features, width), nn.BatchNorm1d(width))

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.layers(x)
        return features


register_network("named_weights_features", Features)
NETWORKS: dict[str, dict[str, Any]] = {
    "mlp": {"layer_norm": True, "dropout": 0.1, "hidden_sizes": [8, 6]},
    "residual": {"width": 8},
    "batch_norm": {"hidden_sizes": [8, 6]},
    "named_weights_features": {},
}


def randomized(learner: Algorithm) -> Algorithm:
    """Fill every tensor with different values, so that none can be mistaken for another."""
    generator = torch.Generator().manual_seed(0)
    for tensor in learner.state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
    return learner


def part(weights: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}


def perceptron(*widths: int) -> nn.Module:
    module = nn.Module()
    module.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
    return module


def evaluate(module: Any, x: Tensor) -> Tensor:
    *hidden, last = module.layers
    for layer in hidden:
        x = layer(x).relu()
    result: Tensor = last(x)
    return result


def test_actor_and_critics_load_into_ordinary_layers() -> None:
    learner = randomized(TD3Algorithm.build(SPEC, TD3Config(hidden_sizes=(8, 6))))
    assert isinstance(learner, TD3Algorithm)
    weights = named_weights(learner)
    actor = perceptron(4, 8, 6, 2)
    actor.load_state_dict(part(weights, "model.actor."))
    torch.testing.assert_close(evaluate(actor, OBS).tanh(), learner.model.actor.mode(OBS))
    q = learner.model.q_values(OBS, ACTIONS)
    target_q = learner.model.target_q_values(OBS, ACTIONS)
    for member in range(2):
        critic = perceptron(6, 8, 6, 1)
        critic.load_state_dict(part(weights, f"model.critic.{member}."))
        torch.testing.assert_close(evaluate(critic, torch.cat([OBS, ACTIONS], -1))[:, 0], q[member])
        critic.load_state_dict(part(weights, f"model.target.{member}."))
        found = evaluate(critic, torch.cat([OBS, ACTIONS], -1))[:, 0]
        torch.testing.assert_close(found, target_q[member])


def test_batch_norm_loads_with_its_statistics() -> None:
    config = BCConfig(networks={"all": {"trunk": "batch_norm", **NETWORKS["batch_norm"]}})
    learner = randomized(BCAlgorithm.build(SPEC, config))
    weights = part(named_weights(learner), "model.")
    module: Any = perceptron(4, 8, 6, 2)
    module.norms = nn.ModuleList(nn.BatchNorm1d(width, eps=1e-3) for width in (4, 8, 6))
    missing, unexpected = module.load_state_dict(weights, strict=False)
    assert unexpected == []
    assert all(name.endswith("num_batches_tracked") for name in missing)
    module.eval()
    x = module.norms[0](OBS)
    for layer, norm in zip(module.layers, module.norms[1:], strict=False):
        x = norm(layer(x).relu())
    with torch.no_grad():  # in evaluation mode
        expected = learner.choose_actions(OBS, deterministic=True, noise=None)
    torch.testing.assert_close(module.layers[-1](x).tanh(), expected)


def test_dueling_streams_load_into_ordinary_layers() -> None:
    spec = EnvSpec(4, 3, discrete=True)
    config = DQNConfig(hidden_sizes=(8, 6), dueling=True, num_quantiles=2)
    learner = randomized(DQNAlgorithm.build(spec, config))
    assert isinstance(learner, DQNAlgorithm)
    weights = named_weights(learner)
    module: Any = perceptron(4, 8, 6, 12)
    module.value, module.advantages = nn.Linear(6, 2), nn.Linear(6, 3 * 2)
    module.load_state_dict({k: v for k, v in part(weights, "model.").items() if "target" not in k})
    for_value, for_advantages = evaluate(module, OBS).relu().chunk(2, -1)
    advantages = module.advantages(for_advantages).view(-1, 3, 2)
    quantiles = module.value(for_value)[:, None] + advantages - advantages.mean(1, keepdim=True)
    torch.testing.assert_close(quantiles, learner.model.quantiles(OBS))
    assert weights["model.target.advantages.weight"].shape == (6, 6)


@pytest.mark.parametrize("trunk", NETWORKS)
@pytest.mark.parametrize("kind", [DQNAlgorithm, IQLAlgorithm], ids=lambda kind: kind.name)
def test_every_value_is_in_exactly_one_named_tensor(kind: type[Algorithm], trunk: str) -> None:
    config_class, spec = {
        "dqn": (DQNConfig, EnvSpec(4, 3, discrete=True)),
        "iql": (IQLConfig, SPEC),
    }[kind.name]
    config = config_class(networks={"all": {"trunk": trunk, **NETWORKS[trunk]}})
    learner = randomized(kind.build(spec, config))
    weights = named_weights(learner)
    assert not any(name.endswith(("flat", "params.0")) for name in weights)
    counters = ("dropout_counter", "batches")
    saved = {k: v for k, v in learner.state_dict().items() if not k.endswith(counters)}

    def values(tensors: dict[str, Tensor]) -> Tensor:
        return torch.cat([tensor.double().flatten() for tensor in tensors.values()]).sort().values

    assert torch.equal(values(weights), values(saved))


def test_a_users_module_keeps_its_names() -> None:
    networks = {"all": {"trunk": "named_weights_features"}}
    weights = named_weights(BCAlgorithm.build(SPEC, BCConfig(networks=networks)))
    module = Features(4)
    module.load_state_dict(part(weights, "model.features."))
    assert weights["model.output.weight"].shape == (2, 6)


@pytest.mark.parametrize("entry", REGISTRY.values(), ids=lambda entry: entry.name)
def test_no_learner_has_unnamed_vectors(entry: Any) -> None:
    """Every flat vector of a built-in learner, including targets, is split into layers.

    This includes every switch of a learner that changes its networks.
    """
    switches = [
        name for name, x in entry.config_class().model_fields.items() if x.annotation is bool
    ]
    for name in (None, *switches):
        with suppress(ConfigError):  # a switch that requires other settings
            check_names(entry, {} if name is None else {name: True})


def check_names(entry: AlgorithmEntry, options: dict[str, Any]) -> None:
    small = {"hidden_sizes": (16, 16)} | TINY.get(entry.name, {}) | options
    learner = entry.learner_class().build(SPECS[entry.kinds[0]], entry.config_class()(**small))
    weights = {k: v for k, v in named_weights(learner).items() if not k.startswith("optimizers.")}
    sizes = {module.flat.numel() for module in learner.modules() if isinstance(module, Network)}
    for name, tensor in weights.items():
        assert tensor.dim() != 1 or tensor.numel() not in sizes, f"{name} is a flat vector"
        assert not name.endswith("flat")
        assert "params." not in name, f"{name} has no readable name"

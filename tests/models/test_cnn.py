"""Convolutional trunks: the forward pass against NumPy, shared encoders, and what they reject."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rl_training.algorithms.cql import CQLConfig
from rl_training.algorithms.dqn import DQNAlgorithm, DQNConfig
from rl_training.algorithms.sac import SACAlgorithm, SACConfig
from rl_training.errors import ConfigError
from rl_training.models import EnsembleCritic, Network, QNetwork
from rl_training.models.cnn import CNNTrunk
from rl_training.models.inputs import InputLayout
from rl_training.models.network_config import (
    Sizes,
    TrunkConfig,
    register_network,
    trunk_config,
)
from rl_training.observations import Entry
from rl_training.types import EnvSpec
from tests.reference import cnn as reference

ROWS, OUT = 3, 2


def image(shape: tuple[int, ...], *, frames: int = 1, offset: int = 0, name: str = "") -> Entry:
    return Entry(name, "image", shape, "uint8", offset, frames=frames, high=255)


SHAPES: dict[str, Entry] = {
    "gray": image((12, 10)),
    "channels last": image((12, 10, 3)),
    "channels first": image((3, 12, 10)),
    "stack": image((4, 12, 10), frames=4),
    "stack of channels last": image((2, 12, 10, 3), frames=2),
    "stack of channels first": image((2, 3, 12, 10), frames=2),
    "bool": Entry("", "image", (12, 10, 4), "bool", 0, high=1),
}
ENCODERS: dict[str, dict[str, Any]] = {
    "grid": {"encoder": "grid", "features": 7},
    "impala": {"encoder": "impala", "features": 7},
    "custom": {"encoder": "custom", "layers": [[5, 3, 2], [4, 2, 1]], "features": 7},
}
STRIDES = {"nature": [4, 2, 1], "grid": [1], "custom": [2, 1]}


def options(entries: tuple[Entry, ...], **keys: Any) -> TrunkConfig:
    return trunk_config({"trunk": "cnn", "hidden_sizes": [6]} | keys, "test").with_entries(entries)


def make(
    entries: tuple[Entry, ...], *, rest: int = 0, members: int | None = None, **keys: Any
) -> Network:
    inputs = sum(entry.width for entry in entries) + rest
    generator = torch.Generator().manual_seed(1)
    trunk = options(entries, **keys).build(Sizes(inputs, OUT, members))
    return Network(trunk, generator).double()


def pixels(entries: tuple[Entry, ...], rest: int = 0, rows: int = ROWS) -> torch.Tensor:
    """Return random observations and further inputs."""
    random = np.random.default_rng(0)
    parts = [
        random.integers(0, entry.high + 1, (rows, entry.width)).astype(float)
        if entry.kind == "image"
        else random.normal(size=(rows, entry.width))
        for entry in entries
    ]
    return torch.from_numpy(np.concatenate([*parts, random.normal(size=(rows, rest))], axis=1))


def expected_features(x: Any, entry: Entry, encoder: str, params: list[Any]) -> Any:
    planes = entry.planes
    scaled = reference.planes(x[:, entry.place] / entry.high, **planes._asdict())
    maps = {"impala": 30}.get(encoder) or 2 * len(STRIDES[encoder])
    if encoder == "impala":
        found = reference.impala_maps(scaled, params[:maps])
    else:
        found = reference.plain_maps(scaled, params[:maps], STRIDES[encoder])
    weight, bias, *norm = params[maps:]
    features = found.reshape(len(x), -1) @ weight + bias
    return reference.relu(reference.layer_norm(features, *norm) if norm else features)


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_forward_pass_equals_the_reference(shape: str, encoder: str) -> None:
    entry = SHAPES[shape]
    network, x = make((entry,), **ENCODERS[encoder]), pixels((entry,))
    params = [view.detach().numpy() for view in network.views(network.flat)]
    features = expected_features(x.numpy(), entry, encoder, params[:-4])
    expected = reference.perceptron(features, params[-4:])
    np.testing.assert_allclose(network(x).detach(), expected, rtol=1e-9, atol=1e-12)


def test_nature_equals_the_reference() -> None:
    entry = image((36, 37, 2))
    network, x = make((entry,), hidden_sizes=[]), pixels((entry,), rows=2)
    assert isinstance(network.trunk, CNNTrunk)
    assert network.trunk.features == [512]
    params = [view.detach().numpy() for view in network.views(network.flat)]
    assert [p.shape for p in params[:6:2]] == [(32, 2, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3)]
    features = expected_features(x.numpy(), entry, "nature", params[:-2])
    expected = reference.perceptron(features, params[-2:])
    np.testing.assert_allclose(network(x).detach(), expected, rtol=1e-9, atol=1e-12)


def test_images_vectors_and_actions_are_combined() -> None:
    """Two images with separate encoders; the other entries and the actions follow."""
    before = Entry("a", "vector", (2,), "float32", 0)
    one = image((5, 4), offset=2, name="b")
    between = Entry("c", "discrete", (), "int64", 22, choices=(3,), starts=(0,))
    two = image((3, 4, 5), offset=25, name="d")
    entries = (before, one, between, two)
    network = make(entries, rest=2, encoder="grid", features=7, layer_norm=True)
    x = pixels(entries, rest=2)
    params = [view.detach().numpy() for view in network.views(network.flat)]
    features = [
        expected_features(x.numpy(), entry, "grid", params[start : start + 6])
        for entry, start in ((one, 0), (two, 6))
    ]
    others = [x.numpy()[:, columns] for columns in (before.place, between.place, slice(85, 87))]
    inputs = np.concatenate([*features, *others], axis=1)
    head = params[12:]
    hidden = reference.relu(reference.layer_norm(inputs @ head[0] + head[1], *head[4:]))
    expected = hidden @ head[2] + head[3]
    np.testing.assert_allclose(network(x).detach(), expected, rtol=1e-9, atol=1e-12)


def test_dueling_streams_follow_the_features() -> None:
    spec = EnvSpec(1600, 3, discrete=True, entries=(PIXELS,))
    config = DQNConfig(dueling=True, num_quantiles=2, hidden_sizes=(8,))
    learner = DQNAlgorithm.build(spec, config)
    x = pixels((PIXELS,)).float()
    alone = QNetwork(
        1600, 3, (8,), trunk=config.trunks(spec)["q"], generator=torch.Generator().manual_seed(0)
    )
    shared = alone.trunk.num_shared  # type: ignore[attr-defined]
    params = learner.model.views(learner.model.flat)
    embedded = learner.model.trunk.embed(x, params)
    torch.testing.assert_close(embedded, alone.trunk.embed(x, params[:shared]))
    assert learner.model.quantiles(x).shape == (ROWS, 3, 2)


# --- Ensembles ----------------------------------------------------------------------


@pytest.fixture
def critic() -> EnsembleCritic:
    entry = image((6, 6))
    trunk = options((entry,), encoder="grid", features=5)
    generator = torch.Generator().manual_seed(3)
    return EnsembleCritic(entry.width, 2, (6,), 3, trunk=trunk, generator=generator).double()


def test_members_share_the_encoder(critic: EnsembleCritic) -> None:
    views = critic.views(critic.flat)
    assert [view.shape[0] for view in views[4:]] == [3, 3, 3, 3]
    assert views[0].shape == (16, 1, 3, 3)
    obs, actions = pixels((image((6, 6)),)), torch.randn(ROWS, 2).double()
    q = critic.q_values(obs, actions)
    for member in range(3):
        alone = [*views[:4], *(view[member] for view in views[4:])]
        params = [view.detach().numpy() for view in alone]
        features = expected_features(obs.numpy(), image((6, 6)), "grid", params[:4])
        inputs = np.concatenate([features, actions.numpy()], axis=1)
        hidden = reference.relu(inputs @ params[4] + params[5])
        expected = (hidden @ params[6] + params[7])[:, 0]
        np.testing.assert_allclose(q[member].detach(), expected, rtol=1e-9)
    np.testing.assert_allclose(critic.first_q_values(obs, actions).detach(), q[0].detach())
    chosen = critic.subset_q_values(obs, actions, critic.flat, torch.tensor([2, 0]))
    np.testing.assert_allclose(chosen.detach(), q[[2, 0]].detach())


def test_sampled_actions_give_the_values_of_single_actions(critic: EnsembleCritic) -> None:
    obs, actions = pixels((image((6, 6)),)), torch.randn(4, ROWS, 2).double()
    together = critic.sampled_q_values(obs, actions)
    separate = torch.stack([critic.q_values(obs, one) for one in actions], dim=1)
    np.testing.assert_allclose(together.detach(), separate.detach(), rtol=1e-9)
    one, other = (torch.autograd.grad(q.sum(), critic.flat)[0] for q in (together, separate))
    np.testing.assert_allclose(one, other, rtol=1e-8)


def test_action_gradients_equal_differences(critic: EnsembleCritic) -> None:
    obs, actions = pixels((image((6, 6)),)), torch.randn(ROWS, 2).double()
    q, gradients = critic.action_gradients(obs, actions)
    np.testing.assert_allclose(q.detach(), critic.q_values(obs, actions).detach())
    step = torch.tensor([0.0, 1e-6]).double()
    ahead, behind = critic.q_values(obs, actions + step), critic.q_values(obs, actions - step)
    expected = ((ahead - behind) / 2e-6).detach()
    np.testing.assert_allclose(gradients[..., 1].detach(), expected, rtol=1e-4, atol=1e-8)


# --- Initial weights -----------------------------------------------------------------


def test_initial_weights_are_those_of_pytorch() -> None:
    """Weights and biases of ``nn.Conv2d`` are uniform in ±1/√fan-in."""
    generator = torch.Generator().manual_seed(1)
    trunk = options((image((12, 10, 3)),), encoder="grid", hidden_sizes=[]).build(
        Sizes(12 * 10 * 3, OUT, None)
    )
    networks = [Network(trunk, generator) for _ in range(100)]
    layers = [nn.Conv2d(3, 16, 3) for _ in range(100)]
    bound = 27**-0.5
    for number, parameter in enumerate(("weight", "bias")):
        ours = torch.cat([network.views(network.flat)[number].flatten() for network in networks])
        theirs = torch.cat([getattr(layer, parameter).flatten() for layer in layers]).detach()
        for values in (ours, theirs):
            assert values.abs().max() <= bound
            assert values.mean().item() == pytest.approx(0, abs=0.05 * bound)
            assert values.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)


def test_orthogonal_weights_have_orthogonal_units() -> None:
    network = make((image((12, 10, 3)),), encoder="grid", initialization="orthogonal")
    views = network.views(network.flat)
    filters = views[0].detach().flatten(1)
    np.testing.assert_allclose(filters @ filters.T, 2.0 * np.eye(16), atol=1e-5)
    features = views[2].detach()
    np.testing.assert_allclose(features.T @ features, 2.0 * np.eye(128), atol=1e-5)
    assert (views[1] == 0).all()


@pytest.mark.parametrize("initialization", ["default", "orthogonal"])
def test_generator_determines_the_weights(initialization: str) -> None:
    entries = (image((12, 10)),)
    first, second = (make(entries, initialization=initialization) for _ in range(2))
    assert torch.equal(first.flat, second.flat)
    torch.manual_seed(5)
    assert torch.equal(first.flat, make(entries, initialization=initialization).flat)


def test_weights_have_the_names_and_layouts_of_pytorch() -> None:
    network = make((image((12, 10, 3)),), encoder="grid", features=7, members=2, layer_norm=True)
    named = network.named_tensors(network.flat, network.state)
    shapes = {name: tuple(tensor.shape) for name, tensor in named.items() if name[0] == "1"}
    assert shapes == {
        "1.encoders.0.convolutions.0.weight": (16, 3, 3, 3),
        "1.encoders.0.convolutions.0.bias": (16,),
        "1.encoders.0.features.weight": (7, 1280),
        "1.encoders.0.features.bias": (7,),
        "1.encoders.0.norm.weight": (7,),
        "1.encoders.0.norm.bias": (7,),
        "1.layers.0.weight": (6, 7),
        "1.layers.0.bias": (6,),
        "1.layers.1.weight": (2, 6),
        "1.layers.1.bias": (2,),
        "1.norms.0.weight": (6,),
        "1.norms.0.bias": (6,),
    }


def test_unit_weights_are_those_of_all_layers() -> None:
    network = make((image((12, 10)),), encoder="grid", features=7)
    weights = network.unit_weights(network.flat)
    assert [tuple(w.shape) for w in weights] == [(9, 16), (1280, 7), (7, 6), (6, 2)]
    with torch.no_grad():
        weights[0].zero_()  # views of the parameters
    assert (network.views(network.flat)[0] == 0).all()


def test_norm_parameters_are_those_of_the_features_and_the_layers() -> None:
    network = make((image((12, 10)),), encoder="grid", features=7, layer_norm=True)
    flat = network.flat.detach()
    named = network.named_tensors(flat, {})
    found = [part.data_ptr() for parts in network.norm_parameters(flat) for part in parts]
    assert found == [x.data_ptr() for name, x in named.items() if "norm" in name]
    assert len(found) == 4


# --- Configuration -------------------------------------------------------------------

PIXELS = image((40, 40))
CONTINUOUS = EnvSpec(1600, 2, (-1.0,) * 2, (1.0,) * 2, entries=(PIXELS,))
FLAT = EnvSpec(4, 2, (-1.0,) * 2, (1.0,) * 2)


def test_images_get_a_convolutional_trunk_by_default() -> None:
    trunks = SACConfig(hidden_sizes=(32,)).trunks(CONTINUOUS)
    assert {name: trunk.trunk for name, trunk in trunks.items()} == {
        "actor": "cnn",
        "critic": "cnn",
    }
    assert trunks["actor"].option("hidden_sizes") == (32,)
    assert {trunk.trunk for trunk in SACConfig().trunks(FLAT).values()} == {"mlp"}
    assert {trunk.trunk for trunk in SACConfig().trunks().values()} == {"mlp"}


def test_options_of_the_default_trunk() -> None:
    config = CQLConfig(networks={"critic": {"layer_norm": True}, "actor": {"hidden_sizes": [8]}})
    trunks = config.trunks(CONTINUOUS)
    assert trunks["critic"].option("layer_norm") is True
    assert trunks["actor"].option("hidden_sizes") == (8,)


@pytest.mark.parametrize(
    ("networks", "spec", "sentence"),
    [
        (
            {"actor": {"trunk": "mlp"}},
            CONTINUOUS,
            "networks.actor.trunk = 'mlp' cannot read images",
        ),
        ({"all": {"trunk": "cnn"}}, FLAT, "networks.actor.trunk = 'cnn' needs images, but"),
        ({"all": {"dropout": 0.1}}, CONTINUOUS, "In networks.actor: Unknown key 'dropout'"),
        (
            {"critic": {"trunk": "cnn", "hidden_sizes": []}},
            CONTINUOUS,
            "a critic needs at least one hidden layer",
        ),
        (
            {"all": {"trunk": "cnn", "encoder": "custom", "layers": [[4, 50, 1]]}},
            CONTINUOUS,
            r"custom with layers \[\[4, 50, 1\]\] is too large for images of 40×40 pixels",
        ),
        (
            {"all": {"trunk": "cnn", "encoder": "nature"}},
            EnvSpec(900, 2, (-1.0,) * 2, (1.0,) * 2, entries=(image((30, 30)),)),
            "nature is too large for images of 30×30 pixels: use encoder: grid",
        ),
    ],
)
def test_unusable_networks_get_a_clear_error(
    networks: dict[str, Any], spec: EnvSpec, sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        SACAlgorithm.build(spec, SACConfig(networks=networks))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"encoder": "custom"}, "layers and encoder=custom need each other"),
        ({"layers": [[1, 2, 3]]}, "layers and encoder=custom need each other"),
        ({"encoder": "resnet"}, "encoder = 'resnet'"),
        ({"encoder": "custom", "layers": [[1, 0, 3]]}, "layers"),
        ({"features": 0}, "features = 0"),
        ({"feature": 3}, "did you mean 'features'"),
    ],
)
def test_wrong_options_get_a_clear_error(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        trunk_config({"trunk": "cnn"} | options, "networks.q")


# --- Registered networks ---------------------------------------------------------------


class Pooled(nn.Module):
    """The mean of each plane, and all other inputs."""

    def __init__(self, in_features: int, observations: InputLayout, factor: float = 1.0) -> None:
        super().__init__()
        self.observations, self.factor = observations, factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.observations.split(x)
        means = [part.mean((-2, -1)) if part.dim() > 2 else part for part in parts.values()]
        return self.factor * torch.cat(means, dim=-1)


def test_registered_network_receives_the_entries() -> None:
    register_network("pooled", Pooled)
    spec = EnvSpec(48, 2, (-1.0,) * 2, (1.0,) * 2, entries=(image((4, 4, 3)),))
    config = SACConfig(networks={"all": {"trunk": "pooled", "factor": 2.0}})
    learner = SACAlgorithm.build(spec, config)
    x = pixels(spec.entries).float()
    weight, bias = learner.model.actor.views(learner.model.actor.flat)
    means = 2.0 * x.view(ROWS, 16, 3).mean(1)
    torch.testing.assert_close(learner.model.actor(x), means @ weight + bias)
    assert learner.model.q_values(x, torch.zeros(ROWS, 2)).shape == (2, ROWS)


def test_registered_network_without_the_parameter_receives_rows() -> None:
    register_network("first_pixels", lambda size: nn.Linear(size, 3))
    spec = EnvSpec(1600, 3, discrete=True, entries=(PIXELS,))
    learner = DQNAlgorithm.build(spec, DQNConfig(networks={"q": {"trunk": "first_pixels"}}))
    assert learner.model.q_values(pixels((PIXELS,)).float()).shape == (ROWS, 3)

"""Adam's options against PyTorch and a NumPy reference, and through the config."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from rl_training import resume, train
from rl_training.algorithms.awac import AWACAlgorithm, AWACConfig
from rl_training.algorithms.cql import CQLAlgorithm, CQLConfig
from rl_training.algorithms.crossq import CrossQAlgorithm, CrossQConfig
from rl_training.algorithms.dqn import DQNAlgorithm, DQNConfig
from rl_training.algorithms.iql import IQLAlgorithm, IQLConfig
from rl_training.algorithms.optimizers import FlatAdam, network_of, project_unit_rows
from rl_training.algorithms.sac import SACAlgorithm, SACConfig
from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig
from rl_training.models import EnsembleCritic
from rl_training.models.kernels import plain_operations
from rl_training.models.network_config import register_network
from rl_training.runtime import compilation
from rl_training.runtime.engine import Engine
from rl_training.types import EnvSpec
from tests.comparing import CrashAt, CrashError, assert_same_run
from tests.golden import make_batch, make_noise
from tests.runtime.test_engine import Cast, distance, replay

Config = Callable[..., dict[str, Any]]
Array = npt.NDArray[np.float64]
SPEC = EnvSpec(5, 3, (-1.0,) * 3, (1.0,) * 3)
RATE = 2.0**-7  # exact in float32
OPTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "betas": {"betas": (0.5, 0.9)},
    "eps": {"eps": 0.125},
    "coupled": {"weight_decay": 0.25},
    "decoupled": {"decoupled_weight_decay": 0.25},
    "both": {"weight_decay": 0.25, "decoupled_weight_decay": 0.5},
    "max_norm": {"max_norm": 0.5},
    "all": {
        "betas": (0.5, 0.9),
        "eps": 0.125,
        "decoupled_weight_decay": 0.25,
        "max_norm": 0.5,
    },
}


@pytest.fixture(params=["fused", "plain"])
def formula(request: pytest.FixtureRequest) -> Iterator[None]:
    """Eager steps with PyTorch's fused kernel, or with the operations that are compiled."""
    with plain_operations() if request.param == "plain" else nullcontext():
        yield


def gradients(size: int, steps: int = 30) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        yield torch.randn(size, dtype=torch.float64, generator=generator)


def start(size: int) -> Tensor:
    return torch.linspace(-1.0, 1.0, size, dtype=torch.float64)


def reference(
    weights: Array,
    steps: list[Array],
    *,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    decoupled_weight_decay: float = 0.0,
    max_norm: float | None = None,
    project: Callable[[Array], None] = lambda _: None,
) -> Array:
    """Adam from algorithm 1 of its paper, AdamW from algorithm 2 of arXiv 1711.05101."""
    weights = weights.copy()
    m, v = np.zeros_like(weights), np.zeros_like(weights)
    for t, g in enumerate(steps, start=1):
        if max_norm is not None:
            g = g * min(1.0, max_norm / (float(np.linalg.norm(g)) + 1e-6))
        g = g + weight_decay * weights
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        corrected = m / (1 - betas[0] ** t), v / (1 - betas[1] ** t)
        moved = corrected[0] / (np.sqrt(corrected[1]) + eps)
        weights = weights - RATE * (moved + decoupled_weight_decay * weights)
        project(weights)
    return weights


@pytest.mark.usefixtures("formula")
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_steps_equal_the_papers(options: dict[str, Any]) -> None:
    weights = start(64)
    adam = FlatAdam(weights, RATE, **options).double()
    steps = list(gradients(64))
    expected = reference(weights.numpy(), [step.numpy() for step in steps], **options)
    for step in steps:
        adam.step(weights, step)
    np.testing.assert_allclose(weights.numpy(), expected, rtol=0, atol=1e-7)


@pytest.mark.usefixtures("formula")
@pytest.mark.parametrize(
    "name", ["none", "betas", "eps", "coupled", "decoupled", "max_norm", "all"]
)
def test_steps_equal_pytorch(name: str) -> None:
    options = dict(OPTIONS[name])
    ours, theirs = start(64), start(64).requires_grad_()
    adam = FlatAdam(ours, RATE, **options).double()
    max_norm, decoupled = options.pop("max_norm", None), options.pop("decoupled_weight_decay", None)
    peer: torch.optim.Optimizer = torch.optim.Adam([theirs], RATE, **options)
    if decoupled is not None:
        peer = torch.optim.AdamW([theirs], RATE, weight_decay=decoupled, **options)
    for step in gradients(64):
        adam.step(ours, step)
        theirs.grad = step.clone()
        if max_norm is not None:
            torch.nn.utils.clip_grad_norm_([theirs], max_norm)
        peer.step()
    torch.testing.assert_close(ours, theirs.detach(), rtol=0, atol=1e-7)


@pytest.mark.usefixtures("formula")
def test_projection_scales_incoming_weights_only() -> None:
    """Against NumPy, with the layout of the flat vector: layers in order, weights before biases."""
    critic = EnsembleCritic(3, 1, (8, 8), 2, layer_norm=True).double()
    weights = critic.flat.detach()
    sizes = [2 * 4 * 8, 2 * 8, 2 * 8 * 8, 2 * 8, 2 * 8 * 1, 2 * 1, *[2 * 8] * 4]
    places = np.cumsum([0, *sizes])
    layers = [(0, (2, 4, 8)), (2, (2, 8, 8)), (4, (2, 8, 1))]

    def project(flat: Array) -> None:
        for index, shape in layers:
            layer = flat[places[index] : places[index + 1]].reshape(shape)
            layer /= np.sqrt((layer**2).sum(axis=1, keepdims=True))

    network = network_of(torch.nn.ModuleList([critic]), critic.flat)
    assert network is not None
    adam = FlatAdam(weights, RATE, project=partial(project_unit_rows, network)).double()
    assert len(weights) == places[-1]
    steps = list(gradients(len(weights)))
    expected = reference(weights.numpy(), [s.numpy() for s in steps], project=project)
    for step in steps:
        adam.step(weights, step)
    np.testing.assert_allclose(weights.numpy(), expected, rtol=0, atol=1e-7)


def test_projection_leaves_a_dead_unit_at_zero() -> None:
    critic = EnsembleCritic(3, 1, (8,), 2)
    weights = critic.flat.detach().zero_()
    adam = FlatAdam(weights, RATE, project=partial(project_unit_rows, critic))
    adam.step(weights, torch.zeros_like(weights))
    assert not weights.any()


def test_clipping_is_per_member_of_a_population() -> None:
    weights = torch.zeros(2, 4)
    adam = FlatAdam(weights, RATE, betas=(0.0, 0.5), max_norm=1.0)
    with plain_operations():
        adam.step(weights, torch.tensor([[30.0, 40.0, 0.0, 0.0], [0.3, 0.4, 0.0, 0.0]]))
    assert adam.moment1.tolist() == [
        pytest.approx([0.6, 0.8, 0.0, 0.0]),
        pytest.approx([0.3, 0.4, 0.0, 0.0]),
    ]


# --- From the config to the network ----------------------------------------------

NETWORKS: dict[str, Any] = {
    "all": {"betas": [0.5, 0.9], "eps": 1e-3, "learning_rate": 2e-3, "max_norm": 5.0},
    "critic": {"learning_rate": 1e-2, "weight_decay": 0.1, "projection": "unit_rows"},
}


def sac(**options: Any) -> SACAlgorithm:
    sizes: dict[str, Any] = {} if "networks" in options else {"hidden_sizes": (16, 16)}
    config = SACConfig(batch_size=32, **sizes, **options)
    return SACAlgorithm.build(SPEC, config, seed=3)


def test_name_wins_over_all_and_all_over_the_learning_rate() -> None:
    learner = sac(learning_rate=1e-4, optimizers=NETWORKS)
    adams = {key: learner.optimizer(key) for key in learner.optimizers}
    rates = {key: adam.base_learning_rate for key, adam in adams.items()}
    assert rates == {"actor": 2e-3, "critic": 1e-2, "temperature": 2e-3}
    for key, adam in adams.items():
        assert (adam.betas, adam.eps, adam.max_norm) == ((0.5, 0.9), 1e-3, 5.0)
        assert (adam.decoupled_weight_decay, adam.weight_decay) == (0.1 * (key == "critic"), 0.0)
        assert (adam.project is not None) == (key == "critic")


def test_config_overrides_the_algorithms_defaults() -> None:
    cql = CQLConfig(policy_learning_rate=1e-5, optimizers={"actor": {"learning_rate": 0.5}})
    learner = CQLAlgorithm.build(SPEC, cql)
    rates = [learner.optimizer(key).base_learning_rate for key in ("actor", "temperature")]
    assert rates == [0.5, 1e-5]
    awac = AWACAlgorithm.build(SPEC, AWACConfig(optimizers={"all": {"weight_decay": 0.3}}))
    decays = [awac.optimizer("actor").weight_decay, awac.optimizer("actor").decoupled_weight_decay]
    assert decays == [1e-4, 0.3]  # the algorithm's key keeps its meaning


def test_schedule_scales_each_rate() -> None:
    learner = sac(optimizers=NETWORKS)
    learner.scale_learning_rates(0.5)
    rates = [float(learner.optimizer(key).learning_rate) for key in ("actor", "critic")]
    assert rates == pytest.approx([1e-3, 5e-3])
    iql = IQLAlgorithm.build(SPEC, IQLConfig(optimizers={"all": {"learning_rate": 1.0}}))
    iql.scale_learning_rates(0.5)
    assert [float(iql.optimizer(key).learning_rate) for key in ("actor", "value")] == [0.5, 1.0]


def run(mode: Any = "eager", updates: int = 45, **options: Any) -> Engine:
    learner = sac(**options).double()
    engine = Engine(learner, Cast(replay(), torch.float64), seed=1, mode=mode)
    engine.run(updates)
    assert engine.mode == mode
    return engine


def test_learning_rate_of_a_network_is_applied() -> None:
    """Adam's first step has the size of the learning rate, for any gradient."""
    after = run(updates=1, optimizers=NETWORKS | {"critic": {"learning_rate": 0.5}})
    one, two = sac().state_dict(), after.algorithm.state_dict()
    names = "model.actor.flat", "model.critic.flat"
    moved = [float((one[name] - two[name]).abs().max()) for name in names]
    assert moved == pytest.approx([2e-3, 0.5], rel=0.1)


@pytest.mark.parametrize("projection", ["unit_rows", "unit_rows_and_norms"])
@pytest.mark.parametrize("trunk", ["mlp", "residual", "batch_norm", "flash"])
def test_every_unit_has_norm_one_after_an_update(trunk: str, projection: str) -> None:
    normed = {"layer_norm": True} if trunk == "mlp" else {}
    options: dict[str, Any] = {"networks": {"all": {"trunk": trunk, **normed}}}
    learner = run(updates=3, optimizers={"all": {"projection": projection}}, **options).algorithm
    assert isinstance(learner, SACAlgorithm)
    for network in (learner.model.actor, learner.model.critic):
        flat = network.flat.detach()
        for weights in network.unit_weights(flat):
            torch.testing.assert_close(weights.norm(dim=-2), torch.ones_like(weights[..., 0, :]))
        norms = [torch.cat(parts, dim=-1) for parts in network.norm_parameters(flat)]
        assert norms
        lengths = [float(norm.norm(dim=-1).flatten()[0]) for norm in norms]
        roots = [parts[0].shape[-1] ** 0.5 for parts in network.norm_parameters(flat)]
        are_scaled = lengths == pytest.approx(roots, rel=1e-6)
        assert are_scaled == (projection == "unit_rows_and_norms")


BACKENDS = pytest.mark.parametrize(
    "backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
)


@BACKENDS
def test_projections_agree_between_eager_and_compiled_steps(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilation, "BACKEND", backend)
    options: dict[str, Any] = {"networks": {"all": {"trunk": "flash", "width": 8}}}
    options |= {"optimizers": {"all": {"projection": "unit_rows_and_norms"}}}
    eager, compiled = (run(mode, **options) for mode in ("eager", "compiled"))
    assert distance(eager, compiled) < 1e-9
    assert distance(eager, run(networks=options["networks"])) > 1e-3


def test_projection_of_one_network_can_be_switched_off() -> None:
    chosen = {"all": {"projection": "unit_rows"}, "actor": {"projection": "none"}}
    learner = sac(optimizers=chosen)
    assert learner.optimizer("actor").project is None
    assert learner.optimizer("critic").project is not None


def test_max_norm_of_an_optimizer_overrides_the_algorithms() -> None:
    spec = EnvSpec(5, 4, discrete=True)
    config = DQNConfig(
        hidden_sizes=(8,), max_grad_norm=1e-3, optimizers={"q": {"betas": [0, 0], "max_norm": 1e-2}}
    )
    learner = DQNAlgorithm.build(spec, config)
    Engine(learner, replay(spec=spec), seed=0).run(1)
    assert float(learner.optimizer("q").moment1.norm()) == pytest.approx(1e-2, rel=1e-3)


@BACKENDS
def test_options_agree_between_kernel_plain_and_compiled_steps(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eager with PyTorch's kernel, eager with plain operations, and compiled."""
    monkeypatch.setattr(compilation, "BACKEND", backend)
    eager, compiled = (run(mode, optimizers=NETWORKS) for mode in ("eager", "compiled"))
    with plain_operations():
        plain = run(optimizers=NETWORKS)
    assert distance(eager, plain) < 1e-7
    assert distance(plain, compiled) < 1e-7
    assert distance(eager, run()) > 1e-3


def test_options_resume_exactly(small_config: Config) -> None:
    kwargs = {"optimizers": NETWORKS, "learning_rate_schedule": "linear"}
    config = small_config(algo_kwargs=kwargs)
    whole = train(config)
    with pytest.raises(CrashError):
        train(config, callbacks=[CrashAt(57)])
    run_dir = max(Path(config["output_dir"]).iterdir(), key=lambda path: path.stat().st_mtime)
    assert_same_run(whole, resume(run_dir))
    with pytest.raises(ConfigError, match=r"^optimizers = .* contradicts the checkpoint"):
        resume(run_dir, overrides=["total_timesteps=200", "optimizers.all.eps=1e-5"])


def test_projection_needs_known_layers() -> None:
    def plain(inputs: int) -> torch.nn.Module:
        return torch.nn.Linear(inputs, 8)

    register_network("plain_linear", plain)
    with pytest.raises(ConfigError, match="'critic' has no weights that can be projected"):
        sac(
            networks={"critic": {"trunk": "plain_linear"}},
            optimizers={"all": {"projection": "unit_rows"}},
        )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("optimizers.critic.learning_rate=1e-3", {"critic": {"learning_rate": 1e-3}}),
        ("algo_kwargs.optimizers.all.betas=[0.5, 0.9]", {"all": {"betas": [0.5, 0.9]}}),
        ("optimizers={actor: {eps: 1e-5}, all: {max_norm: 1}}", None),
        ("optimizers.actor.eps=null", {"actor": {}}),
    ],
)
def test_override_reaches_a_nested_key(text: str, found: Any) -> None:
    config = TrainConfig.load("sac/pendulum", [text]).resolved()
    expected = {"actor": {"eps": 1e-5}, "all": {"max_norm": 1.0}} if found is None else found
    assert config.algo_kwargs["optimizers"] == expected
    assert TrainConfig(**config.to_dict()).resolved() == config


@pytest.mark.parametrize(
    ("optimizers", "sentence"),
    [
        ({"critics": {}}, "Unknown name 'critics' in optimizers; did you mean 'critic'?"),
        ({"value": {}}, "Unknown name 'value' in optimizers; valid names: all"),
        (
            {"critic": {"lerning_rate": 1}},
            "Unknown key 'lerning_rate' in optimizers.critic; did you mean 'learning_rate'?",
        ),
        ({"critic": {"betas": [0.9, 1.0]}}, "optimizers.critic.betas.1 = 1.0: should be less"),
        ({"critic": {"max_norm": 0}}, "optimizers.critic.max_norm = 0: should be greater than 0"),
        ({"critic": 3}, "optimizers.critic = 3: should be a mapping"),
        ({"temperature": {"projection": "unit_rows"}}, "optimizers.temperature.projection = unit_"),
    ],
)
def test_invalid_options_raise(small_config: Config, optimizers: Any, sentence: str) -> None:
    config = small_config(algo_kwargs={"optimizers": optimizers})
    with pytest.raises(ConfigError) as caught:
        train(config)
    assert str(caught.value).startswith(sentence)
    assert not list(Path(config["output_dir"]).glob("*"))


# --- Decay of the learning rate -------------------------------------------------------


@pytest.mark.usefixtures("formula")
@pytest.mark.parametrize("final", [0.0, 0.25])
def test_decay_equals_single_steps_at_decaying_rates(final: float) -> None:
    """A cosine over the optimizer's own steps, constant afterward."""
    weights, single = start(6), start(6)
    decaying = FlatAdam(weights, RATE, decay_steps=8, decay_final=final)
    plain = FlatAdam(single, RATE)
    for step, gradient in enumerate(gradients(6, 12)):
        shape = 0.5 * (1 + math.cos(math.pi * min(step / 8, 1.0)))
        plain.scale_learning_rate(final + (1 - final) * shape)
        plain.step(single, gradient)
        decaying.step(weights, gradient)
    torch.testing.assert_close(weights, single, rtol=1e-6, atol=1e-9)
    assert float(decaying.learning_rate) == RATE  # a schedule scales the rate independently


def test_decay_advances_only_with_the_optimizers_own_steps() -> None:
    config = CrossQConfig(
        hidden_sizes=(8,),
        critic_hidden_sizes=(8,),
        policy_delay=3,
        optimizers={"all": {"decay_steps": 4}},
    )
    learner = CrossQAlgorithm.build(SPEC, config).double()
    for step in range(6):
        learner.update(make_batch(), make_noise(learner), learner.due(step))
    rates = {key: float(learner.optimizer(key)._decayed_rate()) for key in ("actor", "critic")}
    assert rates == pytest.approx({"actor": 5e-4, "critic": 0.0})


def test_decay_is_read_from_the_config() -> None:
    config = SACConfig(optimizers={"critic": {"decay_steps": 100, "decay_final": 0.1}})
    learner = SACAlgorithm.build(SPEC, config)
    assert (learner.optimizer("critic").decay_steps, learner.optimizer("critic").decay_final) == (
        100,
        0.1,
    )
    assert learner.optimizer("actor").decay_steps is None
    with pytest.raises(ValueError, match="decay_steps"):
        SACConfig(optimizers={"critic": {"decay_steps": 0}})

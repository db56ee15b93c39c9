"""User-defined networks: any `nn.Module` as a trunk."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from runpy import run_path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from rl_training import finetune, predict_checkpoint, register_network, resume, train
from rl_training.algorithms.sac import SACAlgorithm, SACConfig
from rl_training.config_model import validated
from rl_training.errors import ConfigError
from rl_training.models import MLPSACModel, Network, network_config
from rl_training.models.network_config import Sizes, trunk_config
from tests.comparing import CrashAt, CrashError, assert_same_run
from tests.golden import SPEC, assert_trace_is_the_update

ROOT = Path(__file__).parents[2]
Gated: Any = run_path(str(ROOT / "examples" / "own_network.py"))["Gated"]
GATED = {"all": {"trunk": "gated", "width": 12}}
BUILD = """
import sys, hashlib, torch
torch.manual_seed(int(sys.argv[1]))
sys.path.append("examples")
import own_network
from rl_training import EnvSpec, SACAlgorithm, SACConfig
spec = EnvSpec(5, 3, (-1.0,) * 3, (1.0,) * 3)
learner = SACAlgorithm.build(spec, SACConfig(networks={"all": {"trunk": "gated"}}), seed=4)
tensors = [learner.model.actor.flat, learner.model.critic.flat]
print(hashlib.sha256(b"".join(x.detach().numpy().tobytes() for x in tensors)).hexdigest())
"""


class Normed(nn.Module):
    """A module with in-place buffers, a replaced buffer, and an untrained parameter."""

    passes: Tensor

    def __init__(self, in_features: int, width: int = 6) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(in_features, width), nn.BatchNorm1d(width))
        self.register_buffer("passes", torch.zeros(1))
        self.fixed = nn.Parameter(torch.randn(width), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.passes = self.passes + 1
        features: Tensor = self.layers(x)
        return features.relu() * self.fixed


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_config, "_FACTORIES", {"gated": Gated, "normed": Normed})


def make_network(name: str, members: int | None, seed: int = 0) -> Network:
    trunk = trunk_config({"trunk": name}, "test").build(Sizes(4, 2, members))
    return Network(trunk, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", ["gated", "normed"])
@pytest.mark.parametrize("training", [False, True])
def test_ensemble_equals_the_separate_modules(name: str, training: bool) -> None:
    network = make_network(name, 3).double()
    x = torch.randn(7, 4, dtype=torch.float64)
    *own, weight, bias = network.views(network.flat.detach())
    expected = []
    for i in range(3):
        module = {"gated": Gated, "normed": Normed}[name](4).double().train(training)
        trained = [p for p in module.parameters() if p.requires_grad]
        with torch.no_grad():
            for p, value in zip(trained, own, strict=True):
                p.copy_(value[i])
            for key, value in network.state.items():
                holder: Any = module
                *path, leaf = key.removeprefix("own/").split("/")
                for part in path:
                    holder = getattr(holder, part)
                getattr(holder, leaf).copy_(value[i])
            expected.append((module(x) @ weight[i] + bias[i], dict(module.named_buffers())))
    with network.in_mode(training=training):
        found = network(x)
    torch.testing.assert_close(found, torch.stack([out for out, _ in expected]))
    for i, (_, buffers) in enumerate(expected):
        for key, value in buffers.items():
            torch.testing.assert_close(network.state[f"own/{key.replace('.', '/')}"][i], value)


def test_members_differ_and_the_global_generator_does_not_matter() -> None:
    states = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        states.append(make_network("normed", 2).state_dict())
        assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    assert not torch.equal(*states[0]["own/fixed"])
    assert not torch.equal(make_network("normed", 2, 9).flat, states[0]["flat"])


def test_two_builds_in_fresh_processes_are_equal() -> None:
    command = [sys.executable, "-c", BUILD]
    found = [
        subprocess.run([*command, seed], cwd=ROOT, check=True, capture_output=True).stdout
        for seed in "12"
    ]
    assert found[0] == found[1]
    assert len(found[0]) == 65


@pytest.mark.parametrize("name", ["gated", "normed"])
def test_traced_updates_equal_eager_ones(name: str) -> None:
    config = SACConfig(networks={"all": {"trunk": name}})
    learner: Any = SACAlgorithm.build(SPEC, config, seed=3).double()
    assert_trace_is_the_update(learner)
    if name == "normed":
        assert learner.model.critic.state["own/passes"].flatten().tolist() == [1, 1]


@pytest.mark.slow
@pytest.mark.filterwarnings("error:the compiled engine")
@pytest.mark.parametrize("name", ["gated", "normed"])
def test_compiled_training_does_not_fall_back(name: str, small_config: Callable[..., Any]) -> None:
    kwargs = {"networks": {"all": {"trunk": name}}, "engine": "compiled"}
    config = small_config(algo_kwargs=kwargs)
    config["algo_kwargs"].pop("hidden_sizes")
    assert train(config).metrics["updates"] > 0  # a fallback would warn, which is an error here


@pytest.mark.parametrize("name", ["gated", "normed"])
def test_training_resumes_bit_for_bit(name: str, small_config: Callable[..., Any]) -> None:
    config = small_config(algo_kwargs={"networks": {"all": {"trunk": name}}})
    config["algo_kwargs"].pop("hidden_sizes")
    whole = train(config)
    with pytest.raises(CrashError):
        train(config, callbacks=[CrashAt(97)])
    assert_same_run(whole, resume(f"{whole.run_dir}_2"))


def module_of(forward: Callable[[Tensor], Any]) -> Callable[[int], nn.Module]:
    class Module(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return forward(x)

    return lambda in_features: Module()


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (module_of(lambda x: x.sum(-1)), r"returns \[3\] for inputs of the shape \[3, 4\], but"),
        (module_of(lambda x: x[:1]), r"returns \[1, 4\]"),
        (
            module_of(lambda x: (x, x)),
            "returns .* should return one row of floating-point",
        ),
        (module_of(lambda x: x @ x), "failed for 4 inputs with RuntimeError"),
        (lambda in_features: 3, "returned 3, but should return a torch.nn.Module"),
        (lambda in_features: nn.Dropout(0.5), "draws random numbers"),
    ],
)
def test_unsupported_modules_raise(factory: Any, message: str) -> None:
    register_network("odd", factory)
    options = trunk_config({"trunk": "odd"}, "test")
    with pytest.raises(ConfigError, match=message):
        MLPSACModel(4, 2, trunks={"actor": options})


@pytest.mark.parametrize(
    ("networks", "message"),
    [
        (
            {"actor": {"trunk": "gaited"}},
            r"unknown \(a custom network .*did you mean 'gated'",
        ),
        (
            {"actor": {"trunk": "gated", "widht": 3}},
            "In networks.actor: Unknown key 'widht'; did you mean 'width'?",
        ),
        ({"actor": {"trunk": ["gated"]}}, r"networks.actor.trunk = \['gated'\]: should be text"),
    ],
)
def test_invalid_options_raise(networks: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        validated(SACConfig, {"networks": networks})


def test_hidden_sizes_have_no_effect() -> None:
    with pytest.raises(ConfigError, match=r"hidden_sizes = \[8\] has no effect"):
        validated(SACConfig, {"hidden_sizes": [8], "networks": GATED})


@pytest.mark.parametrize(
    ("name", "factory"), [("Mine", Gated), ("mlp", Gated), ("mine", 3), ("mine", Gated(3))]
)
def test_invalid_registrations_raise(name: str, factory: Any) -> None:
    with pytest.raises(ConfigError):
        register_network(name, factory)


def test_command_line_accepts_the_registered_name(tmp_path: Path) -> None:
    settings = ["networks.all.trunk=gated", "networks.critic.width=16", "total_timesteps=60"]
    settings += ["learning_starts=40", "eval_episodes=0", f"output_dir={tmp_path}"]
    command = [sys.executable, "-m", "rl_training", "--import", "own_network", "train"]
    done = subprocess.run(
        [*command, "--config", "sac/pendulum", *settings, "tensorboard=false", "num_threads=1"],
        cwd=ROOT / "examples",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "trunk: gated" in next(tmp_path.glob("*/config.yaml")).read_text()


def test_fine_tuning_and_prediction_keep_the_networks(small_config: Callable[..., Any]) -> None:
    networks = {"all": {"trunk": "normed"}, "value": {"trunk": "batch_norm", "hidden_sizes": [8]}}
    config = small_config(algo="iql", algo_kwargs={"networks": networks}, total_timesteps=40)
    config["algo_kwargs"].pop("hidden_sizes")
    tuned = finetune(train(config).run_dir, None, ["total_timesteps=40", "learning_starts=20"])
    tensors = load_file(tuned.checkpoint_path / "model.safetensors")
    batches = tensors["model.value.batches"].item()
    assert batches > 40  # batches of the source run plus new ones
    assert tensors["model.critic.own/passes"].flatten().tolist() == [batches] * 2
    again, same = (predict_checkpoint(tuned.run_dir, np.zeros((2, 3), np.float32)) for _ in "12")
    assert np.array_equal(again, same)

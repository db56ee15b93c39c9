"""Every algorithm can be exported, with every kind of space and every option of its policy.

New algorithms, spaces and options are covered when they are registered: the tests ask the registry
which learners exist, each learner which of `SPECS` it supports, and each config class which options
change the policy.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import gymnasium as gym
import numpy as np
import pytest
import safetensors.torch
import torch
from gymnasium import spaces
from gymnasium.spaces import flatdim

from rl_training import ConfigError
from rl_training.algorithms.base import Algorithm
from rl_training.algorithms.registry import REGISTRY, AlgorithmEntry
from rl_training.api.exporting import (
    describe_ports,
    layer_weights,
    load_program,
    program_bytes,
    run_module,
)
from rl_training.api.parity import compare, random_observations
from rl_training.boundary.tensors import tensor_bytes
from rl_training.config_model import validated
from rl_training.envs import EnvConfig, describe_env
from rl_training.envs.observations import read_entries
from rl_training.models.network_config import TRUNKS
from rl_training.runtime.evaluation import Policy
from rl_training.runtime.policy_graph import export_program, plain_module
from rl_training.types import EnvSpec
from tests.conftest import TINY
from tests.structured_envs import EVERYTHING, GRID, PIXELS


def spec_of(space: gym.Space[Any], *, masks: bool = False) -> EnvSpec:
    """Return the sizes of an environment with this observation space and discrete actions."""
    entries = read_entries(space, "the environment")
    return EnvSpec(
        flatdim(space), 3, discrete=True, action_start=2, action_masks=masks, entries=entries
    )


SPECS = {
    "box": EnvSpec(4, 2, (-1.0, -3.0), (1.0, 5.0)),
    "goals": EnvSpec(6, 2, (-1.0, -3.0), (1.0, 5.0), goal_dim=2),
    "discrete": EnvSpec(4, 3, discrete=True, action_start=2),
    "structured": describe_env(EVERYTHING, EnvConfig()),
    "structured-discrete": describe_env(EVERYTHING, validated(EnvConfig, {"discrete": True})),
    "number": describe_env(GRID, EnvConfig()),
    "masked": EnvSpec(4, 3, discrete=True, action_masks=True),
    "pixels": describe_env(
        PIXELS, validated(EnvConfig, {"mixed": True, "channels": 3, "frame_stack": 2})
    ),
    "pixels-discrete": describe_env(PIXELS, validated(EnvConfig, {"discrete": True})),
    "scalar": spec_of(spaces.Box(-1.0, 1.0, ())),
    "matrix": spec_of(spaces.Box(-1.0, 1.0, (2, 3))),
    "numbers": spec_of(spaces.MultiDiscrete(np.array([[2, 3], [4, 5]]))),
    "switches": spec_of(spaces.MultiBinary((2, 3))),
    "tuple": spec_of(spaces.Tuple((spaces.Box(-1.0, 1.0, (2,)), spaces.Discrete(4, start=7)))),
    "masked-structured": spec_of(
        spaces.Dict({"action_mask": spaces.MultiBinary(3), "action": spaces.Discrete(3)}),
        masks=True,
    ),
    "masked-pixels": spec_of(spaces.Box(0, 255, (3, 8, 8), np.uint8), masks=True),
}
"""One of each kind of observation and action."""


def supported(entry: AlgorithmEntry) -> Iterator[str]:
    """Yield the kinds of spaces that a learner supports."""
    for name, spec in SPECS.items():
        learner = entry.learner_class().for_spec(spec)
        masked = spec.action_masks and not learner.mask_fields
        if masked or entry.goals != bool(spec.goal_dim):
            continue
        try:
            learner.check_spec(spec)
        except ConfigError:
            continue
        yield name


def build(entry: AlgorithmEntry, spec: EnvSpec, **options: Any) -> Algorithm:
    config_class = entry.config_class()
    sizes: dict[str, Any] = {} if "networks" in options else {"hidden_sizes": (8, 8)}
    config = config_class(**sizes | TINY.get(entry.name, {}) | options)
    learner = entry.learner_class().build(spec, config, seed=0)
    generator = torch.Generator().manual_seed(1)
    for name, tensor in learner.state_dict().items():
        if tensor.is_floating_point() and not name.startswith("optimizers."):
            tensor.add_(0.1 * torch.rand(tensor.shape, generator=generator))  # as after training
    return learner


def assert_graph_is_equal(learner: Algorithm) -> None:
    """Compare a learner's policy with its graph, without the cost of writing a file."""
    policy = Policy(learner, learner.spec)
    module = plain_module(policy)
    exported = partial(run_module, module, learner.spec)
    compare(policy, exported, random_observations(policy, 64))


CASES = [(entry, kind) for entry in REGISTRY.values() for kind in supported(entry)]
FIRST_OF_ALGORITHM = {
    (entry.name, SPECS[kind].discrete): (entry.name, kind) for entry, kind in reversed(CASES)
}
FIRST_OF_KIND = {kind: (entry.name, kind) for entry, kind in reversed(CASES)}
CHOSEN = {*FIRST_OF_ALGORITHM.values(), *FIRST_OF_KIND.values()}
"""Every algorithm with each kind of action, and every kind of space, at least once.

The files of all cases, each of which takes seconds to write, are slow tests.
"""


def test_every_algorithm_and_every_kind_is_covered() -> None:
    assert {name for name, _ in FIRST_OF_ALGORITHM} == REGISTRY.keys()
    assert FIRST_OF_KIND.keys() == SPECS.keys()


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        pytest.param(
            entry,
            kind,
            id=f"{entry.name}-{kind}",
            marks=() if (entry.name, kind) in CHOSEN else pytest.mark.slow,
        )
        for entry, kind in CASES
    ],
)
def test_files_give_the_policys_actions(entry: AlgorithmEntry, kind: str, tmp_path: Path) -> None:
    """Observations are flattened and normalized inside, and actions are scaled or chosen there."""
    spec = SPECS[kind]
    learner = build(entry, spec)
    shift, scale = learner.vector_statistics
    learner.set_normalization(torch.randn_like(shift), torch.full_like(scale, 2.0))
    policy = Policy(learner, spec)
    program, observations = export_program(policy), random_observations(policy, 64)
    for file in (tmp_path / "policy.onnx", tmp_path / "policy.pt2"):
        onnx = file.suffix == ".onnx"
        file.write_bytes(program_bytes(program, describe_ports(spec), onnx=onnx))
        compare(policy, load_program(file, spec), observations)


@pytest.mark.parametrize(
    ("entry", "kind"), CASES, ids=[f"{entry.name}-{kind}" for entry, kind in CASES]
)
def test_weights_layer_by_layer_can_be_saved(entry: AlgorithmEntry, kind: str) -> None:
    """No network shares memory with another one, not even critics with a common encoder."""
    weights = layer_weights(build(entry, SPECS[kind]))
    read = safetensors.torch.load(tensor_bytes(weights))
    assert read.keys() == weights.keys()
    assert all(torch.equal(read[name], tensor) for name, tensor in weights.items())


def changes_policy(entry: AlgorithmEntry, spec: EnvSpec, options: dict[str, Any]) -> bool:
    """Return whether options change the networks or the deterministic actions."""
    plain, other = build(entry, spec), build(entry, spec, **options)
    obs = 3 * torch.randn(16, spec.obs_dim, generator=torch.Generator().manual_seed(0))
    same = torch.equal(plain.act(obs, deterministic=True), other.act(obs, deterministic=True))
    return not same or plain.state_dict().keys() != other.state_dict().keys()


def policy_options(entry: AlgorithmEntry) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield options that change the policy: every other value of a switch or a choice."""
    spec = SPECS[next(supported(entry))]
    for name, field in entry.config_class().model_fields.items():
        annotation = field.annotation
        values = [True, False] if annotation is bool else []
        for part in (annotation, *get_args(annotation)):
            values += get_args(part) if get_origin(part) is Literal else []
        for value in values:
            options = {name: value}
            try:
                changes = value != field.default and changes_policy(entry, spec, options)
            except ConfigError:  # requires another option as well
                continue
            if changes:
                yield f"{name}={value}", options


OPTIONS = [
    pytest.param(entry, options, id=f"{entry.name}-{name}")
    for entry in REGISTRY.values()
    for name, options in policy_options(entry)
]


def test_options_of_policies_are_found() -> None:
    found = {case.id for case in OPTIONS}
    assert {"bc-loss=likelihood", "sac-normalize_observations=True"} <= found


@pytest.mark.parametrize(("entry", "options"), OPTIONS)
def test_options_of_the_policy_are_exported(entry: AlgorithmEntry, options: dict[str, Any]) -> None:
    assert_graph_is_equal(build(entry, SPECS[next(supported(entry))], **options))


@pytest.mark.parametrize("trunk", TRUNKS)
def test_every_trunk_is_exported(trunk: str) -> None:
    entry = REGISTRY["sac"]
    small = {"width": 8} if "width" in TRUNKS[trunk].model_fields else {"hidden_sizes": [8, 6]}
    networks = {"all": {"trunk": trunk, **small}}
    spec = SPECS["pixels" if TRUNKS[trunk].reads_images else next(supported(entry))]
    assert_graph_is_equal(build(entry, spec, networks=networks))


def test_residual_encoders_are_exported() -> None:
    networks = {"all": {"trunk": "cnn", "encoder": "impala", "features": 5, "layer_norm": True}}
    assert_graph_is_equal(build(REGISTRY["sac"], SPECS["pixels"], networks=networks))

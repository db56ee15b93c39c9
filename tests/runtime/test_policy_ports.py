"""Inputs of exported policies: their names and types, and how they are flattened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rl_training.algorithms.dqn import DQNAlgorithm, DQNConfig
from rl_training.algorithms.sac import SACAlgorithm, SACConfig
from rl_training.api.exporting import describe_ports, load_program, program_bytes
from rl_training.envs.observations import read_entries
from rl_training.observations import flatten_observation, leaves
from rl_training.runtime.evaluation import Policy
from rl_training.runtime.policy_graph import export_program
from rl_training.runtime.policy_ports import policy_inputs, unflatten
from rl_training.types import EnvSpec
from tests.structured_envs import Everything


def spec_of(space: gym.Space[Any]) -> EnvSpec:
    entries = read_entries(space, "a test")
    return EnvSpec(spaces.flatdim(space), 1, (-1.0,), (1.0,), entries=entries)


def samples(space: gym.Space[Any], rows: int) -> dict[str, np.ndarray[Any, Any]]:
    """Return random observations, stacked for each entry."""
    space.seed(0)
    found = [leaves(space.sample()) for _ in range(rows)]
    return {name: np.stack([row[name] for row in found]) for name in found[0]}


@pytest.mark.parametrize(
    "space",
    [
        Everything.observation_space,
        spaces.Discrete(4, start=-2),
        spaces.MultiDiscrete(np.array([[2, 3], [4, 5]]), start=np.array([[0, 1], [-3, 7]])),
        spaces.MultiBinary([2, 3]),
        spaces.Box(-3, 3, (2, 2, 2), np.float64),
    ],
    ids=["everything", "discrete", "matrix", "binary", "box"],
)
def test_tensors_are_flattened_like_arrays(space: gym.Space[Any]) -> None:
    spec, rows = spec_of(space), samples(space, 40)
    expected = flatten_observation(rows.get("", rows), spec.entries)
    parts = [
        given.flatten(torch.from_numpy(rows[given.entry.name].astype(given.dtype)))
        for given in policy_inputs(spec)
    ]
    np.testing.assert_array_equal(torch.cat(parts, dim=-1).numpy(), expected)
    back = unflatten(expected, spec)
    for name, values in rows.items():
        np.testing.assert_array_equal(back[name], values.astype(back[name].dtype))


def test_a_flat_observation_is_one_input_called_observation() -> None:
    (given,) = policy_inputs(EnvSpec(3, 1, (-1.0,), (1.0,)))
    assert (given.name, given.dtype, given.entry.shape) == ("observation", "float32", (3,))


NAMES = (
    "action",
    "action_mask",
    "add",
    "addmm",
    "class",
    "observation",
    "obs_shift",
    "input_0",
    "a b",
    "a_b",
)


def test_any_entry_name_works_and_none_collides_with_the_graph(tmp_path: Path) -> None:
    """Names of operations, weights, the output, Python keywords and other odd names."""
    box = spaces.Box(-1, 1, (1,), np.float32)
    space = spaces.Dict({name: box for name in NAMES} | {"a": spaces.Tuple((box, box))})
    spec = spec_of(space)
    policy = Policy(SACAlgorithm.build(spec, SACConfig(hidden_sizes=(8,))), spec)
    file = tmp_path / "policy.onnx"
    file.write_bytes(program_bytes(export_program(policy), describe_ports(spec), onnx=True))
    rows = samples(space, 5)
    exported = load_program(file, spec)
    expected = policy(flatten_observation(rows, spec.entries))
    np.testing.assert_allclose(exported(rows), expected, atol=1e-5)
    nested = {name: rows[name][0] for name in NAMES} | {"a": (rows["a/0"][0], rows["a/1"][0])}
    np.testing.assert_allclose(exported(nested), expected[0], atol=1e-5)
    names = {given.name for given in policy_inputs(spec)}
    reserved = {"action", "action_mask"}
    renamed = {f"observation/{name}" for name in reserved}
    assert names == {*NAMES, "a/0", "a/1"} - reserved | renamed


def test_values_outside_a_discrete_space_are_refused(tmp_path: Path) -> None:
    space = spaces.MultiDiscrete([2, 3], start=[0, 5])
    spec = spec_of(space)
    policy = Policy(SACAlgorithm.build(spec, SACConfig(hidden_sizes=(8,))), spec)
    file = tmp_path / "policy.onnx"
    file.write_bytes(program_bytes(export_program(policy), describe_ports(spec), onnx=True))
    exported = load_program(file, spec)
    assert exported(np.array([1, 7])).shape == (1,)
    for wrong in ([2, 5], [0, 4], [0, 8]):
        with pytest.raises(ValueError, match=r"between \[0, 5\] and \[1, 7\]"):
            exported(np.array(wrong))


def test_action_mask_is_an_input(tmp_path: Path) -> None:
    spec = EnvSpec(3, 4, discrete=True, action_start=10, action_masks=True)
    policy = Policy(DQNAlgorithm.build(spec, DQNConfig(hidden_sizes=(8,))), spec)
    file = tmp_path / "policy.onnx"
    file.write_bytes(program_bytes(export_program(policy), describe_ports(spec), onnx=True))
    exported, obs = load_program(file, spec), np.zeros(3, dtype=np.float32)
    for action in range(4):
        mask = np.arange(4) == action
        assert exported(obs, mask) == exported(obs, action_mask=mask.astype(np.int8)) == 10 + action
    assert exported(obs, np.ones(4, bool)) == policy(obs)
    assert exported(np.stack([obs] * 2), np.eye(4, dtype=bool)[:2]).tolist() == [10, 11]
    with pytest.raises(ValueError, match=r"needs action_mask of shape \[4\]"):
        exported(obs)

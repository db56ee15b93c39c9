"""Exported policies: the files, their contents, and the check before they appear."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

import rl_training.api.exporting as exporting
from rl_training import (
    SAC,
    CheckpointError,
    ConfigError,
    export_checkpoint,
    predict_checkpoint,
    register_algorithm,
    register_network,
    train,
)
from rl_training.algorithms.dqn import DQNAlgorithm, DQNConfig
from rl_training.algorithms.sac import SACAlgorithm, SACConfig
from rl_training.api.checkpoints import predict_actions
from rl_training.api.parity import Observations, ParityError, compare
from rl_training.boundary.exported_policy import Policy as StandalonePolicy
from rl_training.boundary.tensors import tensor_bytes
from rl_training.envs import ActionScaler
from rl_training.experiment.saved_run import SavedRun
from rl_training.runtime.evaluation import Policy
from rl_training.runtime.policy_graph import export_program
from rl_training.types import EnvSpec
from tests import masked_envs

FIXTURES = Path(__file__).parents[1] / "fixtures"
RUN = FIXTURES / "format_1" / "sac"
GOAL_RUN = FIXTURES / "format_1" / "her"
Config = Callable[..., dict[str, Any]]


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# --- Formats ------------------------------------------------------------------


def test_onnx_takes_raw_observations_and_gives_the_environments_actions(tmp_path: Path) -> None:
    import onnxruntime

    result = export_checkpoint(RUN, tmp_path / "policy.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    (given,), (taken,) = session.get_inputs(), session.get_outputs()
    assert (given.name, given.shape, given.type) == ("observation", ["batch", 3], "tensor(float)")
    assert (taken.name, taken.shape, taken.type) == ("action", ["batch", 1], "tensor(float)")
    for rows in (1, 2, 7):
        obs = np.random.default_rng(rows).normal(size=(rows, 3)).astype(np.float32)
        (actions,) = session.run(None, {"observation": obs})
        np.testing.assert_allclose(actions, predict_checkpoint(RUN, obs), atol=4e-5)
    assert result["parity"]["random_observations"] == 1_000
    assert result["parity"]["episode_observations"] == 20  # the length of this run's episodes
    assert result["files"] == [str(tmp_path / "policy.onnx")]
    assert files_in(tmp_path) == {"policy.onnx"}


def test_pt2_is_a_torch_program_without_learner_code(tmp_path: Path) -> None:
    export_checkpoint(RUN, tmp_path / "policy.pt2")
    program = torch.export.load(tmp_path / "policy.pt2")
    assert "model.actor.layers.0.weight" in program.state_dict
    assert not any("critic" in name for name in program.state_dict)
    obs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    actions = program.module()(torch.from_numpy(obs)).numpy()
    np.testing.assert_allclose(actions, predict_checkpoint(RUN, obs), atol=4e-5)


def test_safetensors_contains_named_layers_and_the_description(tmp_path: Path) -> None:
    result = export_checkpoint(RUN, tmp_path / "policy.safetensors")
    with safe_open(tmp_path / "policy.safetensors", "pt") as file:
        names, facts = set(file.keys()), json.loads(file.metadata()["rl_training"])
        assert file.get_tensor("model.actor.layers.0.weight").shape == (8, 3)
    assert {"model.actor.layers.2.bias", "model.critic.1.layers.0.weight", "obs_shift"} <= names
    assert not any(name.startswith("optimizers") for name in names)
    assert result["tensors"].keys() == names
    assert (facts["algorithm"], facts["env_id"], facts["step"]) == ("sac", "Pendulum-v1", 31)


def test_goal_observations_are_separate_inputs(tmp_path: Path) -> None:
    result = export_checkpoint(GOAL_RUN, tmp_path / "policy.onnx", standalone=True)
    assert [item["name"] for item in result["inputs"]] == ["observation", "desired_goal"]
    policy = StandalonePolicy(tmp_path / "policy.onnx")
    space = gym.make("rl_training/PointGoal-v0").observation_space
    space.seed(0)
    obs = space.sample()
    expected = predict_checkpoint(GOAL_RUN, obs)
    np.testing.assert_allclose(policy(obs), expected, atol=2e-5)  # achieved_goal is ignored
    batch = {key: np.stack([value, value]) for key, value in obs.items()}
    np.testing.assert_allclose(policy(batch), np.stack([expected, expected]), atol=2e-5)
    with pytest.raises(ValueError, match="needs observation of shape"):
        policy(obs["observation"])


def test_discrete_actions_start_where_the_environments_do(tmp_path: Path) -> None:
    spec = EnvSpec(4, 3, discrete=True, action_start=5)
    policy = Policy(DQNAlgorithm.build(spec, DQNConfig(hidden_sizes=(8,))), spec)
    obs = torch.randn(6, 4)
    actions = export_program(policy).module()(obs)
    assert actions.dtype == torch.int64
    assert actions.tolist() == policy(obs.numpy()).tolist()
    assert set(actions.tolist()) <= {5, 6, 7}


@pytest.mark.parametrize("discrete", [False, True])
def test_tensors_are_scaled_like_arrays(discrete: bool) -> None:
    rng = np.random.default_rng(0)
    if discrete:
        spec, actions = EnvSpec(1, 4, discrete=True, action_start=-2), rng.integers(4, size=(64, 1))
    else:
        low = rng.normal(size=6) * 10.0 ** rng.integers(-3, 4, 6)
        spec = EnvSpec(1, 6, tuple(low), tuple(low + rng.uniform(1e-3, 1e3, 6)))
        actions = np.concatenate([rng.uniform(-1, 1, (62, 6)), [[-1.0] * 6], [[1.0] * 6]])
    scaler, given = ActionScaler(spec), actions.astype(np.float32)
    expected, found = scaler.to_env(given), scaler.tensors_to_env(torch.from_numpy(given)).numpy()
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(found, expected)


def test_equal_exports_are_equal_files_without_paths_of_this_machine(tmp_path: Path) -> None:
    for name in ("a.onnx", "b.onnx", "a.pt2"):
        export_checkpoint(RUN, tmp_path / name)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    for name in ("a.onnx", "a.pt2"):
        data = (tmp_path / name).read_bytes()
        for secret in (str(Path.home()), str(tmp_path), "site-packages", "policy_graph"):
            assert secret.encode() not in data, f"{name} contains {secret}"


def test_model_exports_its_current_policy(small_config: Config, tmp_path: Path) -> None:
    model = SAC(
        "Pendulum-v1",
        hidden_sizes=[8, 8],
        learning_starts=10,
        batch_size=8,
        num_threads=1,
        eval_episodes=0,
        normalize_observations=True,
        output_dir=tmp_path / "runs",
    )
    model.learn(30)
    result = model.export(tmp_path / "policy.onnx")
    assert result["step"] == 30
    policy = StandalonePolicy(tmp_path / "policy.onnx")
    obs = np.array([[0.1, -0.9, 3.0], [1.0, 0.0, -8.0]], dtype=np.float32)
    np.testing.assert_allclose(policy(obs), model.predict(obs), atol=4e-5)


def test_one_action_takes_at_most_as_long_as_predict(tmp_path: Path) -> None:
    """`benchmarks.exported_cpu` measures half of the time; single calls take turns."""
    export_checkpoint(RUN, tmp_path / "policy.onnx")
    exported, policy = StandalonePolicy(tmp_path / "policy.onnx"), SavedRun.load(RUN).load_policy()
    obs = np.zeros(3, dtype=np.float32)
    ways: tuple[Callable[[], Any], ...] = (
        lambda: exported(obs),
        lambda: predict_actions(policy, obs),
    )
    times: tuple[list[float], ...] = ([], [])
    for _ in range(300):
        for call, found in zip(ways, times, strict=True):
            began = time.perf_counter()
            call()
            found.append(time.perf_counter() - began)
    assert np.median(times[0]) <= np.median(times[1])


def test_best_checkpoint_is_exported(tmp_path: Path) -> None:
    last = export_checkpoint(RUN, tmp_path / "last.safetensors")
    best = export_checkpoint(RUN, tmp_path / "best.safetensors", best=True)
    assert (last["step"], best["step"]) == (31, 20)


@pytest.mark.parametrize("name", sorted(p.name for p in (FIXTURES / "format_1").glob("*/")))
def test_runs_of_format_1_can_be_exported(name: str, tmp_path: Path) -> None:
    result = export_checkpoint(FIXTURES / "format_1" / name, tmp_path / "weights.safetensors")
    assert len(result["tensors"]) > 5


# --- Files and arguments ------------------------------------------------------


@pytest.mark.parametrize(
    ("out", "options", "message"),
    [
        ("policy.txt", {}, r"must end in \.onnx, \.pt2 or \.safetensors"),
        ("policy.onnx", {"format": "tensorflow"}, "format = 'tensorflow': should be one of onnx"),
        ("policy.onnx", {"format": "pt2"}, r"in the format pt2 must end in \.pt2"),
        ("missing/policy.onnx", {}, "folder '.*missing' does not exist"),
        ("folder", {}, "folder is a folder: pass the name of a file"),
        ("folder.onnx", {}, "folder.onnx is a folder"),
        ("there.onnx", {}, r"there.onnx already exists: .*--force \(overwrite=True\)"),
        ("policy.pt2", {"standalone": True}, "requires the format onnx, not pt2"),
        ("other.onnx", {"standalone": True}, "policy.py already exists"),
    ],
)
def test_bad_destinations_are_refused_before_anything_is_loaded(
    out: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    for folder in ("folder", "folder.onnx"):
        (tmp_path / folder).mkdir()
    (tmp_path / "there.onnx").write_bytes(b"precious")
    (tmp_path / "policy.py").write_text("print('mine')")
    before = files_in(tmp_path)
    with pytest.raises(ConfigError, match=message):
        export_checkpoint(tmp_path / "no_run", tmp_path / out, **options)
    assert files_in(tmp_path) == before


def test_existing_files_are_replaced_only_with_overwrite(tmp_path: Path) -> None:
    file = tmp_path / "policy.safetensors"
    file.write_bytes(b"old")
    export_checkpoint(RUN, file, overwrite=True)
    assert file.stat().st_size > 1_000
    link = tmp_path / "link.safetensors"
    link.symlink_to(file)
    export_checkpoint(RUN, link, overwrite=True, best=True)
    assert link.is_symlink()
    assert files_in(tmp_path) == {"policy.safetensors", "link.safetensors"}


def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(ConfigError, match=r"policy.safetensors cannot be written: No space left"):
        export_checkpoint(RUN, tmp_path / "policy.safetensors")
    assert files_in(tmp_path) == set()


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_package_gives_the_install_command(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=r"pip install 'rl-training\[export\]'"):
        export_checkpoint(RUN, tmp_path / "policy.onnx")
    export_checkpoint(RUN, tmp_path / "policy.safetensors")


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    run = shutil.copytree(RUN, tmp_path / "run")
    (run / "checkpoints" / "step_000000031" / "model.safetensors").write_bytes(b"x")
    with pytest.raises(CheckpointError, match="instead of"):
        export_checkpoint(run, tmp_path / "policy.safetensors")
    assert files_in(tmp_path) == {"run"}


# --- The check before a file appears ------------------------------------------


def test_a_wrong_export_fails_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake in the scaling of one action, by 2e-5 of its range, is found."""
    right = ActionScaler.tensors_to_env
    off = 4.0 * 2e-5
    monkeypatch.setattr(ActionScaler, "tensors_to_env", lambda self, x: right(self, x) - off)
    (tmp_path / "policy.pt2").write_bytes(b"the previous one")
    with pytest.raises(ParityError, match=r"differs from predict at .* Nothing was written\."):
        export_checkpoint(RUN, tmp_path / "policy.pt2", overwrite=True)
    assert (tmp_path / "policy.pt2").read_bytes() == b"the previous one"
    assert files_in(tmp_path) == {"policy.pt2"}


def test_an_interrupted_check_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> Any:
        assert not (tmp_path / "policy.pt2").exists()
        assert list(tmp_path.rglob("*.pt2"))
        raise KeyboardInterrupt

    monkeypatch.setattr(exporting, "compare", interrupt)
    with pytest.raises(KeyboardInterrupt):
        export_checkpoint(RUN, tmp_path / "policy.pt2")
    assert files_in(tmp_path) == set()


def test_exports_into_one_folder_at_the_same_time_do_not_mix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was compared is not replaced with one that was not."""

    def export_in_between(*arguments: Any) -> Any:
        monkeypatch.setattr(exporting, "compare", compare)
        export_checkpoint(RUN, tmp_path / "policy.onnx", standalone=True, best=True)
        return compare(*arguments)

    monkeypatch.setattr(exporting, "compare", export_in_between)
    export_checkpoint(RUN, tmp_path / "policy.onnx", standalone=True)
    assert files_in(tmp_path) == {"policy.onnx", "policy.json", "policy.py"}
    assert StandalonePolicy(tmp_path / "policy.onnx").facts["step"] == 31


def test_wrong_weights_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = tensor_bytes

    def broken(tensors: dict[str, Tensor], metadata: Any) -> bytes:
        name = next(iter(tensors))
        return right(tensors | {name: tensors[name] + 1}, metadata)

    monkeypatch.setattr(exporting, "tensor_bytes", broken)
    with pytest.raises(ParityError, match="not contain the same weights"):
        export_checkpoint(RUN, tmp_path / "policy.safetensors")
    assert files_in(tmp_path) == set()


def test_run_without_its_environment_is_compared_on_random_observations(tmp_path: Path) -> None:
    result = export_checkpoint(FIXTURES / "format_1" / "bc", tmp_path / "policy.pt2")
    assert result["parity"]["episode_observations"] == 0
    assert result["parity"]["note"] == "the run has no environment"


def tied_policy() -> Policy:
    """A Q-network whose first two actions are equal up to rounding; the third is worse."""
    spec = EnvSpec(2, 3, discrete=True)
    learner = DQNAlgorithm.build(spec, DQNConfig(hidden_sizes=(16, 16)), seed=0)
    with torch.no_grad():
        weight, bias = learner.model.views(learner.model.flat)[-2:]
        weight[:, 1] = weight[:, 0]
        weight[:, 2] = weight[:, 0]
        bias[1] = bias[0]
        bias[2] = bias[0] - 1e-3
    return Policy(learner, spec)


def test_ties_are_decided_by_rounding_but_other_differences_are_not() -> None:
    policy = tied_policy()
    rows = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    observations = Observations(rows)
    assert policy(rows).tolist() == [0] * 50
    saved = {name: tensor.clone() for name, tensor in policy.algorithm.state_dict().items()}

    def other(action: int) -> Callable[..., Any]:
        return lambda obs: np.full(np.shape(obs)[:-1], action)[()]

    assert compare(policy, other(0), observations).decided_by_rounding == 0
    tied = compare(policy, other(1), observations)
    assert tied.decided_by_rounding == 70  # 50 in a batch and 20 one by one
    with pytest.raises(ParityError, match=r"70 of 70 observations; at .* gives 2 instead of 0"):
        compare(policy, other(2), observations)
    after = policy.algorithm.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in saved.items())


def test_a_steep_policy_may_differ_only_as_much_as_rounding_explains() -> None:
    spec = EnvSpec(2, 1, (-1.0,), (1.0,))
    learner = SACAlgorithm.build(spec, seed=0)
    with torch.no_grad():
        learner.model.actor.flat.mul_(8.0)  # far from the range in which tanh is flat
    policy = Policy(learner, spec)
    rows = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32) * 100
    observations = Observations(rows)
    compare(policy, policy, observations)
    moved = lambda obs: np.clip(policy(obs) + np.float32(2e-3), -1, 1)  # noqa: E731
    with pytest.raises(ParityError):
        compare(policy, moved, observations)


@pytest.mark.parametrize(
    "broken",
    [
        lambda actions: actions.astype(np.float64),
        lambda actions: actions[..., None],
        lambda actions: np.full_like(actions, np.nan),
    ],
    ids=["dtype", "shape", "nan"],
)
def test_other_types_shapes_and_nan_are_differences(broken: Callable[[Any], Any]) -> None:
    policy = SavedRun.load(RUN).load_policy()
    rows = np.zeros((5, 3), dtype=np.float32)
    with pytest.raises(ParityError):
        compare(policy, lambda obs: broken(policy(obs)), Observations(rows))


# --- Own learners and networks ------------------------------------------------


class Branching(nn.Module):
    """A network that branches on a value, which no graph can contain."""

    def __init__(self, in_features: int) -> None:
        super().__init__()
        self.layer = nn.Linear(in_features, 4)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.layer(x)
        return features if features.sum().item() > 0 else -features


class Convolution(nn.Module):
    """A network with other layers than the package's."""

    def __init__(self, in_features: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Unflatten(1, (1, in_features)), nn.Conv1d(1, 4, 2), nn.GELU(), nn.Flatten()
        )
        self.attention = nn.MultiheadAttention(4 * (in_features - 1), 1, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layers(x).unsqueeze(1)
        found: Tensor = self.attention(x, x, x)[0].squeeze(1)
        return found


class CountingSAC(SACAlgorithm):
    """A learner that counts its actions in a buffer."""

    name = "counting_sac"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.register_buffer("acted", torch.zeros(()))

    def choose_actions(self, obs: Tensor, *, deterministic: bool, noise: Any, **_: Any) -> Tensor:
        self.acted.add_(1)  # type: ignore[operator]
        return super().choose_actions(obs, deterministic=deterministic, noise=noise)


class OwnPolicy(SACAlgorithm):
    """A learner with its own deterministic policy: a mixture of the actor and a fixed rule."""

    name = "own_policy"

    def choose_actions(self, obs: Tensor, *, deterministic: bool, noise: Any, **_: Any) -> Tensor:
        actions = super().choose_actions(obs, deterministic=deterministic, noise=noise)
        return torch.where(obs[:, :1] > 0, actions, -obs[:, :1].clamp(-1, 1).sin())


def own_learner(kind: type[SACAlgorithm], trunk: str | None = None) -> Policy:
    spec = EnvSpec(3, 2, (-1.0, -3.0), (1.0, 3.0))
    config = SACConfig(networks={"all": {"trunk": trunk}} if trunk else {})
    return Policy(kind.build(spec, config, seed=0), spec)


def test_own_networks_and_policies_are_exported(tmp_path: Path) -> None:
    register_network("convolution", Convolution)
    obs = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
    for policy in (own_learner(SACAlgorithm, "convolution"), own_learner(OwnPolicy)):
        program = export_program(policy)
        found = program.module()(torch.from_numpy(obs)).numpy()
        np.testing.assert_allclose(found, policy(obs), atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "trunk", "message"),
    [
        (SACAlgorithm, "branching", "policy of sac cannot be exported .*tensor operations"),
        (CountingSAC, None, r"acting changes its state \(algorithm.acted\)"),
    ],
)
def test_what_cannot_be_exported_is_one_sentence(
    kind: type[SACAlgorithm], trunk: str | None, message: str
) -> None:
    register_network("branching", Branching)
    with pytest.raises(ConfigError, match=message) as error:
        export_program(own_learner(kind, trunk))
    assert "\n" not in str(error.value)


def test_registered_algorithm_is_exported_end_to_end(small_config: Config, tmp_path: Path) -> None:
    from rl_training.algorithms.registry import REGISTRY

    register_algorithm(OwnPolicy)
    try:
        run = train(small_config(algo="sac") | {"algo": "own_policy"}).run_dir
        result = export_checkpoint(run, tmp_path / "policy.onnx")
    finally:
        del REGISTRY["own_policy"]
    assert result["parity"]["episode_observations"] == 200


def test_masks_of_an_episode_are_compared(small_config: Config, tmp_path: Path) -> None:
    masked_envs.register()
    config = small_config(algo="dqn", env_id=masked_envs.MASKED, total_timesteps=60)
    result = export_checkpoint(train(config).run_dir, tmp_path / "policy.pt2")
    assert [port["name"] for port in result["inputs"]] == ["observation", "action_mask"]
    assert 0 < result["parity"]["episode_observations"] <= 9


def test_exporting_does_not_change_the_policy() -> None:
    policy = SavedRun.load(RUN).load_policy()
    before = {name: tensor.clone() for name, tensor in policy.algorithm.state_dict().items()}
    obs = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    expected = policy(obs)
    export_program(policy)
    after = policy.algorithm.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    np.testing.assert_array_equal(policy(obs), expected)
    assert all(isinstance(p, nn.Parameter) for p in policy.algorithm.parameters())

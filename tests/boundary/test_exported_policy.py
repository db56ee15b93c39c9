"""The standalone program of an exported policy: its size, its checks, and hostile files."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from rl_training.boundary.exported_policy import Policy

EXPORTED = Path(__file__).parents[1] / "fixtures" / "export_1"
PROGRAM = Path(__file__).parents[2] / "src" / "rl_training" / "boundary" / "exported_policy.py"


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of a standalone policy."""
    folder = tmp_path / "copy"
    shutil.copytree(EXPORTED, folder)
    return folder


def test_program_is_short_and_needs_numpy_and_onnxruntime_alone() -> None:
    text = PROGRAM.read_text()
    assert len(text.splitlines()) < 60
    imports = {line.split()[1].split(".")[0] for line in text.splitlines() if "import" in line[:7]}
    third = {name for name in imports if name not in sys.stdlib_module_names}
    assert third == {"numpy", "onnxruntime"}


BALANCE = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("rl_training", "torch", "onnx", "onnxscript", "safetensors"):
            raise ImportError(name + " is blocked")

sys.meta_path.insert(0, Blocked())
sys.path.insert(0, sys.argv[1])
import gymnasium
from policy import Policy

policy, env, returns = Policy(), gymnasium.make("Pendulum-v1"), []
for seed in range(10):
    obs, _ = env.reset(seed=seed)
    total, ended = 0.0, False
    while not ended:
        obs, reward, terminated, truncated, _ = env.step(policy(obs))
        total, ended = total + float(reward), terminated or truncated
    upright = obs[0] > 0.98 and abs(obs[2]) < 0.5
    returns.append((total, bool(upright)))
import json
print(json.dumps(returns))
assert not {"rl_training", "torch"} & set(sys.modules)
"""


@pytest.mark.parametrize("program", ["recorded", "current"])
def test_exported_pendulum_policy_balances_without_this_package(copied: Path, program: str) -> None:
    """Both with the program that was exported with the policy and with the one of this version."""
    if program == "current":
        shutil.copy(PROGRAM, copied / "policy.py")
    done = subprocess.run(
        [sys.executable, "-I", "-c", BALANCE, str(copied)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    episodes = json.loads(done.stdout)
    assert len(episodes) == 10
    assert all(upright for _, upright in episodes), episodes
    assert min(total for total, _ in episodes) > -400
    assert np.mean([total for total, _ in episodes]) > -200


# --- Observations -------------------------------------------------------------


def test_one_observation_and_a_batch(copied: Path) -> None:
    policy = Policy(copied / "policy.onnx")
    obs = np.array([1.0, 0.0, 0.0])
    assert policy(obs).shape == (1,)
    assert policy(obs).dtype == np.float32
    assert policy(np.stack([obs, obs, obs])).shape == (3, 1)
    assert policy(obs.tolist()) == policy(obs)
    assert policy(np.array([1, 0, 0])) == policy(obs)  # integers are numbers, too
    assert policy.facts["env_id"] == "Pendulum-v1"


@pytest.mark.parametrize(
    ("obs", "problem"),
    [
        (np.zeros(4), r"needs observation of shape \[3\] or \[batch, …\]"),
        (np.zeros((2, 2, 3)), "needs observation of shape"),
        (np.float32(0.0), "needs observation of shape"),
        ({"desired_goal": np.zeros(3)}, "needs observation of shape"),
        (np.array([0.0, np.nan, 0.0]), r"should be between -3\.4\d*e\+38 and 3\.4"),
        (np.array([0.0, 1e300, 0.0]), "should be between"),
    ],
)
def test_wrong_observations_are_refused(copied: Path, obs: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Policy(copied / "policy.onnx")(obs)


def test_text_is_not_an_observation(copied: Path) -> None:
    with pytest.raises(TypeError):
        Policy(copied / "policy.onnx")(np.array(["a", "b", "c"]))


# --- Damaged and hostile files ------------------------------------------------


def refused(path: Path) -> str:
    """Return the message of the error that a file causes."""
    with pytest.raises(ValueError, match="is not an intact exported policy") as error:
        Policy(path)
    return str(error.value)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.25, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("described", [True, False])
def test_half_written_models_are_refused(copied: Path, share: float, described: bool) -> None:
    file = copied / "policy.onnx"
    data = file.read_bytes()
    file.write_bytes(data[: int(share * len(data))])
    if not described:
        (copied / "policy.json").unlink()
    refused(file)


def test_a_model_cut_off_after_its_graph_is_refused(copied: Path) -> None:
    """The metadata comes last, so that a file without it is not complete."""
    model = onnx.load(copied / "policy.onnx")
    del model.metadata_props[:]
    (copied / "policy.json").unlink()
    (copied / "policy.onnx").write_bytes(model.SerializeToString())
    assert "rl_training" in refused(copied / "policy.onnx")


def test_a_changed_weight_is_found(copied: Path) -> None:
    file = copied / "policy.onnx"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    assert "policy.json describes another file" in refused(file)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"sha256": 1}', '{"sha256": ' + "[" * 5_000 + "}"]
)
def test_a_damaged_description_is_refused(copied: Path, text: str) -> None:
    (copied / "policy.json").write_text(text)
    refused(copied / "policy.onnx")


def test_a_missing_file_and_a_folder_are_refused(copied: Path) -> None:
    refused(copied / "nothing.onnx")
    refused(copied)


def hostile(change: Callable[[Any], object], folder: Path) -> Path:
    """Write a changed model without a description, as an attacker would."""
    model = onnx.load(folder / "policy.onnx")
    change(model)
    file = folder / "hostile.onnx"
    file.write_bytes(model.SerializeToString())
    return file


def with_metadata(**changes: Any) -> Callable[[Any], None]:
    def change(model: Any) -> None:
        (entry,) = model.metadata_props
        entry.value = json.dumps(json.loads(entry.value) | changes)

    return change


def unknown_operator(model: Any) -> None:
    node = helper.make_node("Run", ["observation"], ["unused"], domain="attacker.example")
    model.graph.node.insert(0, node)
    model.opset_import.append(helper.make_opsetid("attacker.example", 1))


@pytest.mark.parametrize(
    "change",
    [
        with_metadata(inputs=[]),
        with_metadata(inputs=[{"name": "observation"}]),
        with_metadata(inputs=[{"name": "other", "shape": [3], "dtype": "float32"}]),
        with_metadata(inputs=[{"name": "observation", "shape": [4], "dtype": "float32"}]),
        with_metadata(inputs=7),
        lambda model: setattr(model.metadata_props[0], "value", "not JSON"),
        unknown_operator,
    ],
)
def test_models_that_contradict_their_metadata_are_refused(
    copied: Path, change: Callable[[Any], None]
) -> None:
    refused(hostile(change, copied))


@pytest.mark.parametrize("location", ["secret.bin", "../secret.bin", "{folder}/secret.bin"])
def test_external_data_is_never_read(
    copied: Path, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither beside the model nor in the current folder nor anywhere else."""

    def external(model: Any) -> None:
        weight = next(item for item in model.graph.initializer if item.name.endswith("0.weight"))
        secret = np.zeros(list(weight.dims), dtype=np.float32).tobytes()
        for folder in (copied, copied.parent):
            (folder / "secret.bin").write_bytes(secret)
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.EXTERNAL
        entry = weight.external_data.add()
        entry.key, entry.value = "location", location.format(folder=copied)

    monkeypatch.chdir(copied)
    refused(hostile(external, copied))

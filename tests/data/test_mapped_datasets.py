"""Data in memory-mapped files: the same batches as loaded data, without loading them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl_training import IQL, ConfigError, resume
from rl_training.api.datasets import convert_data, validate_data
from rl_training.boundary.columns import Column
from rl_training.data import (
    EpochSampler,
    TransitionDataset,
    load_transition_dataset,
)
from rl_training.data.dataset_loaders import MemoryLimits
from rl_training.data.dataset_writers import write_columns
from rl_training.data.mapped_dataset import MappedDataset
from rl_training.data.recorded import RecordedData
from rl_training.envs import EnvConfig, describe_env
from rl_training.rewards import RewardTransformConfig
from rl_training.runtime.recording import record_random
from rl_training.types import EnvSpec
from tests.structured_envs import PIXELS

Arrays = dict[str, Any]
SPEC = EnvSpec(3, 2, (-2.0, -1.0), (2.0, 3.0))
FIELDS = ("next_actions", "next_action_mask", "truncations", "returns_to_go", "indices")


def recorded(kind: str, rows: int = 230) -> Arrays:
    """Return episodes of up to 50 steps in the form of ``kind``."""
    rng = np.random.default_rng(3)
    ended = np.arange(rows) % 50 == 49
    arrays: Arrays = {
        "observations": rng.normal(size=(rows, 3)),  # float64
        "actions": rng.uniform([-2, -1], [2, 3], (rows, 2)).astype(np.float32),
        "rewards": rng.normal(size=rows),
        "terminals": ended & (np.arange(rows) < 120),
        "timeouts": ended & (np.arange(rows) >= 120),
    }
    if kind == "one flag":
        arrays["dones"] = arrays.pop("terminals") | arrays.pop("timeouts")
    if kind != "implied next":
        arrays["next_observations"] = rng.normal(size=(rows, 3)).astype(np.float32)
    return arrays


def write(arrays: Arrays, folder: Path, form: str) -> str:
    path = folder / ("data" if form == "npy" else f"data.{form}")
    columns = {name: Column.of(values) for name, values in arrays.items()}
    return str(write_columns(columns, path, folder=form == "npy"))


def both(path: str, **settings: Any) -> tuple[RecordedData, RecordedData]:
    """Return the data loaded and mapped."""
    loaded, mapped = (
        load_transition_dataset(
            {"dataset_path": path, "dataset_memory": memory, **settings}, spec=SPEC, time_limit=50
        )
        for memory in ("load", "map")
    )
    assert isinstance(loaded, TransitionDataset)
    assert isinstance(mapped, MappedDataset)
    return loaded, mapped


def assert_equal(one: RecordedData, other: RecordedData) -> None:
    """Check that both have the same transitions, bit for bit."""
    assert len(one) == len(other)
    everything = torch.arange(len(one))
    pairs = zip(one.batch(everything).tensors(), other.batch(everything).tensors(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    generators = [torch.Generator().manual_seed(1) for _ in range(2)]
    samples = [data.sample(64, g) for data, g in zip((one, other), generators, strict=True)]
    pairs = zip(*(batch.tensors() for batch in samples), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert one.fingerprint() == other.fingerprint()


@pytest.mark.parametrize("form", ["npy", "npz", "pt"])
@pytest.mark.parametrize("kind", ["whole", "implied next", "one flag"])
def test_mapped_rows_are_the_loaded_ones(kind: str, form: str, tmp_path: Path) -> None:
    loaded, mapped = both(write(recorded(kind), tmp_path, form))
    assert_equal(loaded, mapped)
    assert loaded.notes == mapped.notes
    for name in loaded.layout.names:
        np.testing.assert_array_equal(loaded.column(name), mapped.column(name))


def test_rows_are_read_from_the_file_when_they_are_drawn(tmp_path: Path) -> None:
    path = write(recorded("whole"), tmp_path, "npy")
    _, mapped = both(path)
    changed = np.load(f"{path}/observations.npy", mmap_mode="r+")
    changed[17] = 5.0
    changed.flush()
    assert (mapped.batch(torch.tensor([17])).obs == 5.0).all()


@pytest.mark.parametrize("kind", ["whole", "implied next"])
def test_transforms_of_mapped_rows_are_those_of_loaded_ones(kind: str, tmp_path: Path) -> None:
    path = write(recorded(kind), tmp_path, "npz")
    pair = both(path, reward_scale=0.1, reward_clip_max=0.05, return_scaling=True)
    assert_equal(*pair)
    for data in pair:
        data.supply(FIELDS, gamma=0.9, n_step=3)
    assert_equal(*pair)
    held = [data.hold_out(0.3, seed=5) for data in pair]
    assert_equal(*pair)
    assert_equal(*held)
    assert len(held[0]) + len(pair[0]) in (230, 227)
    found = [data.statistics() for data in pair]
    for name in ("obs_mean", "obs_std", "returns", "lengths", "whole"):
        np.testing.assert_array_equal(getattr(found[0], name), getattr(found[1], name))
    for data in (*pair, *held):
        data.normalize_observations(found[0].obs_mean, found[0].obs_std, clip=1.5)
    assert_equal(*pair)
    assert_equal(*held)
    first = pair[1].subset(torch.tensor([3, 1]))
    assert torch.equal(first.batch(torch.tensor([0])).obs, pair[0].batch(torch.tensor([3])).obs)
    for data in pair:
        data.transform_rewards(RewardTransformConfig(shift=2.0))
    assert_equal(*pair)


def test_epochs_of_mapped_rows_are_those_of_loaded_ones(tmp_path: Path) -> None:
    samplers = [EpochSampler(data) for data in both(write(recorded("whole"), tmp_path, "npy"))]
    generators = [torch.Generator().manual_seed(1) for _ in samplers]
    for _ in range(7):
        pair = [s.sample(50, g) for s, g in zip(samplers, generators, strict=True)]
        assert torch.equal(pair[0].obs, pair[1].obs)
        assert torch.equal(pair[0].rewards, pair[1].rewards)


@pytest.mark.parametrize("implied", [False, True])
@pytest.mark.parametrize("form", ["npy", "npz", "pt"])
@pytest.mark.parametrize("kind", [{}, {"channels": 3}, {"mixed": True, "frame_stack": 3}])
def test_mapped_images_are_the_loaded_ones(
    kind: dict[str, Any], form: str, implied: bool, tmp_path: Path
) -> None:
    arrays = record_random(PIXELS, kind, 60, 0)
    if implied:
        arrays = {k: v for k, v in arrays.items() if not k.startswith("next_observations")}
    path, spec = write(arrays, tmp_path, form), describe_env(PIXELS, EnvConfig.model_validate(kind))
    loaded, mapped = (
        load_transition_dataset({"dataset_path": path, "dataset_memory": memory}, spec=spec)
        for memory in ("load", "map")
    )
    assert mapped.on_host
    assert not loaded.on_host
    assert mapped.frames is not None
    assert mapped.frames.pixels.numel() == 0
    assert_equal(loaded, mapped)
    for data in (loaded, mapped):
        data.supply(FIELDS, gamma=0.9, n_step=2)
    assert_equal(*(data.hold_out(0.3, seed=1) for data in (loaded, mapped)))
    assert_equal(loaded, mapped)


# --- The choice ---------------------------------------------------------------------


def test_large_files_are_mapped_by_default(tmp_path: Path) -> None:
    path = write(recorded("whole"), tmp_path, "npy")
    small = load_transition_dataset({"dataset_path": path}, spec=SPEC)
    assert isinstance(small, TransitionDataset)
    limits = MemoryLimits(map_from=1000)
    large = load_transition_dataset({"dataset_path": path}, spec=SPEC, limits=limits)
    assert isinstance(large, MappedDataset)


def test_a_mapped_array_that_is_passed_is_not_copied(tmp_path: Path) -> None:
    path = write(recorded("whole"), tmp_path, "npy")
    arrays = {file.stem: np.load(file, mmap_mode="r") for file in Path(path).iterdir()}
    from rl_training.data.given_data import select_dataset

    keys, given = select_dataset(arrays)
    limits = MemoryLimits(map_from=1000)
    mapped = load_transition_dataset(keys, spec=SPEC, given=given, limits=limits)
    assert isinstance(mapped, MappedDataset)
    keys, again = select_dataset(mapped)
    assert_equal(mapped, load_transition_dataset(keys, spec=SPEC, given=again, limits=limits))


@pytest.mark.parametrize("form", ["compressed", "hdf5"])
def test_data_that_cannot_be_mapped_is_refused_with_advice(form: str, tmp_path: Path) -> None:
    if form == "hdf5":
        pytest.importorskip("h5py")
        path = write(recorded("whole"), tmp_path, "hdf5")
    else:
        path = str(tmp_path / "data.npz")
        np.savez_compressed(path, **recorded("whole"))
    with pytest.raises(ConfigError, match=r"needs files that can be mapped .* data convert"):
        load_transition_dataset({"dataset_path": path, "dataset_memory": "map"}, spec=SPEC)
    limits = MemoryLimits(map_from=1000, available=5000)
    with pytest.raises(ConfigError, match=r"would need 0\.0 GiB, but .* data convert"):
        load_transition_dataset({"dataset_path": path}, spec=SPEC, limits=limits)


@pytest.mark.parametrize("damage", ["nan", "flag", "action"])
def test_mapped_rows_are_checked_like_loaded_ones(damage: str, tmp_path: Path) -> None:
    arrays = recorded("whole")
    if damage == "nan":
        arrays["next_observations"][200, 1] = np.nan
    elif damage == "flag":
        arrays["terminals"] = arrays["terminals"] * 255
    else:
        arrays["actions"][7] = 9.0
    path, messages = write(arrays, tmp_path, "npy"), []
    for memory in ("load", "map"):
        with pytest.raises(ConfigError) as caught:
            load_transition_dataset({"dataset_path": path, "dataset_memory": memory}, spec=SPEC)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_a_damaged_archive_is_noticed_before_it_is_mapped(tmp_path: Path) -> None:
    path = Path(write(recorded("whole"), tmp_path, "npz"))
    data = bytearray(path.read_bytes())
    data[300] ^= 1  # inside the observations
    path.write_bytes(data)
    with pytest.raises(ConfigError, match="damaged"):
        load_transition_dataset({"dataset_path": str(path), "dataset_memory": "map"}, spec=SPEC)


# --- Runs ---------------------------------------------------------------------------


def test_a_mapped_run_continues_with_loaded_data(tmp_path: Path) -> None:
    path = write(recorded("whole"), tmp_path, "npy")
    options: dict[str, Any] = {
        "hidden_sizes": [16],
        "batch_size": 32,
        "normalize_states": True,
        "validation_fraction": 0.2,
        "num_threads": 1,
        "n_step": 2,
        "sampling": "epochs",
        "action_low": [-2, -1],
        "action_high": [2, 3],
    }
    actions = []
    for name, first, second in (("a", "load", "load"), ("b", "map", "load"), ("c", "map", "map")):
        folder = str(tmp_path / name)
        agent = IQL(dataset=path, output_dir=folder, **(options | {"dataset_memory": first})).learn(
            25
        )
        assert agent.run_dir is not None
        resume(agent.run_dir, [f"dataset_memory={second}", "total_timesteps=50"])
        found = IQL.load(agent.run_dir).predict(np.eye(3, dtype=np.float32))
        actions.append(found)
    for other in actions[1:]:
        np.testing.assert_array_equal(actions[0], other)


def test_inspection_reads_large_files_in_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = record_random("Pendulum-v1", {}, 230, 0)
    path = write(arrays, tmp_path, "npy")
    whole, problems = validate_data(path, "Pendulum-v1")
    monkeypatch.setattr(MemoryLimits.__new__, "__defaults__", (1000, None))
    monkeypatch.setattr(RecordedData, "chunk_rows", 17)
    monkeypatch.setattr(TransitionDataset, "from_fields", lambda *_, **__: pytest.fail("loaded"))
    mapped, again = validate_data(path, "Pendulum-v1")
    assert problems == again == []
    for name, value in whole.to_dict().items():
        assert getattr(mapped, name) == (value if "action" in name else pytest.approx(value))
    convert_data(path, str(tmp_path / "copy.npz"))
    copied = np.load(tmp_path / "copy.npz")
    np.testing.assert_array_equal(copied["next_observations"], arrays["next_observations"])


MEASURE = """
import re, sys
from pathlib import Path
from rl_training import Callback, train

def anonymous():
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) << 10

class Watch(Callback):
    peak = 0
    def on_log(self, session, metrics):
        self.peak = max(self.peak, anonymous())

watch, before = Watch(), anonymous()
train({"algo": "iql", "total_timesteps": 60, "log_interval": 20, "output_dir": sys.argv[2],
       "algo_kwargs": {"dataset_path": sys.argv[1], "dataset_memory": "map", "num_threads": 1,
                       "hidden_sizes": [16], "batch_size": 64, "normalize_states": True,
                       "action_low": -1, "action_high": 1}}, callbacks=[watch])
print(watch.peak - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_run_needs_less_memory_than_its_data(tmp_path: Path) -> None:
    rows, size = 50_000, 500  # 200 MB of observations
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("observations", "next_observations"):
        array = np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.float32, (rows, size))
        array[::1000] = np.random.default_rng(0).normal(size=(rows // 1000, size))
    rng = np.random.default_rng(1)
    np.save(folder / "actions.npy", rng.uniform(-1, 1, (rows, 2)).astype(np.float32))
    np.save(folder / "rewards.npy", np.zeros(rows, np.float32))
    np.save(folder / "terminals.npy", np.arange(rows) % 1000 == 999)
    command = [sys.executable, "-c", MEASURE, str(folder), str(tmp_path / "runs")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout.splitlines()[-1]) < 180e6

"""Recorded images: stored once, as bytes, and the same in every format."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.api.datasets import convert_data, inspect_data, read_raw, validate_data
from rl_training.boundary import columns
from rl_training.boundary.columns import Column
from rl_training.data import TransitionDataset, load_transition_dataset
from rl_training.data.dataset_writers import as_arrays, dataset_columns, write_columns
from rl_training.data.inspection import find_discontinuities
from rl_training.envs import EnvConfig, describe_env
from rl_training.errors import ConfigError
from rl_training.runtime.recording import record_random
from rl_training.types import EnvSpec
from tests.structured_envs import PIXELS

KINDS: dict[str, dict[str, Any]] = {
    "gray": {},
    "channels last": {"channels": 3},
    "mixed": {"mixed": True, "terminates": True},
    "stacked": {"mixed": True, "frame_stack": 3},
}
"""Arguments of the environment."""
Arrays = dict[str, Any]


def spec_of(kind: dict[str, Any]) -> EnvSpec:
    return describe_env(PIXELS, EnvConfig.model_validate(kind))


def flat(arrays: Arrays, field: str, spec: EnvSpec) -> Any:
    """Return the flat observations that batches should have."""
    parts = [
        arrays[f"{field}/{entry.name}" if entry.name else field].reshape(-1, entry.width)
        for entry in spec.entries
    ]
    return np.concatenate(parts, axis=1, dtype=np.float32)


def write(arrays: Arrays, path: Path, *, folder: bool = False) -> Path:
    found = {name: Column.of(values) for name, values in arrays.items()}
    return write_columns(found, path, folder=folder)


def noise(rows: int, *, length: int = 100, side: int = 24) -> Arrays:
    """Return episodes with images of noise."""
    rng = np.random.default_rng(0)
    count = rows // length
    frames = rng.integers(0, 256, (count, length + 1, side, side, 3), dtype=np.uint8)
    return {
        "observations": frames[:, :-1].reshape(-1, side, side, 3),
        "actions": rng.uniform(-1, 1, (rows, 2)).astype(np.float32),
        "rewards": rng.normal(size=rows).astype(np.float32),
        "next_observations": frames[:, 1:].reshape(-1, side, side, 3),
        "terminals": np.zeros(rows, bool),
        "timeouts": np.arange(rows) % length == length - 1,
    }


# --- Loading ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("form", ["memory", "npz", "pt", "hdf5", "npy", "object"])
def test_batches_contain_the_recorded_images(
    kind: dict[str, Any], form: str, tmp_path: Path
) -> None:
    arrays, spec = record_random(PIXELS, kind, 40, 0), spec_of(kind)
    found = TransitionDataset.from_dict(arrays, spec=spec)
    fingerprint = found.fingerprint()
    if form == "object":
        found = TransitionDataset.from_fields(found.fields(), spec=spec, source="it")
    elif form != "memory":
        if form == "hdf5":
            pytest.importorskip("h5py")
        folder = form == "npy"
        path = write(arrays, tmp_path / ("d" if folder else f"d.{form}"), folder=folder)
        loaded = load_transition_dataset({"dataset_path": str(path)}, spec=spec)
        assert isinstance(loaded, TransitionDataset)
        found = loaded
    batch = found.batch(torch.arange(40))
    np.testing.assert_array_equal(batch.obs, flat(arrays, "observations", spec))
    np.testing.assert_array_equal(batch.next_obs, flat(arrays, "next_observations", spec))
    assert found.fingerprint() == fingerprint
    assert found.frames is not None
    # A frame of each row, and the last ones.
    assert len(found.frames.pixels) <= 40 + len(found.episode_bounds()) - 1


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_written_columns_are_the_recorded_arrays(kind: dict[str, Any]) -> None:
    arrays = record_random(PIXELS, kind, 40, 0)
    written = as_arrays(dataset_columns(TransitionDataset.from_dict(arrays)))
    assert written.keys() == arrays.keys()
    for name, values in arrays.items():
        np.testing.assert_array_equal(written[name], values)
        assert written[name].dtype == values.dtype


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_missing_next_observations_are_the_following_images(
    kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays, spec = record_random(PIXELS, kind, 40, 0), spec_of(kind)
    implied = {key: x for key, x in arrays.items() if not key.startswith("next_observations")}
    for rows in (1, 7, 1000):
        monkeypatch.setattr("rl_training.data.offline_dataset.chunk_rows", lambda _, n=rows: n)
        found = TransitionDataset.from_dict(implied, spec=spec)
        ended = arrays["terminals"] | arrays["timeouts"]
        kept = arrays["terminals"] | ~ended
        batch = found.batch(torch.arange(len(found)))
        np.testing.assert_array_equal(batch.obs, flat(arrays, "observations", spec)[kept])
        assert found.frames is not None
        assert len(found.frames.pixels) <= 45
        running = ~ended[kept]
        following = flat(arrays, "next_observations", spec)[kept][running]
        np.testing.assert_array_equal(batch.next_obs[torch.from_numpy(running)], following)


def test_chunks_do_not_affect_the_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = record_random(PIXELS, KINDS["stacked"], 40, 0)
    implied = {key: x for key, x in arrays.items() if not key.startswith("next_observations")}
    for data in (arrays, implied):
        found = set()
        for size in (1, 5_000, columns.CHUNK_BYTES):
            monkeypatch.setattr(columns, "CHUNK_BYTES", size)
            dataset = TransitionDataset.from_dict(data, spec=spec_of(KINDS["stacked"]))
            found.add(dataset.fingerprint())
        assert len(found) == 1


def test_shuffled_rows_are_stored_completely() -> None:
    """Without an order, both images of every row are stored."""
    arrays, spec = record_random(PIXELS, {"length": 3}, 40, 0), spec_of({})
    order = np.random.default_rng(0).permutation(40)
    shuffled = {name: values[order] for name, values in arrays.items()}
    batch = TransitionDataset.from_dict(shuffled, spec=spec).batch(torch.arange(40))
    np.testing.assert_array_equal(batch.obs, flat(shuffled, "observations", spec))
    np.testing.assert_array_equal(batch.next_obs, flat(shuffled, "next_observations", spec))


def test_images_are_in_memory_once_as_bytes(tmp_path: Path) -> None:
    """Storage is within 1.1 times the size of all different frames, also while a file is read."""
    arrays = noise(4_000)
    size = 4_040 * 24 * 24 * 3
    path = write(arrays, tmp_path / "noise.npz")
    del arrays
    gc.collect()
    tracemalloc.start()
    try:
        dataset = load_transition_dataset({"dataset_path": str(path)})
        gc.collect()
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert dataset.frames is not None
    assert len(dataset.frames.pixels) == 4_040
    assert kept < 1.1 * size
    assert peak - kept < 16 * columns.CHUNK_BYTES
    held = dataset.hold_out(0.5, 0)
    assert held.frames is dataset.frames


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda x: x + 0.5, "contains 0.5, but the pixels of an image should be whole numbers"),
        (lambda x: x.reshape(20, -1) + 0.5, "contains 0.5, but the pixels of an image should be"),
        (lambda x: x.astype(np.int64) - 1, "contains -1, but the pixels of an image"),
        (lambda x: x[:, :5], r"rows of the shape \(5, 6\), but the environment has image"),
        (lambda x: x[:, :, 0], r"rows of the shape \(6,\), but the environment has image"),
    ],
)
def test_invalid_images_are_refused(change: Any, sentence: str) -> None:
    arrays = record_random(PIXELS, {}, 20, 0)
    for name in ("observations", "next_observations"):
        arrays[name] = change(arrays[name])
    with pytest.raises(ConfigError, match=sentence):
        TransitionDataset.from_dict(arrays, spec=spec_of({}))


def test_images_do_not_fit_an_environment_with_vectors() -> None:
    spec = EnvSpec(36, 1, (-2.0,), (2.0,))
    with pytest.raises(ConfigError, match=r"shape \(20, 6, 6\), but the environment has flat"):
        TransitionDataset.from_dict(record_random(PIXELS, {}, 20, 0), spec=spec)


def test_vectors_beside_images_must_be_finite() -> None:
    arrays = record_random(PIXELS, {"mixed": True}, 20, 0)
    arrays["observations/arm"][13, 1] = np.nan
    with pytest.raises(ConfigError, match="observations has values that are not finite in row 13"):
        TransitionDataset.from_dict(arrays)


# --- Inspecting and converting ------------------------------------------------------


def test_inspection_compares_images(tmp_path: Path) -> None:
    arrays = record_random(PIXELS, {"mixed": True, "terminates": True}, 40, 0)
    path = write(arrays, tmp_path / "d.npz")
    report = inspect_data(str(path))
    assert (report.obs_dim, report.entries) == (38, ["arm: Box(2)", "camera: image([6, 6])"])
    assert (report.duplicates, report.discontinuities) == (0, 0)
    assert validate_data(str(path), PIXELS, env_kwargs={"mixed": True})[1] == []
    twice = {name: np.concatenate([values, values[:5]]) for name, values in arrays.items()}
    twice["next_observations/camera"][17, 2, 3] ^= 1
    path = write(twice, tmp_path / "twice.npz")
    report, problems = validate_data(str(path), PIXELS, env_kwargs={"mixed": True})
    assert (report.duplicates, report.discontinuities) == (5, 1)
    assert problems[0].startswith("discontinuities: in 1 row inside episodes")
    twice["observations/arm"][3] = 50.0
    path = write(twice, tmp_path / "outside.npz")
    problems = validate_data(str(path), PIXELS, env_kwargs={"mixed": True})[1]
    assert "observations: 1 row outside the observation space" in problems[0]


def test_every_change_of_an_image_is_a_discontinuity() -> None:
    """The numbers of frames are compared exactly, even large ones."""
    arrays = noise(25_000, side=3)
    arrays["next_observations"][24_050, 1, 1, 1] ^= 1
    dataset = TransitionDataset.from_dict(arrays)
    assert find_discontinuities(dataset).tolist() == [24_050]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("suffix", ["pt", "hdf5", "npz", ""])
def test_conversion_keeps_images(kind: dict[str, Any], suffix: str, tmp_path: Path) -> None:
    if suffix == "hdf5":
        pytest.importorskip("h5py")
    arrays = record_random(PIXELS, kind, 40, 0)
    source = write(arrays, tmp_path / "d.npz")
    destination = f"{tmp_path}/out{f'.{suffix}' if suffix else '/'}"
    convert_data(source, destination)
    one, two = (read_raw(str(path)).fingerprint() for path in (source, destination))
    assert one == two


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_minari_dataset_with_images(
    kind: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    arrays, spec = record_random(PIXELS, kind, 40, 0), spec_of(kind)
    source = write(arrays, tmp_path / "d.npz")
    convert_data(source, "minari:tests/pixels-v0", env_id=PIXELS, env_kwargs=kind)
    found = load_transition_dataset({"dataset_id": "tests/pixels-v0"}, spec=spec)
    assert found.fingerprint() == TransitionDataset.from_dict(arrays, spec=spec).fingerprint()
    assert validate_data("tests/pixels-v0")[1] == []
    if "mixed" in kind:
        with pytest.raises(ConfigError, match=r"images in a Dict or Tuple .* set --env-id"):
            convert_data(source, "minari:tests/other-v0")
    else:
        convert_data(source, "minari:tests/other-v0")
        assert inspect_data("tests/other-v0").entries == inspect_data("tests/pixels-v0").entries

"""Datasets with false sizes, external references or code are rejected with a one-line error."""

from __future__ import annotations

import json
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.api.datasets import convert_data, inspect_data, read_raw, validate_data
from rl_training.boundary import minari_format
from rl_training.boundary.minari_format import check_minari_id, open_minari
from rl_training.data.dataset_writers import write_arrays, write_minari
from rl_training.errors import ConfigError
from tests.data.test_datasets import make_data

h5py = pytest.importorskip("h5py")


def refused(source: Path | str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as caught:
        read_raw(str(source))
    assert "\n" not in str(caught.value)


# --- pt ---------------------------------------------------------------------------------


def edit_pt(path: Path, change: Callable[[bytes], bytes], member: str = "data.pkl") -> Path:
    """Rewrite one member of a pt file; the archive itself stays valid."""
    torch.save({k: torch.from_numpy(v) for k, v in make_data([4, 4]).items()}, path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, change(content) if name.endswith(member) else content)
    return path


def element_count(count: int, wanted: int) -> Callable[[bytes], bytes]:
    """Replace a storage's number of elements, stored in one byte, with a four-byte number."""

    def change(program: bytes) -> bytes:
        old = b"X\x03\x00\x00\x00cpu"
        place = program.index(old)
        rest = program[place:]
        at = place + rest.index(b"K" + bytes([count]))
        return program[:at] + b"J" + struct.pack("<i", wanted) + program[at + 2 :]

    return change


@pytest.mark.parametrize("wanted", [2**30, 23, 25, 0, -1])
def test_storage_with_wrong_declared_size_is_rejected(tmp_path: Path, wanted: int) -> None:
    path = edit_pt(tmp_path / "d.pt", element_count(16, wanted))
    refused(path, r"declares -?[0-9,]+ elements")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"torch._utils\n_rebuild_tensor_v2", b"os\nsystem"),
        (b"collections\nOrderedDict", b"builtins\neval"),
        (b"torch\nFloatStorage", b"torch\nQuantizedStorage"),
    ],
)
def test_names_in_a_pt_file_are_never_imported(tmp_path: Path, old: bytes, new: bytes) -> None:
    path = edit_pt(tmp_path / "d.pt", lambda program: program.replace(old, new))
    refused(path, "cannot be read as a dict of tensors")


def test_tensor_cannot_extend_beyond_its_storage(tmp_path: Path) -> None:
    def change(program: bytes) -> bytes:
        # The first tensor's shape is (8, 2): make it (200, 2).
        return program.replace(b"K\x08K\x02\x86", b"K\xc8K\x02\x86", 1)

    refused(edit_pt(tmp_path / "d.pt", change), "extends beyond its storage")


def test_pt_file_cannot_expand_to_a_large_tensor(tmp_path: Path) -> None:
    data = {k: torch.from_numpy(v) for k, v in make_data([4, 4]).items()}
    torch.save({k: v[:1].expand(10**8, *v.shape[1:]) for k, v in data.items()}, tmp_path / "d.pt")
    refused(tmp_path / "d.pt", "more than 200 times its size")


# --- npz --------------------------------------------------------------------------------


def test_directory_with_false_sizes_is_rejected(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", **make_data([4, 4]))
    raw = bytearray((tmp_path / "d.npz").read_bytes())
    entry = raw.index(b"PK\x01\x02")
    raw[entry + 24 : entry + 28] = struct.pack("<L", 2**31)  # the uncompressed size
    (tmp_path / "d.npz").write_bytes(raw)
    refused(tmp_path / "d.npz", "claims 2,147,483,648 bytes")


def test_overlapping_members_are_rejected(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", **make_data([400, 400]))
    raw = bytearray((tmp_path / "d.npz").read_bytes())
    start, entries = 0, []
    while (start := raw.find(b"PK\x01\x02", start)) >= 0:
        entries.append(start)
        start += 4
    size = len(raw) // 2
    for entry in entries:
        raw[entry + 20 : entry + 28] = struct.pack("<LL", size, size)
    (tmp_path / "d.npz").write_bytes(raw)
    refused(tmp_path / "d.npz", "overlap|claims|damaged")


def test_header_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    header = b"\x93NUMPY\x02\x00" + struct.pack("<L", 2**31) + b"{" * 100
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        archive.writestr("observations.npy", header)
    refused(tmp_path / "d.npz", "its header claims 2,147,483,648 bytes")


def test_deflate_bomb_is_rejected(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "d.npz", observations=np.zeros((10**8, 2), np.int8))
    refused(tmp_path / "d.npz", "more than 200 times its size")


@pytest.mark.parametrize("name", ["d.npz", "d.pt", "d.hdf5"])
def test_pipe_is_not_opened(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    refused(tmp_path / name, "no dataset file|not a regular file")


# --- HDF5 -------------------------------------------------------------------------------


def hdf5(path: Path, change: Callable[[Any, Path], None]) -> Path:
    with h5py.File(path, "w") as file:
        for name, values in make_data([4, 4]).items():
            if name != "rewards":
                file[name] = values
        change(file, path.parent)
    return path


def external_storage(file: Any, folder: Path) -> None:
    (folder / "other").write_bytes(bytes(64))
    file.create_dataset("rewards", (8,), "f8", external=[(str(folder / "other"), 0, 64)])


def external_link(file: Any, folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    file["rewards"] = h5py.ExternalLink(str(folder / "pipe"), "/rewards")


def virtual(file: Any, folder: Path) -> None:
    with h5py.File(folder / "other.hdf5", "w") as other:
        other["rewards"] = np.zeros(8)
    layout = h5py.VirtualLayout(shape=(8,), dtype="f8")
    layout[:] = h5py.VirtualSource(str(folder / "other.hdf5"), "rewards", shape=(8,))
    file.create_virtual_dataset("rewards", layout)


def soft_link(file: Any, folder: Path) -> None:
    file["rewards"] = h5py.SoftLink("/rewards")


def plugin_filter(file: Any, folder: Path) -> None:
    space = h5py.h5s.create_simple((8,))
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((8,))
    plist.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, ())  # Zstandard, a plug-in
    h5py.h5d.create(file.id, b"rewards", h5py.h5t.NATIVE_DOUBLE, space, plist)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (external_storage, "'rewards' stores its values in another file"),
        (external_link, "'rewards' is a link"),
        (virtual, "'rewards' is a virtual dataset"),
        (soft_link, "'rewards' is a link"),
        (plugin_filter, "'rewards' uses the unsupported HDF5 filter 32015"),
    ],
)
def test_hdf5_does_not_read_other_files(
    tmp_path: Path, change: Callable[[Any, Path], None], sentence: str
) -> None:
    refused(hdf5(tmp_path / "d.hdf5", change), sentence)


# --- Minari -----------------------------------------------------------------------------


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create the dataset `tests/odd-v0` and return its data folder."""
    pytest.importorskip("minari")
    (tmp_path / "minari").mkdir()
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    write_minari(make_data([4, 4]), "tests/odd-v0", None)
    return tmp_path / "minari" / "tests" / "odd-v0" / "data"


def edit_metadata(folder: Path, **changes: Any) -> None:
    file = folder / "metadata.json"
    data = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({k: v for k, v in data.items() if v is not ...}))


def evil_spec(marker: Path) -> str:
    spec = {"id": "Evil-v0", "entry_point": "os:system", "kwargs": {"command": f"touch {marker}"}}
    return json.dumps(spec)


@pytest.mark.parametrize("missing", ["observation_space", "action_space"])
def test_minari_metadata_does_not_create_an_environment(
    dataset: Path, tmp_path: Path, missing: str
) -> None:
    marker = tmp_path / "marker"
    edit_metadata(dataset, **{missing: ..., "env_spec": evil_spec(marker)})
    assert inspect_data("tests/odd-v0").rows == 8
    with pytest.raises(ConfigError, match="does not record supported spaces: set --env-id"):
        validate_data("tests/odd-v0")
    convert_data("tests/odd-v0", str(tmp_path / "out.npz"))
    assert not marker.exists()


@pytest.mark.parametrize(
    "dataset_id",
    ["/etc/passwd", "../odd-v0", "a/../odd-v0", "hf://x/y-v0", "a\\b-v0", "x", "x-v0\n", "~/x-v0"],
)
def test_dataset_id_cannot_be_a_path_or_an_address(dataset_id: str) -> None:
    with pytest.raises(ConfigError, match="should be a Minari id"):
        check_minari_id(dataset_id)


@pytest.mark.parametrize("dataset_id", ["D4RL/door/human-v2", "x-v0", "a/b/c.d_e-f-v12"])
def test_minari_id_is_accepted(dataset_id: str) -> None:
    assert check_minari_id(dataset_id) == dataset_id


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"data_format": "arrow"}, "the format 'arrow', but only hdf5 is supported"),
        ({"total_episodes": 10**9}, "total_episodes"),
        ({"total_episodes": "2"}, "total_episodes"),
        ({"total_episodes": 3}, "it has no episode 2"),
        ({"observation_space": 5}, "observation_space"),
        ({"observation_space": '{"type": "Box", "shape": [99999999]}'}, "observation_space"),
        ({"action_space": '{"type": "Discrete", "n": -1}'}, "action_space"),
    ],
)
def test_invalid_minari_metadata_is_rejected(
    dataset: Path, changes: dict[str, Any], sentence: str
) -> None:
    edit_metadata(dataset, **changes)
    refused("tests/odd-v0", sentence)


def test_string_actions_in_minari_are_rejected(dataset: Path) -> None:
    with h5py.File(dataset / "main_data.hdf5", "a") as file:
        del file["episode_0/actions"]
        file["episode_0"].create_dataset("actions", data=["a", "b", "c", "d"])
    refused("tests/odd-v0", "actions should be a single numeric array")


def test_linked_minari_files_are_rejected(dataset: Path, tmp_path: Path) -> None:
    for name in ("metadata.json", "main_data.hdf5"):
        os.rename(dataset / name, tmp_path / name)
        (dataset / name).symlink_to(tmp_path / name)
        refused("tests/odd-v0", "is a symbolic link")
        (dataset / name).unlink()
        os.rename(tmp_path / name, dataset / name)
    assert open_minari("tests/odd-v0").episodes == range(2)


def test_download_fetches_only_the_requested_dataset(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = []

    class Server:
        def download_dataset(self, dataset_id: str, folder: Path) -> None:
            fetched.append(dataset_id)
            os.rename(dataset.parent, dataset.parent.with_name("new-v0"))

    monkeypatch.setattr("minari.storage.remotes.get_cloud_storage", Server)
    edit_metadata(dataset, combined_datasets=["hf://evil/x-v0"])
    assert minari_format.open_minari("tests/new-v0", download=True).episodes == range(2)
    assert fetched == ["tests/new-v0"]


# --- Writing ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["out.npz", "out.pt", "out.hdf5"])
def test_planted_link_is_not_written_through(tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / f".tmp-{name}").symlink_to(victim)
    write_arrays(make_data([4, 4]), tmp_path / name)
    assert victim.read_text() == "precious"
    assert len(read_raw(str(tmp_path / name))) == 8

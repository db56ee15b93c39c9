"""Deliberately odd datasets are read correctly or rejected with a one-line error."""

from __future__ import annotations

import ctypes
import io
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.api.datasets import collect_data, read_raw
from rl_training.data import TransitionDataset, load_transition_dataset
from rl_training.data.dataset_writers import write_minari
from rl_training.errors import ConfigError
from tests.data.test_datasets import make_data, without

ROWS = 20_000


def pt_data() -> dict[str, torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    return {
        "observations": torch.rand(ROWS, 3, generator=rng),
        "actions": torch.rand(ROWS, 1, generator=rng),
        "rewards": torch.rand(ROWS, generator=rng),
        "next_observations": torch.rand(ROWS, 3, generator=rng),
        "terminals": torch.zeros(ROWS),
    }


def odd_tensors() -> dict[str, dict[str, torch.Tensor]]:
    line = torch.arange(3.0 * ROWS)
    shared = torch.rand(ROWS + 1, 3)
    return {
        "plain": {},
        "expanded": {"terminals": torch.zeros(1).expand(ROWS)},
        "one row for all rows": {"observations": torch.tensor([[1.0, 2.0, 3.0]]).expand(ROWS, 3)},
        "one value per row": {"observations": line[:ROWS, None].expand(ROWS, 3)},
        "overlapping": {"observations": line[: ROWS + 2].unfold(0, 3, 1)},
        "strided": {"rewards": line.as_strided((ROWS,), (3,), 2)},
        "turned": {"observations": line.view(3, ROWS).t()},
        "shared": {"observations": shared[:-1], "next_observations": shared[1:]},
    }


@pytest.mark.skipif(sys.platform != "linux", reason="pages are released only on Linux")
@pytest.mark.parametrize("odd", odd_tensors().values(), ids=list(odd_tensors()))
def test_only_memory_of_the_file_is_released(
    odd: dict[str, torch.Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An expanded tensor has fewer bytes than its values; memory after it must not be released."""
    data = pt_data() | odd
    torch.save(data, tmp_path / "odd.pt")
    given: list[bool] = []

    def note(start: Any, length: Any, advice: Any) -> None:
        maps = Path("/proc/self/maps").read_text().splitlines()
        ours = (line.split()[0].split("-") for line in maps if line.endswith("odd.pt"))
        first, last = start.value, start.value + length.value
        given.append(any(int(a, 16) <= first and last <= int(b, 16) for a, b in ours))

    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(madvise=note))
    load_transition_dataset({"dataset_kind": "pt", "dataset_path": tmp_path / "odd.pt"})
    assert given
    assert all(given)


@pytest.mark.parametrize("odd", odd_tensors().values(), ids=list(odd_tensors()))
def test_tensors_of_any_strides_are_read(odd: dict[str, torch.Tensor], tmp_path: Path) -> None:
    data = pt_data() | odd
    torch.save(data, tmp_path / "odd.pt")
    path = tmp_path / "odd.pt"
    loaded = load_transition_dataset({"dataset_kind": "pt", "dataset_path": path})
    for name in ("observations", "actions", "rewards", "next_observations"):
        np.testing.assert_array_equal(loaded.column(name), data[name].numpy())


def test_file_with_the_other_byte_order_is_read(tmp_path: Path) -> None:
    """Bytes are swapped in memory, so released pages would be read unswapped from the file."""
    shared = torch.rand(ROWS + 1, 3)
    data = pt_data() | {"observations": shared[:-1], "next_observations": shared[1:]}
    torch.save(data, tmp_path / "ours.pt")
    reader = torch._C.PyTorchFileReader(str(tmp_path / "ours.pt"))
    writer = torch._C.PyTorchFileWriter(str(tmp_path / "other.pt"))
    for name in reader.get_all_records():
        record = reader.get_record(name)
        if name == "byteorder":
            record = b"big" if sys.byteorder == "little" else b"little"
        elif name.startswith("data/"):
            record = np.frombuffer(record, np.float32).byteswap().tobytes()
        if name in ("byteorder", "data.pkl") or name.startswith("data/"):
            writer.write_record(name, record, len(record))
    writer.write_end_of_file()
    path = tmp_path / "other.pt"
    loaded = load_transition_dataset({"dataset_kind": "pt", "dataset_path": path})
    for name in ("observations", "actions", "rewards", "next_observations"):
        np.testing.assert_array_equal(loaded.column(name), data[name].numpy())


FILL_DISK = """
import resource, sys
from pathlib import Path
import numpy as np
from rl_training.data.dataset_writers import write_arrays
from rl_training.data.dataset_writers import write_minari
from rl_training.errors import ConfigError
arrays = {"observations": np.zeros((700, 3)), "rewards": np.ones(700), "terminals": np.zeros(700)}
for name in ("d.npz", "d.pt", "d.hdf5"):
    for limit in (0, 1000, 5000, 9000, 17_000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        try:
            write_arrays(arrays, Path(sys.argv[1]) / name)
        except ConfigError as error:
            print(error)
"""


def test_full_disk_gets_a_clear_error_and_leaves_no_file(tmp_path: Path) -> None:
    """Run in a separate process, since a library may crash on exit."""
    command = [sys.executable, "-c", FILL_DISK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == 15
    assert all(line.endswith("cannot be written: File too large.") for line in lines)
    assert list(tmp_path.iterdir()) == []


# --- Forged archives and headers --------------------------------------------------------


def npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def header(text: str) -> bytes:
    """Return an npy file that ends after its header."""
    line = text.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(line)) + line


def described(shape: str, *, fortran: bool = False) -> bytes:
    return header(f"{{'descr': '<f4', 'fortran_order': {fortran}, 'shape': {shape}}}")


def write_npz(path: Path, *members: tuple[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members:
            archive.writestr(name, content)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            header("{'descr': '<f4', 'fortran_order': False, 'shape': (4, 2)"),
            "damaged or not an npz",
        ),
        (header("'''abc"), "damaged or not an npz"),
        (header("{'descr': '<f4', 'fortran_order': False, 5: 6}"), "damaged or not an npz"),
        (described("(1000000000000000, 2)"), "'observations' is .* the shape .* but 0 bytes"),
        (
            described("(1000000000000000, 2)", fortran=True),
            "'observations' is .* the shape .* 0 bytes",
        ),
        (described("(8, 99999999999999999999999)"), "'observations' is .* the shape .* 0 bytes"),
        (described("(-8, 2)"), "'observations' is .*: its header declares the invalid shape"),
        (described(f"(0, {2**62})"), "'observations' is .*: its header declares the invalid shape"),
        (npy(np.zeros((8, 2)))[:-1], "'observations' is .* the shape .* but 127 bytes"),
    ],
)
def test_made_up_headers_get_a_clear_error(tmp_path: Path, content: bytes, sentence: str) -> None:
    """Before any row is read or memory is allocated."""
    rest = without(make_data([4, 4]), "observations")
    others = [(f"{name}.npy", npy(values)) for name, values in rest.items()]
    write_npz(tmp_path / "d.npz", ("observations.npy", content), *others)
    with pytest.raises(ConfigError, match=sentence) as caught:
        read_raw(str(tmp_path / "d.npz"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("local", "central", "byte", "sentence"),
    [(6, 8, 1, "is encrypted"), (8, 10, 99, "compression method is not supported")],
)
def test_archives_that_cannot_be_opened_get_a_clear_error(
    tmp_path: Path, local: int, central: int, byte: int, sentence: str
) -> None:
    np.savez(tmp_path / "d.npz", **make_data([4, 4]))
    raw = bytearray((tmp_path / "d.npz").read_bytes())
    for mark, place in ((b"PK\x03\x04", local), (b"PK\x01\x02", central)):
        start = raw.find(mark)
        while start >= 0:
            raw[start + place] = byte
            start = raw.find(mark, start + 4)
    (tmp_path / "d.npz").write_bytes(raw)
    with pytest.raises(ConfigError, match=rf"damaged or not an npz array: .*{sentence}"):
        read_raw(str(tmp_path / "d.npz"))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_array_that_occurs_twice_is_rejected(tmp_path: Path) -> None:
    members = [(f"{name}.npy", npy(values)) for name, values in make_data([4, 4]).items()]
    write_npz(tmp_path / "d.npz", *members, ("rewards.npy", npy(np.zeros(8))))
    with pytest.raises(ConfigError, match="contains 'rewards' twice: remove one"):
        read_raw(str(tmp_path / "d.npz"))


def test_empty_hdf5_dataset_is_ignored(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "d.hdf5", "w") as file:
        for name, values in make_data([4, 4]).items():
            file[name] = values
        file.create_dataset("about", data=h5py.Empty("f"))
    assert len(read_raw(str(tmp_path / "d.hdf5"))) == 8
    with h5py.File(tmp_path / "d.hdf5", "a") as file:
        del file["rewards"]
        file.create_dataset("rewards", data=h5py.Empty("f"))
    with pytest.raises(ConfigError, match="has no column for rewards"):
        read_raw(str(tmp_path / "d.hdf5"))


def test_hdf5_file_with_missing_rows_is_rejected(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "d.hdf5", "w") as file:
        for name, values in make_data([4, 4]).items():
            shape = (10**13, *values.shape[1:])
            file.create_dataset(name, shape, values.dtype, chunks=(1000, *values.shape[1:]))
    with pytest.raises(ConfigError, match=r"bytes but claims 260,000,000,000,000 bytes of values"):
        read_raw(str(tmp_path / "d.hdf5"))


@pytest.mark.parametrize("name", ["observations", "actions"])
def test_rows_without_a_value_are_rejected(name: str) -> None:
    data = without(make_data([4, 4]), "next_observations") | {name: np.zeros((8, 0))}
    with pytest.raises(ConfigError, match=rf"'{name}' has shape \(8, 0\)"):
        TransitionDataset.from_dict(data)


# --- Minari ---------------------------------------------------------------------------


@pytest.fixture
def minari_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("minari")
    root = tmp_path / "minari"
    root.mkdir()
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(root))
    return root


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ("cut", "main_data.hdf5 is damaged or not an HDF5 file: .*truncated"),
        ("no rewards", "is damaged: .*rewards"),
        ("short rewards", "episode 1 has columns of different lengths"),
        ("no steps", "episode 1 has no steps"),
    ],
)
def test_damaged_minari_data_gets_a_clear_error(
    minari_root: Path, damage: str, sentence: str
) -> None:
    h5py = pytest.importorskip("h5py")
    write_minari(make_data([40, 40, 40]), "tests/odd-v0", None)
    (file,) = minari_root.rglob("*.hdf5")
    if damage == "cut":
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    else:
        kept = {"no rewards": None, "short rewards": 10, "no steps": 0}[damage]
        with h5py.File(file, "a") as data:
            episode = data["episode_1"]
            for name in ["rewards"] if kept != 0 else list(episode):
                values = episode[name][: 1 if name == "observations" else kept]
                del episode[name]
                if kept is not None:
                    episode[name] = values
    with pytest.raises(ConfigError, match=sentence) as caught:
        read_raw("tests/odd-v0")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["bad id!", "a/b-v0"])
def test_rejected_minari_id_leaves_no_folder(minari_root: Path, name: str) -> None:
    """Otherwise, the same command would report next time that the dataset exists."""
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"should be a Minari id|Malformed dataset ID"):
            write_minari(make_data([4, 4]), name, None)
    assert list(minari_root.iterdir()) == []


# --- Keys and options -----------------------------------------------------------------


@pytest.mark.parametrize("noise", [float("nan"), float("inf"), -0.1])
def test_noise_that_is_not_a_standard_deviation_is_rejected(tmp_path: Path, noise: float) -> None:
    with pytest.raises(ConfigError, match=rf"noise = {noise} finite and at least 0"):
        collect_data(tmp_path, steps=5, out=tmp_path / "d.npz", noise=noise)


def test_random_data_without_an_environment_explains_how_to_collect() -> None:
    with pytest.raises(ConfigError, match="set env_id, or pass collect_random="):
        load_transition_dataset({"dataset_kind": "random"})


def test_missing_file_error_shows_the_searched_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path refers to another file in another folder, for example after a resume."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        load_transition_dataset({"dataset_kind": "npz", "dataset_path": "d.npz"})
    assert f"'d.npz' in the current folder, '{tmp_path}'" in str(caught.value)
    assert "dataset_path=FILE" in str(caught.value)
    with pytest.raises(ConfigError, match=r"d.npz'. Check the path"):
        load_transition_dataset({"dataset_kind": "npz", "dataset_path": tmp_path / "d.npz"})

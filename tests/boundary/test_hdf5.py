"""HDF5 files that crash or block the HDF5 library."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rl_training.boundary import hdf5
from rl_training.boundary.hdf5 import open_hdf5, open_hdf5_columns
from rl_training.errors import ConfigError

h5py = pytest.importorskip("h5py")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data.hdf5"
    with h5py.File(path, "w") as opened:
        opened["rewards"] = np.arange(8, dtype=np.float32)
        opened["group/inner"] = np.arange(6, dtype=np.int16).reshape(3, 2)
    return path


@pytest.fixture(autouse=True)
def _no_idle_process() -> None:
    while hdf5._idle:
        hdf5._idle.pop().stop()


def read(path: Path) -> np.ndarray:
    with open_hdf5_columns(path) as columns:
        return np.concatenate(list(columns["rewards"].chunks()))


def test_columns_at_the_top_level_and_in_groups(file: Path) -> None:
    np.testing.assert_array_equal(read(file), np.arange(8, dtype=np.float32))
    with open_hdf5(file, depth=2) as found:
        assert found["group"] is None
        inner = found["group/inner"]
        assert inner is not None
        (rows,) = inner.chunks()
    np.testing.assert_array_equal(rows, np.arange(6, dtype=np.int16).reshape(3, 2))


def test_file_that_crashes_the_library_is_rejected(file: Path) -> None:
    """A node of the group's B-tree is its own child, so the library recurses infinitely."""
    data = bytearray(file.read_bytes())
    node = data.index(b"TREE")
    data[node + 5] = 1  # the node's level
    data[node + 32 : node + 40] = struct.pack("<Q", node)
    broken = file.with_name("broken.hdf5")
    broken.write_bytes(data)
    opened = [sys.executable, "-c", f"import h5py; list(h5py.File({str(broken)!r}))"]
    assert subprocess.run(opened, check=False).returncode < 0  # a signal
    with pytest.raises(ConfigError, match=r"broken.hdf5 is damaged .* crashed or did not finish"):
        read(broken)
    np.testing.assert_array_equal(read(file), np.arange(8))  # read by a new process


def test_file_that_blocks_the_library_is_rejected(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = (
        "import itertools; import h5py; import rl_training.boundary.hdf5_process as process; "
        "process.CPU_SECONDS = 0.2; h5py.File = lambda *_: [0 for _ in itertools.count()]; "
    )
    start = hdf5._START.replace("from rl", endless + "from rl")
    monkeypatch.setattr(hdf5, "_START", start)
    with pytest.raises(ConfigError, match=r"is damaged .* crashed or did not finish"):
        read(file)


def test_file_that_needs_too_much_memory_is_rejected(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    greedy = "import h5py; h5py.File = lambda *_: bytearray(1 << 30); "
    monkeypatch.setattr(hdf5, "_START", hdf5._START.replace("from rl", greedy + "from rl"))
    with pytest.raises(ConfigError, match=r"is damaged .* MemoryError"):
        read(file)


def test_process_that_dies_between_reads_raises_a_clear_error(file: Path) -> None:
    with open_hdf5_columns(file) as columns:
        process = columns["rewards"].read.args[0]._process  # type: ignore[attr-defined]
        process.kill()
        process.wait()
        with pytest.raises(ConfigError, match="crashed or did not finish"):
            list(columns["rewards"].chunks())


def test_consecutive_files_share_a_process(file: Path) -> None:
    read(file)
    (reader,) = hdf5._idle
    read(file)
    assert hdf5._idle == [reader]


def test_several_files_can_be_open(file: Path) -> None:
    with open_hdf5_columns(file) as columns, open_hdf5_columns(file) as others:
        for one, other in zip(columns["rewards"].chunks(), others["rewards"].chunks(), strict=True):
            np.testing.assert_array_equal(one, other)


def test_forked_process_starts_a_separate_reader(file: Path) -> None:
    read(file)
    child = os.fork()
    if child == 0:
        os._exit(0 if not hdf5._idle and len(read(file)) == 8 else 1)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(read(file), np.arange(8))


def test_current_folder_is_not_searched_for_modules(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file.parent / "h5py.py").write_text("raise SystemExit")
    monkeypatch.chdir(file.parent)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    np.testing.assert_array_equal(read(file), np.arange(8))

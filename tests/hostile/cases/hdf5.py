"""HDF5 files in D4RL's layout."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from tests.hostile.bases import Bases, arrays
from tests.hostile.case import Case, Write
from tests.hostile.sandbox import Workspace

INSPECT = ("data", "inspect", "{given}/d.hdf5")
Build = Callable[[h5py.File, Workspace], object]


def _built(build: Build, *, without: str = "", **options: Any) -> Write:
    """Write a file of the ordinary columns, changed by ``build``."""

    def write(workspace: Workspace, bases: Bases) -> None:
        with h5py.File(workspace.given / "d.hdf5", "w", **options) as file:
            for name, values in arrays().items():
                if name != without:
                    file[name] = values
            build(file, workspace)

    return write


def _without_rewards(build: Build) -> Write:
    return _built(build, without="rewards")


def _other(workspace: Workspace) -> Path:
    """Create a file with rewards that the command may not read."""
    file = workspace.outside / "other.hdf5"
    with h5py.File(file, "w") as stream:
        stream["rewards"] = arrays()["rewards"]
    return file


class _OutsideFiles:
    """Cases that refer to a file outside; it is removed again, since the outside is checked."""

    @staticmethod
    def external_storage(file: h5py.File, workspace: Workspace) -> None:
        raw = workspace.given / "raw.bin"
        raw.write_bytes(arrays()["rewards"].tobytes())
        file.create_dataset("rewards", (40,), "f4", external=[(str(raw), 0, 160)])

    @staticmethod
    def external_storage_in_secret_file(file: h5py.File, workspace: Workspace) -> None:
        file.create_dataset("rewards", (40,), "u1", external=[(str(workspace.precious), 0, 40)])

    @staticmethod
    def external_storage_in_zeros(file: h5py.File, workspace: Workspace) -> None:
        file.create_dataset("rewards", (40,), "f4", external=[("/dev/zero", 0, 160)])

    @staticmethod
    def external_storage_in_pipe(file: h5py.File, workspace: Workspace) -> None:
        os.mkfifo(workspace.given / "pipe")
        file.create_dataset(
            "rewards", (40,), "f4", external=[(str(workspace.given / "pipe"), 0, 160)]
        )

    @staticmethod
    def external_storage_missing(file: h5py.File, workspace: Workspace) -> None:
        file.create_dataset("rewards", (40,), "f4", external=[("nowhere.bin", 0, 160)])

    @staticmethod
    def external_link(file: h5py.File, workspace: Workspace) -> None:
        with h5py.File(workspace.given / "other.hdf5", "w") as other:
            other["rewards"] = arrays()["rewards"]
        file["rewards"] = h5py.ExternalLink("other.hdf5", "/rewards")

    @staticmethod
    def external_link_to_pipe(file: h5py.File, workspace: Workspace) -> None:
        os.mkfifo(workspace.given / "pipe")
        file["rewards"] = h5py.ExternalLink(str(workspace.given / "pipe"), "/rewards")

    @staticmethod
    def external_link_to_zeros(file: h5py.File, workspace: Workspace) -> None:
        file["rewards"] = h5py.ExternalLink("/dev/zero", "/rewards")

    @staticmethod
    def external_link_to_self(file: h5py.File, workspace: Workspace) -> None:
        file["rewards"] = h5py.ExternalLink("d.hdf5", "/rewards")

    @staticmethod
    def dangling_external_link(file: h5py.File, workspace: Workspace) -> None:
        file["rewards"] = h5py.ExternalLink("nowhere.hdf5", "/rewards")

    @staticmethod
    def virtual(file: h5py.File, workspace: Workspace) -> None:
        with h5py.File(workspace.given / "other.hdf5", "w") as other:
            other["rewards"] = arrays()["rewards"]
        layout = h5py.VirtualLayout((40,), "f4")
        layout[:] = h5py.VirtualSource(str(workspace.given / "other.hdf5"), "rewards", (40,))
        file.create_virtual_dataset("rewards", layout)

    @staticmethod
    def virtual_of_self(file: h5py.File, workspace: Workspace) -> None:
        layout = h5py.VirtualLayout((40,), "f4")
        layout[:] = h5py.VirtualSource(".", "rewards", (40,))
        file.create_virtual_dataset("rewards", layout)

    @staticmethod
    def virtual_with_missing_source(file: h5py.File, workspace: Workspace) -> None:
        layout = h5py.VirtualLayout((40,), "f4")
        layout[:] = h5py.VirtualSource("nowhere.hdf5", "rewards", (40,))
        file.create_virtual_dataset("rewards", layout)

    @staticmethod
    def virtual_of_pipe(file: h5py.File, workspace: Workspace) -> None:
        os.mkfifo(workspace.given / "pipe")
        layout = h5py.VirtualLayout((40,), "f4")
        layout[:] = h5py.VirtualSource(str(workspace.given / "pipe"), "rewards", (40,))
        file.create_virtual_dataset("rewards", layout)


def _links() -> dict[str, Build]:
    def inside(file: h5py.File, workspace: Workspace) -> None:
        file["hidden"] = arrays()["rewards"]
        file["rewards"] = h5py.SoftLink("/hidden")

    def loop(file: h5py.File, workspace: Workspace) -> None:
        file["rewards"] = h5py.SoftLink("/again")
        file["again"] = h5py.SoftLink("/rewards")

    return {
        "dangling-soft-link": lambda f, p: _soft(f, "/nowhere"),
        "soft-link-inside": inside,
        "soft-link-loop": loop,
        "soft-link-to-itself": lambda f, p: _soft(f, "/rewards"),
        "soft-link-to-the-root": lambda f, p: _soft(f, "/"),
        "group": lambda f, p: f.create_group("rewards"),
        "group-containing-itself": lambda f, p: f.__setitem__("rewards", f["/"]),
        "type": lambda f, p: f.__setitem__("rewards", np.dtype("f4")),
    }


def _soft(file: h5py.File, target: str) -> None:
    file["rewards"] = h5py.SoftLink(target)


def _values() -> dict[str, Build]:
    def compound(f: h5py.File, p: Workspace) -> None:
        f["rewards"] = np.zeros(40, dtype=[("a", "f4"), ("b", "f4")])

    def references(f: h5py.File, p: Workspace) -> None:
        f.create_dataset("rewards", data=np.array([f["actions"].ref] * 40, dtype=h5py.ref_dtype))

    def varying(f: h5py.File, p: Workspace) -> None:
        f.create_dataset("rewards", (40,), h5py.vlen_dtype(np.float32))

    def text(f: h5py.File, p: Workspace) -> None:
        f.create_dataset("rewards", data=["x"] * 40, dtype=h5py.string_dtype())

    def bomb(f: h5py.File, p: Workspace) -> None:
        """Store two gigabytes of zeros in a chunk of two megabytes."""
        rows = 250_000_000
        f.create_dataset("rewards", (rows,), "f4", chunks=(rows,), compression="gzip")
        f["rewards"].id.write_direct_chunk((0,), zlib.compress(bytes(1 << 20)))

    def garbled_chunk(f: h5py.File, p: Workspace) -> None:
        f.create_dataset("rewards", (40,), "f4", chunks=(40,), compression="gzip")
        f["rewards"].id.write_direct_chunk((0,), b"not deflated")

    def unknown_filter(f: h5py.File, p: Workspace) -> None:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((40,))
        plist.set_filter(31_000, h5py.h5z.FLAG_OPTIONAL, (1, 2))
        space = h5py.h5s.create_simple((40,))
        data = h5py.h5d.create(f.id, b"rewards", h5py.h5t.NATIVE_FLOAT, space, plist)
        data.write_direct_chunk((0,), bytes(160))

    return {
        "null": lambda f, p: f.create_dataset("rewards", data=h5py.Empty("f4")),
        "scalar": lambda f, p: f.__setitem__("rewards", 1.0),
        "fewer-rows": lambda f, p: f.__setitem__("rewards", np.zeros(39)),
        "no-rows": lambda f, p: f.__setitem__("rewards", np.zeros(0)),
        "huge-and-empty": lambda f, p: f.create_dataset("rewards", (10**13,), "f4", chunks=(1000,)),
        "32-dimensions": lambda f, p: f.__setitem__("rewards", np.zeros((1,) * 32)),
        "compound": compound,
        "references": references,
        "varying-lengths": varying,
        "text": text,
        "bytes": lambda f, p: f.__setitem__("rewards", np.full(40, b"abc")),
        "opaque": lambda f, p: f.__setitem__("rewards", np.zeros(40, dtype="V4")),
        "complex": lambda f, p: f.__setitem__("rewards", np.zeros(40, dtype=np.complex64)),
        "deflate-bomb": bomb,
        "garbled-chunk": garbled_chunk,
        "unknown-filter": unknown_filter,
    }


def _accepted() -> dict[str, Build]:
    def attributes(f: h5py.File, p: Workspace) -> None:
        f["rewards"] = arrays()["rewards"]
        f["rewards"].attrs["note"] = "\x1b[31m[red]"
        f.attrs["env"] = "os:system"

    def group(f: h5py.File, p: Workspace) -> None:
        f["rewards"] = arrays()["rewards"]
        f.create_group("metadata")["policy"] = np.zeros(3)

    return {
        "odd-attributes": attributes,
        "extra-group": group,
        "big-endian": lambda f, p: f.__setitem__("rewards", arrays()["rewards"].astype(">f4")),
        "float16": lambda f, p: f.__setitem__("rewards", arrays()["rewards"].astype("f2")),
        "integers": lambda f, p: f.__setitem__("rewards", np.ones(40, dtype=np.int8)),
        "column-of-rewards": lambda f, p: f.__setitem__("rewards", np.ones((40, 1))),
        "compressed": lambda f, p: f.create_dataset(
            "rewards", data=np.ones(40), compression="gzip"
        ),
    }


def _odd_name(file: h5py.File) -> None:
    file["rewards"] = arrays()["rewards"]
    space = h5py.h5s.create_simple((1,))
    h5py.h5d.create(file.id, b"\xff\xfe\x1b", h5py.h5t.NATIVE_FLOAT, space)


def cases() -> Iterator[Case]:
    """Yield files that are read as datasets."""
    outside = {
        name.replace("_", "-"): getattr(_OutsideFiles, name)
        for name in vars(_OutsideFiles)
        if not name.startswith("__")
    }
    for name, build in outside.items():
        yield Case(f"hdf5/{name}", INSPECT, _without_rewards(build), message="d.hdf5")
    for name, build in _links().items():
        yield Case(f"hdf5/rewards-are-a-{name}", INSPECT, _without_rewards(build), message="d.hdf5")
    for name, build in _values().items():
        yield Case(f"hdf5/rewards-are-{name}", INSPECT, _without_rewards(build), message="d.hdf5")
    for name, build in _accepted().items():
        yield Case(f"hdf5/{name}-is-read", INSPECT, _without_rewards(build), (0,), "40")
    write = _without_rewards(lambda f, p: _odd_name(f))
    yield Case("hdf5/name-is-not-text", INSPECT, write, (0, 2))
    commands = {
        "validate": ("data", "validate", "{given}/d.hdf5", "--env-id", "Pendulum-v1"),
        "convert": ("data", "convert", "{given}/d.hdf5", "{given}/e.npz"),
        "train": (
            "train",
            "-c",
            "{bases}/bc.yaml",
            "dataset_kind=hdf5",
            "dataset_path={given}/d.hdf5",
            "output_dir={given}/new",
        ),
        "fqe": (
            "evaluate",
            "{bases}/runs/bc",
            "--fqe",
            "--fqe-updates",
            "2",
            "--dataset",
            "{given}/d.hdf5",
        ),
        "finetune": (
            "finetune",
            "{bases}/runs/iql",
            "--env-id",
            "Pendulum-v1",
            "--dataset",
            "{given}/d.hdf5",
            "output_dir={given}/new",
            "total_timesteps=4",
        ),
    }
    for command, words in commands.items():
        for name in ("external_storage", "external_link", "virtual"):
            build = getattr(_OutsideFiles, name)
            yield Case(
                f"hdf5/{command}-with-{name.replace('_', '-')}",
                words,
                _without_rewards(build),
                message="d.hdf5",
            )
    yield from _superblocks()


def _superblocks() -> Iterator[Case]:
    """Yield files with single changed bytes in the superblock."""

    def flipped(offset: int, value: int) -> Write:
        def write(workspace: Workspace, bases: Bases) -> None:
            _built(lambda f, p: None)(workspace, bases)
            file = workspace.given / "d.hdf5"
            data = bytearray(file.read_bytes())
            data[offset] = value
            file.write_bytes(data)

        return write

    for where, what in (
        (0, "signature"),
        (8, "version"),
        (13, "offset-size"),
        (14, "length-size"),
        (40, "end-of-file"),
        (64, "root-address"),
        (96, "root-header"),
    ):
        yield Case(f"hdf5/superblock-{what}-changed", INSPECT, flipped(where, 0xFE), (0, 2))
    yield Case(
        "hdf5/latest-format-is-read",
        INSPECT,
        _built(lambda f, p: None, libver="latest"),
        (0,),
        "40",
    )
    yield Case(
        "hdf5/user-block-is-read",
        INSPECT,
        _built(lambda f, p: None, userblock_size=512),
        (0,),
        "40",
    )

"""Files given by the user: datasets, observations and configs with the wrong content."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.hostile.bases import MINARI_ID, Bases
from tests.hostile.case import Case, Write
from tests.hostile.cases.folders import GIGABYTES, THINGS
from tests.hostile.formats import npz, pt_columns
from tests.hostile.sandbox import Workspace

COMMANDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "npz": ("d.npz", ("data", "inspect", "{given}/d.npz")),
    "pt": ("d.pt", ("data", "inspect", "{given}/d.pt")),
    "hdf5": ("d.hdf5", ("data", "inspect", "{given}/d.hdf5")),
    "npy": ("obs.npy", ("predict", "{bases}/runs/sac", "--obs", "{given}/obs.npy")),
    "yaml": (
        "c.yaml",
        ("train", "-c", "{given}/c.yaml", "output_dir={given}/new", "total_timesteps=4"),
    ),
    "minari-data": (f"minari/{MINARI_ID}/data/main_data.hdf5", ("data", "inspect", MINARI_ID)),
    "minari-metadata": (f"minari/{MINARI_ID}/data/metadata.json", ("data", "inspect", MINARI_ID)),
}
SOURCES = {
    **{
        "npz": "copy.npz",
        "pt": "copy.pt",
        "hdf5": "copy.hdf5",
        "npy": "obs.npy",
        "yaml": "sac.yaml",
    },
}


def _ordinary(kind: str, workspace: Workspace, bases: Bases) -> Path:
    """Copy the ordinary file to where the command looks for it."""
    path = workspace.given / COMMANDS[kind][0]
    if kind.startswith("minari"):
        shutil.copytree(bases.minari, workspace.given / "minari")
    else:
        shutil.copyfile(bases.folder / SOURCES[kind], path)
    return path


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "one-byte": lambda data: data[:1],
    "four-bytes": lambda data: data[:4],
    "half": lambda data: data[: len(data) // 2],
    "last-byte-missing": lambda data: data[:-1],
    "first-byte-changed": lambda data: bytes([data[0] ^ 0xFF]) + data[1:],
    "zeros": lambda data: bytes(len(data)),
    "ones": lambda data: b"\xff" * len(data),
    "text": lambda data: b"hello\n" * 50,
    "npz-inside": lambda data: npz(),
    "pt-inside": lambda data: pt_columns(),
    "html": lambda data: b"<!DOCTYPE html><html><body>404</body></html>",
    "lfs-pointer": lambda data: (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    ),
}
ACCEPTED = {("npz", "npz-inside"), ("pt", "pt-inside")}
STILL_READABLE = {
    ("yaml", "last-byte-missing"),
    ("hdf5", "last-byte-missing"),
    ("minari-data", "last-byte-missing"),
}
"""Damage that a file may survive: a missing final newline, or missing padding."""


def _damaged(kind: str, change: Callable[[bytes], bytes]) -> Write:
    def write(workspace: Workspace, bases: Bases) -> None:
        path = _ordinary(kind, workspace, bases)
        path.write_bytes(change(path.read_bytes()))

    return write


def _replaced(kind: str, thing: Callable[[Path, Workspace], None]) -> Write:
    return lambda workspace, bases: thing(_ordinary(kind, workspace, bases), workspace)


def cases() -> Iterator[Case]:
    """Yield every kind of damage to every file that a command reads."""
    for kind, (_, command) in COMMANDS.items():
        for name, change in DAMAGE.items():
            codes: tuple[int, ...] = (0,) if (kind, name) in ACCEPTED else (2,)
            if (kind, name) in STILL_READABLE:
                codes = (0, 2)
            slow = name in ("four-bytes", "ones", "text", "html", "lfs-pointer") and kind != "npz"
            yield Case(f"file/{kind}-{name}", command, _damaged(kind, change), codes, slow=slow)
        for name, thing in THINGS.items():
            if name == "outside-link":
                continue  # the user may give a link to any file
            codes = (0,) if name == "link" else (2,)  # a link to a valid file is valid
            if name == "link" and kind.startswith("minari"):
                codes = (0, 2)
            slow = name in ("socket", "link-to-self") and kind != "yaml"
            yield Case(f"file/{kind}-{name}", command, _replaced(kind, thing), codes, slow=slow)
        grown = _grown(kind)
        yield Case(f"file/{kind}-with-trailing-gigabytes", command, grown, (0, 2))
    for path in ("/dev/zero", "/dev/full", "/dev/stdin", "/proc/self/mem", "/proc/self/environ"):
        name = path.strip("/").replace("/", "-")
        yield Case(f"file/config-is-{name}", ("train", "-c", path))
        yield Case(f"file/observations-are-{name}", ("predict", "{bases}/runs/sac", "--obs", path))
        yield Case(f"file/data-is-{name}", ("data", "inspect", path))


def _grown(kind: str) -> Write:
    """Append a hole of gigabytes to the ordinary file."""

    def write(workspace: Workspace, bases: Bases) -> None:
        import os

        os.truncate(_ordinary(kind, workspace, bases), GIGABYTES)

    return write

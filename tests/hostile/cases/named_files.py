"""Files that a user names: datasets, observations, configs that are something else."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.hostile.bases import MINARI_ID, Bases
from tests.hostile.case import Case, Write
from tests.hostile.cases.folders import GIGABYTES, THINGS
from tests.hostile.formats import npz, pt_columns
from tests.hostile.sandbox import Place

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


def _ordinary(kind: str, place: Place, bases: Bases) -> Path:
    """Put the ordinary file where the command looks for it."""
    path = place.given / COMMANDS[kind][0]
    if kind.startswith("minari"):
        shutil.copytree(bases.minari, place.given / "minari")
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
STILL_WHOLE = {
    ("yaml", "last-byte-missing"),
    ("hdf5", "last-byte-missing"),
    ("minari-data", "last-byte-missing"),
}
"""What the file does not need: a final new line, padding behind the data."""


def _damaged(kind: str, change: Callable[[bytes], bytes]) -> Write:
    def write(place: Place, bases: Bases) -> None:
        path = _ordinary(kind, place, bases)
        path.write_bytes(change(path.read_bytes()))

    return write


def _replaced(kind: str, thing: Callable[[Path, Place], None]) -> Write:
    return lambda place, bases: thing(_ordinary(kind, place, bases), place)


def cases() -> Iterator[Case]:
    """Every kind of damage to every file that a command reads."""
    for kind, (_, command) in COMMANDS.items():
        for name, change in DAMAGE.items():
            codes: tuple[int, ...] = (0,) if (kind, name) in ACCEPTED else (2,)
            if (kind, name) in STILL_WHOLE:
                codes = (0, 2)
            slow = name in ("four-bytes", "ones", "text", "html", "lfs-pointer") and kind != "npz"
            yield Case(f"file/{kind}-{name}", command, _damaged(kind, change), codes, slow=slow)
        for name, thing in THINGS.items():
            if name == "link-out":
                continue  # whose file it is, the user decides
            codes = (0,) if name == "link" else (2,)  # a link to the right file is the user's
            if name == "link" and kind.startswith("minari"):
                codes = (0, 2)
            slow = name in ("socket", "link-to-itself") and kind != "yaml"
            yield Case(f"file/{kind}-{name}", command, _replaced(kind, thing), codes, slow=slow)
        grown = _grown(kind)
        yield Case(f"file/{kind}-with-gigabytes-behind", command, grown, (0, 2))
    for path in ("/dev/zero", "/dev/full", "/dev/stdin", "/proc/self/mem", "/proc/self/environ"):
        name = path.strip("/").replace("/", "-")
        yield Case(f"file/config-is-{name}", ("train", "-c", path))
        yield Case(f"file/observations-are-{name}", ("predict", "{bases}/runs/sac", "--obs", path))
        yield Case(f"file/data-is-{name}", ("data", "inspect", path))


def _grown(kind: str) -> Write:
    """The ordinary file with a hole of gigabytes behind it."""

    def write(place: Place, bases: Bases) -> None:
        import os

        os.truncate(_ordinary(kind, place, bases), GIGABYTES)

    return write

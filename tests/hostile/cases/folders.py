"""Run folders with links, pipes or huge files instead of regular files, and planted leftovers."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rl_training.runtime.checkpointing import MANIFEST, MODEL, OPTIMIZERS, STATE, step_name
from tests.faults.runs import forge, newest
from tests.hostile.bases import Bases
from tests.hostile.case import Case, Write
from tests.hostile.forging import read_manifest
from tests.hostile.sandbox import Workspace

LIST = ("runs", "{given}")
PLOT = ("plot", "{run}", "--out", "{given}/p.png")
PREDICT = ("predict", "{run}", "--obs", "{obs}")
BEST = (*PREDICT, "--best")
EVALUATE = ("evaluate", "{run}", "--episodes", "1")
RESUME = ("resume", "{run}", "total_timesteps=26")
REPLAY = ("data", "inspect", "{run}")
GIGABYTES = 6 << 30
"""Size of a file that is rejected because of its size."""
HASHED = 1100 << 20
"""Size of a file that is hashed in parts and never loaded as a whole."""


# --- Replacements for regular files -------------------------------------------------


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def _link(path: Path, workspace: Workspace) -> None:
    """Move the file and link to it."""
    target = workspace.given / "moved"
    if path.exists():
        shutil.move(path, target)
    path.symlink_to(target)


def _link_out(path: Path, workspace: Workspace) -> None:
    _remove(path)
    path.symlink_to(workspace.precious)


def _loop(path: Path, workspace: Workspace) -> None:
    _remove(path)
    path.symlink_to(path.name)


def _zeros(path: Path, workspace: Workspace) -> None:
    _remove(path)
    path.symlink_to("/dev/zero")


def _pipe(path: Path, workspace: Workspace) -> None:
    _remove(path)
    os.mkfifo(path)


def _socket(path: Path, workspace: Workspace) -> None:
    _remove(path)
    here = os.getcwd()
    os.chdir(path.parent)  # a socket's path has at most 107 characters
    try:
        with socket.socket(socket.AF_UNIX) as stream:
            stream.bind(path.name)
    finally:
        os.chdir(here)


def _folder(path: Path, workspace: Workspace) -> None:
    _remove(path)
    path.mkdir()


def _sparse(path: Path, workspace: Workspace) -> None:
    _remove(path)
    path.touch()
    os.truncate(path, HASHED if path.suffix == ".npy" else GIGABYTES)


def _empty(path: Path, workspace: Workspace) -> None:
    _remove(path)
    path.touch()


def _missing(path: Path, workspace: Workspace) -> None:
    _remove(path)


Replace = Callable[[Path, Workspace], None]
THINGS: dict[str, Replace] = {
    "link": _link,
    "outside-link": _link_out,
    "link-to-self": _loop,
    "link-to-zeros": _zeros,
    "pipe": _pipe,
    "socket": _socket,
    "folder": _folder,
    "sparse": _sparse,
}


def _segment(run: Path) -> Path:
    return run / "replay" / f"{read_manifest(run)['replay'][0]}.npy"


FILES: dict[str, Callable[[Path], Path]] = {
    "run.json": lambda run: run / "run.json",
    "config.yaml": lambda run: run / "config.yaml",
    "metrics.jsonl": lambda run: run / "metrics.jsonl",
    "lock": lambda run: run / ".lock",
    "last": lambda run: run / "checkpoints" / "last",
    "best": lambda run: run / "checkpoints" / "best",
    "manifest": lambda run: newest(run) / MANIFEST,
    "model": lambda run: newest(run) / MODEL,
    "optimizers": lambda run: newest(run) / OPTIMIZERS,
    "state": lambda run: newest(run) / STATE,
    "segment": _segment,
    "checkpoint": lambda run: newest(run),
    "checkpoints": lambda run: run / "checkpoints",
    "replay": lambda run: run / "replay",
}


def _replaced(file: str, thing: Replace) -> Write:
    return lambda workspace, bases: thing(FILES[file](workspace.run), workspace)


READINGS: tuple[tuple[str, str, tuple[str, ...], tuple[int, ...]], ...] = (
    ("run.json", "listed", LIST, (0,)),
    ("run.json", "resumed", RESUME, (1, 2)),
    ("config.yaml", "listed", LIST, (0,)),
    ("config.yaml", "resumed", RESUME, (1, 2)),
    ("metrics.jsonl", "plotted", PLOT, (1, 2)),
    ("metrics.jsonl", "resumed", RESUME, (1, 2)),
    ("lock", "listed", LIST, (0,)),
    ("lock", "resumed", RESUME, (1, 2)),
    ("manifest", "predicted", PREDICT, (1, 2)),
    ("manifest", "resumed", RESUME, (1, 2)),
    ("model", "predicted", PREDICT, (1, 2)),
    ("optimizers", "resumed", RESUME, (1, 2)),
    ("state", "resumed", RESUME, (1, 2)),
    ("segment", "resumed", RESUME, (1, 2)),
    ("segment", "inspected", REPLAY, (1, 2)),
    ("replay", "resumed", RESUME, (1, 2)),
    ("checkpoint", "predicted", PREDICT, (1, 2)),
    ("checkpoints", "predicted", PREDICT, (1, 2)),
    ("best", "predicted", BEST, (1, 2)),
    ("last", "predicted", PREDICT, (0, 1)),
)
"""Files, the commands that read them, and the allowed exit codes if one is not a regular file.

The error message contains the file name; a listing omits the run or shows fewer details.
"""
SKIPPABLE = (("run.json", "resumed"), ("metrics.jsonl", "resumed"), ("lock", "resumed"))
"""Files that may also be skipped when they have gigabytes; new ones replace them."""
QUICK = ("outside-link", "pipe", "sparse")


def _thing_cases() -> Iterator[Case]:
    for name, thing in THINGS.items():
        for number, (file, verb, command, right) in enumerate(READINGS):
            codes = (0, *right) if name == "sparse" and (file, verb) in SKIPPABLE else right
            yield Case(
                f"folder/{file}-{name}-{verb}",
                command,
                _replaced(file, thing),
                codes,
                base="sac",
                slow=(name not in QUICK and number % 3 != 0)
                or (name, file, verb) == ("sparse", "segment", "resumed"),
            )


def _forged_sparse(file: str) -> Write:
    """Write a file of gigabytes whose size matches the manifest but whose hash does not."""

    def write(workspace: Workspace, bases: Bases) -> None:
        path = FILES[file](workspace.run)
        os.truncate(path, HASHED)
        name = path.name

        def change(manifest: dict[str, Any]) -> None:
            manifest["files"][name]["bytes"] = HASHED

        small = path.with_name("small")
        path.rename(small)
        path.write_bytes(b"")
        forge(newest(workspace.run), change)
        path.unlink()
        small.rename(path)

    return write


def _sparse_cases() -> Iterator[Case]:
    name = "folder/gigabyte-model-in-the-manifest"
    yield Case(name, PREDICT, _forged_sparse("model"), (1,), base="sac")


# --- Pointers -----------------------------------------------------------------------

POINTERS: dict[str, bytes] = {
    "outside": b"../../../outside\n",
    "absolute": b"/etc\n",
    "hidden-path-traversal": b"step_000000024/../../../outside\n",
    "missing": b"step_000000001\n",
    "nulls": b"\0" * 50,
    "escape": b"\x1b[31mstep_000000024\n",
    "long": b"step_" + b"0" * 90 + b"24\n",
    "huge": b"step_" + b"0" * 1_000_000,
    "not-utf-8": b"\xff\xfe",
}


def _pointer_cases() -> Iterator[Case]:
    for name, data in POINTERS.items():

        def write(workspace: Workspace, bases: Bases, data: bytes = data) -> None:
            for pointer in ("last", "best"):
                (workspace.run / "checkpoints" / pointer).write_bytes(data)

        last = (1,) if name in ("missing", "long") else (0,)
        yield Case(f"pointer/last-{name}", PREDICT, write, last, base="sac")
        yield Case(f"pointer/best-{name}", BEST, write, (1, 2), base="sac")
        if name in ("outside", "missing", "huge"):
            yield Case(f"pointer/{name}-resumes", RESUME, write, (0,), base="sac")


# --- Planted leftovers ----------------------------------------------------------------


def _without_checkpoints(workspace: Workspace) -> None:
    """Change the run into one that was killed before its first checkpoint."""
    shutil.rmtree(workspace.run / "checkpoints")
    shutil.rmtree(workspace.run / "replay")
    (workspace.run / "run.json").write_text('{"state": "running"}')
    for name in ("checkpoints", "replay"):
        (workspace.run / name).mkdir()


def _planted(*names: str, fresh: bool, folder: bool = False) -> Write:
    def write(workspace: Workspace, bases: Bases) -> None:
        segment = _segment(workspace.run).name
        if fresh:
            _without_checkpoints(workspace)
        for name in names:
            path = workspace.run / name.replace("SEGMENT", segment)
            path.symlink_to(workspace.outside if folder else workspace.precious)

    return write


def _planted_cases() -> Iterator[Case]:
    """Yield links with names of temporary files; their targets must not change."""
    files = {
        "last": "checkpoints/.tmp-last",
        "best": "checkpoints/.tmp-best",
        "segment": "replay/.tmp-SEGMENT",
        "config": ".tmp-config.yaml",
        "run": ".tmp-run.json",
        "metrics": ".tmp-metrics.jsonl",
    }
    folders = {
        "first-step": f"checkpoints/.tmp-{step_name(0)}",
        "next-step": f"checkpoints/.tmp-{step_name(26)}",
        "old-step": f"checkpoints/.tmp-old-{step_name(24)}",
        "swap": f"checkpoints/.tmp-swap-{step_name(26)}",
    }
    again = ("resume", "{run}")
    for name, path in files.items():
        yield Case(f"planted/{name}-fresh", again, _planted(path, fresh=True), (0, 1), base="sac")
        yield Case(f"planted/{name}", RESUME, _planted(path, fresh=False), (0, 1), base="sac")
    for name, path in folders.items():
        yield Case(
            f"planted/{name}-fresh",
            again,
            _planted(path, fresh=True, folder=True),
            (0, 1),
            base="sac",
        )
        yield Case(
            f"planted/{name}", RESUME, _planted(path, fresh=False, folder=True), (0, 1), base="sac"
        )
    for file in ("checkpoints", "replay", "tensorboard"):

        def write(workspace: Workspace, bases: Bases, file: str = file) -> None:
            _without_checkpoints(workspace)
            _remove(workspace.run / file)
            (workspace.run / file).symlink_to(workspace.outside)

        yield Case(f"planted/{file}-outside-link-fresh", again, write, (1, 2), base="sac")
    yield from _planted_outputs()
    yield from _abandoned_runs()


def _planted_outputs() -> Iterator[Case]:
    sac = "{bases}/runs/sac"
    outputs: dict[str, tuple[tuple[str, ...], str]] = {
        f"convert-{ending}": (("data", "convert", "{data}", f"{{given}}/e.{ending}"), f"e.{ending}")
        for ending in ("npz", "pt", "hdf5")
    }
    outputs |= {
        "predict": (("predict", sac, "--obs", "{obs}", "--out", "{given}/a.npy"), "a.npy"),
        "plot": (("plot", sac, "--out", "{given}/a.png"), "a.png"),
        "collect": (
            ("data", "collect", sac, "--steps", "3", "--out", "{given}/a.npz"),
            "a.npz",
        ),
        "inspect": (("data", "inspect", "{data}", "--plot", "{given}/a.png"), "a.png"),
    }
    for name, (command, made) in outputs.items():

        def write(workspace: Workspace, bases: Bases, made: str = made) -> None:
            (workspace.given / f".tmp-{made}").symlink_to(workspace.precious)

        yield Case(f"planted/{name}", command, write, (0, 2))


def _abandoned_runs() -> Iterator[Case]:
    train = ("train", "-c", "{bases}/sac.yaml", "output_dir={given}/new", "total_timesteps=4")

    def abandoned(workspace: Workspace, bases: Bases) -> None:
        """Create an old temporary run folder that contains a link."""
        folder = workspace.given / "new" / ".tmp-sac_Pendulum-v1_seed1-0123abcd"
        folder.mkdir(parents=True)
        (folder / "config.yaml").symlink_to(workspace.precious)
        os.utime(folder, (0, 0))

    def abandoned_link(workspace: Workspace, bases: Bases) -> None:
        (workspace.given / "new").mkdir()
        (workspace.given / "new" / ".tmp-sac_Pendulum-v1_seed1-0123abcd").symlink_to(
            workspace.outside
        )

    yield Case("planted/abandoned-run-with-a-link", train, abandoned, (0,))
    yield Case("planted/abandoned-run-is-a-link", train, abandoned_link, (0,))


# --- Listings -------------------------------------------------------------------------


def _listing_cases() -> Iterator[Case]:
    names = {
        "markup": "exp[/2]",
        "open-markup": "[bold red]",
        "escape": "\x1b[2Jx",
        "new-line": "a\nb",
        "not-utf-8": os.fsdecode(b"\xff\xfe"),
        "reversed": "\u202eab",
        "option": "--json",
    }
    for name, text in names.items():

        def write(workspace: Workspace, bases: Bases, text: str = text) -> None:
            (workspace.given / text).mkdir(parents=True)
            shutil.move(workspace.run, workspace.given / text / "inner")

        yield Case(f"listing/folder-named-{name}", LIST, write, (0,), "inner", base="sac")
        yield Case(
            f"listing/folder-named-{name}-as-json",
            (*LIST, "--json"),
            write,
            (0,),
            "inner",
            base="sac",
        )

    def circle(workspace: Workspace, bases: Bases) -> None:
        (workspace.run / "again").symlink_to(workspace.given)

    def deep(workspace: Workspace, bases: Bases) -> None:
        folder = workspace.given / "/".join(["d"] * 500)
        folder.mkdir(parents=True)

    def hidden(workspace: Workspace, bases: Bases) -> None:
        shutil.copytree(workspace.run, workspace.given / ".tmp-x-01234567")

    yield Case("listing/circular-link", LIST, circle, (0,), "sac", base="sac")
    yield Case("listing/five-hundred-folders-deep", LIST, deep, (0,), "sac", base="sac")
    yield Case("listing/unfinished-run-is-omitted", LIST, hidden, (0,), "sac", base="sac")


def cases() -> Iterator[Case]:
    yield from _thing_cases()
    yield from _sparse_cases()
    yield from _pointer_cases()
    yield from _planted_cases()
    yield from _listing_cases()

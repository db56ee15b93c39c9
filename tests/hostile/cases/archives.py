"""npz archives and npy files."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.hostile.case import Case, Write
from tests.hostile.formats import (
    MISSING,
    Called,
    Member,
    archive,
    deflated,
    deflated_zeros,
    described,
    npy,
    npy_header,
    npz,
    npz_members,
)
from tests.hostile.sandbox import Workspace

INSPECT = ("data", "inspect", "{given}/d.npz")
PREDICT = ("predict", "{bases}/runs/sac", "--obs", "{given}/obs.npy")


def _file(name: str, data: bytes) -> Write:
    return lambda workspace, bases: (workspace.given / name).write_bytes(data)


def _evil(workspace: Workspace) -> Any:
    """Return an object array that would create a file when unpickled."""
    return np.array([Called(os.system, f"touch {workspace.outside / 'made'}")], dtype=object)


def _swap(old: str, **changes: Any) -> bytes:
    """Return the ordinary archive with one member's headers changed."""
    members = npz_members()
    return archive(
        Member(**(vars(member) | changes)) if member.name == f"{old}.npy" else member
        for member in members
    )


def _headers() -> dict[str, tuple[bytes, bool]]:
    """Return npy files and whether they are valid; the valid ones have 40 rows of 3 float32."""
    values = np.arange(120, dtype=np.float32).reshape(40, 3)
    raw = values.tobytes()
    return {
        "fortran-order": (npy(np.asfortranarray(values)), True),
        "big-endian": (npy(values.astype(">f4")), True),
        "float64": (npy(values.astype(np.float64)), True),
        "float16": (npy(values.astype(np.float16)), True),
        "version-2": (
            npy_header(
                "{'descr': '<f4', 'fortran_order': False, 'shape': (40, 3)}", raw, version=(2, 0)
            ),
            True,
        ),
        "version-3": (
            npy_header(
                "{'descr': '<f4', 'fortran_order': False, 'shape': (40, 3)}", raw, version=(3, 0)
            ),
            True,
        ),
        "version-9": (
            npy_header(
                "{'descr': '<f4', 'fortran_order': False, 'shape': (40, 3)}", raw, version=(9, 9)
            ),
            False,
        ),
        "no-magic": (b"NUMPY?" + raw, False),
        "header-length-4-gib": (npy_header("{}", version=(2, 0), length=0xFFFFFFF0), False),
        "header-length-beyond-the-file": (npy_header("{}", length=0xFFF0), False),
        "header-length-zero": (npy_header("", length=0), False),
        "header-of-64-kib": (described("'<f4'", "(40, 3)" + " " * 65_000, raw), False),
        "header-is-a-list": (npy_header("[]", raw), False),
        "header-is-a-call": (npy_header("__import__('os').system('x')", raw), False),
        "header-is-deep": (npy_header("(" * 3000 + ")" * 3000), False),
        "header-is-an-unclosed-text": (npy_header("'''"), False),
        "header-is-not-text": (
            npy_header("\udcff".encode("utf-8", "surrogatepass").decode("latin-1")),
            False,
        ),
        "header-has-a-null": (
            npy_header("{'descr': '<f4\0', 'fortran_order': False, 'shape': ()}"),
            False,
        ),
        "header-lacks-the-shape": (
            npy_header("{'descr': '<f4', 'fortran_order': False}", raw),
            False,
        ),
        "header-has-an-extra-key": (
            npy_header(
                "{'descr': '<f4', 'fortran_order': False, 'shape': (40, 3), 'evil': 1}", raw
            ),
            False,
        ),
        "header-has-odd-keys": (
            npy_header("{'descr': '<f4', 'fortran_order': False, 5: 6}", raw),
            False,
        ),
        "order-is-a-number": (
            npy_header("{'descr': '<f4', 'fortran_order': 1, 'shape': (40, 3)}", raw),
            False,
        ),
        "shape-too-large": (described("'<f4'", "(41, 3)", raw), False),
        "shape-of-a-terabyte": (
            described("'<f4'", "(1 << 40, 3)".replace("1 << 40", str(1 << 40)), raw),
            False,
        ),
        "shape-of-a-terabyte-fortran": (
            described("'<f4'", f"({1 << 40}, 3)", raw, fortran=True),
            False,
        ),
        "shape-beyond-64-bits": (described("'<f4'", f"({10**30}, 3)", raw), False),
        "shape-overflows-to-zero": (described("'<f4'", f"({1 << 32}, {1 << 32})", raw), False),
        "shape-negative": (described("'<f4'", "(-40, 3)", raw), False),
        "shape-twice-negative": (described("'<f4'", "(-40, -3)", raw), False),
        "shape-is-a-number": (described("'<f4'", "120", raw), False),
        "shape-has-a-float": (described("'<f4'", "(40.0, 3)", raw), False),
        "shape-has-true": (described("'<f4'", "(True, 120)", raw), False),
        "shape-of-33-dimensions": (described("'<f4'", f"({'1,' * 65})", raw[:4]), False),
        "dtype-object": (npy(np.array([1, "a"], dtype=object), pickled=True), False),
        "dtype-object-without-a-pickle": (described("'|O'", "(15, )", raw), False),
        "dtype-structured": (npy(np.zeros(40, dtype=[("a", "<f4"), ("b", "|S8")])), False),
        "dtype-structured-with-an-object": (
            described("[('a', '|O'), ('b', '<f4')]", "(10, )", raw),
            False,
        ),
        "dtype-subarray": (described("('<f4', (3,))", "(40, )", raw), False),
        "dtype-huge-subarray": (described(f"('<f4', ({1 << 29},))", "(40, )", raw), False),
        "dtype-void": (described("'|V12'", "(40, )", raw), False),
        "zero-byte-dtype": (described("'|V0'", f"({10**15}, 3)"), False),
        "zero-byte-text-dtype": (described("'<U0'", f"({10**15}, 3)"), False),
        "dtype-of-2-gib": (described("'|V2147483647'", "(40, )", raw), False),
        "dtype-text": (npy(np.full((40, 3), "abc")), False),
        "dtype-bytes": (npy(np.full((40, 3), b"abc")), False),
        "dtype-time": (npy(np.full((40, 3), "2020-01-01", dtype="M8[D]")), False),
        "dtype-complex": (npy(values.astype(np.complex64)), False),
        "dtype-unknown": (described("'nonsense'", "(40, 3)", raw), False),
        "dtype-is-a-number": (described("7", "(40, 3)", raw), False),
        "dtype-is-recursive": (
            described("[('a', [('b', [('c', '<f4')])])]", "(40, 3)", raw),
            False,
        ),
        "fewer-bytes": (npy(values)[:-1], False),
        "no-bytes": (npy(values)[: -values.nbytes], False),
        "an-archive": (npz(), False),
        "a-pickle": (values.dumps(), False),
    }


def npz_cases() -> Iterator[Case]:
    """Archives read as datasets."""
    for name, (data, ordinary) in _headers().items():
        codes = (0,) if ordinary else (2,)
        write = _file("d.npz", npz(observations=data, next_observations=MISSING))
        yield Case(f"npz/observations-{name}", INSPECT, write, codes, "" if ordinary else "d.npz")
    kept = npy(np.zeros(40, dtype=np.float32))
    directories = {
        "claims-a-terabyte": _swap(
            "rewards", size=1 << 40, extra=struct.pack("<2H2Q", 1, 16, 1 << 40, len(kept))
        ),
        "claims-4-gib": _swap("rewards", size=0xFFFFFFF0),
        "claims-4-gib-packed": _swap("rewards", packed=0xFFFFFFF0),
        "claims-fewer-bytes": _swap("rewards", size=100),
        "claims-no-bytes": _swap("rewards", size=0, packed=0),
        "wrong-checksum": _swap("rewards", crc=1),
        "offset-beyond-the-file": _swap("rewards", offset=0xFFFFFF00),
        "offset-of-another-member": _swap("rewards", offset=0),
        "encrypted": _swap("rewards", flags=1),
        "unknown-method": _swap("rewards", method=97),
        "invalid-lzma": _swap("rewards", method=14),
        "invalid-bzip2": _swap("rewards", method=12),
        "invalid-deflate": _swap("rewards", method=8),
        "different-local-name": _swap("rewards", local_name="other.npy"),
        "broken-extra-field": _swap("rewards", extra=struct.pack("<2H", 1, 500)),
        "duplicate-name": archive([*npz_members(), Member("rewards.npy", kept)]),
        "duplicate-name-without-ending": archive([*npz_members(), Member("rewards", kept)]),
        "overlapping-members": archive([*npz_members(), Member("extra.npy", b"", offset=0)]),
        "two-end-records": archive(npz_members(), comment=b"PK\5\6" + bytes(18)),
        "directory-beyond-the-file": archive(npz_members(), directory=0xFFFFFF00),
        "directory-at-the-start": archive(npz_members(), directory=0),
        "no-members": archive([]),
        "empty-name": archive([*npz_members(rewards=MISSING), Member("", kept)]),
        "nested-archive": npz(rewards=npz()),
        "deflate-bomb-with-fewer-rows": archive(
            [
                *npz_members(rewards=MISSING),
                Member("rewards.npy", deflated_zeros(700, kept[:128]), method=8, size=700 << 20),
            ]
        ),
        "deflate-bomb-in-the-header": archive(
            [
                *npz_members(rewards=MISSING),
                Member(
                    "rewards.npy",
                    deflated_zeros(700, npy_header("", version=(2, 0), length=600 << 20)),
                    method=8,
                    size=700 << 20,
                ),
            ]
        ),
    }
    for name, data in directories.items():
        yield Case(f"npz/directory-{name}", INSPECT, _file("d.npz", data), message="d.npz")
    names = {
        "path-traversal": "../../outside/made.npy",
        "an-absolute-path": "/etc/passwd",
        "a-terminal-escape": "\x1b[31mred\x1b[0m.npy",
        "a-null": "a\0b.npy",
        "markup": "[red]x[/nope].npy",
        "very-long": "n" * 60_000 + ".npy",
        "a-new-line": "a\nError: b.npy",
    }
    for name, text in names.items():
        data = archive([*npz_members(), Member(text, kept)])
        yield Case(f"npz/member-named-{name}", INSPECT, _file("d.npz", data), (0,))
    yield from _npz_accepted()
    yield from _npz_columns()
    yield Case(
        "npz/pickled-object",
        INSPECT,
        lambda workspace, bases: (workspace.given / "d.npz").write_bytes(
            npz(rewards=npy(_evil(workspace), pickled=True))
        ),
        message="d.npz",
    )
    yield Case(
        "npz/unused-pickled-object",
        INSPECT,
        lambda workspace, bases: (workspace.given / "d.npz").write_bytes(
            npz(other=npy(_evil(workspace), pickled=True))
        ),
        message="d.npz",
    )


def _npz_accepted() -> Iterator[Case]:
    many = [Member(f"m{n}.npy", npy(np.zeros(1, dtype=np.int8))) for n in range(3000)]
    accepted = {
        "deflated": archive(
            Member(m.name, deflated(m.data), method=8, size=len(m.data), crc=m.fields()[0])
            for m in npz_members()
        ),
        "with-a-comment": archive(npz_members(), comment=b"written by hand"),
        "with-a-prefix": archive(npz_members(), prefix=b"#!/bin/sh\n"),
        "a-thousand-members": archive([*npz_members(), *many]),
    }
    for name, data in accepted.items():
        yield Case(f"npz/{name}", INSPECT, _file("d.npz", data), (0,), "40")


def _npz_columns() -> Iterator[Case]:
    rows = np.zeros((40, 3), dtype=np.float32)
    changes: dict[str, dict[str, Any]] = {
        "no-observations": {"observations": MISSING},
        "no-actions": {"actions": MISSING},
        "no-rewards": {"rewards": MISSING},
        "no-rows": {
            name: value[:0]
            for name, value in {
                "observations": rows,
                "actions": rows,
                "rewards": rows[:, 0],
                "next_observations": rows,
                "terminals": rows[:, 0],
                "timeouts": rows[:, 0],
            }.items()
        },
        "scalar-rewards": {"rewards": np.float32(1)},
        "fewer-rewards": {"rewards": rows[:39, 0]},
        "wide-rewards": {"rewards": rows},
        "images": {"observations": np.zeros((40, 2, 3), dtype=np.float32)},
        "zero-width-observations": {"observations": rows[:, :0], "next_observations": rows[:, :0]},
        "narrower-next-observations": {"next_observations": rows[:, :2]},
        "text-rewards": {"rewards": np.full(40, "x")},
    }
    for name, change in changes.items():
        yield Case(f"npz/columns-{name}", INSPECT, _file("d.npz", npz(**change)), message="d.npz")
    nan = {"rewards": np.full(40, np.nan, dtype=np.float32)}
    huge = {"rewards": np.full(40, 1e300)}
    yield Case("npz/nan-rewards-are-shown", INSPECT, _file("d.npz", npz(**nan)), (0,), "NaN")
    yield Case("npz/rewards-beyond-float32-are-shown", INSPECT, _file("d.npz", npz(**huge)), (0,))
    train = (
        "train",
        "-c",
        "{bases}/bc.yaml",
        "dataset_path={given}/d.npz",
        "output_dir={given}/new",
    )
    for name, change in {"nan": nan, "huge": huge}.items():
        yield Case(
            f"npz/{name}-rewards-are-not-trained-on",
            train,
            _file("d.npz", npz(**change)),
            message="rewards",
            check=no_new_run,
        )
    flags = {"terminals": np.full(40, 2.5)}
    yield Case(
        "npz/odd-flags-are-not-converted",
        ("data", "convert", "{given}/d.npz", "{given}/e.npz"),
        _file("d.npz", npz(**flags)),
        message="d.npz",
        check=nothing_converted,
    )


def no_new_run(workspace: Workspace, outcome: object) -> None:
    """Assert that a rejected start leaves no run folder."""
    made = list((workspace.given / "new").iterdir()) if (workspace.given / "new").exists() else []
    assert not made, made


def nothing_converted(workspace: Workspace, outcome: object) -> None:
    """Assert that a rejected conversion leaves no file."""
    assert not (workspace.given / "e.npz").exists()


def npy_cases() -> Iterator[Case]:
    """Observations for `predict`."""
    for name, (data, ordinary) in _headers().items():
        codes = (0,) if ordinary else (2,)
        yield Case(f"npy/{name}", PREDICT, _file("obs.npy", data), codes)
    values = {
        "nan": np.full(3, np.nan, dtype=np.float32),
        "infinite": np.full(3, np.inf),
        "beyond-float32": np.full(3, 1e300),
        "no-dimensions": np.float32(1),
        "three-dimensions": np.zeros((1, 1, 3)),
        "two-values": np.zeros(2),
        "four-values": np.zeros(4),
    }
    for name, value in values.items():
        yield Case(f"npy/{name}", PREDICT, _file("obs.npy", npy(value)), message="bservations")
    yield Case("npy/no-rows", PREDICT, _file("obs.npy", npy(np.zeros((0, 3)))), (0, 2))
    yield Case(
        "npy/pickled-object",
        PREDICT,
        lambda workspace, bases: (workspace.given / "obs.npy").write_bytes(
            npy(_evil(workspace), pickled=True)
        ),
    )


def cases() -> Iterator[Case]:
    yield from npz_cases()
    yield from npy_cases()

"""pt files and safetensors."""

from __future__ import annotations

import builtins
import json
import os
import pickle
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rl_training.runtime.checkpointing import MODEL, OPTIMIZERS
from tests.faults.runs import forge, newest
from tests.hostile.bases import Bases, arrays
from tests.hostile.case import Case, Write
from tests.hostile.formats import (
    MISSING,
    Called,
    Member,
    Storage,
    Stored,
    archive,
    npz,
    pickled,
    pt,
    pt_columns,
    safetensors,
    tensor_entry,
    torch_saved,
)
from tests.hostile.sandbox import Workspace

INSPECT = ("data", "inspect", "{given}/d.pt")
ROWS = 40


def _file(data: bytes | Callable[[Workspace], bytes]) -> Write:
    return lambda workspace, bases: (workspace.given / "d.pt").write_bytes(
        data(workspace) if callable(data) else data
    )


def _tensors() -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(values.copy()) for name, values in arrays().items()}


def _saved(**changes: Any) -> bytes:
    merged = {**_tensors(), **changes}
    return torch_saved({name: value for name, value in merged.items() if value is not MISSING})


def _rewards(**changes: Any) -> bytes:
    """Return the ordinary columns with an inconsistent rewards tensor."""
    fields: dict[str, Any] = {"shape": (ROWS,), "stride": (1,), "offset": 0}
    storage = {"key": "9", "numel": ROWS} | {
        name: changes.pop(name) for name in ("key", "numel", "kind", "device") if name in changes
    }
    stored = Stored(Storage(**storage), **(fields | changes))
    ordinary = zipfile.ZipFile(_stream(pt_columns(rewards=MISSING)))
    records = {
        name.removeprefix("archive/data/"): ordinary.read(name)
        for name in ordinary.namelist()
        if name.startswith("archive/data/")
    }
    value: dict[str, Any] = {}
    for number, (name, values) in enumerate(arrays().items()):
        if name != "rewards":
            number -= 1 if number > list(arrays()).index("rewards") else 0
            strides = tuple(
                step // values.itemsize for step in np.ascontiguousarray(values).strides
            )
            value[name] = Stored(Storage(str(number), values.size), values.shape, strides)
    return pt(value | {"rewards": stored}, records | {"9": bytes(4 * ROWS)})


def _stream(data: bytes) -> Any:
    import io

    return io.BytesIO(data)


def _billion_laughs() -> bytes:
    """Return a pickle of ten levels of lists, each with ten references to the next level."""
    value: Any = "x"
    for _ in range(10):
        value = [value] * 10
    return pt(value)


def _deep(depth: int) -> bytes:
    return pt(b"\x80\x02" + b"]" * depth + b"a" * (depth - 1) + b".")


def _opcodes() -> dict[str, bytes]:
    """Return handwritten pickles."""
    return {
        "no-stop": b"\x80\x02}",
        "empty": b"",
        "only-stop": b".",
        "unknown-opcode": b"\x80\x02\xff.",
        "protocol-99": b"\x80\x63}.",
        "text-beyond-the-end": b"\x80\x02X\xff\xff\xff\x7f.",
        "long-beyond-the-end": b"\x80\x02\x8b\xff\xff\xff\x7f.",
        "negative-long": b"\x80\x02\x8b\xff\xff\xff\xff.",
        "memo-of-2-gib": b"\x80\x02}r\xff\xff\xff\x7f.",
        "missing-memo": b"\x80\x02h\x05.",
        "pop-from-empty-stack": b"\x80\x020.",
        "setitems-without-a-mark": b"\x80\x02}u.",
        "build-on-text": b"\x80\x02X\x01\0\0\0a}b.",
        "extension": b"\x80\x02\x82\x01.",
        "instance": b"\x80\x02(ios\nsystem\nX\x01\0\0\0x.",
        "object": b"\x80\x02(cos\nsystem\nX\x01\0\0\0xo.",
        "persistent-id-is-a-number": b"\x80\x02K\x01Q.",
        "persistent-id-is-text": pickled({"a": 1})[:-1] + b"0X\x01\0\0\0xQ.",
    }


def pt_cases() -> Iterator[Case]:
    """Yield tensor files that are read as datasets."""
    mark = "made"
    calls: dict[str, Callable[[Workspace], bytes]] = {
        "os-system": lambda p: pt({"a": Called(os.system, f"touch {p.outside / mark}")}),
        "eval": lambda p: pt({"a": Called(builtins.eval, f"open({str(p.outside / mark)!r}, 'w')")}),
        "getattr": lambda p: pt({"a": Called(builtins.getattr, "x", "upper")}),
        "torch-load": lambda p: pt({"a": Called(torch.load, str(p.precious))}),
        "torch-hub": lambda p: pt({"a": Called(torch.hub.load, "a/b", "c")}),
        "numpy-load": lambda p: pt({"a": Called(np.load, str(p.precious))}),
        "path": lambda p: pt({"a": Called(Path, "/etc")}),
        "legacy-pickle": lambda p: pickle.dumps(Called(os.system, f"touch {p.outside / mark}")),
        "legacy-torch": lambda p: torch_saved(
            {"a": Called(os.system, f"touch {p.outside / mark}")},
            _use_new_zipfile_serialization=False,
        ),
    }
    for name, make in calls.items():
        yield Case(f"pt/calls-{name}", INSPECT, _file(make), message="d.pt")
    for name, code in _opcodes().items():
        yield Case(f"pt/pickle-{name}", INSPECT, _file(pt(code)), message="d.pt")
    sizes = {
        "claims-2-to-the-30": _rewards(numel=1 << 30),
        "claims-2-to-the-62": _rewards(numel=1 << 62),
        "claims-2-to-the-70": _rewards(numel=1 << 70),
        "claims-one-element-too-many": _rewards(numel=ROWS + 1),
        "claims-one-element-too-few": _rewards(numel=ROWS - 1, shape=(ROWS,)),
        "claims-a-negative-size": _rewards(numel=-1),
        "claims-text": _rewards(numel="40"),
        "record-missing": _rewards(key="nowhere"),
        "record-elsewhere": _rewards(key="../data.pkl"),
        "record-name-is-a-number": _rewards(key=7),
        "another-type": _rewards(kind=torch.DoubleStorage),
        "type-is-text": _rewards(kind="FloatStorage"),
        "shape-too-large": _rewards(shape=(1 << 30,)),
        "shape-beyond-64-bits": _rewards(shape=(1 << 70,)),
        "shape-negative": _rewards(shape=(-ROWS,)),
        "shape-with-text": _rewards(shape=("a",)),
        "zero-stride": _rewards(shape=(1 << 40,), stride=(0,)),
        "stride-too-large": _rewards(stride=(1 << 20,)),
        "stride-negative": _rewards(stride=(-1,)),
        "stride-beyond-64-bits": _rewards(stride=(1 << 70,)),
        "wrong-number-of-strides": _rewards(stride=(1, 1)),
        "offset-too-large": _rewards(offset=1),
        "offset-huge": _rewards(offset=1 << 40),
        "offset-negative": _rewards(offset=-1),
    }
    for name, data in sizes.items():
        yield Case(f"pt/storage-{name}", INSPECT, _file(data), message="d.pt")
    yield from _pt_contents()
    yield from _pt_archives()


def _pt_contents() -> Iterator[Case]:
    tensors = _tensors()
    refused = {
        "a-list": torch_saved(list(tensors.values())),
        "a-tensor": torch_saved(tensors["rewards"]),
        "empty": torch_saved({}),
        "keys-are-numbers": torch_saved(dict(enumerate(tensors.values()))),
        "nested-dict": torch_saved({"data": tensors}),
        "text-among-tensors": _saved(note="x"),
        "a-sparse-tensor": _saved(rewards=tensors["rewards"].to_sparse()),
        "a-sparse-csr-tensor": _saved(observations=tensors["observations"].to_sparse_csr()),
        "a-meta-tensor": _saved(rewards=torch.zeros(ROWS, device="meta")),
        "a-complex-tensor": _saved(rewards=torch.zeros(ROWS, dtype=torch.complex64)),
        "a-quantized-tensor": _saved(
            rewards=torch.quantize_per_tensor(tensors["rewards"], 0.1, 0, torch.qint8)
        ),
        "bfloat16": _saved(rewards=tensors["rewards"].bfloat16()),
        "fewer-rewards": _saved(rewards=tensors["rewards"][:-1]),
        "no-actions": _saved(actions=MISSING),
        "a-module": torch_saved(torch.nn.Linear(1, 1)),
        "laughs": _billion_laughs(),
        "deep-100": _deep(100),
        "deep-100000": _deep(100_000),
    }
    for name, data in refused.items():
        yield Case(f"pt/content-{name}", INSPECT, _file(data), message="d.pt")
    shared = torch.rand(ROWS + 1, 3)
    accepted = {
        "handmade-columns": pt_columns(),
        "consistent-handmade-tensors": _rewards(),
        "float64": _saved(rewards=tensors["rewards"].double()),
        "gradients": _saved(rewards=tensors["rewards"].clone().requires_grad_()),
        "a-parameter": _saved(rewards=torch.nn.Parameter(tensors["rewards"])),
        "shared-memory": _saved(observations=shared[:-1], next_observations=shared[1:]),
        "one-value-for-all-rows": _saved(terminals=torch.zeros(1).expand(ROWS)),
        "transposed": _saved(observations=torch.rand(3, ROWS).t()),
    }
    for name, data in accepted.items():
        yield Case(f"pt/content-{name}", INSPECT, _file(data), (0,), "40")


def _pt_archives() -> Iterator[Case]:
    ordinary = zipfile.ZipFile(_stream(pt_columns()))
    members = [Member(name, ordinary.read(name)) for name in ordinary.namelist()]

    def changed(ending: str, **changes: Any) -> bytes:
        return archive(
            Member(**(vars(m) | changes)) if m.name.endswith(ending) else m for m in members
        )

    refused = {
        "without-a-pickle": archive(m for m in members if "pkl" not in m.name),
        "record-claims-4-gib": changed("data/0", size=0xFFFFFFF0, packed=0xFFFFFFF0),
        "record-beyond-the-file": changed("data/0", offset=0xFFFFFF00),
        "record-at-wrong-offset": changed("data/0", offset=0),
        "record-compressed": changed("data/0", method=8),
        "directory-beyond-the-file": archive(members, directory=0xFFFFFF00),
        "no-members": archive([]),
        "two-folders": archive([*members, Member("other/data.pkl", b".")]),
        "an-npz": npz(),
        "byte-order-unknown": changed("byteorder", data=b"middle"),
    }
    for name, data in refused.items():
        yield Case(f"pt/archive-{name}", INSPECT, _file(data), message="d.pt")
    code = [
        Member("archive/code/evil.py", b"import os"),
        Member("archive/constants.pkl", b"\x80\x02)."),
    ]
    with_code = archive([*members, *code])
    yield Case("pt/archive-code-is-not-run", INSPECT, _file(with_code), (0,), "40")


# --- safetensors ----------------------------------------------------------------


def _safetensors_files() -> dict[str, Callable[[bytes], bytes]]:
    """Return functions that turn a checkpoint's tensor file into a hostile one."""

    def altered(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
        def make(data: bytes) -> bytes:
            length = int.from_bytes(data[:8], "little")
            header = json.loads(data[8 : 8 + length])
            change(header)
            return safetensors(header, data[8 + length :])

        return make

    def first(header: dict[str, Any]) -> dict[str, Any]:
        entry: dict[str, Any] = header[next(name for name in header if name != "__metadata__")]
        return entry

    def fill(value: float) -> Callable[[bytes], bytes]:
        def make(data: bytes) -> bytes:
            length = 8 + int.from_bytes(data[:8], "little")
            return data[:length] + np.float32(value).tobytes() * ((len(data) - length) // 4)

        return make

    return {
        "empty": lambda data: b"",
        "seven-bytes": lambda data: data[:7],
        "only-a-length": lambda data: data[:8],
        "half": lambda data: data[: len(data) // 2],
        "last-byte-missing": lambda data: data[:-1],
        "trailing-bytes": lambda data: data + b"\0" * 8,
        "header-of-an-exabyte": lambda data: safetensors(b"{}", length=1 << 60),
        "header-of-200-mb": lambda data: safetensors(b"{}", length=200_000_000),
        "header-not-json": lambda data: safetensors(b"{not json}"),
        "header-is-a-list": lambda data: safetensors([]),
        "header-deep": lambda data: safetensors(b"[" * 100_000 + b"]" * 100_000),
        "header-empty": lambda data: safetensors({}),
        "header-with-duplicate-name": lambda data: safetensors(
            b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
            b'"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
            bytes(4),
        ),
        "offsets-beyond-the-file": altered(lambda h: first(h).update(data_offsets=[0, 1 << 40])),
        "offsets-negative": altered(lambda h: first(h).update(data_offsets=[-4, 0])),
        "offsets-reversed": altered(lambda h: first(h).update(data_offsets=[8, 0])),
        "offsets-overlap": altered(
            lambda h: [e.update(data_offsets=[0, 4]) for n, e in h.items() if n != "__metadata__"]
        ),
        "shape-huge": altered(lambda h: first(h).update(shape=[1 << 40, 1 << 40])),
        "shape-negative": altered(lambda h: first(h).update(shape=[-1])),
        "shape-text": altered(lambda h: first(h).update(shape="[1]")),
        "type-unknown": altered(lambda h: first(h).update(dtype="PICKLE")),
        "four-bit-type": lambda data: safetensors({"a": tensor_entry("F4", [2], 0, 1)}, b"\0"),
        "type-integer": lambda data: data.replace(b'"F32"', b'"I32"'),
        "metadata-is-a-number": altered(lambda h: h.update(__metadata__=7)),
        "missing-tensor": lambda data: safetensors({"a": tensor_entry("F32", [1], 0, 4)}, bytes(4)),
        "one-name-changed": altered(lambda h: h.update(evil=h.pop(next(iter(h))))),
        "a-pickle": lambda data: b"\x80\x04cos\nsystem\n.",
        "a-pt-file": lambda data: pt_columns(),
        "nan": fill(float("nan")),
        "infinite": fill(float("inf")),
    }


def _replace(name: str, make: Callable[[bytes], bytes]) -> Write:
    def write(workspace: Workspace, bases: Bases) -> None:
        file = newest(workspace.run) / name
        file.write_bytes(make(file.read_bytes()))
        forge(newest(workspace.run))

    return write


def safetensors_cases() -> Iterator[Case]:
    """Yield changed weights and optimizers of a checkpoint with matching digests."""
    predict = ("predict", "{run}", "--obs", "{obs}")
    resume = ("resume", "{run}", "total_timesteps=26")
    for name, make in _safetensors_files().items():
        yield Case(f"safetensors/model-{name}", predict, _replace(MODEL, make), (1,), base="sac")
    for name in ("empty", "half", "offsets-beyond-the-file", "shape-huge", "nan", "type-integer"):
        write = _replace(OPTIMIZERS, _safetensors_files()[name])
        yield Case(f"safetensors/optimizers-{name}", resume, write, (1,), base="sac")
    for name in ("nan", "infinite"):
        write = _replace(MODEL, _safetensors_files()[name])
        yield Case(
            f"safetensors/evaluate-{name}",
            ("evaluate", "{run}", "--episodes", "1"),
            write,
            (1,),
            base="sac",
        )
        yield Case(f"safetensors/resume-{name}", resume, write, (1,), base="sac")
        yield Case(
            f"safetensors/collect-{name}",
            ("data", "collect", "{run}", "--steps", "3", "--out", "{given}/c.npz"),
            write,
            (1,),
            base="sac",
        )


def cases() -> Iterator[Case]:
    yield from pt_cases()
    yield from safetensors_cases()

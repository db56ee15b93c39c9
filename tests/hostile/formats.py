"""Files built byte by byte, so that any part of them can be inconsistent."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tests.hostile.bases import arrays

Array = np.ndarray[Any, Any]
MISSING = object()


# --- Archives -----------------------------------------------------------------


@dataclass(frozen=True)
class Member:
    """A file in a zip archive; its headers may differ from its actual content."""

    name: str
    data: bytes
    """Bytes stored in the archive."""
    method: int = 0
    size: int | None = None
    """Claimed uncompressed size in bytes."""
    packed: int | None = None
    """Claimed compressed size in bytes."""
    crc: int | None = None
    flags: int = 0
    offset: int | None = None
    """Claimed offset of the local header."""
    extra: bytes = b""
    """Extra field of the directory entry."""
    local_name: str | None = None

    def fields(self) -> tuple[int, int, int]:
        """Return the checksum and sizes for the headers."""
        crc = zlib.crc32(self.data) if self.crc is None else self.crc
        packed = len(self.data) if self.packed is None else self.packed
        return crc, packed, len(self.data) if self.size is None else self.size


def archive(
    members: Iterable[Member],
    *,
    comment: bytes = b"",
    entries: int | None = None,
    directory: int | None = None,
    prefix: bytes = b"",
) -> bytes:
    """Return a zip archive of the members, after ``prefix``."""
    body, central = bytearray(prefix), bytearray()
    count = 0
    for member in members:
        start, count = len(body), count + 1
        crc, packed, size = member.fields()
        name, local = member.name.encode(), (member.local_name or member.name).encode()
        head = (20, member.flags, member.method, 0, 33)
        sizes = [min(value, 0xFFFFFFFF) for value in (packed, size)]
        body += b"PK\3\4" + struct.pack("<5H3I2H", *head, crc, *sizes, len(local), 0)
        body += local + member.data
        extra = member.extra
        central += b"PK\1\2" + struct.pack("<6H3I", 20, *head, crc, *sizes)
        offset = start if member.offset is None else member.offset
        central += struct.pack("<5H2I", len(name), len(extra), 0, 0, 0, 0, offset)
        central += name + extra
    number = min(count if entries is None else entries, 0xFFFF)
    where = len(body) if directory is None else directory
    end = struct.pack("<4H2IH", 0, 0, number, number, len(central), where, len(comment))
    return bytes(body + central) + b"PK\5\6" + end + comment


def deflated(data: bytes) -> bytes:
    """Compress with raw deflate, as in zip archives."""
    pack = zlib.compressobj(9, zlib.DEFLATED, -15)
    return pack.compress(data) + pack.flush()


def deflated_zeros(megabytes: int, head: bytes = b"") -> bytes:
    """Compress ``head`` and many zeros to about a thousandth of their size."""
    pack = zlib.compressobj(9, zlib.DEFLATED, -15)
    begin = pack.compress(head) + pack.flush(zlib.Z_FULL_FLUSH)
    block = pack.compress(bytes(1 << 20)) + pack.flush(zlib.Z_FULL_FLUSH)
    return begin + block * megabytes + pack.flush(zlib.Z_FINISH)


# --- Arrays -------------------------------------------------------------------


def npy(array: Any, *, pickled: bool = False) -> bytes:
    """Return the bytes of an npy file."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array), allow_pickle=pickled)
    return stream.getvalue()


def npy_header(
    text: str, data: bytes = b"", *, version: tuple[int, int] = (1, 0), length: int | None = None
) -> bytes:
    """Return an npy file with a custom header."""
    line = text.encode("utf-8") + b"\n"
    form = "<H" if version[0] == 1 else "<I"
    size = struct.pack(form, len(line) if length is None else length)
    return b"\x93NUMPY" + bytes(version) + size + line + data


def described(descr: str, shape: str, data: bytes = b"", *, fortran: bool = False) -> bytes:
    """Return an npy file whose header has these fields, given as Python source."""
    return npy_header(f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}", data)


def columns(**changes: Any) -> dict[str, Any]:
    """Return the ordinary columns with changes; `MISSING` removes a column."""
    merged = {**arrays(), **changes}
    return {name: value for name, value in merged.items() if value is not MISSING}


def npz(**changes: Any) -> bytes:
    """Return an npz archive; a column may be given as the bytes of its npy file."""
    return archive(npz_members(**changes))


def npz_members(**changes: Any) -> list[Member]:
    """Return the members of an npz archive."""
    return [
        Member(f"{name}.npy", value if isinstance(value, bytes) else npy(value))
        for name, value in columns(**changes).items()
    ]


# --- Tensors ------------------------------------------------------------------


def safetensors(header: Any, data: bytes = b"", *, length: int | None = None) -> bytes:
    """Return a safetensors file with a custom header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor_entry(dtype: str, shape: list[Any], start: Any, end: Any) -> dict[str, Any]:
    """Return the entry of one tensor in a safetensors header."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


@dataclass(frozen=True)
class Storage:
    """A storage that a pt file refers to."""

    key: Any
    numel: Any
    kind: Any = torch.FloatStorage
    device: Any = "cpu"


@dataclass(frozen=True)
class Stored:
    """A tensor in a pt file with custom shape, strides and offset."""

    storage: Any
    shape: Any
    stride: Any
    offset: Any = 0

    def __reduce__(self) -> tuple[Any, ...]:
        args: Any = (self.storage, self.offset, self.shape, self.stride, False, OrderedDict())
        return torch._utils._rebuild_tensor_v2, args


class Called:
    """A function call that unpickling executes."""

    def __init__(self, function: Any, *args: Any) -> None:
        self._call = function, args

    def __reduce__(self) -> tuple[Any, ...]:
        return self._call


class _Pickler(pickle.Pickler):
    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, Storage):
            return ("storage", value.kind, value.key, value.device, value.numel)
        return None


def pickled(value: Any) -> bytes:
    """Pickle with protocol 2; a `Storage` becomes a reference to a record."""
    stream = io.BytesIO()
    _Pickler(stream, protocol=2).dump(value)
    return stream.getvalue()


def pt(value: Any, records: Mapping[str, bytes] | None = None, **changes: bytes) -> bytes:
    """Return a pt archive: a pickle (or its bytes) and the records that it refers to."""
    members = {
        "data.pkl": value if isinstance(value, bytes) else pickled(value),
        "byteorder": b"little",
        **{f"data/{key}": data for key, data in (records or {}).items()},
        "version": b"3\n",
    } | {name.replace("_", "/"): data for name, data in changes.items()}
    return archive(Member(f"archive/{name}", data) for name, data in members.items())


def pt_columns(**changes: Any) -> bytes:
    """Return a pt file of the ordinary columns; changes are `Stored` or values of a tensor."""
    value: dict[str, Any] = {}
    records: dict[str, bytes] = {}
    for number, (name, column) in enumerate(columns(**changes).items()):
        if not isinstance(column, np.ndarray):
            value[name] = column
            continue
        column = column.astype(np.float32)
        shape = column.shape
        strides = tuple(step // 4 for step in np.ascontiguousarray(column).strides)
        value[name] = Stored(Storage(str(number), column.size), shape, strides)
        records[str(number)] = column.tobytes()
    return pt(value, records)


def torch_saved(value: Any, **options: Any) -> bytes:
    """Return the bytes that `torch.save` writes."""
    stream = io.BytesIO()
    torch.save(value, stream, **options)
    return stream.getvalue()

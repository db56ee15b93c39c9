"""Read pt datasets, which are dicts of tensors written by `torch.save`, without unpickling.

The archive's ``data.pkl`` is only scanned: a small interpreter executes the opcodes that a dict of
tensors needs and rejects all others. It returns descriptions of tensors, whose declared sizes are
then checked against the bytes of the archive. (`torch.load` trusts those sizes, even with
``weights_only=True``.)
"""

from __future__ import annotations

import ctypes
import mmap
import pickletools
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from rl_training.boundary.columns import Chunks, Column, check_expansion, slices, take_rows
from rl_training.boundary.zip_archive import data_offset, open_archive
from rl_training.errors import ConfigError
from rl_training.text import first_line, shown

_KIND = "a pt file"
_MAX_PROGRAM = 1 << 20
_STORAGES = {
    "DoubleStorage": "f8",
    "FloatStorage": "f4",
    "HalfStorage": "f2",
    "LongStorage": "i8",
    "IntStorage": "i4",
    "ShortStorage": "i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "?",
}


@contextmanager
def open_pt(path: Path) -> Iterator[dict[str, Column]]:
    """Open the tensors of a pt file, memory-mapped for the duration of the block."""
    with open_archive(path, _KIND) as (archive, stream):
        try:
            records = _Records(archive, stream)
            tensors = _scan(records.program())
            arrays = {name: records.array(tensor) for name, tensor in tensors.items()}
        except Exception as error:  # from the archive, or from invalid values
            raise ConfigError(
                f"{path} cannot be read as a dict of tensors, the only supported content: "
                f"{first_line(error)}"
            ) from None
        columns = {
            name: Column(
                array.shape,
                array.dtype,
                partial(_released_slices, array),
                str(path),
                _KIND,
                partial(take_rows, array),
                on_disk=True,
            )
            for name, array in arrays.items()
        }
        check_expansion(path, columns.values())
        yield columns


# --- The bytes of the file -----------------------------------------------------------


class _Storage(NamedTuple):
    """The declared memory of one or more tensors."""

    key: str
    type: str
    elements: int


class _Tensor(NamedTuple):
    """The declared position and shape of one tensor."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Records:
    """The records of an archive, as arrays over one memory map."""

    def __init__(self, archive: zipfile.ZipFile, stream: BinaryIO) -> None:
        self._archive = archive
        self._stream = stream
        self._members = {info.filename: info for info in archive.infolist()}
        (program,) = (name for name in self._members if f"/{name}".endswith("/data.pkl"))
        self._root = program.removesuffix("data.pkl")
        """The folder inside the archive, with a trailing slash."""
        self._map = np.memmap(stream, dtype=np.uint8, mode="r")
        order = self._root + "byteorder"
        found = archive.read(order) if order in self._members else b"little"
        if found not in (b"little", b"big"):
            raise ValueError(f"the byte order is {shown(found)}, but should be little or big")
        self._order = ">" if found == b"big" else "<"

    def program(self) -> bytes:
        """Return the program that describes the tensors."""
        info = self._members[self._root + "data.pkl"]
        if info.file_size > _MAX_PROGRAM:
            raise ValueError(
                f"its data.pkl has {info.file_size:,} bytes; the limit is {_MAX_PROGRAM:,}"
            )
        return self._archive.read(info)

    def array(self, tensor: _Tensor) -> np.ndarray[Any, Any]:
        """Return the tensor after checking that its declared range is inside its record."""
        key, kind, elements = tensor.storage
        if kind not in _STORAGES:
            raise ValueError(f"the storage type {shown(kind)} is not supported")
        dtype = np.dtype(self._order + _STORAGES[kind])
        member = self._members[f"{self._root}data/{key}"]
        if elements * dtype.itemsize != member.file_size:
            raise ValueError(
                f"storage {shown(key)} declares {elements:,} elements, but has "
                f"{member.file_size:,} bytes"
            )
        start = data_offset(self._stream, member)
        values = self._map[start : start + member.file_size]
        if len(values) != member.file_size:
            raise ValueError(f"storage {shown(key)} extends beyond the file")
        flat = np.frombuffer(values, dtype=dtype)
        if (
            len(tensor.shape) != len(tensor.strides)
            or min((tensor.offset, *tensor.shape, *tensor.strides)) < 0
        ):
            raise ValueError(
                f"shape {tensor.shape} and strides {tensor.strides} of a tensor are invalid"
            )
        if 0 in tensor.shape:
            return np.empty(tensor.shape, dtype)
        pairs = zip(tensor.shape, tensor.strides, strict=True)
        last = tensor.offset + sum((size - 1) * stride for size, stride in pairs)
        if last >= elements:
            raise ValueError(f"a tensor of shape {tensor.shape} extends beyond its storage")
        strides = tuple(stride * dtype.itemsize for stride in tensor.strides)
        return np.lib.stride_tricks.as_strided(
            flat[tensor.offset :], tensor.shape, strides, writeable=False
        )


def _released_slices(array: np.ndarray[Any, Any], rows: int) -> Chunks:
    """Yield slices of a memory-mapped array, and release their pages after use."""
    for chunk in slices(array, rows):
        yield chunk
        # An expanded tensor is not contiguous and occupies fewer bytes than `nbytes`. The bytes
        # after it may belong to other tensors.
        if sys.platform == "linux" and chunk.flags.c_contiguous:
            _release(chunk)


def _release(chunk: np.ndarray[Any, Any]) -> None:
    """Release the memory pages that contain only ``chunk``."""
    start = -(-chunk.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
    stop = (chunk.ctypes.data + chunk.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if stop > start:
        dont_need = ctypes.c_int(mmap.MADV_DONTNEED)
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), dont_need)


# --- The program that describes the tensors -------------------------------------------


class _Global(NamedTuple):
    """A module and a name in it; never imported."""

    module: str
    name: str


_MARK = object()
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": (), "MARK": _MARK}
_LITERALS = frozenset(
    {"BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE", "SHORT_BINUNICODE", "BINFLOAT"}
)


def _scan(program: bytes) -> dict[str, _Tensor]:
    """Execute the opcodes of a dict of tensors on a stack; reject all others."""
    stack: list[Any] = []
    memo: dict[Any, Any] = {}
    for opcode, argument, _ in pickletools.genops(program):
        name = opcode.name
        if name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _LITERALS:
            stack.append(argument)
        elif name == "GLOBAL":
            stack.append(_Global(*str(argument).split(" ", 1)))
        elif name in ("BINPUT", "LONG_BINPUT"):
            memo[argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name in _BUILDERS:
            count, build = _BUILDERS[name]
            items = _pop(stack, count)
            stack.append(build(stack, items))
        elif name not in ("PROTO", "STOP"):
            raise ValueError(f"it uses {name}, which a dict of tensors does not need")
    (result,) = stack
    if type(result) is not dict or not all(type(v) is _Tensor for v in result.values()):
        raise ValueError("it does not contain a dict of tensors")
    return result


def _pop(stack: list[Any], count: int | None) -> list[Any]:
    """Pop the last ``count`` items from the stack, or all above the last mark if it is None."""
    at = len(stack) - (1 + stack[::-1].index(_MARK) if count is None else count)
    if at < 0:
        raise ValueError("its data.pkl uses more values than it contains")
    items = stack[at + (count is None) :]
    del stack[at:]
    return items


def _set_items(stack: list[Any], items: list[Any]) -> dict[str, Any]:
    target: dict[str, Any] = stack.pop()
    if type(target) is not dict or len(items) % 2:
        raise ValueError("it sets an item outside of a dict")
    for key, value in zip(items[::2], items[1::2], strict=True):
        if type(key) is not str or key in target:
            raise ValueError("its keys are not unique strings")
        target[key] = value
    return target


def _storage(_: list[Any], items: list[Any]) -> _Storage:
    kind, storage, key, _location, elements = items[0]
    if kind != "storage" or type(key) is not str or not key.isdecimal():
        raise ValueError("a storage has no numeric key")
    if type(storage) is not _Global or storage.module != "torch":
        raise ValueError("a storage is not a torch storage")
    if type(elements) is not int or elements < 0:
        raise ValueError(f"a storage declares {shown(elements)} elements, which is invalid")
    return _Storage(key, storage.name, elements)


def _call(_: list[Any], items: list[Any]) -> Any:
    function, arguments = items
    if function == _Global("collections", "OrderedDict") and arguments == ():
        return {}
    if function == _Global("torch._utils", "_rebuild_tensor_v2"):
        storage, offset, shape, strides, *_ = arguments
        if type(storage) is not _Storage:
            raise ValueError("a tensor has no storage")
        if not all(type(n) is int for n in (offset, *shape, *strides)):
            raise ValueError("a tensor's sizes are not integers")
        return _Tensor(storage, offset, tuple(shape), tuple(strides))
    if function == _Global("torch._utils", "_rebuild_parameter"):
        return arguments[0]
    raise ValueError(
        f"it calls {getattr(function, 'module', '?')}.{getattr(function, 'name', '?')}, which is "
        "not allowed"
    )


_BUILDERS: dict[str, tuple[int | None, Callable[[list[Any], list[Any]], Any]]] = {
    "EMPTY_DICT": (0, lambda *_: {}),
    "TUPLE": (None, lambda _, items: tuple(items)),
    "TUPLE1": (1, lambda _, items: tuple(items)),
    "TUPLE2": (2, lambda _, items: tuple(items)),
    "TUPLE3": (3, lambda _, items: tuple(items)),
    "BINPERSID": (1, _storage),
    "REDUCE": (2, _call),
    "SETITEM": (2, _set_items),
    "SETITEMS": (None, _set_items),
}
"""For each opcode, the items it pops (None: all above the mark) and what it builds from them."""

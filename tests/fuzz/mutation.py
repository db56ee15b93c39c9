"""Structure-aware mutations of valid files.

Every function takes the bytes of a valid file and a generator, and returns mutated bytes. In
addition to single bytes, they change fields: sizes and offsets in zip directories, headers of
arrays, opcodes of pickles, addresses in HDF5. Checksums are corrected where a reader would
otherwise stop at a mismatch.
"""

from __future__ import annotations

import io
import json
import pickletools
import re
import struct
import zipfile
from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

from tests.hostile.formats import Member, archive, deflated

Mutate = Callable[[bytes, Random], bytes]
NUMBERS = (0, 1, 2, 3, 7, 8, 15, 16, 255, 256, 1000, 4095, 4096, 65535, 65536, 10**6, 2**24)
EDGES = (
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**32,
    2**40,
    2**53,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
    10**30,
)
MOST = 900_000
"""Maximum size of an input in bytes; the memory limit assumes inputs below a megabyte."""


def number(rng: Random) -> int:
    """Draw a boundary value or a small number, of either sign."""
    value = rng.choice(NUMBERS if rng.random() < 0.5 else EDGES)
    return -value if rng.random() < 0.2 else value


# --- Any bytes ------------------------------------------------------------------------


def mutate_bytes(data: bytes, rng: Random) -> bytes:
    """Make one to six changes that ignore the format."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        rng.choice(_BYTE_CHANGES)(changed, rng)
    return bytes(changed[:MOST])


def _position(data: bytearray, rng: Random) -> int:
    return rng.randrange(len(data) + 1)


def _flip(data: bytearray, rng: Random) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set_byte(data: bytearray, rng: Random) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def _set_number(data: bytearray, rng: Random) -> None:
    size = rng.choice((1, 2, 4, 8))
    if len(data) >= size:
        at = rng.randrange(len(data) - size + 1)
        value = (number(rng) % (1 << 8 * size)).to_bytes(size, "little")
        data[at : at + size] = value if rng.random() < 0.5 else value[::-1]


def _delete(data: bytearray, rng: Random) -> None:
    at = _position(data, rng)
    del data[at : at + rng.choice((1, 2, 4, 8, 64, 1024))]


def _truncate(data: bytearray, rng: Random) -> None:
    del data[_position(data, rng) :]


def _insert(data: bytearray, rng: Random) -> None:
    at = _position(data, rng)
    data[at:at] = rng.randbytes(rng.choice((1, 2, 4, 16, 256)))


def _repeat(data: bytearray, rng: Random) -> None:
    at, size = _position(data, rng), rng.choice((1, 4, 16, 128, 2048))
    data[at:at] = data[at : at + size] * rng.choice((1, 2, 10, 100))


def _fill(data: bytearray, rng: Random) -> None:
    at, size = _position(data, rng), rng.choice((4, 16, 256))
    end = min(len(data), at + size)
    data[at:end] = bytes([rng.choice((0, 0xFF, 0x20))]) * (end - at)


def _move(data: bytearray, rng: Random) -> None:
    size = rng.choice((4, 16, 128))
    source, target = _position(data, rng), _position(data, rng)
    data[target : target + size] = data[source : source + size]


_BYTE_CHANGES: tuple[Callable[[bytearray, Random], None], ...] = (
    *(_flip, _flip, _set_byte, _set_byte, _set_number, _set_number),
    *(_delete, _truncate, _insert, _repeat, _fill, _move),
)


def or_bytes(mutate: Mutate, share: float = 0.3) -> Mutate:
    """Apply ``mutate``, or with probability ``share`` a change that ignores the format."""

    def either(data: bytes, rng: Random) -> bytes:
        if rng.random() < share:
            return mutate_bytes(data, rng)
        try:
            return mutate(data, rng)[:MOST]
        except Exception:  # the input was already broken, so it cannot be split into parts
            return mutate_bytes(data, rng)

    return either


# --- Arrays ---------------------------------------------------------------------------

DESCRIPTIONS = (
    *("'<f4'", "'>f8'", "'|O'", "'|V0'", "'<U0'", "'<U5'", "'|S3'", "'<M8[D]'", "'<c8'", "'?'"),
    *("'|V2147483647'", "[('a', '<f4')]", "('<f4', (3,))", "[('a', '|O')]", "7", "None", "'x'"),
    *("'<f2'", "'<i8'", "'|u1'", "'<g'", "[]", "''", "('<f4', (536870912,))"),
)


def mutate_npy(data: bytes, rng: Random) -> bytes:
    """Change the header's text, its length, its version, or the values after it."""
    wide = data[6] != 1
    start = 12 if wide else 10
    length = int.from_bytes(data[8:start], "little")
    text, values = data[start : start + length].decode("latin-1"), data[start + length :]
    version = data[6:8]
    change = rng.randrange(6)
    if change == 0:
        text = re.sub(r"'descr': .*?, 'f", f"'descr': {rng.choice(DESCRIPTIONS)}, 'f", text)
    elif change == 1:
        sizes = ", ".join(str(number(rng)) for _ in range(rng.randrange(4)))
        text = re.sub(r"\([^()]*\)", f"({sizes}{',' if sizes else ''})", text, count=1)
    elif change == 2:
        text = re.sub("True|False", rng.choice(("True", "False", "1", "None", "''")), text)
    elif change == 3:
        text = mutate_bytes(text.encode("latin-1"), rng).decode("latin-1")
    elif change == 4:
        values = mutate_bytes(values, rng)
    else:
        version = rng.choice((b"\1\0", b"\2\0", b"\3\0", b"\4\0", b"\0\0", b"\xff\xff"))
    wide = version[0] != 1
    claimed = len(text) if rng.random() < 0.85 else number(rng)
    size = (claimed % (1 << (32 if wide else 16))).to_bytes(4 if wide else 2, "little")
    return data[:6] + version + size + text.encode("latin-1") + values


# --- Pickles --------------------------------------------------------------------------

GLOBALS = (
    *(b"cos\nsystem\n", b"cbuiltins\neval\n", b"ctorch\nFloatStorage\n", b"ctorch\nevil\n"),
    *(b"ctorch._utils\n_rebuild_tensor_v2\n", b"ccollections\nOrderedDict\n", b"cevil\nx\n"),
)
OPCODES = b"()}]].0123456NKMJGhjqrtlsudbRQeiocp\x80\x81\x82\x85\x86\x87\x88\x89\x8a\x8b\x8c\x95"


def mutate_pickle(data: bytes, rng: Random) -> bytes:
    """Delete, repeat, move or replace whole opcodes, or the numbers in them."""
    offsets = [at or 0 for _, _, at in pickletools.genops(data)] + [len(data)]
    parts = [data[a:b] for a, b in pairwise(offsets)]
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(parts))
        change = rng.randrange(8)
        if change == 0:
            del parts[at]
        elif change == 1:
            parts.insert(at, parts[rng.randrange(len(parts))] * rng.choice((1, 1, 2, 100)))
        elif change == 2:
            parts[at] = bytes([rng.choice(OPCODES)]) + parts[at][1:]
        elif change == 3:
            parts.insert(at, bytes([rng.choice(OPCODES)]) + rng.randbytes(rng.choice((0, 1, 4))))
        elif change == 4:
            parts.insert(at, rng.choice(GLOBALS))
        elif change == 5:
            other = rng.randrange(len(parts))
            parts[at], parts[other] = parts[other], parts[at]
        else:
            parts[at] = _other_number(parts[at], rng)
        if not parts:
            break
    return b"".join(parts)


def _other_number(opcode: bytes, rng: Random) -> bytes:
    """Replace an integer with another one, or any other value with an integer."""
    value = number(rng)
    forms = (
        b"K" + (value % 256).to_bytes(1, "little"),
        b"M" + (value % 65536).to_bytes(2, "little"),
        b"J" + (value % (1 << 32)).to_bytes(4, "little"),
        b"\x8a\x09" + (value % (1 << 72)).to_bytes(9, "little"),
    )
    if opcode[:1] in b"KMJ\x8a" or rng.random() < 0.3:
        return rng.choice(forms)
    return mutate_bytes(opcode, rng)


# --- Archives -------------------------------------------------------------------------


def mutate_zip(inner: Mutate, suffix: str) -> Mutate:
    """Mutate a member whose name ends in ``suffix`` by ``inner``, or a directory entry."""

    def mutate(data: bytes, rng: Random) -> bytes:
        with zipfile.ZipFile(io.BytesIO(data)) as source:
            members = [
                Member(info.filename, source.read(info.filename)) for info in source.infolist()
            ]
        if rng.random() < 0.6:
            chosen = [n for n, m in enumerate(members) if m.name.endswith(suffix)] or [0]
            at = rng.choice(chosen)
            members[at] = Member(members[at].name, inner(members[at].data, rng))
        else:
            _mutate_directory(members, rng)
        options: dict[str, Any] = {}
        if rng.random() < 0.1:
            options[rng.choice(("entries", "directory"))] = abs(number(rng)) % (1 << 32)
        if rng.random() < 0.05:
            options["comment"] = rng.randbytes(rng.randrange(100))
        if rng.random() < 0.05:
            options["prefix"] = rng.randbytes(rng.randrange(100))
        return archive(members, **options)

    return mutate


def _mutate_directory(members: list[Member], rng: Random) -> None:
    at = rng.randrange(len(members))
    member, value = members[at], abs(number(rng))
    field = rng.choice(
        (
            "size",
            "packed",
            "crc",
            "offset",
            "method",
            "flags",
            "extra",
            "name",
            "deflate",
            "twice",
            "drop",
        )
    )
    if field == "deflate":
        crc, _, size = member.fields()
        members[at] = Member(member.name, deflated(member.data), method=8, size=size, crc=crc)
    elif field == "twice":
        members.append(members[rng.randrange(len(members))])
    elif field == "drop":
        del members[at]
    elif field == "name":
        names = ("../x", "/etc/passwd", "", "a\0b", members[rng.randrange(len(members))].name)
        members[at] = Member(rng.choice(names), member.data)
    elif field == "extra":
        tag = struct.pack("<2H", rng.choice((1, 0x5455, number(rng) % 65536)), value % 65536)
        members[at] = Member(member.name, member.data, extra=tag + rng.randbytes(rng.randrange(32)))
    elif field in ("method", "flags"):
        small = {field: value % 65536}
        members[at] = Member(member.name, member.data, **small)  # type: ignore[arg-type]
    else:
        large = {field: value % (1 << 32)}
        members[at] = Member(member.name, member.data, **large)  # type: ignore[arg-type]


# --- HDF5 -----------------------------------------------------------------------------

SIGNATURES = (b"\x89HDF", b"TREE", b"HEAP", b"SNOD", b"OHDR", b"FRHP", b"BTHD", b"FADB", b"GCOL")


def mutate_hdf5(data: bytes, rng: Random) -> bytes:
    """Change bytes, numbers and addresses of the structure, rarely of the values."""
    starts = [m.start() for sign in SIGNATURES for m in re.finditer(re.escape(sign), data)]
    starts += [at for at in range(0, len(data), 8) if data[at : at + 1] == b"\1"][:200]
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.choice(starts) + rng.randrange(96) if starts else rng.randrange(len(data))
        size = rng.choice((1, 1, 2, 4, 8))
        if at + size > len(changed):
            continue
        if rng.random() < 0.5:
            value = number(rng)
        else:  # an address or a size inside the file
            value = rng.choice(starts or [0]) if rng.random() < 0.5 else rng.randrange(len(data))
        changed[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, "little")
    return bytes(changed)


# --- Safetensors ----------------------------------------------------------------------


def mutate_safetensors(data: bytes, rng: Random) -> bytes:
    """Change the header as text or as data, its length, or the values."""
    length = int.from_bytes(data[:8], "little")
    header, values = data[8 : 8 + length], data[8 + length :]
    change = rng.randrange(4)
    if change == 0:
        header = mutate_bytes(header, rng)
    elif change == 1:
        values = mutate_bytes(values, rng)
    else:
        entries = json.loads(header)
        for _ in range(rng.choice((1, 1, 2))):
            _mutate_entry(entries, rng)
        header = json.dumps(entries).encode()
    claimed = len(header) if rng.random() < 0.85 else number(rng)
    return (claimed % (1 << 64)).to_bytes(8, "little") + header + values


def _mutate_entry(entries: dict[str, Any], rng: Random) -> None:
    name = rng.choice(list(entries) or ["x"])
    entry = entries.get(name)
    change = rng.randrange(6)
    if change == 0 or not isinstance(entry, dict):
        entries[rng.choice((name, "evil", "__metadata__"))] = rng.choice((None, 7, [], {}, entry))
    elif change == 1:
        entry["dtype"] = rng.choice(
            ("F32", "F64", "I32", "BOOL", "F4", "F8_E4M3", "BF16", "x", 7, None)
        )
    elif change == 2:
        entry["shape"] = [number(rng) for _ in range(rng.randrange(4))]
    elif change == 3:
        entry["data_offsets"] = [number(rng) for _ in range(rng.choice((1, 2, 2, 2, 3)))]
    elif change == 4:
        entries[rng.choice(("evil", "a" * 5000, "\x1b[31m", "optimizers.x"))] = entries.pop(name)
    else:
        entry.pop(rng.choice(("dtype", "shape", "data_offsets")), None)

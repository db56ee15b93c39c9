"""Journals survive a kill at any byte, and damaged lines are skipped."""

from __future__ import annotations

import errno
import json
import os
from io import FileIO
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from rl_training.boundary import journal
from rl_training.boundary.journal import Journal, journal_line, parse_journal_line, read_journal
from rl_training.boundary.reading import MAX_LINE
from rl_training.errors import ConfigError

RECORDS: list[dict[str, Any]] = [
    {"kind": "a", "n": 1},
    {"kind": "b", "text": "α \n"},
    {"kind": "c", "list": [1.5, None]},
]


def write(path: Path, *records: dict[str, Any]) -> None:
    log = Journal(path)
    log.append(records)
    log.close()


def test_records_are_read_back(tmp_path: Path) -> None:
    write(tmp_path / "j", *RECORDS[:2])
    write(tmp_path / "j", RECORDS[2])
    assert list(read_journal(tmp_path / "j")) == RECORDS


def test_each_line_is_a_json_object() -> None:
    data = json.loads(journal_line(RECORDS[1]))
    assert len(data.pop("sum")) == 16
    assert data == RECORDS[1]


def test_kill_at_any_byte_loses_at_most_the_torn_line(tmp_path: Path) -> None:
    lines = [journal_line(record) for record in RECORDS]
    whole = b"".join(lines)
    ends = [len(b"".join(lines[: n + 1])) for n in range(len(lines))]
    for size in range(len(whole) + 1):
        file = tmp_path / str(size)
        file.write_bytes(whole[:size])
        complete = sum(end - 1 <= size for end in ends)  # only the newline is missing
        assert [r for r in read_journal(file) if r is not None] == RECORDS[:complete]
        write(file, {"kind": "next"})
        assert [r for r in read_journal(file) if r is not None] == [
            *RECORDS[:complete],
            {"kind": "next"},
        ]


def test_any_changed_byte_is_noticed() -> None:
    line = journal_line(RECORDS[0])
    assert parse_journal_line(line) == RECORDS[0]
    for place in range(len(line) - 1):  # a changed newline joins two lines
        changed = bytearray(line)
        changed[place] ^= 0x02
        assert parse_journal_line(bytes(changed)) is None


@pytest.mark.parametrize(
    "body", [b'"a":1,"a":2}', b'"a":NaN}', b"]", b'"a":' + b"[" * 9999 + b"]" * 9999 + b"}"]
)
def test_a_line_that_is_not_a_plain_object_is_damaged(body: bytes) -> None:
    line = b'{"sum":"' + journal._digest(body) + b'",' + body + b"\n"
    assert parse_journal_line(line) is None


def test_a_long_line_is_skipped(tmp_path: Path) -> None:
    write(tmp_path / "j", {"kind": "x" * MAX_LINE}, RECORDS[0])
    assert list(read_journal(tmp_path / "j")) == RECORDS[:1]


def test_a_failed_write_leaves_a_usable_journal(tmp_path: Path) -> None:
    """The disk is full in the middle of a line, and has room again later."""
    log = Journal(tmp_path / "j")
    log.append(RECORDS[:1])

    def fill(stream: FileIO, data: bytes) -> None:
        stream.write(data[:9])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with mock.patch.object(journal, "write_all", fill), pytest.raises(OSError, match="No space"):
        log.append(RECORDS[1:2])
    log.append(RECORDS[2:])
    assert list(read_journal(tmp_path / "j")) == [RECORDS[0], None, RECORDS[2]]


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"")
    (tmp_path / "j").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic links"):
        write(tmp_path / "j", RECORDS[0])
    with pytest.raises(ConfigError, match="symbolic link"):
        list(read_journal(tmp_path / "j"))

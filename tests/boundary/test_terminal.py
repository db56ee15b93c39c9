"""Printing of bounded plain text, also to broken streams."""

from __future__ import annotations

import contextlib
import io
import os
import threading
from pathlib import Path

import pytest

from rl_training.boundary.terminal import guarded, print_stderr
from rl_training.errors import ConfigError
from rl_training.text import MAX_MESSAGE, one_line, printable
from tests.faults.zygote import Zygote, shared_zygote


@pytest.fixture
def zygote() -> Zygote:
    return shared_zygote()


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("plain, with  two spaces", "plain, with  two spaces"),
        ("café – ±", "café – ±"),
        ("while parsing\n   a block\n", "while parsing a block"),
        ("\x1b[31mred\x9b\0\x7f", r"\x1b[31mred\x9b\x00\x7f"),
        ("right\u202eto\u2066left\u200b", r"right\u202eto\u2066left\u200b"),
        ("a\rb\u2028c\x85d", r"a\rb\u2028c\x85d"),
        ("\udcff", r"\udcff"),
    ],
)
def test_message_is_one_plain_line(text: str, printed: str) -> None:
    assert one_line(text) == printed


def test_message_length_is_bounded() -> None:
    line = one_line(f"first {'x' * 1_000_000} last")
    assert len(line) <= MAX_MESSAGE
    assert (line[:6], line[-5:]) == ("first ", " last")


def test_line_breaks_are_kept_on_request() -> None:
    assert printable("a\nb\tc\r", keep="\n") == "a\nb\\tc\\r"


def broken_stream(encoding: str = "utf-8") -> io.TextIOWrapper:
    reader, writer = os.pipe()
    os.close(reader)
    return io.TextIOWrapper(os.fdopen(writer, "wb"), encoding=encoding)


def test_broken_stream_drops_output() -> None:
    broken = broken_stream()
    broken.write("lost")
    stream = guarded(broken)
    for _ in range(3):
        print("lost", file=stream, flush=True)
    assert guarded(stream) is stream
    with contextlib.suppress(OSError):
        broken.close()


def test_closed_stream_is_replaced_by_the_null_device() -> None:
    closed = broken_stream()
    closed.close()
    for stream in (None, closed, io.StringIO()):
        with guarded(stream) as open_stream:
            print("lost", file=open_stream, flush=True)


def test_unencodable_characters_are_replaced(tmp_path: Path) -> None:
    with (tmp_path / "a").open("w", encoding="ascii") as file:
        print("± é", file=guarded(file), flush=True)
    assert (tmp_path / "a").read_text() == "? ?\n"


def test_writes_wait_for_a_full_pipe() -> None:
    """Another program that shares the terminal may have made the descriptor non-blocking."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    text = "x" * 1_000_000
    parts: list[bytes] = []

    def read() -> None:
        with os.fdopen(reader, "rb") as stream:
            parts.append(stream.read())

    thread = threading.Thread(target=read)
    thread.start()
    with io.TextIOWrapper(os.fdopen(writer, "wb"), encoding="ascii") as stream:
        print(text, end="", file=guarded(stream), flush=True)
    thread.join()
    assert parts == [text.encode()]


def test_replaced_standard_error_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    print_stderr("Warning: two\nlines")
    assert stream.getvalue() == "Warning: two lines\n"


@pytest.mark.parametrize("fault", ["broken", "full", "closed", "ascii"])
def test_training_from_python_works_with_broken_streams(
    zygote: Zygote, tmp_path: Path, fault: str
) -> None:
    code = f"""
from rl_training import SAC
options = dict(hidden_sizes=[8], batch_size=8, learning_starts=10, eval_interval=0)
model = SAC("Pendulum-v1", **options, eval_episodes=0, tensorboard=False, num_threads=1,
            output_dir={str(tmp_path)!r})
print(model.learn(20, progress=True).result.stop_reason)
"""
    done = zygote.run(code=code, streams={"err": fault})
    assert (done.status, done.out) == (0, "completed\n"), done.err


def test_error_is_one_printable_line_for_any_input() -> None:
    error = ConfigError("a\tb\n\x1b[2J" + "x" * 100_000)
    assert str(error).isprintable()
    assert str(error).startswith("a b \\x1b[2J")
    assert len(str(error)) <= 1_000

"""Output of commands: JSON, text, tables and progress."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from textwrap import wrap
from typing import Annotated, Any

import typer

from rl_training.boundary.terminal import guarded, output, plain_console, say
from rl_training.text import printable

Json = Annotated[
    bool, typer.Option("--json", help="Print only one JSON object to standard output.")
]

PLAIN_SECONDS = 10.0
"""Time between two lines of progress if there is no terminal."""

GAP = "  "
MIN_WRAPPED = 24
"""Minimum width of a wrapped column; in a narrower terminal, the terminal wraps the lines."""


def print_json(data: dict[str, Any]) -> None:
    """Print one object; numbers that are not finite become null, since JSON does not have them."""
    say(json.dumps(_finite(data), allow_nan=False))


def print_result(data: dict[str, Any], text: str, as_json: bool) -> None:
    """Print the result of a command, as one JSON object or as a line of text."""
    print_results(data, [text], as_json)


def print_results(data: dict[str, Any], lines: Iterable[str], as_json: bool) -> None:
    """Print the result of a command, as one JSON object or as lines of text."""
    if as_json:
        print_json(data)
        return
    for line in lines:
        say(line)


def _finite(value: Any) -> Any:
    """Return the same plain data with None instead of NaN and infinities."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show progress on standard error: a bar in a terminal, otherwise a line every ten seconds."""
    from rich.progress import Progress

    console = plain_console(guarded(sys.stderr))
    bar = Progress(console=console, transient=True)
    next_line = time.monotonic() + PLAIN_SECONDS

    def update(done: int, total: int) -> None:
        nonlocal next_line
        if console.is_terminal:
            if not bar.task_ids:
                bar.add_task(what)
                bar.start()
            bar.update(bar.task_ids[0], completed=done, total=total)
        elif time.monotonic() >= next_line:
            next_line = time.monotonic() + PLAIN_SECONDS
            console.print(f"{what} {done:,}/{total:,}")

    try:
        yield update
    finally:
        if bar.task_ids:  # a bar that was never started would leave an empty line
            bar.stop()


def print_table(heads: list[str], rows: list[list[str]], *, drop: Sequence[str] = ()) -> None:
    """Print aligned columns with one row per line, so that names can be copied.

    If the terminal is too narrow, the columns in ``drop`` are left out one by one, in this order.
    If that is not enough, the last column is wrapped. The first column is never shortened.
    """
    stream = output()
    width = plain_console(stream).width if stream.isatty() else None
    for line in table_lines(heads, rows, width, drop):
        print(line, file=stream, flush=True)


def table_lines(
    heads: list[str], rows: list[list[str]], width: int | None, drop: Sequence[str] = ()
) -> Iterator[str]:
    """Yield the lines of a table that fits into ``width`` characters; None for any width."""
    from rich.cells import cell_len

    cells = [[printable(cell, keep="") for cell in row] for row in ([heads, *rows])]
    hidden: set[int] = set()

    def widths() -> list[int]:
        columns = (index for index in range(len(heads)) if index not in hidden)
        return [max(cell_len(row[index]) for row in cells) for index in columns]

    def total() -> int:
        sizes = widths()
        return sum(sizes) + len(GAP) * (len(sizes) - 1)

    for name in drop:
        if width is not None and total() > width:
            hidden.add(heads.index(name))
    *sizes, last = widths()
    before = sum(sizes) + len(GAP) * len(sizes)
    room = last if width is None else max(width - before, MIN_WRAPPED)
    for number, row in enumerate(cells):
        if number == 0 and not any(heads):
            continue
        *shown, text = (cell for index, cell in enumerate(row) if index not in hidden)
        start = "".join(
            cell + " " * (size - cell_len(cell)) + GAP
            for cell, size in zip(shown, sizes, strict=True)
        )
        pieces = [text] if cell_len(text) <= room else wrap(text, room)
        for index, piece in enumerate(pieces or [""]):
            yield ((" " * before if index else start) + piece).rstrip()

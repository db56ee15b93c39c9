"""How commands print: JSON, text, tables and progress."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from rl_training.boundary.terminal import guarded, output, plain_console, say
from rl_training.text import printable

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output, nothing else.")
]

PLAIN_SECONDS = 10.0
"""Time between two lines without a terminal."""


def print_json(data: dict[str, Any]) -> None:
    """One object on standard output; null for numbers that are not finite, which JSON lacks."""
    say(json.dumps(_finite(data), allow_nan=False))


def print_result(data: dict[str, Any], text: str, as_json: bool) -> None:
    """A command's result, as one JSON object or as a line of text."""
    if as_json:
        print_json(data)
    else:
        say(text)


def _finite(value: Any) -> Any:
    """The same plain data with null for NaN and the infinities."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show progress on standard error: a bar on a terminal, otherwise a line now and then."""
    from rich.progress import Progress

    console = plain_console(guarded(sys.stderr))
    bar = Progress(console=console, transient=True)
    next_line = time.monotonic() + PLAIN_SECONDS

    def tell(done: int, total: int) -> None:
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
        yield tell
    finally:
        if bar.task_ids:  # a bar that never began would leave an empty line
            bar.stop()


def print_table(heads: list[str], rows: list[list[str]]) -> None:
    """Print a table as wide as the terminal, or as its contents in a pipe."""
    from rich.table import Table

    table = Table(*heads, show_header=any(heads))
    for row in rows:
        table.add_row(*(printable(cell, keep="") for cell in row))
    console = plain_console(output())
    if not console.is_terminal:  # a pipe has no width: nothing may be cut
        console = plain_console(output(), width=200)
    console.print(table)

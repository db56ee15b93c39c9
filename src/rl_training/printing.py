"""What the commands print with."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output, nothing else.")
]


def print_json(data: dict[str, Any]) -> None:
    """One object on standard output."""
    typer.echo(json.dumps(data))


@contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error, from the first time that it is told (done, total) on."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:

        def tell(done: int, total: int) -> None:
            if not bar.task_ids:
                bar.add_task(what)
            bar.update(bar.task_ids[0], completed=done, total=total)

        yield tell


def print_table(heads: list[str], rows: list[list[str]]) -> None:
    """A table as wide as the terminal, or as its contents where there is none."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*heads, show_header=any(heads))
    for row in rows:
        table.add_row(*row)
    console = Console()
    if not console.is_terminal:  # a pipe has no width: do not cut what it reads
        console = Console(width=200)
    console.print(table)

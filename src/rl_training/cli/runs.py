"""The `runs` commands: list and delete runs."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperArgument, TyperGroup

from rl_training.boundary.terminal import say
from rl_training.cli.completion import complete_run
from rl_training.cli.output import Json, print_json, print_table
from rl_training.cli.summaries import score_text
from rl_training.errors import ConfigError
from rl_training.text import printable, shorten, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from rl_training.experiment.run_directory import RunRow

SORT_KEYS = ("name", "time", "steps", "best", "last", "state", "algorithm", "environment", "seed")
CELL = 200
"""Maximum number of characters in a cell, since files may contain long values."""


_NO_FOLDER = "rl_training.no_folder"


class _RunsGroup(TyperGroup):
    """A group that lists runs (``runs FOLDER``) unless its first argument is a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the name of a command as a command, not as the folder."""
        if args and args[0] in self.commands:
            ctx.meta[_NO_FOLDER] = True
        else:
            ctx.allow_interspersed_args = True  # options may follow the folder
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, without the folder if a command is given."""
        params = super().get_params(ctx)
        if _NO_FOLDER not in ctx.meta:
            return params
        return [param for param in params if not isinstance(param, TyperArgument)]


runs_app = typer.Typer(
    cls=_RunsGroup,
    add_completion=False,
    invoke_without_command=True,
    subcommand_metavar="| runs delete RUN...",
)


@runs_app.callback()
def runs(
    context: typer.Context,
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="Folder that contains runs (default: runs).", show_default=False
        ),
    ] = Path("runs"),
    tags: Annotated[
        list[str] | None,
        typer.Option("--tag", help="List only runs with this tag; may be repeated."),
    ] = None,
    sort: Annotated[
        str,
        typer.Option(
            metavar="KEY",
            help=f"Sort by {', '.join(SORT_KEYS[:-1])} or {SORT_KEYS[-1]}. The newest, longest and "
            "best runs come first.",
        ),
    ] = "name",
    as_json: Json = False,
) -> None:
    """List runs with their progress, results and state."""
    if context.invoked_subcommand is not None:
        return
    from rl_training.api.arguments import as_path
    from rl_training.experiment.run_directory import list_runs

    if sort not in SORT_KEYS:
        raise ConfigError(f"--sort {shown(sort)}: use {', '.join(SORT_KEYS)}.")
    found = list_runs(as_path("folder", folder))
    chosen = sorted((row for row in found if set(tags or ()) <= set(row.tags)), key=sort_key(sort))
    if as_json:
        rows = [asdict(row) | {"path": str(row.path), "tags": list(row.tags)} for row in chosen]
        print_json({"runs": rows})
    elif chosen:
        print_runs(chosen)
    elif found:
        what = "tag" if len(tags or ()) == 1 else "tags"
        say(f"No run in {folder} has the {what} {', '.join(tags or ())}.")
    else:
        say(f"No runs in {folder}. Start one with: rl-training train sac/pendulum")


@runs_app.command(epilog="Example: rl-training runs delete runs/sac_Pendulum-v1_seed0")
def delete(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Run folders.", autocompletion=complete_run),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: Json = False,
) -> None:
    """Delete runs with all their checkpoints and metrics.

    Only run folders can be deleted, and not while they are being trained.
    """
    from rl_training.api.arguments import as_path
    from rl_training.experiment.run_directory import check_deletable, delete_run

    wanted = list(dict.fromkeys(as_path("run", path) for path in paths))
    for path in wanted:
        check_deletable(path)
    if not yes:
        _confirm(wanted)
    for path in wanted:
        delete_run(path)
        if not as_json:
            say(f"Deleted {path}")
    if as_json:
        print_json({"deleted": [str(path) for path in wanted]})


def _confirm(paths: list[Path]) -> None:
    if sys.stdin is None or not sys.stdin.isatty():
        raise ConfigError("There is no terminal to ask for confirmation: add --yes to delete.")
    names = ", ".join(shorten(str(path)) for path in paths[:5]) + (", …" if paths[5:] else "")
    what = f"{len(paths)} runs ({names})" if len(paths) > 1 else names
    if not typer.confirm(f"Delete {shown(what)[1:-1]}?", err=True):
        raise typer.Exit(1)


def print_runs(rows: list[RunRow]) -> None:
    """Print a table of runs, whose first column can be pasted into a command."""
    heads = ["run", "algorithm", "environment", "seed", "steps", "best", "last", "state"]
    heads += ["updated", "tags"]
    cells = [
        [
            shlex.quote(str(row.path)),
            row.algo,
            _short(row.env_id or "–"),
            str(row.seed),
            f"{row.step:,}/{row.total_timesteps:,}",
            score_text(row.best_return, row.best_loss),
            score_text(row.last_return, row.last_loss),
            _short(row.state),
            row.updated or "–",
            _short(", ".join(row.tags)),
        ]
        for row in rows
    ]
    if not any(row.tags for row in rows):
        heads, cells = heads[:-1], [row[:-1] for row in cells]
    order = ("updated", "seed", "algorithm", "environment", "tags", "last", "steps", "best")
    print_table(heads, cells, drop=[name for name in order if name in heads])


def _short(text: str) -> str:
    return shorten(printable(text[:CELL], keep=""), CELL)


def sort_key(name: str) -> Callable[[RunRow], Any]:
    """Return the sort key for a name in `SORT_KEYS`; runs with equal values are sorted by name."""

    def score(mean_return: float | None, loss: float | None) -> tuple[int, float]:
        if mean_return is not None:
            return 0, -mean_return
        return (2, 0.0) if loss is None else (1, loss)

    def newest(row: RunRow) -> tuple[int, ...]:
        return tuple(-ord(char) for char in row.updated or "")

    keys: dict[str, Callable[[RunRow], Any]] = {
        "name": lambda row: str(row.path),
        "time": newest,
        "steps": lambda row: -row.step,
        "best": lambda row: score(row.best_return, row.best_loss),
        "last": lambda row: score(row.last_return, row.last_loss),
        "state": lambda row: row.state,
        "algorithm": lambda row: row.algo,
        "environment": lambda row: row.env_id or "",
        "seed": lambda row: row.seed,
    }
    return keys[name]

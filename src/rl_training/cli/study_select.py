"""The command `study select`: what choosing a policy with a few evaluations is worth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rl_training.boundary.terminal import print_stderr, say
from rl_training.cli.completion import complete_study
from rl_training.cli.output import Json, print_json, print_table
from rl_training.text import shorten

if TYPE_CHECKING:
    from rl_training.study.selection import Selection

COLUMNS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Numbers of episodes that are shown."""


def select(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="STUDY",
            help="Folder of a study or a tuning.",
            autocompletion=complete_study,
        ),
    ],
    evaluations: Annotated[
        int, typer.Option(help="Largest number of episodes for choosing.")
    ] = 100,
    candidates: Annotated[
        int, typer.Option(help="Number of policies to choose from, drawn from all of them.")
    ] = 8,
    episodes: Annotated[
        int, typer.Option(help="Episodes of each policy, which are played once and kept.")
    ] = 20,
    as_json: Json = False,
) -> None:
    """Estimate how good the policy is that a few online evaluations would choose.

    All settings and seeds of an algorithm are candidates, and a bandit (UCB) chooses among them.

    This is the protocol of Jackson et al. for offline learning (arXiv 2504.11453).
    """
    from rl_training.study.selection import select as run

    found = run(
        folder,
        episodes=episodes,
        evaluations=evaluations,
        candidates=candidates,
        progress=_progress,
    )
    if as_json:
        print_json({"study": str(folder), "selections": [each.to_json() for each in found]})
        return
    columns = [number for number in COLUMNS if number < evaluations] + [evaluations]
    heads = ["algorithm", "task", "policies", "any", *map(str, columns), "best"]
    print_table(heads, [_row(each, columns) for each in found], drop=["20", "2", "50"])
    say("Mean return of the chosen policy by the number of episodes that were played to choose it.")


def _row(found: Selection, columns: list[int]) -> list[str]:
    values = [found.average, *(found.at(number)[0] for number in columns), found.best]
    return [
        shorten(found.algo),
        shorten(found.task),
        str(found.policies),
        *(f"{value:,.1f}" for value in values),
    ]


def _progress(done: int, total: int) -> None:
    if done % 10 == 0 or done == total:
        print_stderr(f"{done} of {total} policies played")

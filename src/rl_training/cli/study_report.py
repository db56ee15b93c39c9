"""The commands `study report`, `study compare` and `study serve`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_training.boundary.terminal import say
from rl_training.cli.completion import complete_study
from rl_training.cli.output import Json, print_json, print_table
from rl_training.errors import ConfigError
from rl_training.text import counted, printable, shorten

if TYPE_CHECKING:
    from rl_training.study.report.writing import ReportSettings, StudyReport

MAX_ROWS = 40
"""Number of rows that are printed."""

Study = Annotated[
    Path,
    typer.Argument(metavar="STUDY", help="Folder of a study.", autocompletion=complete_study),
]
Studies = Annotated[
    list[Path],
    typer.Argument(
        metavar="STUDY OTHER...",
        help="Folders of two or more studies.",
        autocompletion=complete_study,
    ),
]
Metric = Annotated[
    str | None,
    typer.Option(help="A metric in metrics.jsonl (default: the evaluation return)."),
]
Score = Annotated[
    str,
    typer.Option(
        metavar="last|best|area",
        help="What counts of each run: its last evaluation, its best one, or the area under its "
        "curve.",
    ),
]
Baseline = Annotated[
    str | None,
    typer.Option(
        metavar="LABEL",
        help="Compare the other labels with this one only (default: all pairs, up to 8 labels).",
    ),
]
References = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="YAML file with random and expert returns by environment."),
]
Threshold = Annotated[
    float | None,
    typer.Option(help="Score that counts as solved (default: a normalized score of 0.9)."),
]


def report(
    study: Study,
    out: Annotated[
        Path | None, typer.Option(help="Page to write (default: report.html in the study).")
    ] = None,
    metric: Metric = None,
    score: Score = "last",
    baseline: Baseline = None,
    references: References = None,
    threshold: Threshold = None,
    as_json: Json = False,
) -> None:
    """Write the report of a study: an HTML page, and tables as CSV, Markdown and LaTeX.

    The page needs no network. It can be written while runs are in progress.

    The report of a tuning is a page with its trials, which has no other options than --out.
    """
    from rl_training.study.records import TUNING_FILE

    if (study / TUNING_FILE).is_file():
        given = (metric, score != "last" or None, baseline, references, threshold)
        _write_tuning(study, out, given, as_json)
        return
    settings = _settings(metric, score, baseline, references, threshold)
    _write([study], out, settings, as_json)


def _write_tuning(folder: Path, out: Path | None, given: Sequence[object], as_json: bool) -> None:
    from rl_training.tuning.report import write_tuning_report

    if any(value is not None for value in given):
        raise ConfigError(f"{folder} is a tuning, whose report has no other options than --out.")
    page = write_tuning_report(folder, out, command=["rl-training", *sys.argv[1:]])
    if as_json:
        print_json({"tuning": str(folder), "path": str(page)})
    else:
        say(f"Wrote {page}")


def compare(
    studies: Studies,
    out: Annotated[
        Path | None, typer.Option(help="Page to write (default: comparison.html).")
    ] = None,
    metric: Metric = None,
    score: Score = "last",
    baseline: Baseline = None,
    references: References = None,
    threshold: Threshold = None,
    as_json: Json = False,
) -> None:
    """Compare two or more studies in one report.

    A label that occurs in several studies is followed by the name of its study.
    """
    if len(studies) < 2:
        raise typer.BadParameter("pass at least two studies", param_hint="STUDY OTHER...")
    settings = _settings(metric, score, baseline, references, threshold)
    _write(studies, out, settings, as_json)


def serve(
    study: Study,
    port: Annotated[int, typer.Option(help="Port on this machine; 0 for any free one.")] = 8008,
    metric: Metric = None,
    score: Score = "last",
    baseline: Baseline = None,
    references: References = None,
    threshold: Threshold = None,
) -> None:
    """Show the report in a browser on this machine, also while the study runs.

    Ctrl-C stops the server. Other machines cannot connect to it.
    """
    from rl_training.study.report.server import ReportServer

    settings = _settings(metric, score, baseline, references, threshold)
    with closing(ReportServer(study, port, settings)) as server:
        say(f"Showing {study} at {server.url} (Ctrl-C to stop)")
        try:
            server.serve()
        except KeyboardInterrupt:
            say("Stopped.")


def _settings(
    metric: str | None,
    score: Any,
    baseline: str | None,
    references: Path | None,
    threshold: float | None,
) -> ReportSettings:
    from rl_training.study.report.writing import ReportSettings

    return ReportSettings(
        metric=metric,
        score=score,
        baseline=baseline,
        references=references,
        threshold=threshold,
    )


def _write(
    studies: Sequence[Path], out: Path | None, settings: ReportSettings, as_json: bool
) -> None:
    from rl_training.study.report.writing import write_report

    found = write_report(studies, out, settings, command=["rl-training", *sys.argv[1:]])
    if as_json:
        print_json(found.to_json())
        return
    _print_scores(found)
    for line in _lines(found):
        say(line)


def _print_scores(found: StudyReport) -> None:
    from rl_training.statistics import Estimate
    from rl_training.study.report.tables import digits_for, estimate_text

    rows = []
    for record in found.scores[:MAX_ROWS]:
        text = "–"
        if record["mean"] is not None:
            bounds = (record["mean_low"], record["mean_high"])
            estimate = Estimate(record["mean"], *bounds, "student")
            text = estimate_text(estimate, digits_for([estimate.value]))
        runs = f"{record['ended']}/{record['runs']}"
        best = "*" if record["best"] else ""
        rows.append([shorten(record["label"]), shorten(record["task"]), runs, text, best])
    heads = ["label", "task", "ended", "mean [95%]", ""]
    print_table(heads, rows, drop=["task"])


def _lines(found: StudyReport) -> Iterator[str]:
    if len(found.scores) > MAX_ROWS:
        yield f"… and {counted(len(found.scores) - MAX_ROWS, 'more row')}"
    if any(record["best"] for record in found.scores):
        yield "* best mean, or not significantly different from it"
    for note in found.notes:
        yield f"Note: {printable(note, keep='')}"
    yield f"Wrote {found.path} and the tables in {found.tables}"

"""The `plot` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rl_training.cli.output import Json, print_result

Runs = Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders.")]
Out = Annotated[Path, typer.Option("--out", help="File to write: .png, .svg, .pdf or .jpg.")]
By = Annotated[
    str,
    typer.Option(
        metavar="config|algo|run",
        help="Average runs that differ only in their seed, runs of one algorithm, or no runs.",
    ),
]
Metric = Annotated[str, typer.Option(help="A metric in metrics.jsonl, such as loss/critic.")]
X = Annotated[
    str | None,
    typer.Option(
        metavar="steps|updates|time",
        help="Horizontal axis: environment steps, gradient updates or training time. The default "
        "is steps, or updates if all runs are offline.",
    ),
]
Smooth = Annotated[
    float,
    typer.Option(help="Smoothing weight as in TensorBoard, from 0 (off) to below 1."),
]
Title = Annotated[str | None, typer.Option(help="Title (default: the environment id).")]
XLabel = Annotated[str | None, typer.Option("--xlabel", help="Label of the horizontal axis.")]
YLabel = Annotated[str | None, typer.Option("--ylabel", help="Label of the vertical axis.")]


def plot(
    runs: Runs,
    out: Out,
    by: By = "config",
    metric: Metric = "eval_return_mean",
    x: X = None,
    smooth: Smooth = 0.0,
    title: Title = None,
    xlabel: XLabel = None,
    ylabel: YLabel = None,
    as_json: Json = False,
) -> None:
    """Plot the learning curves of one or more runs.

    Runs that differ only in their seed are plotted as their mean with a band.
    """
    from rl_training.api.run_plots import plot_runs

    labels = {"title": title, "xlabel": xlabel, "ylabel": ylabel}
    groups = plot_runs(runs, out, by=by, metric=metric, x=x, smooth=smooth, **labels)  # type: ignore[arg-type]  # checked there
    members = {label: [str(run) for run in found] for label, found in groups.items()}
    facts = {"out": str(out), "runs": [str(run) for run in runs], "groups": members}
    print_result(facts, f"Wrote {out}: {', '.join(groups)}", as_json)

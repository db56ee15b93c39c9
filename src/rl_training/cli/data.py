"""The `data` commands: list, inspect, validate, collect, convert."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rl_training.boundary.terminal import say
from rl_training.cli.completion import complete_run
from rl_training.cli.output import Json, print_json, print_result, print_table, progress_bar

if TYPE_CHECKING:
    from rl_training.data.inspection import DatasetReport

data_app = typer.Typer(
    help="List, inspect, validate, collect and convert datasets.", add_completion=False
)

Source = Annotated[
    str,
    typer.Argument(
        metavar="PATH_OR_ID",
        help="A .npz, .pt or .hdf5 file, a folder of .npy files, a Minari id, or a run (its "
        "replay).",
    ),
]
RunPath = Annotated[
    Path,
    typer.Argument(
        metavar="RUN_OR_CHECKPOINT",
        help="Folder of a run or a checkpoint.",
        autocompletion=complete_run,
    ),
]
Best = Annotated[
    bool, typer.Option("--best", help="Use the best checkpoint of the run, not the latest.")
]
EnvId = Annotated[str | None, typer.Option(help="Environment id (default: the recorded one).")]
EnvKwargs = Annotated[
    list[str] | None,
    typer.Option(
        "--env-kwarg",
        metavar="KEY=VALUE",
        help="An argument for the environment, added to the run's own; may be repeated.",
    ),
]


@data_app.command("list", epilog="Example: rl-training data list --folder data")
def list_(
    folder: Annotated[Path, typer.Option(help="Folder with data files.")] = Path(),
    as_json: Json = False,
) -> None:
    """Show local Minari datasets and data files."""
    from rl_training.api.dataset_listing import list_datasets

    found = list_datasets(folder)
    if as_json:
        print_json({"datasets": [item.to_dict() for item in found]})
        return
    if not found:
        say(
            f"There are no Minari datasets on this machine and no data files in {str(folder)!r}: "
            "record some with rl-training data collect, or choose another --folder."
        )
        return
    rows = []
    for item in found:
        references = (item.random_return, item.expert_return)
        numbers = ["" if value is None else f"{value:,.5g}" for value in references]
        size = f"{item.bytes / 1e6:,.1f} MB"
        count = "?" if item.rows is None else f"{item.rows:,}"
        rows.append([item.source, item.kind, count, size, item.env_id or "", *numbers])
    headers = ["dataset", "kind", "rows", "size", "environment", "random return", "expert return"]
    print_table(headers, rows)
    for item in found:
        if item.problem is not None:
            say(f"Problem: {item.source}: {item.problem}")


@data_app.command(epilog="Example: rl-training data inspect expert.npz --plot expert.png")
def inspect(
    source: Source,
    plot: Annotated[
        Path | None, typer.Option(help="Write histograms to this .png, .pdf, .svg or .jpg file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show statistics and problems of a dataset."""
    from rl_training.api.datasets import inspect_data

    report = inspect_data(source, plot)
    if as_json:
        print_json({"source": source, **report.to_dict()})
        return
    _print_report(report)
    for odd in report.odd_flags:
        say(f"Problem: flags: {odd}.")
    if plot is not None:
        say(f"Wrote {plot}")


@data_app.command(epilog="Example: rl-training data validate expert.npz --env-id Pendulum-v1")
def validate(
    source: Source, env_id: EnvId = None, env_kwargs: EnvKwargs = None, as_json: Json = False
) -> None:
    """Check a dataset against an environment.

    The exit code is 1 if there are problems.
    """
    from rl_training.api.datasets import validate_data
    from rl_training.experiment.config import parse_env_kwargs

    given = parse_env_kwargs(env_kwargs or ())
    report, problems = validate_data(source, env_id, env_kwargs=given)
    if as_json:
        found = {"valid": not problems, "problems": problems}
        print_json({"source": source, **found, **report.to_dict()})
    else:
        _print_report(report)
        for problem in problems:
            say(f"Problem: {problem}")
        for line in report.advice:
            say(f"Advice: {line}.")
        say(f"{len(problems)} problem{'s' * (len(problems) > 1)}" if problems else "Valid")
    if problems:
        raise typer.Exit(1)


@data_app.command(
    epilog="Example:\n\n"
    "rl-training data collect runs/sac_Pendulum-v1_seed0 --steps 10000 --out a.npz"
)
def collect(
    run: RunPath,
    steps: Annotated[int, typer.Option(help="Number of transitions to record.")],
    noise: Annotated[
        float,
        typer.Option(
            help="Standard deviation of Gaussian noise on actions in [-1, 1], "
            "or the probability of a random action if actions are discrete."
        ),
    ] = 0.0,
    out: Annotated[Path | None, typer.Option(help="Write to this .npz, .pt or .hdf5 file.")] = None,
    minari: Annotated[
        str | None, typer.Option(help="Create a Minari dataset with this id.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the episodes and the noise.")] = 0,
    best: Best = False,
    env_kwargs: EnvKwargs = None,
    as_json: Json = False,
) -> None:
    """Record a dataset with a trained policy."""
    from rl_training.api.datasets import collect_data
    from rl_training.experiment.config import parse_env_kwargs

    with progress_bar("recording") as progress:
        written = collect_data(
            run,
            steps=steps,
            out=out,
            minari_id=minari,
            noise=noise,
            seed=seed,
            best=best,
            env_kwargs=parse_env_kwargs(env_kwargs or ()),
            progress=lambda done: progress(done, steps),
        )
    facts = {"dataset": written, "steps": steps, "noise": noise, "seed": seed}
    print_result(facts, f"Wrote {steps:,} transitions to {written}", as_json)


@data_app.command(epilog="Example: rl-training data convert runs/sac_Pendulum-v1_seed0 replay.npz")
def convert(
    source: Source,
    destination: Annotated[
        str,
        typer.Argument(
            help="A .npz, .pt or .hdf5 file, FOLDER/ for .npy files, or minari:ID for a Minari "
            "dataset."
        ),
    ],
    env_id: EnvId = None,
    env_kwargs: EnvKwargs = None,
    as_json: Json = False,
) -> None:
    """Convert a dataset or a run's replay to another format."""
    from rl_training.api.datasets import convert_data
    from rl_training.experiment.config import parse_env_kwargs

    given = parse_env_kwargs(env_kwargs or ())
    written = convert_data(source, destination, env_id=env_id, env_kwargs=given)
    print_result({"dataset": written}, f"Wrote {written}", as_json)


def _print_report(report: DatasetReport) -> None:
    def ranges(values: list[float]) -> str:
        return "  ".join(f"{value:.4g}" for value in values)

    pairs = zip(report.action_min, report.action_max, strict=True)
    actions = "  ".join(f"{low:.3g}…{high:.3g}" for low, high in pairs)
    rows = [
        ["transitions", f"{report.rows:,}"],
        ["episodes", f"{report.episodes:,}"],
        ["observation, action sizes", f"{report.obs_dim}, {report.action_dim}"],
        *([["observation entries", ", ".join(report.entries)]] if report.entries else []),
        ["return mean", f"{report.return_mean:.4g}"],
        ["return min, quartiles, max", ranges(report.return_quartiles)],
        ["length min, quartiles, max", ranges(report.length_quartiles)],
        ["action ranges", actions],
        ["actions at the bounds of their range", f"{report.action_saturation:.1%}"],
        [
            "reward min, mean, max",
            ranges([report.reward_min, report.reward_mean, report.reward_max]),
        ],
        ["terminal, timeout rate", f"{report.terminal_rate:.3%}, {report.timeout_rate:.3%}"],
        ["rows with NaN or infinity", f"{report.not_finite:,}"],
        ["duplicate rows", f"{report.duplicates:,}"],
        ["discontinuities inside episodes", f"{report.discontinuities:,}"],
    ]
    print_table(["", ""], rows)
    for note in report.notes:
        say(f"Note: {note}")

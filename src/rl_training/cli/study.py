"""The `study` commands: run many runs as one experiment, and look at them."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_training.boundary.terminal import print_stderr, say
from rl_training.cli.completion import complete_study, complete_study_run
from rl_training.cli.options import (
    Address,
    Cores,
    Detach,
    ExecutorOption,
    Gpus,
    Members,
    Memory,
    Retries,
    RetryFailed,
    Threads,
    cluster_address,
)
from rl_training.cli.output import Json, print_json, print_table
from rl_training.cli.signals import SIGNAL_EXITS
from rl_training.cli.study_report import compare, report, serve
from rl_training.cli.study_select import select
from rl_training.cli.summaries import score_text
from rl_training.errors import ConfigError
from rl_training.text import counted, duration, printable, shorten

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rl_training.study.estimating import StudyEstimate
    from rl_training.study.index import StudyIndex, StudyRun
    from rl_training.study.study import RunOptions, StudyResult

MAX_FAILURES = 20
"""Number of failed runs that are listed."""

study_app = typer.Typer(help="Run many configs and seeds as one experiment.", add_completion=False)

StudyFolder = Annotated[
    Path,
    typer.Argument(metavar="STUDY", help="Folder of a study.", autocompletion=complete_study),
]


@study_app.command(
    epilog="Examples:\n\n"
    "rl-training study run sac/pendulum td3/pendulum --seeds 5 --out study total_timesteps=20000"
    "\n\nrl-training study run offline_hopper.yaml --dry-run\n\nrl-training study run study"
)
def run(
    context: typer.Context,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="CONFIG...|STUDY [KEY=VALUE]...",
            help="Configs to compare, a study file, or the folder of a study to continue; and "
            "config keys to set in every run.",
            autocompletion=complete_study_run,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the study (default: studies/NAME for a study file)."),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="A count, or a list such as 0,3,7 (default: 5).")
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(metavar="K/N", help="Run only part K of N, such as one of an array job."),
    ] = None,
    retry_failed: RetryFailed = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show the runs, the estimated time and disk space."),
    ] = False,
    threads: Threads = None,
    retries: Retries = None,
    cores: Cores = None,
    memory: Memory = None,
    gpus: Gpus = None,
    executor: ExecutorOption = None,
    members: Members = None,
    address: Address = None,
    detach: Detach = False,
    as_json: Json = False,
) -> None:
    """Run a study, or continue it.

    Finished runs are kept, interrupted runs are resumed, and failed runs are tried again.

    A changed study file adds runs. Several processes can share a study with --shard.
    """
    from rl_training.cli.study_arguments import default_folder, parse_study_arguments

    imports = context.find_root().params["imports"] or ()
    cluster = cluster_address(executor, address)
    how: dict[str, Any] = {"executor": executor, "members": members}
    how = {key: value for key, value in how.items() if value is not None and cluster is None}
    study = parse_study_arguments(words, seeds=seeds, threads=threads, retries=retries, how=how)
    limits: dict[str, Any] = {"cores": cores, "memory": memory, "gpus": gpus}
    if dry_run:
        if cluster is not None:
            raise ConfigError("--dry-run estimates the time on this machine: omit --executor.")
        folder = out or (study.path and default_folder(study))
        _print_estimate(study.estimate(folder, imports=imports, **limits), as_json)
        return
    if detach:
        start_detached(out or default_folder(study), as_json)
        return
    command = ["rl-training", *sys.argv[1:]]
    more: dict[str, Any] = {"shard": shard, "retry_failed": retry_failed, "how": how}
    options = study_options(context, command, address=cluster, **more, **limits)
    result = study.train_runs(out or default_folder(study), options)
    finish_study(context, result, as_json, command, cluster)


def study_options(context: typer.Context, command: Sequence[str], **options: Any) -> RunOptions:
    """Return how a command runs a study, with a live display."""
    from rl_training.study.study import RunOptions

    imports = context.find_root().params["imports"] or ()
    return RunOptions(imports=imports, progress=True, command=command, **options)


def finish_study(
    context: typer.Context,
    result: StudyResult,
    as_json: bool,
    command: Sequence[str] = (),
    cluster: str | None = None,
) -> None:
    """Print the outcome and the next commands; exit with the code of a signal or of failures."""
    imports = context.find_root().params["imports"] or ()
    if as_json:
        print_json(result.to_json())
    else:
        for line in outcome_lines(result, command or sys.argv, imports, cluster):
            say(line)
    if result.interrupted_by is not None:
        raise typer.Exit(SIGNAL_EXITS[result.interrupted_by])
    if result.failed:
        raise typer.Exit(1)


@study_app.command(epilog="Example: rl-training study status study")
def status(folder: StudyFolder, as_json: Json = False) -> None:
    """Show the state of a study, also while it runs."""
    from rl_training.study.index import StudyIndex
    from rl_training.study.status import run_rows

    index = StudyIndex.open(folder)
    if as_json:
        print_json({"study": str(folder), "name": index.name, "runs": run_rows(index)})
        return
    print_status(index)


study_app.command(
    epilog="Examples:\n\nrl-training study report study\n\n"
    "rl-training study report study --out results.html --baseline sac"
)(report)
study_app.command(
    epilog="Example: rl-training study compare study other_study --out compared.html"
)(compare)
study_app.command(epilog="Example: rl-training study serve study")(serve)
study_app.command(epilog="Example: rl-training study select study --evaluations 100")(select)


@study_app.command(epilog="Example: rl-training study attach study")
def attach(folder: StudyFolder) -> None:
    """Show the progress of a study or a tuning that another process runs.

    Ctrl-C ends the view, and not the study.
    """
    from rl_training.study import attaching

    try:
        index = attaching.attach(folder)
    except KeyboardInterrupt:
        quoted = shlex.quote(str(folder))
        print_stderr(f"The study continues. Stop it with: rl-training study stop {quoted}")
        return
    say(attaching.ended_line(index))


@study_app.command(epilog="Example: rl-training study stop study")
def stop(folder: StudyFolder) -> None:
    """Stop a study or a tuning that another process on this machine runs.

    Its runs save a checkpoint. The command that has started it continues it.
    """
    from rl_training.study import attaching

    stopped = attaching.stop(folder)
    say(f"{counted(stopped, 'session')} stopped." if stopped else "Nothing runs it.")


def start_detached(folder: Path, as_json: bool) -> None:
    """Run this command again in the background."""
    from rl_training.study.attaching import detach

    words = [word for word in sys.argv[1:] if word != "--detach"]
    process = detach(folder, words)
    if as_json:
        print_json({"study": str(folder), "pid": process})
        return
    quoted = shlex.quote(str(folder))
    say(f"Running in the background, as process {process}.")
    say("Next:")
    say(f"  rl-training study attach {quoted}")
    say(f"  rl-training study stop {quoted}")


# --- Text -------------------------------------------------------------------------------


def _print_estimate(estimate: StudyEstimate, as_json: bool) -> None:
    from rl_training.study.resources import size_text

    if as_json:
        print_json(estimate.to_json())
        return
    rows = [
        [
            shorten(group.label),
            shorten(group.task),
            str(group.seeds),
            str(group.left),
            f"{group.steps:,}",
            "–" if group.seconds is None else duration(group.seconds),
            size_text(group.disk),
            group.basis,
        ]
        for group in estimate.groups
    ]
    heads = ["label", "task", "seeds", "to run", "steps", "time per run", "disk per run", "from"]
    print_table(heads, rows, drop=["from", "steps", "disk per run"])
    for problem in estimate.problems:
        say(f"Note: {problem}")
    if not estimate.left:
        say("All runs have ended: nothing to train.")
        return
    together = f", {estimate.at_once} at a time" if estimate.at_once else ""
    whole = "an unknown time" if estimate.seconds is None else f"about {duration(estimate.seconds)}"
    say(
        f"{counted(estimate.left, 'run')} to train{together}: {whole}, about "
        f"{size_text(estimate.disk)} of disk space."
    )


def outcome_lines(
    result: StudyResult,
    command: Sequence[str],
    imports: Sequence[str],
    address: str | None = None,
) -> Iterator[str]:
    """Yield lines about the outcome of a session, and commands to run next."""
    from rl_training.study.records import RunStatus

    ended = result.with_status(RunStatus.FINISHED, RunStatus.STOPPED)
    whole, took = counted(len(result.runs), "run"), duration(result.seconds)
    yield f"{len(ended)} of {whole} finished; this session took {took}."
    for run in result.failed[:MAX_FAILURES]:
        yield f"Failed: {run.key} ({counted(run.attempts, 'attempt')}): {run.reason}"
    if len(result.failed) > MAX_FAILURES:
        yield f"… and {counted(len(result.failed) - MAX_FAILURES, 'more failed run')}"
    folder = shlex.quote(str(result.path))
    if result.interrupted_by is not None:
        again = continue_command(result, command, imports, address)
        yield f"Interrupted. Continue with: {again}"
        return
    if result.failed:
        again = continue_command(result, command, imports, address)
        yield f"Fix the cause, then try them again with: {again} --retry-failed"
    yield f"Study folder: {result.path}"
    yield "Next:"
    yield f"  rl-training study report {folder}"
    yield f"  rl-training study status {folder}"


def continue_command(
    result: StudyResult,
    command: Sequence[str],
    imports: Sequence[str],
    address: str | None = None,
) -> str:
    """Return the command that continues a study.

    The folder is enough, unless a file must not choose what the environments load.
    """
    from rl_training.cli.summaries import repeated_arguments
    from rl_training.experiment.config import saved_config

    modules = ""
    for config in {run.group.folder: run.config for run in result.runs}.values():
        again = repeated_arguments(saved_config(config), imports)
        if again.overrides:
            return shlex.join(word for word in command if word != "--retry-failed")
        modules = max(modules, again.imports, key=len)
    where = "" if address is None else f" --executor ray --address {shlex.quote(address)}"
    return f"rl-training {modules}study run {shlex.quote(str(result.path))}{where}"


def print_status(index: StudyIndex) -> None:
    """Print counts and mean returns by label and task, then running and failed runs."""
    from rl_training.study.records import RunStatus
    from rl_training.study.status import run_progress

    groups: dict[tuple[str, str], list[StudyRun]] = {}
    for run in index:
        groups.setdefault((run.label, run.task), []).append(run)
    rows = []
    for (label, task), runs in groups.items():
        returns = [run.results.get("last_return") for run in runs if run.status.has_ended]
        known = [value for value in returns if value is not None]
        mean = sum(known) / len(known) if known else None
        counts = [sum(run.status is status for run in runs) for status in RunStatus]
        cells = [str(count or "–") for count in counts]
        rows.append([shorten(label), shorten(task), *cells, score_text(mean)])
    heads = ["label", "task", *(status.value for status in RunStatus), "mean return"]
    print_table(heads, rows, drop=["stopped", "planned", "interrupted"])
    for run in index:
        if run.status is RunStatus.RUNNING:
            say(f"Running: {run.key}  {run_progress(run)}")
    failed = [run for run in index if run.status is RunStatus.FAILED]
    for run in failed[:MAX_FAILURES]:
        reason = shorten(printable(run.reason or "", keep=""), 200)
        say(f"Failed: {run.key} ({counted(run.attempts, 'attempt')}): {reason}")
    if len(failed) > MAX_FAILURES:
        say(f"… and {counted(len(failed) - MAX_FAILURES, 'more failed run')}")
    if index.damaged_lines:
        print_stderr(
            f"Warning: {counted(index.damaged_lines, 'damaged line')} of the index skipped."
        )

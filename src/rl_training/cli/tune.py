"""The `tune` command: search for the best settings of a config."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rl_training.boundary.terminal import say
from rl_training.cli.completion import complete_train
from rl_training.cli.options import (
    Address,
    ConfigOption,
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
from rl_training.cli.output import Json, print_json
from rl_training.cli.signals import SIGNAL_EXITS
from rl_training.cli.study import start_detached
from rl_training.errors import ConfigError
from rl_training.text import counted, duration

if TYPE_CHECKING:
    from rl_training.tuning.tuning import Tuning, TuningResult


def tune(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CONFIG|TUNING [KEY=VALUE]...",
            help="A packaged config, a YAML file, or the folder of a tuning to continue; and "
            "config keys to set in every trial.",
            autocompletion=complete_train,
        ),
    ] = None,
    config: ConfigOption = None,
    trials: Annotated[int | None, typer.Option(help="Number of trials (default: 50).")] = None,
    seeds: Annotated[
        str | None,
        typer.Option(help="Seeds of each trial: a count, or a list such as 0,3,7 (default: 3)."),
    ] = None,
    validation_seeds: Annotated[
        str | None,
        typer.Option(help="Fresh seeds for the best trial: a count, or a list (default: 5)."),
    ] = None,
    space: Annotated[
        Path | None,
        typer.Option(help="YAML file with what varies (default: the algorithm's packaged space)."),
    ] = None,
    show_space: Annotated[
        bool, typer.Option("--show-space", help="Print the space as YAML, and do not train.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the tuning (default: tunings/CONFIG).")
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            help="last_return, best_return, area_under_curve or fqe (default: last_return)."
        ),
    ] = None,
    aggregate: Annotated[
        str | None,
        typer.Option(
            help="How seeds are combined: worse_half, mean, median or worst (default: worse_half)."
        ),
    ] = None,
    fqe_updates: Annotated[
        int | None,
        typer.Option(help="Updates of each fitted Q evaluation (default: 20000)."),
    ] = None,
    sampler: Annotated[str | None, typer.Option(help="tpe, gp or random (default: tpe).")] = None,
    pruner: Annotated[
        str | None, typer.Option(help="median, halving or none (default: median).")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the sampler (default: 0).")] = None,
    threads: Threads = None,
    parallel: Annotated[
        int | None,
        typer.Option(help="Trials that may be open at once (default: chosen for this machine)."),
    ] = None,
    members: Members = None,
    warm_start: Annotated[
        list[Path] | None,
        typer.Option("--warm-start", help="Folder of an earlier tuning to learn from."),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(help="Optuna database URL or file to which trials are copied."),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(metavar="K/N", help="This is process K of N that share the folder."),
    ] = None,
    cores: Cores = None,
    gpus: Gpus = None,
    memory: Memory = None,
    retries: Retries = None,
    retry_failed: RetryFailed = False,
    executor: ExecutorOption = None,
    address: Address = None,
    detach: Detach = False,
    as_json: Json = False,
) -> None:
    """Search for the best settings of a config, or continue a search.

    Each trial trains one run for each seed. The best trial is validated on fresh seeds.

    The same command continues after an interruption.
    """
    from rl_training.boundary.yaml_codec import dump_yaml
    from rl_training.cli.tune_arguments import default_folder, parse_tune_arguments
    from rl_training.tuning.tuning import TuneOptions

    cluster = cluster_address(executor, address)
    if members is not None and cluster is not None:
        raise ConfigError(f"--members {members} limits populations: use --executor population.")
    imports = context.find_root().params["imports"] or ()
    tuning = parse_tune_arguments(
        words or (),
        config=config,
        space=space,
        options={
            "trials": trials,
            "seeds": seeds,
            "validation_seeds": validation_seeds,
            "objective": objective,
            "aggregate": aggregate,
            "fqe_updates": fqe_updates,
            "sampler": sampler,
            "pruner": pruner,
            "seed": seed,
            "parallel_trials": parallel,
            "threads": threads,
            "retries": retries,
            "executor": None if executor == "ray" else executor,
            "members": members,
        },
    )
    if show_space:
        if as_json:
            print_json(tuning.space)
        else:
            say(dump_yaml(tuning.space).rstrip("\n"), keep="\n")
        return
    folder = out or default_folder(tuning, words or (), config)
    if detach:
        start_detached(folder, as_json)
        return
    options = TuneOptions(
        cores=cores,
        gpus=gpus,
        memory=memory,
        address=cluster,
        warm_start=warm_start or (),
        storage=storage,
        shard=shard,
        retry_failed=retry_failed,
        imports=imports,
        progress=True,
        command=["rl-training", *sys.argv[1:]],
    )
    result = tuning.run_trials(folder, options)
    if as_json:
        print_json(result.to_json())
    else:
        for line in outcome_lines(tuning, result, options.command):
            say(line)
    if result.interrupted_by is not None:
        raise typer.Exit(SIGNAL_EXITS[result.interrupted_by])
    if result.best is None:
        raise typer.Exit(1)


def outcome_lines(tuning: Tuning, result: TuningResult, command: Sequence[str]) -> Iterator[str]:
    """Yield lines about the outcome of a session, and commands to run next."""
    from rl_training.tuning.storage import without_passwords
    from rl_training.tuning.trials import TrialStatus
    from rl_training.tuning.winner import number_text, params_text, validation_lines

    done = [trial for trial in result.trials if trial.status is not TrialStatus.OPEN]
    whole = counted(result.planned, "trial")
    yield f"{len(done)} of {whole} done; this session took {duration(result.seconds)}."
    if result.best is not None:
        yield (
            f"Best: trial {result.best.number}, {number_text(result.best.value)} "
            f"({params_text(result.best.params)})"
        )
    elif not result.interrupted_by:
        yield "No trial is complete: all of them failed."
        for trial in result.trials[:5]:
            yield f"Trial {trial.number} failed: {trial.reason}"
    if result.interrupted_by is not None:
        yield f"Interrupted. Continue with: {shlex.join(without_passwords(command))}"
        return
    if result.best is not None:
        yield from validation_lines(tuning.plan(), result.best, result.validation)
        yield f"Config: {result.config_file}"
        yield "Next:"
        yield f"  rl-training train {shlex.quote(str(result.config_file))}"
        yield f"  rl-training study report {shlex.quote(str(result.path))}"
        yield f"  rl-training study status {shlex.quote(str(result.path))}"

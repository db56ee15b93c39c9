"""The command-line interface: parses arguments, calls the API and prints the results."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from rl_training.boundary.terminal import open_standard_streams, output_failure, print_stderr, say
from rl_training.cli.card import card
from rl_training.cli.completion import complete_train
from rl_training.cli.configs import configs_app
from rl_training.cli.data import Best, EnvKwargs, RunPath, data_app
from rl_training.cli.export import export
from rl_training.cli.options import ConfigOption
from rl_training.cli.output import Json, print_json, print_result, print_table, progress_bar
from rl_training.cli.plot import plot
from rl_training.cli.runs import runs_app
from rl_training.cli.signals import SIGNAL_EXITS
from rl_training.cli.study import finish_study, study_app, study_options
from rl_training.cli.summaries import evaluation_text, settings_text, training_lines
from rl_training.cli.tune import tune
from rl_training.errors import RLTrainingError
from rl_training.experiment.user_imports import import_user_module

if TYPE_CHECKING:
    from rl_training.runtime.training_loop import TrainResult


class _Group(TyperGroup):
    """Prints expected errors as one line; typer prints usage errors."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; the exit code is 2 for invalid input and 1 for other failures."""
        try:
            return super().invoke(ctx)
        except RLTrainingError as error:
            if ctx.params["debug"]:
                raise
            print_stderr(f"Error: {error}")
            sys.exit(error.exit_code)
        except KeyboardInterrupt:
            print_stderr("Interrupted.")
            sys.exit(SIGNAL_EXITS["SIGINT"])


app = typer.Typer(
    name="rl-training",
    cls=_Group,
    help="Train and evaluate reinforcement learning agents, online and offline.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    epilog="Example: rl-training train sac/pendulum",
)
app.add_typer(data_app, name="data", epilog="Example: rl-training data inspect file.npz")
app.add_typer(configs_app, name="configs", epilog="Example: rl-training configs show sac/pendulum")
app.add_typer(runs_app, name="runs", epilog="Example: rl-training runs runs --sort best")
app.add_typer(study_app, name="study", epilog="Example: rl-training study run study.yaml")

Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Config keys to set, such as total_timesteps=40000."),
]
EnvId = Annotated[
    str | None, typer.Option("--env-id", help="Environment id (default: the run's own).")
]
Device = Annotated[str, typer.Option(help="Device on which the policy runs.")]


def _version(show: bool) -> None:
    if show:
        from rl_training import __version__

        say(f"rl-training {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    imports: Annotated[
        list[str] | None,
        typer.Option(
            "--import", help="Import a module first, such as one that registers environments."
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    for module in imports or ():
        import_user_module(module)


@app.command(
    epilog="Examples:\n\nrl-training train sac/pendulum seed=1 batch_size=512\n\n"
    "rl-training train algo=sac env_id=Pendulum-v1 total_timesteps=20000"
)
def train(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CONFIG|KEY=VALUE",
            help="A packaged config or a YAML file, and config keys to set, such as seed=1.",
            autocompletion=complete_train,
        ),
    ] = None,
    config: ConfigOption = None,
    show_config: Annotated[
        bool,
        typer.Option(
            "--show-config", help="Print the whole config, including defaults, and do not train."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Train an agent from a config.

    The run gets a new folder. Without a config, set algo=NAME and env_id=ID.

    With seeds=5 or seeds=0,3,7, one run for each seed is trained.
    """
    from rl_training.api.training import start_run
    from rl_training.boundary.yaml_codec import dump_yaml
    from rl_training.cli.train_arguments import parse_train_arguments
    from rl_training.experiment.task import check_config

    settings, note = parse_train_arguments(config, words or ())
    command = ["rl-training", *sys.argv[1:]]
    if show_config:
        checked = check_config(settings.model_copy(update={"seeds": None}).resolved()).config
        resolved = checked.model_copy(update={"seeds": settings.seeds}).to_dict()
        if as_json:
            print_json(resolved)
        else:
            say(dump_yaml(resolved).rstrip("\n"), keep="\n")
        return
    if settings.seeds is not None:
        from rl_training.study.seeds import start_seeds

        if not as_json:
            for line in settings_text(settings, note).splitlines():
                print_stderr(line)
        finish_study(context, start_seeds(settings, study_options(context, command)), as_json)
        return
    with _display("" if as_json else settings_text(settings, note)) as display:
        result = start_run(settings, [display], command=command)
    _finish(context, result, as_json)


@app.command(epilog="Example: rl-training resume runs/sac_Pendulum-v1_seed0 total_timesteps=40000")
def resume(
    context: typer.Context, run: RunPath, overrides: Overrides = None, as_json: Json = False
) -> None:
    """Resume a run from its latest checkpoint, or all runs of a study."""
    from rl_training.api.arguments import as_path
    from rl_training.api.training import continue_run
    from rl_training.study.folder import is_study

    if is_study(as_path("path", run)):
        from rl_training.study.seeds import continue_seeds

        options = study_options(context, ["rl-training", *sys.argv[1:]])
        finish_study(context, continue_seeds(run, overrides or (), options), as_json)
        return
    with _display() as display:
        result = continue_run(run, overrides or (), [display])
    _finish(context, result, as_json)


@app.command(epilog="Example: rl-training finetune runs/iql_Pendulum-v1_seed0 total_timesteps=5000")
def finetune(
    context: typer.Context,
    run: RunPath,
    env_id: EnvId = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            "--dataset",
            "--dataset-path",
            help="Dataset file or Minari id (default: the run's own data).",
        ),
    ] = None,
    best: Best = False,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Fine-tune a trained agent in an environment.

    The result is a new run. It keeps the networks and optimizers of the agent.

    offline_batch_ratio is the share of recorded data in each batch; 0 drops it.
    """
    from rl_training.api.finetuning import start_finetuning
    from rl_training.experiment.run_envs import PassedEnvs

    with _display() as display:
        result = start_finetuning(
            run,
            PassedEnvs(env_id),
            overrides or (),
            [display],
            dataset=dataset,
            best=best,
        )
    _finish(context, result, as_json)


@app.command(epilog="Example: rl-training evaluate runs/sac_Pendulum-v1_seed0 --best --episodes 20")
def evaluate(
    run: RunPath,
    best: Best = False,
    episodes: Annotated[int | None, typer.Option(help="Number of episodes (default: 10).")] = None,
    env_id: EnvId = None,
    env_kwargs: EnvKwargs = None,
    seed: Annotated[
        int, typer.Option(help="Seed of the first episode; episode i uses seed + i.")
    ] = 0,
    video: Annotated[
        Path | None, typer.Option(help="Record the episodes to a .mp4 or .gif file.")
    ] = None,
    fqe: Annotated[
        bool,
        typer.Option("--fqe", help="Estimate the policy's value by fitted Q evaluation instead."),
    ] = False,
    fqe_updates: Annotated[
        int | None, typer.Option(help="Number of updates for --fqe (default: 20,000).")
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="Dataset file or Minari id for --fqe (default: the run's own data)."),
    ] = None,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Evaluate a policy on seeded episodes, without exploration.

    Without an environment, the loss on held-out rows is reported.

    With --fqe, the value of the policy is estimated from recorded data.
    """
    from rl_training.api.checkpoints import evaluate_checkpoint
    from rl_training.experiment.config import parse_env_kwargs

    with progress_bar("fitting") as progress:
        result = evaluate_checkpoint(
            run,
            episodes=episodes,
            env_id=env_id,
            env_kwargs=parse_env_kwargs(env_kwargs or ()),
            seed=seed,
            best=best,
            device=device,
            video=video,
            fqe=fqe,
            fqe_updates=fqe_updates,
            dataset=dataset,
            progress=progress,
        )
    print_result(result, evaluation_text(result), as_json)


@app.command(epilog="Example: rl-training predict runs/sac_Pendulum-v1_seed0 --obs obs.npy")
def predict(
    run: RunPath,
    obs: Annotated[
        Path,
        typer.Option(
            help="A .npy file with one observation or a batch, or a .npz file with the entries of "
            "a Dict."
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="Write the actions to this .npy file.")] = None,
    action_masks: Annotated[
        Path | None,
        typer.Option(
            help="A .npy file with 1 for each legal discrete action and 0 for the others."
        ),
    ] = None,
    best: Best = False,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Compute actions for observations in a .npy or .npz file."""
    import numpy as np

    from rl_training.api.checkpoints import predict_file

    actions = predict_file(run, obs, out, action_masks=action_masks, best=best, device=device)
    bad = int((~np.isfinite(actions)).sum())
    if bad:
        print_stderr(
            f"Warning: {bad:,} of {actions.size:,} action values are not finite: the observations "
            "may be too large for this policy, or its weights may be damaged."
        )
    if as_json:
        print_json({"actions": actions.tolist(), "out": str(out) if out else None})
    elif out is not None:
        say(f"Wrote actions of shape {actions.shape} to {out}")
    else:
        say(np.array2string(actions, separator=", ", threshold=200), keep="\n")


@app.command(epilog="Example: rl-training algorithms --json")
def algorithms(as_json: Json = False) -> None:
    """List the available algorithms."""
    from dataclasses import asdict

    from rl_training.algorithms.registry import REGISTRY

    if as_json:
        print_json({"algorithms": [asdict(entry) for entry in REGISTRY.values()]})
        return
    rows = [
        [e.name, e.title, e.mode.replace("_", "-"), e.actions, e.summary] for e in REGISTRY.values()
    ]
    heads = ["name", "algorithm", "mode", "actions", "description"]
    print_table(heads, rows, drop=["algorithm", "actions"])


app.command(
    epilog="Example: rl-training export runs/sac_Pendulum-v1_seed0 --out policy.onnx --standalone"
)(export)
app.command(
    epilog="Examples:\n\nrl-training card runs/sac_Pendulum-v1_seed0 --best\n\n"
    "rl-training card runs/sac_Pendulum-v1_seed0 --best --push me/sac-pendulum"
)(card)
app.command(
    epilog="Examples:\n\nrl-training tune sac/pendulum --trials 50 total_timesteps=5000\n\n"
    "rl-training tune sac/pendulum --show-space\n\nrl-training tune tunings/sac_pendulum"
)(tune)
app.command(epilog="Example: rl-training plot runs/sac_* runs/td3_* --out compared.png")(plot)


def _display(settings: str = "") -> Any:
    """Return the live display, which prints the settings once all checks have passed."""
    from contextlib import closing

    from rl_training.api.progress import ProgressCallback

    return closing(ProgressCallback(settings=settings))


def _finish(context: typer.Context, result: TrainResult, as_json: bool) -> None:
    """Print the outcome and the next commands; exit with the code of a signal, if there was one."""
    if as_json:
        print_json(result.to_json())
    else:
        imports = context.find_root().params["imports"] or ()
        for line in training_lines(result, imports):
            say(line)
    if result.interrupted_by is not None:
        raise typer.Exit(SIGNAL_EXITS[result.interrupted_by])


def main() -> None:
    """Run the command-line interface."""
    # Worker processes must import from the same folders as this one. They are started by
    # `python -c`, which otherwise puts the current folder before the standard library.
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    words = sys.argv[1:]
    open_standard_streams(results_only="--json" in words and "--help" not in words)
    try:
        app()
    except SystemExit as end:
        sys.exit(end.code or output_failure())

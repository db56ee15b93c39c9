"""The `configs` commands: list packaged configs, show one, and list the keys of an algorithm."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from rl_training.boundary.terminal import output, plain_console, say
from rl_training.cli.completion import complete_algorithm, complete_config_name
from rl_training.cli.output import Json, print_json, print_table

if TYPE_CHECKING:
    from rl_training.experiment.config_keys import ConfigKey

configs_app = typer.Typer(add_completion=False)


@configs_app.callback(invoke_without_command=True)
def configs(context: typer.Context, as_json: Json = False) -> None:
    """List packaged configs, show one, or list the config keys of an algorithm."""
    if context.invoked_subcommand is not None:
        return
    from rl_training.boundary.packaged_configs import config_names
    from rl_training.experiment.config import read_config

    names = config_names()
    if as_json:
        print_json({"configs": names})
        return
    data = [(name, read_config(name)) for name in names]
    rows = [
        [n, str(d["algo"]), str(d.get("env_id", "–")), f"{d.get('total_timesteps', 0):,}"]
        for n, d in data
    ]
    print_table(["name", "algorithm", "environment", "steps"], rows, drop=["algorithm", "steps"])


@configs_app.command("show", epilog="Example: rl-training configs show sac/pendulum")
def configs_show(
    name: Annotated[
        str,
        typer.Argument(help="Name of a packaged config.", autocompletion=complete_config_name),
    ],
    as_json: Json = False,
) -> None:
    """Print a packaged config."""
    from rl_training.experiment.config import config_text, read_config

    text = config_text(name)
    if as_json:
        print_json(read_config(name))
    else:
        say(text.rstrip("\n"), keep="\n")


@configs_app.command("keys", epilog="Example: rl-training configs keys sac learning_rate")
def configs_keys(
    algo: Annotated[
        str, typer.Argument(help="Name of an algorithm.", autocompletion=complete_algorithm)
    ],
    word: Annotated[
        str | None,
        typer.Argument(help="List only keys with this word in their name or description."),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the config keys of an algorithm.

    Each key has a default, allowed values and a description.
    """
    from rl_training.experiment.config_keys import config_keys

    keys = config_keys(algo)
    if word is not None:
        searched = word.lower()
        keys = [k for k in keys if searched in f"{k.name} {k.description}".lower()]
    if as_json:
        print_json({"algo": algo, "keys": [asdict(key) for key in keys]})
    elif not keys:
        say(f"No key of {algo} has {word!r} in its name or description.")
    else:
        _print_keys(keys)


GROUPS = {"run": "All runs", "control": "Training control", "data": "Data and rewards"}


def _print_keys(keys: list[ConfigKey]) -> None:
    """Print keys in groups in a terminal, and one key per line in a pipe."""
    from textwrap import wrap

    stream = output()
    if not stream.isatty():
        rows = [[key.name, key.default_text, key.allowed, key.description] for key in keys]
        print_table(["key", "default", "allowed", "description"], rows)
        return
    width = plain_console(stream).width
    group = ""
    for key in keys:
        if key.group != group:
            say(("\n" if group else "") + f"{GROUPS.get(key.group, key.group)}:", keep="\n")
            group = key.group
        say(f"  {key.name}  (default {key.default_text}; {key.allowed})")
        for line in wrap(key.description, max(width - 6, 20)):
            say(f"      {line}")

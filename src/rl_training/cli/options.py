"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

from rl_training.cli.completion import complete_config
from rl_training.errors import ConfigError
from rl_training.text import shown

ConfigOption = Annotated[
    str | None,
    typer.Option(
        "--config",
        "-c",
        help="A packaged config or a YAML file; the same as the CONFIG argument.",
        autocompletion=complete_config,
    ),
]
RetryFailed = Annotated[
    bool, typer.Option("--retry-failed", help="Try runs again that have failed too often.")
]
Threads = Annotated[int | None, typer.Option(help="Threads of each run (default: 1).")]
Retries = Annotated[
    int | None, typer.Option(help="How often a failed run is tried again (default: 2).")
]
Cores = Annotated[float | None, typer.Option(help="Cores to use (default: all of this machine).")]
Memory = Annotated[str | None, typer.Option(help="Memory to use, such as 8GiB (default: all).")]
Gpus = Annotated[int | None, typer.Option(help="GPUs to use (default: all).")]
ExecutorOption = Annotated[
    str | None,
    typer.Option(
        "--executor",
        help="How to train: local (processes of this machine), population (all seeds as one "
        "program, for a GPU) or ray (default: as described in the file or folder, or local).",
    ),
]
EXECUTORS = ("local", "population", "ray")
Members = Annotated[
    int | None,
    typer.Option(min=1, help="Most runs that train as one program (default: all that can)."),
]
Address = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Ray cluster (default: auto, the one of this machine)."),
]
Detach = Annotated[
    bool,
    typer.Option("--detach", help="Run in the background; follow it with study attach."),
]


def cluster_address(executor: str | None, address: str | None) -> str | None:
    """Return the address of the cluster to use; None for this machine."""
    if executor not in (None, *EXECUTORS):
        *others, last = EXECUTORS
        allowed = f"{', '.join(others)} or {last}"
        raise ConfigError(f"--executor {shown(executor)}: should be {allowed}.")
    if executor != "ray" and address is not None:
        raise ConfigError(f"--address {shown(address)}: add --executor ray.")
    return (address or "auto") if executor == "ray" else None

"""The `card` command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from rl_training.cli.data import Best, RunPath
from rl_training.cli.output import Json, print_results

Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="File to write (default: README.md in the run's folder; none with --push). The "
        "learning curve is written next to it, with the suffix .png.",
    ),
]
Episodes = Annotated[
    int | None,
    typer.Option(
        help="Number of evaluation episodes (default: 10), or 0 to use the checkpoint's evaluation "
        "during training."
    ),
]
License = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="License of the weights, such as apache-2.0 (default: none)."
    ),
]
Push = Annotated[
    str | None,
    typer.Option(
        "--push",
        metavar="USER/NAME",
        help="Upload the card and the checkpoint, without its replay, to this repository of the "
        "Hugging Face hub. Requires a token: hf auth login, or HF_TOKEN.",
    ),
]
Private = Annotated[
    bool, typer.Option("--private", help="With --push: upload only to a private repository.")
]
Onnx = Annotated[
    bool,
    typer.Option("--onnx", help="With --push: also upload the policy as an ONNX model."),
]
Force = Annotated[bool, typer.Option("--force", help="Replace existing files.")]


def card(
    run: RunPath,
    out: Out = None,
    best: Best = False,
    episodes: Episodes = None,
    license: License = None,
    push: Push = None,
    private: Private = False,
    onnx: Onnx = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a model card for a policy, which --push publishes on the Hugging Face hub.

    The card has returns with an interval, the learning curve, and how to use and repeat the run.

    It contains no absolute paths.
    """
    from rl_training.api.cards import model_card

    result = model_card(
        run,
        out,
        best=best,
        episodes=episodes,
        license=license,
        push=push,
        private=private,
        onnx=onnx,
        overwrite=force,
    )
    print_results(result, _lines(result), as_json)


def _lines(result: dict[str, Any]) -> Iterator[str]:
    """Describe the files, the returns and the upload."""
    step = f"step {result['step']:,}"
    if result["files"]:
        yield f"Wrote {', '.join(result['files'])} ({step})"
    if result["return_mean"] is not None:
        interval = result["return_ci95"]
        bounds = interval and f" (95% interval of the mean {interval[0]:.2f} to {interval[1]:.2f})"
        yield f"  return {result['return_mean']:.2f} ± {result['return_std']:.2f}{bounds or ''}"
    for note in result["notes"]:
        yield f"  {note}"
    if result["url"] is not None:
        yield f"Uploaded {len(result['uploaded'])} files to {result['url']} ({step})"

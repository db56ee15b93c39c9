"""The `export` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rl_training.cli.data import Best, RunPath
from rl_training.cli.output import Json, print_results

Out = Annotated[
    Path | None,
    typer.Option(
        "--out", help="File to write (default: policy.onnx, policy.pt2 or policy.safetensors)."
    ),
]
FormatName = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="onnx|pt2|safetensors",
        help="An ONNX model, a torch.export program, or the weights layer by layer. The default is "
        "the suffix of --out, or else onnx.",
    ),
]
Standalone = Annotated[
    bool,
    typer.Option(
        "--standalone",
        help="Also write policy.py, which runs the ONNX model with NumPy and onnxruntime alone, "
        "and a JSON file that describes it.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace existing files.")]


def export(
    run: RunPath,
    out: Out = None,
    format: FormatName = None,
    best: Best = False,
    standalone: Standalone = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Export a policy to a file that runs without rl-training.

    The file maps raw observations to actions of the environment.

    Its actions are compared with those of `predict` before it is written.
    """
    from rl_training.api.exporting import export_checkpoint

    result = export_checkpoint(
        run,
        out or Path(f"policy.{format or 'onnx'}"),
        format=format,  # type: ignore[arg-type]  # checked there
        best=best,
        standalone=standalone,
        overwrite=force,
    )
    print_results(result, _lines(result), as_json)


def _lines(result: dict[str, Any]) -> list[str]:
    """Describe the files, the inputs and outputs, and the comparison."""
    first = f"Wrote {', '.join(result['files'])} (step {result['step']:,})"
    if "tensors" in result:
        return [f"{first}: {len(result['tensors'])} tensors"]
    parity = result["parity"]
    episode = parity["episode_observations"]
    compared = f"{parity['random_observations']:,} random observations"
    if episode:
        compared += f" and {episode:,} of an episode"
    largest = parity["largest_difference"]
    difference = f" (largest difference {largest:.1e} of their range)" if largest else ""
    lines = [
        first,
        f"  inputs: {_ports(result['inputs'])}; outputs: {_ports(result['outputs'])}",
        f"  same actions as predict for {compared}{difference}",
    ]
    if parity["decided_by_rounding"]:
        lines.append(f"  {parity['decided_by_rounding']:,} of them are decided by rounding")
    if parity["note"]:
        lines.append(f"  no episode was played: {parity['note']}")
    return lines


def _ports(ports: list[dict[str, Any]]) -> str:
    return ", ".join(
        f"{port['name']} {port['dtype']}[{', '.join(['batch', *map(str, port['shape'])])}]"
        for port in ports
    )

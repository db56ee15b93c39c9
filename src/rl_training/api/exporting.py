"""Export policies to files that run without this package, and check each file before it appears."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor
from torch.export import ExportedProgram

from rl_training.algorithms.base import Algorithm
from rl_training.algorithms.registry import get_algorithm
from rl_training.api.arguments import as_output, as_path
from rl_training.api.parity import Act, ParityError, collect_observations, compare
from rl_training.boundary.onnx_format import (
    onnx_bytes,
    open_onnx,
    require_onnx,
    standalone_program,
)
from rl_training.boundary.program_archive import archive_bytes, load_own_archive
from rl_training.boundary.reading import MAX_TEXT, read_bytes
from rl_training.boundary.tensors import read_tensors, tensor_bytes
from rl_training.boundary.writing import replace_files
from rl_training.errors import ConfigError
from rl_training.experiment.build import versions
from rl_training.experiment.saved_run import SavedRun
from rl_training.models.named_weights import named_weights
from rl_training.runtime.checkpointing import OPTIMIZER_PREFIX
from rl_training.runtime.evaluation import Policy
from rl_training.runtime.policy_graph import BATCH, export_program
from rl_training.runtime.policy_ports import policy_inputs, policy_output
from rl_training.text import shown
from rl_training.types import ActionArray, EnvSpec

Format = Literal["onnx", "pt2", "safetensors"]
FORMATS: tuple[Format, ...] = get_args(Format)
STANDALONE = "policy.py"
EXPORT_FORMAT = 1
"""Version of the metadata in exported files."""


def export_checkpoint(
    path: str | Path,
    out: str | Path,
    *,
    format: Format | None = None,
    best: bool = False,
    standalone: bool = False,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Export the deterministic policy of a run or checkpoint, and check the file that is written.

    A file in the format ``onnx`` or ``pt2`` maps raw observations to actions in the units of the
    environment. It is loaded again and compared with `predict_checkpoint`, on random observations
    and on those of an episode; if they differ, nothing is written. A ``safetensors`` file contains
    the weights of all networks, layer by layer. docs/export.md describes the formats.

    Args:
        path: A run, whose last checkpoint is exported, or a checkpoint.
        out: File to write.
        format: ``"onnx"``, ``"pt2"`` or ``"safetensors"``; by default, the suffix of ``out``.
        best: Export the best checkpoint of the run instead of the last one.
        standalone: For ONNX, also write ``policy.py``, which runs the policy with NumPy and
            onnxruntime alone, and a JSON file that describes the policy.
        overwrite: Replace existing files.

    Returns:
        The files, the inputs and outputs, and the result of the comparison.

    Raises:
        ConfigError: The file cannot be written, or the policy cannot be exported.
        ParityError: The exported policy differs from the original one.
    """
    kind = _choose_format(out, format)
    file = Path(os.path.realpath(out)) if os.path.islink(out) else Path(out)
    companions = _companions(file, kind) if standalone else ()
    for name in (file, *companions):
        _check_destination(name, overwrite=overwrite)
    if kind == "onnx":
        require_onnx()
    checkpoint = SavedRun.load(as_path("path", path), best=best)
    policy = checkpoint.load_policy()
    facts = describe_policy(checkpoint, policy)
    if kind == "safetensors":
        checked = _export_weights(policy, facts, file)
    else:
        checked = _export_program(checkpoint, policy, facts, (file, *companions))
    return {
        "checkpoint_path": str(checkpoint.path),
        "step": checkpoint.step,
        "format": kind,
        "files": [str(name) for name in (file, *companions)],
        **checked,
    }


# --- Files ----------------------------------------------------------------------


def _choose_format(out: Any, given: Any) -> Format:
    """Return the format, which must match the suffix of the file."""
    if given is not None and given not in FORMATS:
        raise ConfigError(f"format = {shown(given)}: should be one of {', '.join(FORMATS)}.")
    if as_path("out", out, "a file").is_dir():
        raise ConfigError(f"{out} is a folder: pass the name of a file.")
    file = as_output("out", out, [f".{kind}" for kind in FORMATS])
    suffix = next(kind for kind in FORMATS if f".{kind}" == file.suffix.lower())
    if given not in (None, suffix):
        raise ConfigError(
            f"out = {shown(str(file))}: the name of a file in the format {given} must end in "
            f".{given}."
        )
    return suffix


def _companions(file: Path, kind: Format) -> tuple[Path, Path]:
    """Return the description and the program of a standalone policy."""
    if kind != "onnx":
        raise ConfigError(f"A standalone policy requires the format onnx, not {kind}.")
    return file.with_suffix(".json"), file.with_name(STANDALONE)


def _check_destination(file: Path, *, overwrite: bool) -> None:
    """Reject a folder, and an existing file unless it may be replaced."""
    if file.is_dir():
        raise ConfigError(f"{file} is a folder: pass the name of a file.")
    if overwrite or not file.exists() or _is_standalone_program(file):
        return
    raise ConfigError(
        f"{file} already exists: choose another name, or replace it with --force (overwrite=True)."
    )


def _is_standalone_program(file: Path) -> bool:
    """Return whether a file is already the program of a standalone policy."""
    return file.name == STANDALONE and read_bytes(file, limit=MAX_TEXT) == standalone_program()


# --- Contents -------------------------------------------------------------------


def describe_policy(checkpoint: SavedRun, policy: Policy) -> dict[str, Any]:
    """Return what an exported file says about its policy, as plain data."""
    config, trained = checkpoint.config, checkpoint.trainer_state()
    return {
        "format": EXPORT_FORMAT,
        "algorithm": config.algo,
        "title": get_algorithm(config.algo).title,
        "env_id": config.env_id,
        "seed": config.seed,
        "step": checkpoint.step,
        **describe_ports(policy.spec),
        "returns": {
            "step": trained.evaluation_step,
            "mean": trained.evaluation.get("eval_return_mean"),
            "std": trained.evaluation.get("eval_return_std"),
            "best": trained.best_return,
            "best_step": trained.best_step,
        },
        "versions": versions(),
    }


def _export_weights(policy: Policy, facts: dict[str, Any], file: Path) -> dict[str, Any]:
    """Write the weights layer by layer, and check that the file contains the same values."""
    weights = layer_weights(policy.algorithm)
    data = tensor_bytes(weights, {"rl_training": json.dumps(facts, sort_keys=True)})
    with replace_files({file: data}) as folder:
        written = read_tensors(folder / file.name, limit=len(data))
        same = written.keys() == weights.keys()
        if not same or not all(torch.equal(written[name], weights[name]) for name in weights):
            raise ParityError(f"{file} would not contain the same weights. Nothing was written.")
    sizes = {name: list(tensor.shape) for name, tensor in weights.items()}
    return {"tensors": sizes}


def layer_weights(algorithm: Algorithm) -> dict[str, Tensor]:
    """Return copies of a learner's weights layer by layer.

    Critics with a common encoder each get a copy of it, so that every network is complete.
    """
    return {
        name: tensor.detach().clone(memory_format=torch.contiguous_format)
        for name, tensor in named_weights(algorithm).items()
        if not name.startswith(OPTIMIZER_PREFIX)
    }


def _export_program(
    checkpoint: SavedRun, policy: Policy, facts: dict[str, Any], files: tuple[Path, ...]
) -> dict[str, Any]:
    """Write the policy as a program, and compare what was written with the policy."""
    file, *companions = files
    data = program_bytes(export_program(policy), facts, onnx=_is_onnx(file))
    contents = {file: data}
    if companions:
        record = {"file": file.name, "sha256": hashlib.sha256(data).hexdigest(), **facts}
        contents[companions[0]] = (json.dumps(record, indent=1) + "\n").encode()
        contents[companions[1]] = standalone_program()
    observations = collect_observations(checkpoint, policy)
    with replace_files(contents) as folder:
        exported = load_program(folder / file.name, policy.spec)
        parity = compare(policy, exported, observations)
    ports = {key: facts[key] for key in ("inputs", "outputs")}
    return {**ports, "parity": asdict(parity)}


def describe_ports(spec: EnvSpec) -> dict[str, Any]:
    """Return the names, types and shapes of a policy's inputs and outputs."""
    inputs = [item.to_dict() for item in policy_inputs(spec)]
    return {"inputs": inputs, "outputs": [policy_output(spec)]}


def _is_onnx(file: Path) -> bool:
    return file.suffix.lower() == ".onnx"


def program_bytes(program: ExportedProgram, facts: dict[str, Any], *, onnx: bool) -> bytes:
    """Return a policy's program as an ONNX model with ``facts``, or as a .pt2 archive."""
    if not onnx:
        return archive_bytes(program)
    inputs, outputs = ([port["name"] for port in facts[key]] for key in ("inputs", "outputs"))
    return onnx_bytes(program, inputs=inputs, outputs=outputs, batch=BATCH, facts=facts)


def load_program(file: Path, spec: EnvSpec) -> Act:
    """Load a file that this process wrote, as a function of observations."""
    if _is_onnx(file):
        return open_onnx(file)
    module = load_own_archive(read_bytes(file, limit=file.stat().st_size)).module()
    return lambda *arguments: run_module(module, spec, *arguments)


def run_module(
    module: Callable[..., Tensor], spec: EnvSpec, observation: Any, mask: Any = None
) -> ActionArray:
    """Call a program with an observation of the environment or a batch, given by entry."""
    tensors, is_batch = [], False
    for given in policy_inputs(spec):
        part = mask if given.is_mask else observation
        if given.entry.name and not given.is_mask:
            part = observation[given.entry.name]
        tensor = torch.from_numpy(np.asarray(part, dtype=given.dtype))
        is_batch = tensor.dim() > len(given.entry.shape)
        tensors.append(tensor if is_batch else tensor.unsqueeze(0))
    with torch.no_grad():
        actions: ActionArray = module(*tensors).numpy()
    return actions if is_batch else actions[0]

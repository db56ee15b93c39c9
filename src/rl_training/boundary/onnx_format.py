"""Write policies as ONNX models, which contain only the graph, its weights and our metadata."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from rl_training.errors import ConfigError
from rl_training.text import error_text, first_line

INSTALL = "pip install 'rl-training[export]'"
METADATA_KEY = "rl_training"
"""Key of the JSON text in the model's metadata."""
MAX_BYTES = 2**31 - 1
"""Maximum size of an ONNX model, a limit of protobuf."""


def require_onnx() -> None:
    """Raise an error with the install command if a package of the extra is missing."""
    try:
        import onnx
        import onnxruntime
        import onnxscript
    except ImportError as error:
        raise ConfigError(
            f"ONNX files require onnx, onnxscript and onnxruntime ({error}). Install them with: "
            f"{INSTALL}"
        ) from None
    del onnx, onnxruntime, onnxscript


def onnx_bytes(
    program: ExportedProgram,
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
    batch: str,
    facts: dict[str, Any],
) -> bytes:
    """Return a program as an ONNX model.

    Args:
        program: The program; the first axis of every input and output is the batch.
        inputs: Names of the inputs.
        outputs: Names of the outputs.
        batch: Name of the batch axis.
        facts: Plain data for the model's metadata.
    """
    require_onnx()
    import onnx

    try:
        with _quiet():
            converted = torch.onnx.export(program, dynamo=True, verbose=False)
        assert converted is not None  # it is None only if a file is written
        model = converted.model_proto
        _strip(model, batch)
        _rename(model.graph, inputs, outputs)
        onnx.helper.set_model_props(model, {METADATA_KEY: json.dumps(facts, sort_keys=True)})
        onnx.checker.check_model(model, full_check=True)
        data: bytes = model.SerializeToString(deterministic=True)
    except Exception as error:  # the converter raises many types
        raise ConfigError(
            f"The policy cannot be converted to ONNX ({error_text(error)}): use --format pt2, or "
            "replace the operation in your network."
        ) from error
    return data


def open_onnx(file: Path) -> Callable[[Any], Any]:
    """Return the policy in a file, run by the same code as a standalone policy."""
    from rl_training.boundary.exported_policy import Policy

    try:
        return Policy(file)
    except ValueError as error:
        raise ConfigError(f"onnxruntime cannot load the policy: {first_line(error)}") from error


def standalone_program() -> bytes:
    """Return the program that runs an ONNX policy with NumPy and onnxruntime alone."""
    return resources.files("rl_training.boundary").joinpath("exported_policy.py").read_bytes()


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the converter's log; its failures are exceptions."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _strip(model: Any, batch: str) -> None:
    """Remove stack traces and names of this machine's files, and name the batch axis."""
    graph = model.graph
    del graph.value_info[:]
    del model.metadata_props[:]
    for item in (graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        del item.metadata_props[:]
        item.doc_string = ""
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = batch


def _rename(graph: Any, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Name inputs and outputs; inner values that have one of these names get another one."""
    public = [*graph.input, *graph.output]
    names = dict(zip([value.name for value in public], [*inputs, *outputs], strict=True))
    for name in _value_names(graph) - names.keys():
        if name in names.values():
            names[name] = f"inner/{name}"
    for value in public:
        value.name = names[value.name]
    _rename_values(graph, names)


def _value_names(graph: Any) -> set[str]:
    """Return the names of all values of a graph and of the graphs inside its nodes."""
    found = {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        found |= {*node.input, *node.output}
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                found |= _value_names(inner)
    return found


def _rename_values(graph: Any, names: Mapping[str, str]) -> None:
    for tensor in graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                for value in (*inner.input, *inner.output):
                    value.name = names.get(value.name, value.name)
                _rename_values(inner, names)

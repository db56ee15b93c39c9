"""A policy as a graph of tensor operations: from raw observations to the environment's actions.

Every learner is exported in the same way. `Algorithm.act` is traced once, with the observation as
the only input. Whatever does not depend on the observation, such as the layers' views of the flat
vectors, is computed and becomes a named constant; everything that the action does not need is
dropped. The result is a plain module without flat vectors, kernels or learner code.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from keyword import iskeyword
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram

from rl_training.algorithms.base import Algorithm
from rl_training.envs import ActionScaler
from rl_training.errors import ConfigError
from rl_training.models.kernels import plain_operations
from rl_training.models.named_weights import named_weights
from rl_training.runtime.evaluation import Policy
from rl_training.runtime.policy_ports import PolicyInput, policy_inputs
from rl_training.text import error_text

BATCH = "batch"
"""Name of the first axis of every input and of the output."""

TRACED_ROWS = 3
"""Number of observations to trace with; sizes of 0 and 1 would be treated as constants."""


class PolicyModule(nn.Module):
    """The deterministic policy of a learner, as a function of tensors."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.algorithm = policy.algorithm
        self.inputs = policy_inputs(policy.spec)
        self.scaler = ActionScaler(policy.spec)

    def forward(self, *values: Tensor) -> Tensor:
        """Return the environment's actions for a batch of raw observations."""
        parts = [given.flatten(x) for given, x in zip(self.inputs, values, strict=True)]
        legal = parts.pop() if self.inputs[-1].is_mask else None
        obs = torch.cat(parts, dim=-1)
        return self.scaler.tensors_to_env(self.algorithm.act(obs, deterministic=True, legal=legal))


def export_program(policy: Policy) -> ExportedProgram:
    """Return a policy as a program of `torch.export` with named constants.

    Raises:
        ConfigError: The policy uses something that cannot be traced.
    """
    with _tracing(policy):
        return _export(_plain_module(policy), _examples(policy))


def plain_module(policy: Policy) -> fx.GraphModule:
    """Return a policy as a module of tensor operations, without learner code and flat vectors.

    Raises:
        ConfigError: The policy uses something that cannot be traced.
    """
    with _tracing(policy):
        return _plain_module(policy)


def _plain_module(policy: Policy) -> fx.GraphModule:
    module = PolicyModule(policy)
    traced = _export(module, _examples(policy)).run_decompositions({})
    _check_effects(traced)
    return _simplified(traced, module)


def _examples(policy: Policy) -> tuple[Tensor, ...]:
    return tuple(given.example(TRACED_ROWS) for given in policy_inputs(policy.spec))


@contextmanager
def _tracing(policy: Policy) -> Iterator[None]:
    """Trace without hand-written kernels, gradients and warnings; report what cannot be traced."""
    try:
        with plain_operations(), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except ConfigError:
        raise
    except Exception as error:  # user code may raise anything, and the tracer many types
        raise ConfigError(
            f"The policy of {policy.algorithm.name} cannot be exported ({error_text(error)}): its "
            "deterministic action must be computed with tensor operations that do not depend on "
            "the number of observations or on their values."
        ) from error


def _export(module: nn.Module, examples: tuple[Tensor, ...]) -> ExportedProgram:
    shapes = tuple({0: Dim(BATCH)} for _ in examples)
    nested = (shapes,) if isinstance(module, PolicyModule) else shapes  # forward(*inputs)
    return torch.export.export(module, examples, dynamic_shapes=nested, strict=False)


def _check_effects(program: ExportedProgram) -> None:
    """Reject a policy that changes its own state when it acts."""
    changed = program.graph_signature.buffers_to_mutate
    if changed:
        names = ", ".join(sorted(changed.values()))
        raise ConfigError(f"The policy cannot be exported: acting changes its state ({names}).")


def _simplified(program: ExportedProgram, module: PolicyModule) -> fx.GraphModule:
    """Return the program as a module, with everything computed that no input is needed for."""
    known = _constants(program)
    constants, graph = _Constants(module.algorithm), fx.Graph()
    names = iter(_argument_names(module.inputs))
    nodes: dict[fx.Node, fx.Node] = {}

    def argument(node: fx.Node) -> Any:
        if node not in known:
            return nodes[node]
        value = known[node]
        return graph.get_attr(constants.add(value)) if isinstance(value, Tensor) else value

    for node in program.graph.nodes:
        if node in known:
            continue
        if node.op == "placeholder":
            nodes[node] = graph.placeholder(next(names))
        elif node.op == "output":
            graph.output(fx.map_arg(node.args[0], argument)[0])
        elif all(source in known for source in node.all_input_nodes):
            args, kwargs = fx.map_arg((node.args, node.kwargs), known.__getitem__)
            known[node] = node.target(*args, **kwargs)
        else:
            nodes[node] = graph.node_copy(node, argument)
    graph.eliminate_dead_code()
    return fx.GraphModule(constants.root, graph)


def _argument_names(inputs: Sequence[PolicyInput]) -> list[str]:
    """Return the names of the inputs as distinct Python names."""
    names: list[str] = []
    for given in inputs:
        name = re.sub(r"\W", "_", given.name)
        plain = name.isidentifier() and not iskeyword(name) and name not in names
        names.append(name if plain else f"input_{len(names)}")
    return names


def _constants(program: ExportedProgram) -> dict[fx.Node, Any]:
    """Return the values of the placeholders that are parameters, buffers or other constants."""
    signature = program.graph_signature
    targets = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    values = {**program.constants, **program.state_dict}
    return {
        node: values[targets[node.name]].detach()
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in targets
    }


class _Constants:
    """The constants of a simplified program, named after the learner's weights that they view."""

    def __init__(self, algorithm: Algorithm) -> None:
        self.root = nn.Module()
        weights = named_weights(algorithm)
        self._weights = {_place(tensor): name for name, tensor in weights.items()}
        self._names: dict[tuple[Any, ...], str] = {}
        self._kept: list[Tensor] = []
        """The constants so far, whose memory must not be reused."""

    def add(self, value: Tensor) -> str:
        """Register a copy of a tensor and return its dotted name."""
        key = (*_place(value), value.shape, value.stride(), value.dtype)
        if key not in self._names:
            name = self._weights.get(_place(value), f"constant.{len(self._kept)}")
            if name in self._names.values():  # another view of the same weight
                name = f"constant.{len(self._kept)}"
            self._kept.append(value)
            self._names[key] = name
            self._register(name, value.clone().contiguous())
        return self._names[key]

    def _register(self, name: str, value: Tensor) -> None:
        *parents, last = name.split(".")
        owner = self.root
        for parent in parents:
            if parent not in owner._modules:
                owner.add_module(parent, nn.Module())
            owner = owner.get_submodule(parent)
        owner.register_buffer(last, value)


def _place(tensor: Tensor) -> tuple[int, int]:
    """Return address and size, which views of the same values share."""
    return tensor.data_ptr(), tensor.numel()

"""Programs of a population: the traced program of one member, run for all members at once.

`compilation.py` traces a learner's update into a list of operations. `torch.vmap` adds the axis of
the members to each of them: a product becomes a batched product, and Adam's step one operation for
all members. No learner is written for populations (docs/decisions/0015-populations.md).

Members may differ in hyperparameters. Their programs then differ in constants, which become tensors
with one value per member.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import getitem
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from rl_training.algorithms.base import Algorithm
from rl_training.runtime.compilation import at_least_1d, state_tensors


class NotBatchable(Exception):  # noqa: N818
    """The members cannot run as one program; the text is the end of a sentence."""


class Program(NamedTuple):
    """A program for all members.

    Its inputs are those of one member's program with a leading axis, then ``constants``.
    """

    graph: fx.GraphModule
    constants: Tensor
    """Constants that differ between members, ``[S, n]``, in float64 where possible."""


class Place(NamedTuple):
    """Where a program has a constant: a node by its position, and an argument by its name."""

    node: int
    argument: str


def stack_state(members: Sequence[Algorithm]) -> list[Tensor]:
    """Move the members' state into stacked tensors ``[S, ...]``, in the order of `state_tensors`.

    Every parameter and buffer of a member becomes a view of its row, so each member remains an
    ordinary learner that can be read, saved and restored.

    Raises:
        NotBatchable: The members have different networks.
    """
    named = [state_tensors(member) for member in members]
    shapes = [{name: tensor.shape for name, tensor in tensors.items()} for tensors in named]
    if any(own != shapes[0] for own in shapes):
        raise NotBatchable("their networks have different sizes")
    stacked = []
    for name in named[0]:
        rows = torch.stack([at_least_1d(tensors[name].detach()) for tensors in named])
        for member, row in zip(members, rows, strict=True):
            path, _, leaf = name.rpartition(".")
            module = member.get_submodule(path)
            view = row.view(named[0][name].shape)
            own = module._parameters[leaf] if leaf in module._parameters else module._buffers[leaf]
            assert own is not None
            own.data = view  # the same object, which others may hold, such as a sampler
        stacked.append(rows)
    return stacked


def population_program(
    traces: Sequence[fx.GraphModule], inputs: Sequence[Tensor], fake: FakeTensorMode
) -> Program:
    """Return the program of a population.

    Args:
        traces: The traced program of each member; members with equal settings share one.
        inputs: Fake inputs of one member's program.
        fake: The mode of the fake inputs.

    Raises:
        NotBatchable: The programs differ in more than constants.
    """
    distinct = list(dict.fromkeys(traces))
    programs = [_without_inner_writes(trace, inputs) for trace in distinct]
    values = _differing_constants(programs)
    rows = [distinct.index(trace) for trace in traces]
    device = inputs[0].device
    wide = torch.float32 if device.type == "mps" else torch.float64
    table = torch.tensor([*values.values()], dtype=wide).view(len(values), len(programs))
    constants = table.T[rows].to(device)
    places = list(values)

    def member(own: Tensor, *tensors: Tensor) -> Any:
        given = dict(zip(places, own.unbind(), strict=True))
        run = _WithConstants(programs[0], given) if given else fx.Interpreter(programs[0])
        outputs = [x for x in run.run(*tensors) or [] if x is not None]
        return outputs or own.sum()  # vmap needs an output

    def population(*tensors: Tensor) -> Any:
        *stacked, own = tensors
        outputs = torch.vmap(member)(own, *stacked)
        return outputs if isinstance(outputs, list) else None

    stacked = [fake.from_tensor(_with_axis(x, len(traces))) for x in inputs]
    graph = make_fx(population)(*stacked, fake.from_tensor(constants))
    _share_copies(graph)
    return Program(graph, constants)


def _with_axis(tensor: Tensor, size: int) -> Tensor:
    """Return an empty tensor like ``tensor``, with a leading axis."""
    return torch.empty((size, *tensor.shape), dtype=tensor.dtype, device=tensor.device)


def _copy(target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """Return ``source`` with the shape and type of ``target``; `vmap` has no rule for `copy`."""
    return source.to(target.dtype).expand_as(target).clone()


def _without_inner_writes(trace: fx.GraphModule, inputs: Sequence[Tensor]) -> fx.GraphModule:
    """Return a program that writes only to its inputs, at its end, which `vmap` supports."""
    functional = torch.func.functionalize(trace)
    graph = make_fx(functional, decomposition_table={torch.ops.aten.copy.default: _copy})
    return graph(*(x.detach() for x in inputs))


# --- Copies of stacked weights -----------------------------------------------------


def _share_copies(program: fx.GraphModule) -> None:
    """Let the products with stacked weights and with their transpose read the same copy.

    A product needs a stack with one leading axis, so the weights of stacked critics, which have
    two, are copied. A transposed copy takes a GPU six times longer than a plain one, and a product
    reads a plain one just as well.
    """
    aten, graph = torch.ops.aten, program.graph
    copies: dict[Any, fx.Node] = {}
    for node in list(graph.nodes):
        clone = node.args[0] if node.target is aten._unsafe_view.default else None
        if not isinstance(clone, fx.Node) or clone.target is not aten.clone.default:
            continue
        source = _plain(clone.args[0])
        flipped = source.target is aten.transpose.int
        weights: Any = source.args[0] if flipped else source
        shape = weights.meta["val"].shape
        if len(shape) != 4 or (flipped and source.args[1:] != (2, 3)):
            continue
        stack = [shape[0] * shape[1], *shape[2:]]
        if node.args[1] != (stack if not flipped else [stack[0], *reversed(stack[1:])]):
            continue
        same = _identity(weights)
        with graph.inserting_before(node):
            if same not in copies:
                copy = graph.call_function(aten.clone.default, (weights,), clone.kwargs)
                copies[same] = graph.call_function(aten.view.default, (copy, stack))
            shared = copies[same]
            if flipped:
                shared = graph.call_function(aten.transpose.int, (shared, 1, 2))
        node.replace_all_uses_with(shared)
    graph.eliminate_dead_code()
    program.recompile()


def _plain(node: Any) -> fx.Node:
    """Return the first node with the same values and shape: without views and detaching."""
    aten = torch.ops.aten
    same = (aten.view.default, aten.expand.default, aten.detach.default)
    while node.target in same and node.args[0].meta["val"].shape == node.meta["val"].shape:
        node = node.args[0]
    assert isinstance(node, fx.Node)
    return node


def _identity(node: Any) -> Any:
    """Return a key that is equal for views of the same part of a tensor."""
    aten = torch.ops.aten
    node = _plain(node)
    if node.target is aten.view.default:
        return tuple(node.meta["val"].shape), _identity(node.args[0])
    if node.target is getitem and node.args[0].target is aten.split_with_sizes.default:
        split = node.args[0]
        return node.args[1], tuple(split.args[1]), split.args[2:], _identity(split.args[0])
    return node


# --- Constants that differ ----------------------------------------------------------


def _arguments(node: fx.Node) -> Arguments:
    """Return the arguments of a call by name, with defaults."""
    if not isinstance(node.target, OpOverload):
        return {str(index): argument for index, argument in enumerate(node.args)}
    schema = node.target._schema.arguments
    given = dict(zip((argument.name for argument in schema), node.args, strict=False))
    defaults = {a.name: a.default_value for a in schema if a.has_default_value()}
    return defaults | given | node.kwargs


def _differing_constants(programs: Sequence[fx.GraphModule]) -> dict[Place, list[float]]:
    """Return the values of each constant that is not the same in all programs."""
    found: dict[Place, list[float]] = {}
    nodes = [list(program.graph.nodes) for program in programs]
    order = [{node: index for index, node in enumerate(own)} for own in nodes]

    def comparable(value: Any, own: dict[fx.Node, int]) -> Any:
        return fx.map_arg(value, lambda node: ("node", own[node]))

    if len({len(own) for own in nodes}) > 1:
        raise NotBatchable("their updates have different operations")
    for index, same in enumerate(zip(*nodes, strict=True)):
        first = same[0]
        if any((node.op, node.target) != (first.op, first.target) for node in same):
            raise NotBatchable("their updates have different operations")
        if first.op == "get_attr":
            tensors = [getattr(p, str(first.target)) for p in programs]
            if not all(torch.equal(tensor, tensors[0]) for tensor in tensors):
                found[Place(index, "")] = [float(tensor) for tensor in tensors]
            continue
        arguments = [_arguments(node) for node in same]
        for name in arguments[0]:
            values = [
                comparable(own[name], nodes_) for own, nodes_ in zip(arguments, order, strict=True)
            ]
            if all(value == values[0] for value in values):
                continue
            if not all(type(value) in (int, float) for value in values) or not any(
                type(value) is float for value in values
            ):
                raise NotBatchable("their updates have different sizes or options")
            found[Place(index, name)] = values
    return found


class _WithConstants(fx.Interpreter):
    """Runs a program in which some constants are tensors."""

    def __init__(self, program: fx.GraphModule, given: dict[Place, Tensor]) -> None:
        super().__init__(program)
        places = list(program.graph.nodes)
        self._given: dict[fx.Node, dict[str, Tensor]] = {}
        for place, value in given.items():
            self._given.setdefault(places[place.node], {})[place.argument] = value

    def run_node(self, n: fx.Node) -> Any:
        given = self._given.get(n)
        if given is None:
            return super().run_node(n)
        if n.op == "get_attr":
            constant = super().run_node(n)
            return given[""].to(constant.dtype).expand_as(constant)
        values = dict(fx.map_arg(_arguments(n), self.env.__getitem__))
        floats = [x for x in values.values() if isinstance(x, Tensor) and x.is_floating_point()]
        dtype = (floats or [n.meta["val"]])[0].dtype
        values |= {name: tensor.to(dtype) for name, tensor in given.items()}
        assert isinstance(n.target, OpOverload)
        return _with_tensors(n.target, values)


Arguments = dict[str, Any]
"""Arguments of an operation by name."""


def _clamp(a: Arguments) -> Any:
    x, low, high = a["self"], a.get("min"), a.get("max")
    x = x if low is None else torch.maximum(x, torch.as_tensor(low, dtype=x.dtype))
    return x if high is None else torch.minimum(x, torch.as_tensor(high, dtype=x.dtype))


def _filled(value: Tensor, a: Arguments, size: Sequence[int], dtype: torch.dtype) -> Tensor:
    return value.to(a["dtype"] or dtype).expand(size)


TENSOR_FORMS: dict[str, Callable[[Arguments], Any]] = {
    "add": lambda a: a["self"] + a["other"] * a["alpha"],
    "sub": lambda a: a["self"] - a["other"] * a["alpha"],
    "rsub": lambda a: a["other"] - a["self"] * a["alpha"],
    "mul": lambda a: a["self"] * a["other"],
    "div": lambda a: a["self"] / a["other"],
    "pow": lambda a: torch.pow(a["self"], a["exponent"]),
    "lerp": lambda a: torch.lerp(a["self"], a["end"], a["weight"]),
    "addcmul": lambda a: a["self"] + a["value"] * a["tensor1"] * a["tensor2"],
    "addcdiv": lambda a: a["self"] + a["value"] * (a["tensor1"] / a["tensor2"]),
    "clamp": _clamp,
    "clamp_min": _clamp,
    "clamp_max": _clamp,
    "full": lambda a: _filled(a["fill_value"], a, a["size"], a["fill_value"].dtype),
    "full_like": lambda a: _filled(a["fill_value"], a, a["self"].shape, a["self"].dtype),
    "scalar_tensor": lambda a: _filled(a["s"], a, (), a["s"].dtype),
    "where": lambda a: torch.where(a["condition"], a["self"], a["other"]),
    "gt": lambda a: a["self"] > a["other"],
    "ge": lambda a: a["self"] >= a["other"],
    "lt": lambda a: a["self"] < a["other"],
    "le": lambda a: a["self"] <= a["other"],
    "eq": lambda a: a["self"] == a["other"],
    "ne": lambda a: a["self"] != a["other"],
}
"""Operations with numbers as arguments, in a form with tensors."""


def _with_tensors(target: OpOverload, values: Arguments) -> Any:
    form = TENSOR_FORMS.get(target._schema.name.removeprefix("aten::"))
    if form is None:
        raise NotBatchable(f"the operation {target} needs one number for all of them")
    return form(values)

"""An algorithm's update as one function that a compiler can see through.

`Algorithm.update` runs backward passes and optimizer steps of its own, which the compiler's front
end does not follow. So it is traced here, on tensors without data, into one list of operations with
every parameter, moment and target as an input that is written in place; that list is what
the compiler gets (docs/decisions/0007-traced-updates.md). A trace shows, too, whether an update
may be replayed at all: `NotGraphSafe` says why not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import torch
import torch._inductor
from torch import Tensor, fx
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.fx.experimental.proxy_tensor import make_fx

from rl_training.algorithms.base import Algorithm, Due
from rl_training.models.kernels import plain_operations
from rl_training.types import SAMPLE, Batch, Metrics, Noise

BACKEND = "inductor"
"""The compiler; tests of tracing alone use a faster one."""

CompiledStep = Callable[[Batch, Noise, Tensor], Metrics]
"""One update on a batch and its noise: adds metrics to a float64 vector, returns ``sample/…``."""


class NotGraphSafe(Exception):  # noqa: N818
    """The update cannot be recorded and replayed."""


def state_tensors(algorithm: Algorithm) -> dict[str, Tensor]:
    """Every tensor that an update may read or write."""
    return {**dict(algorithm.named_parameters()), **dict(algorithm.named_buffers())}


def divided(metrics: Metrics) -> tuple[Metrics, Metrics]:
    """An update's metrics, and apart from them what is for the sampler: ``sample/…``."""
    values = {key: metrics[key] for key in metrics if key.startswith(SAMPLE)}
    return {key: metrics[key] for key in metrics if key not in values}, values


def with_an_axis(tensor: Tensor) -> Tensor:
    """A view with at least one axis.

    The compiler drops writes to an input that is a float64 number without axes (PyTorch 2.13).
    """
    return tensor.view(1) if tensor.dim() == 0 else tensor


@contextmanager
def swapped(algorithm: Algorithm, tensors: Sequence[Tensor]) -> Iterator[None]:
    """Let ``tensors`` stand in for those of `state_tensors`, in that order."""
    modules = dict(algorithm.named_modules())
    places = []
    for name in state_tensors(algorithm):
        path, _, leaf = name.rpartition(".")
        module = modules[path]
        store = module._parameters if leaf in module._parameters else module._buffers
        places.append((store, leaf, store[leaf]))
    try:
        for (store, leaf, _), tensor in zip(places, tensors, strict=True):
            store[leaf] = tensor
        yield
    finally:
        for store, leaf, original in places:
            store[leaf] = original


def compiled(program: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    """A program for inputs of these shapes, strides and devices, checked at no call.

    On the CPU the calls between its loops are compiled too: there the interpreter's share shows.
    Loops are joined with what they feed alone: joined side by side, the pieces of a large batch
    would go through each layer together and leave the cache between two.

    On a GPU no kernel is chosen by timing it. Timings made one reduction of SAC's update fourteen
    times slower in some runs (docs/decisions/0011-few-kernels.md), and sums would be
    rounded differently in the process that resumes a run.
    """
    if BACKEND != "inductor":
        return torch.compile(program, fullgraph=True, dynamic=False, backend=BACKEND)
    options: dict[str, Any] = {"deterministic": True}
    if inputs[0].device.type == "cpu":
        options = {"cpp_wrapper": True, "cpp.max_horizontal_fusion_size": 1}
    with torch.no_grad():
        return cast("Callable[..., Any]", torch._inductor.compile(program, inputs, options))


class UpdateTracer:
    """Traces an algorithm's update, for each value of `due`, on examples of its inputs."""

    def __init__(self, algorithm: Algorithm, batch: Batch, noise: Noise) -> None:
        self.algorithm = algorithm
        self.field_names, self.noise_keys = tuple(batch.extra), tuple(noise)
        self._fake = FakeTensorMode(allow_non_fake_inputs=True)
        self._inputs = [self._fake.from_tensor(x) for x in (*batch.tensors(), *noise.values())]
        reported = {due: divided(self._update(due)) for due in algorithm.all_due()}
        self.metric_keys = {due: tuple(metrics) for due, (metrics, _) in reported.items()}
        self.sample_keys = {due: tuple(values) for due, (_, values) in reported.items()}
        self.keys = tuple(dict.fromkeys(k for keys in self.metric_keys.values() for k in keys))
        """The names of all metrics, in the order of the vector that sums them."""

    def _state(self) -> list[Tensor]:
        state = state_tensors(self.algorithm).values()
        fakes = [self._fake.from_tensor(with_an_axis(x.detach())) for x in state]
        return [f.requires_grad_(x.requires_grad) for f, x in zip(fakes, state, strict=True)]

    def _call(self, due: Due, inputs: Sequence[Tensor], state: Sequence[Tensor]) -> Metrics:
        split = len(inputs) - len(self.noise_keys)
        batch = Batch.of(inputs[:split], self.field_names)
        noise = dict(zip(self.noise_keys, inputs[split:], strict=True))
        originals = state_tensors(self.algorithm).values()
        shaped = [x.view(like.shape) for x, like in zip(state, originals, strict=True)]
        with swapped(self.algorithm, shaped), plain_operations():
            return self.algorithm.run_update(batch, noise, due)

    def _update(self, due: Due) -> Metrics:
        """The update on tensors without data, for the names of its metrics."""
        with self._fake, _saying_why():
            return self._call(due, self._inputs, self._state())

    def trace(self, due: Due) -> fx.GraphModule:
        """The operations of one update: inputs, sums of the metrics, then the state's tensors.

        They return what is for the sampler, in the order of `sample_keys`.
        """
        count = len(self._inputs)

        def step(*tensors: Tensor) -> list[Tensor] | None:
            inputs, totals, state = tensors[:count], tensors[count], tensors[count + 1 :]
            metrics, values = divided(self._call(due, inputs, state))
            zero = torch.zeros((), device=totals.device)
            terms = [metrics.get(key, zero).to(totals.dtype) for key in self.keys]
            with torch.no_grad():
                totals.add_(torch.stack(terms))
            return list(values.values()) or None

        with self._fake:
            totals = torch.zeros(len(self.keys), dtype=torch.float64, device=self._inputs[0].device)
        with _saying_why():
            traced = make_fx(step)(*self._inputs, totals, *self._state())
        _check_safe(traced)
        return traced

    def compile(self, due: Due, batch: Batch, noise: Noise) -> CompiledStep:
        """One update, compiled and tried on copies of the state."""
        totals = torch.zeros(len(self.keys), dtype=torch.float64, device=batch.obs.device)
        tensors = state_tensors(self.algorithm).values()
        state = [with_an_axis(tensor.detach()) for tensor in tensors]
        copies = [tensor.clone() for tensor in state]
        program = compiled(self.trace(due), [*batch.tensors(), *noise.values(), totals, *copies])
        keys = self.sample_keys[due]

        def run(state: Sequence[Tensor], batch: Batch, noise: Noise, totals: Tensor) -> Metrics:
            with torch.no_grad():
                values = program(*batch.tensors(), *noise.values(), totals, *state)
            return dict(zip(keys, values, strict=True)) if keys else {}

        run(copies, batch, noise, totals)
        return partial(run, state)


@contextmanager
def _saying_why() -> Iterator[None]:
    try:
        yield
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise NotGraphSafe(
            f"the update depends on a tensor's value on the host ({error.func})"
        ) from error


def _check_safe(traced: fx.GraphModule) -> None:
    """Refuse what a replay would silently freeze: own random numbers, tensors not in the state."""
    for node in traced.graph.nodes:
        if node.op == "get_attr":
            constant = getattr(traced, str(node.target))
            if isinstance(constant, Tensor) and constant.numel() > 1:
                raise NotGraphSafe(
                    f"the update uses a tensor of shape {list(constant.shape)} that is neither a "
                    "parameter nor a buffer of the algorithm"
                )
        tags: Any = getattr(node.target, "tags", ())
        if torch.Tag.nondeterministic_seeded in tags:
            raise NotGraphSafe(f"the update draws random numbers itself ({node.target})")

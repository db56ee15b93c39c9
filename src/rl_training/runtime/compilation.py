"""Trace an algorithm's update into one graph and compile it.

`Algorithm.update` runs backward passes and optimizer steps, which TorchDynamo does not support.
Therefore the update is traced here on fake tensors into one graph of operations, in which every
parameter, moment and target is an input that is modified in place
(docs/decisions/0007-traced-updates.md). The trace also shows whether the update can be replayed;
if not, `NotGraphSafe` gives the reason.
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
"""Compiler backend; tests that only need tracing use a faster one."""

CompiledStep = Callable[[Batch, Noise, Tensor], Metrics]
"""Runs an update with a batch and noise; adds its metrics to a float64 vector and returns
``sample/…`` values."""


class NotGraphSafe(Exception):  # noqa: N818
    """The update cannot be captured and replayed."""


def state_tensors(algorithm: Algorithm) -> dict[str, Tensor]:
    """Return every tensor that an update may read or write."""
    return {**dict(algorithm.named_parameters()), **dict(algorithm.named_buffers())}


def split_metrics(metrics: Metrics) -> tuple[Metrics, Metrics]:
    """Split the result of an update into metrics and values for the sampler (``sample/…``)."""
    values = {key: metrics[key] for key in metrics if key.startswith(SAMPLE)}
    return {key: metrics[key] for key in metrics if key not in values}, values


def at_least_1d(tensor: Tensor) -> Tensor:
    """Return a view with at least one dimension.

    The compiler drops writes to zero-dimensional float64 inputs (PyTorch 2.13).
    """
    return tensor.view(1) if tensor.dim() == 0 else tensor


@contextmanager
def substitute_tensors(algorithm: Algorithm, tensors: Sequence[Tensor]) -> Iterator[None]:
    """Temporarily replace the tensors of `state_tensors` with ``tensors``, in the same order."""
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


def compile_program(program: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    """Compile a graph for inputs with these shapes, strides and devices, without guards.

    On the CPU, the code between the loops is compiled as well, because interpreter overhead matters
    there. Horizontal fusion is disabled: with it, the chunks of a large batch would go through
    each layer together and leave the cache.

    On a GPU, kernels are not chosen by timing. Timing made one reduction of SAC's update fourteen
    times slower in some runs (docs/decisions/0011-few-kernels.md), and a resumed run could round
    sums differently.
    """
    if BACKEND != "inductor":
        return torch.compile(program, fullgraph=True, dynamic=False, backend=BACKEND)
    options: dict[str, Any] = {"deterministic": True}
    if inputs[0].device.type == "cpu":
        options = {"cpp_wrapper": True, "cpp.max_horizontal_fusion_size": 1}
    with torch.no_grad():
        return cast("Callable[..., Any]", torch._inductor.compile(program, inputs, options))


class Tracer:
    """Traces functions of a learner, whose state becomes inputs that are written in place."""

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)

    def state(self) -> list[Tensor]:
        """Return the learner's state as fake tensors."""
        state = state_tensors(self.algorithm).values()
        fakes = [self.fake.from_tensor(at_least_1d(x.detach())) for x in state]
        return [f.requires_grad_(x.requires_grad) for f, x in zip(fakes, state, strict=True)]

    @contextmanager
    def using(self, state: Sequence[Tensor]) -> Iterator[None]:
        """Let the learner use ``state``, and only operations that can be traced."""
        originals = state_tensors(self.algorithm).values()
        shaped = [x.view(like.shape) for x, like in zip(state, originals, strict=True)]
        with substitute_tensors(self.algorithm, shaped), plain_operations():
            yield

    def trace_function(
        self, function: Callable[..., list[Tensor] | None], inputs: Sequence[Tensor]
    ) -> fx.GraphModule:
        """Return the graph of ``function`` for fake inputs; the state follows its inputs."""
        count = len(inputs)

        def step(*tensors: Tensor) -> list[Tensor] | None:
            with self.using(tensors[count:]):
                return function(*tensors[:count])

        with explain_dependence():
            traced = make_fx(step)(*inputs, *self.state())
        _check_safe(traced)
        return traced


class UpdateTracer(Tracer):
    """Traces an algorithm's update for each value of `due`, using example inputs."""

    def __init__(self, algorithm: Algorithm, batch: Batch, noise: Noise) -> None:
        super().__init__(algorithm)
        self.field_names, self.noise_keys = tuple(batch.extra), tuple(noise)
        self.inputs = [self.fake.from_tensor(x) for x in (*batch.tensors(), *noise.values())]
        reported = {due: split_metrics(self._metrics(due)) for due in algorithm.all_due()}
        self.metric_keys = {due: tuple(metrics) for due, (metrics, _) in reported.items()}
        self.sample_keys = {due: tuple(values) for due, (_, values) in reported.items()}
        self.keys = tuple(dict.fromkeys(k for keys in self.metric_keys.values() for k in keys))
        """Names of all metrics, in the order of the vector of their sums."""
        with self.fake:
            self.totals = self.new_totals()

    def new_totals(self, *lead: int) -> Tensor:
        """Return zeros for the sums of metrics; ``lead`` are leading axes."""
        device = self.inputs[0].device
        return torch.zeros(*lead, len(self.keys), dtype=torch.float64, device=device)

    def _call(self, due: Due, inputs: Sequence[Tensor]) -> Metrics:
        split = len(inputs) - len(self.noise_keys)
        batch = Batch.of(inputs[:split], self.field_names)
        noise = dict(zip(self.noise_keys, inputs[split:], strict=True))
        return self.algorithm.run_update(batch, noise, due)

    def _metrics(self, due: Due) -> Metrics:
        """Run the update on fake tensors, to get the names of its metrics."""
        with self.fake, explain_dependence(), self.using(self.state()):
            return self._call(due, self.inputs)

    def trace(self, due: Due) -> fx.GraphModule:
        """Return the graph of one update; its inputs are the batch, noise, sums and state.

        It returns the values for the sampler, in the order of `sample_keys`.
        """

        def step(*tensors: Tensor) -> list[Tensor] | None:
            *inputs, totals = tensors
            metrics, values = split_metrics(self._call(due, inputs))
            zero = torch.zeros((), device=totals.device)
            terms = [metrics.get(key, zero).to(totals.dtype) for key in self.keys]
            with torch.no_grad():
                totals.add_(torch.stack(terms))
            return list(values.values()) or None

        return self.trace_function(step, [*self.inputs, self.totals])

    def compile(self, due: Due, batch: Batch, noise: Noise) -> CompiledStep:
        """Compile one update and run it once on copies of the state."""
        totals = self.new_totals()
        tensors = state_tensors(self.algorithm).values()
        state = [at_least_1d(tensor.detach()) for tensor in tensors]
        copies = [tensor.clone() for tensor in state]
        program = compile_program(
            self.trace(due), [*batch.tensors(), *noise.values(), totals, *copies]
        )
        step = partial(run_step, program, self.sample_keys[due])
        step(copies, batch, noise, totals)
        return partial(step, state)


def run_step(
    program: Callable[..., Any],
    keys: Sequence[str],
    state: Sequence[Tensor],
    batch: Batch,
    noise: Noise,
    totals: Tensor,
) -> Metrics:
    """Run a program from `UpdateTracer.trace`; ``keys`` name the values that it returns."""
    with torch.no_grad():
        values = program(*batch.tensors(), *noise.values(), totals, *state)
    return dict(zip(keys, values, strict=True)) if keys else {}


@contextmanager
def explain_dependence() -> Iterator[None]:
    """Turn an error about reading a tensor on the host into `NotGraphSafe`."""
    try:
        yield
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise NotGraphSafe(
            f"the update reads the value of a tensor on the host ({error.func})"
        ) from error


def _check_safe(traced: fx.GraphModule) -> None:
    """Reject what a replay would freeze: random numbers, and tensors outside the state."""
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

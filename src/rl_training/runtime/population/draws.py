"""Drawing the batches and the noise of all members with one program, on a GPU.

One kernel draws the indices of all members, one gathers their rows, and one draws each kind of
noise. The numbers are those that each member's generator would draw (`philox.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from rl_training.algorithms.base import Algorithm
from rl_training.data import ReplayBuffer
from rl_training.data.samplers import NormalizedSampler
from rl_training.runtime.compilation import Tracer, compile_program
from rl_training.runtime.engine import Engine
from rl_training.runtime.population.philox import OFFSET, draw, matches_generators, most_numbers
from rl_training.runtime.population.programs import population_program
from rl_training.runtime.population.replays import StackedReplays
from rl_training.types import Batch, Noise, NoiseField


class GeneratorTable:
    """Seeds and offsets of CUDA generators on their device, for programs that draw from them."""

    def __init__(self, generators: Sequence[torch.Generator]) -> None:
        self._generators = generators
        self.seeds = torch.zeros(len(generators), dtype=torch.int64, device=generators[0].device)
        self.offsets = torch.zeros_like(self.seeds)
        self._known: list[tuple[int, int]] = []

    def upload(self) -> None:
        """Copy the generators' states to the device, if they have changed otherwise."""
        states = [(each.initial_seed(), each.get_offset()) for each in self._generators]
        if states != self._known:
            seeds, offsets = zip(*states, strict=True)
            self.seeds.copy_(torch.tensor(seeds))
            self.offsets.copy_(torch.tensor(offsets))
            self._known = states

    def advance(self, draws: int, resting: Sequence[int] = ()) -> None:
        """Advance the generators like a program that has drawn ``draws`` tensors from each.

        Those of ``resting`` rows keep their states.
        """
        self._known = [(seed, offset + OFFSET * draws) for seed, offset in self._known]
        for row, (generator, (_, offset)) in enumerate(
            zip(self._generators, self._known, strict=True)
        ):
            if row not in resting:
                generator.set_offset(offset)


class Drawn(NamedTuple):
    """A program that draws a block of updates."""

    run: Callable[[], list[tuple[Batch, Noise]]]
    draws: int
    """Tensors that it draws from each generator."""


@cache
def can_draw_together(device: torch.device) -> bool:
    """Return whether the numbers of generators on a device can be computed here."""
    return device.type == "cuda" and matches_generators(device)


class PopulationDraws:
    """Draws from the uniform replays of all rows; their rows become one tensor."""

    def __init__(self, rows: Sequence[Engine | None], state: Sequence[Tensor]) -> None:
        """Create the programs' inputs.

        Args:
            rows: The engine of each row; None for a placeholder, which gets any numbers.
            state: The stacked state of their learners (`stack_state`).
        """
        members = [row for row in rows if row is not None]
        first = members[0]
        self._algorithm: Algorithm = first.algorithm
        self._state = list(state)
        self._dtype = first.algorithm.obs_shift.dtype
        self._batch_size = first.algorithm.config.batch_size
        self._noise_spec = first.algorithm.update_noise(self._batch_size)
        self._normalizes = isinstance(first.sampler, NormalizedSampler)
        self.replays = StackedReplays([x for x in map(replay_of, members) if x is not None])
        self._layout = self.replays.layout
        replays = [0 if row is None else members.index(row) for row in rows]
        self._rows_of = torch.tensor(replays, device=first.generator.device)
        unused = torch.Generator(first.generator.device)
        self.table = GeneratorTable([unused if row is None else row.generator for row in rows])
        self._programs: dict[int, Drawn] = {}

    @classmethod
    def supports(cls, members: Sequence[Engine]) -> bool:
        """Return whether all members draw uniformly from replays of one form on a GPU."""
        buffers = map(replay_of, members)
        kinds = {None if each is None else (each.capacity, each.layout) for each in buffers}
        if len(kinds) > 1 or None in kinds or any(each.mode != "cuda_graph" for each in members):
            return False
        return can_draw_together(members[0].generator.device)

    def draw(self, count: int, resting: Sequence[int]) -> list[tuple[Batch, Noise]]:
        """Draw a block of ``count`` updates, for which the generators of resting rows rest."""
        drawn = self.program(count)
        self.table.upload()
        block = drawn.run()
        self.table.advance(drawn.draws, resting)
        return block

    def fits(self, count: int) -> bool:
        """Return whether PyTorch would draw a block of ``count`` updates in this way."""
        sizes = [_numel(field, count) for field in self._noise_spec.values()]
        largest = max([self._batch_size * count, *sizes])
        return largest <= most_numbers(self.table.seeds.device)

    def program(self, count: int) -> Drawn:
        """Return the program of a block of ``count`` updates; it is compiled the first time."""
        if count not in self._programs:
            self._programs[count] = self._compile(count)
        return self._programs[count]

    def _compile(self, count: int) -> Drawn:
        graph = self.trace(count)
        inputs = self.inputs
        scratch = [x.clone() if x is self.table.offsets else x for x in inputs]
        program = compile_program(graph, scratch)
        program(*scratch)  # loads the kernels, which a capture cannot do
        keys = tuple(self._noise_spec)

        def run() -> list[tuple[Batch, Noise]]:
            with torch.no_grad():
                tensors = program(*inputs)
            fields = len(tensors) - len(keys)
            return [
                (
                    Batch.of(x[i] for x in tensors[:fields]),
                    {key: x[i] for key, x in zip(keys, tensors[fields:], strict=True)},
                )
                for i in range(count)
            ]

        return Drawn(run, 1 + len(keys))

    @property
    def inputs(self) -> list[Tensor]:
        """Inputs of the traced programs, which advance the offsets in place."""
        table, replays = self.table, self.replays
        random = [table.seeds, table.offsets]
        return [replays.rows, replays.filled, self._rows_of, *random, *self._state]

    def trace(self, count: int) -> fx.GraphModule:
        """Return the program of a block.

        Its outputs are ``[count, S, B, ...]``: all fields of the batches, then all noise.
        """
        fake = FakeTensorMode(allow_non_fake_inputs=True)
        normalize = self._normalizer(count) if self._normalizes else None
        size = self._batch_size

        def by_update(x: Tensor) -> Tensor:
            return x.reshape(len(x), count, size, *x.shape[2:]).transpose(0, 1).contiguous()

        def function(
            rows: Tensor,
            filled: Tensor,
            own: Tensor,
            seeds: Tensor,
            offsets: Tensor,
            *state: Tensor,
        ) -> list[Tensor]:
            _, capacity, width = rows.shape
            drawn = NoiseField("uniform", (size * count,))
            uniform = draw(drawn, seeds, offsets, torch.float64)
            index = (uniform * filled[own].unsqueeze(1)).long() + own.unsqueeze(1) * capacity
            block = rows.view(-1, width).index_select(0, index.flatten())
            fields = [*self._layout.batch(block.view(*index.shape, width)).tensors()]
            if normalize is not None:
                fields = normalize(fields, state)
            out = [by_update(x) for x in fields]
            for number, field in enumerate(self._noise_spec.values(), start=1):
                noise = draw(field, seeds, offsets + OFFSET * number, self._dtype, lead=(count,))
                out.append(noise.transpose(0, 1).contiguous())
            offsets.add_(OFFSET * (1 + len(self._noise_spec)))
            return out

        with torch.no_grad():
            return make_fx(function)(*(fake.from_tensor(x) for x in self.inputs))

    def _normalizer(
        self, count: int
    ) -> Callable[[Sequence[Tensor], Sequence[Tensor]], list[Tensor]]:
        """Return a function that normalizes the fields of all members with their statistics."""
        tracer = Tracer(self._algorithm)
        rows = torch.zeros(
            self._batch_size * count, self._layout.width, device=self._rows_of.device
        )
        examples = [tracer.fake.from_tensor(x) for x in self._layout.batch(rows).tensors()]

        def member(*fields: Tensor) -> list[Tensor]:
            return [*self._algorithm.normalization.batch(Batch.of(fields)).tensors()]

        trace = tracer.trace_function(member, examples)
        program = population_program(
            [trace] * len(self._rows_of), [*examples, *tracer.state()], tracer.fake
        )

        def normalize(fields: Sequence[Tensor], state: Sequence[Tensor]) -> list[Tensor]:
            constants: Any = program.constants
            results: list[Tensor] = list(program.graph(*fields, *state, constants))
            return results

        return normalize


def _numel(field: NoiseField, count: int) -> int:
    return count * torch.Size(field.shape).numel()


def replay_of(engine: Engine) -> ReplayBuffer | None:
    """Return the replay from which an engine draws whole rows uniformly; None if it does not."""
    sampler = engine.sampler
    source = sampler.source if isinstance(sampler, NormalizedSampler) else sampler
    is_plain = type(source) is ReplayBuffer and source.is_plain
    return source if is_plain and isinstance(source, ReplayBuffer) else None

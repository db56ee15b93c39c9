"""The update engine of a population: the updates of all members as one program."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, fx

from rl_training.algorithms.base import Algorithm, Due
from rl_training.errors import TrainingError
from rl_training.runtime import compilation
from rl_training.runtime.compilation import CompiledStep, NotGraphSafe, UpdateTracer, run_step
from rl_training.runtime.engine import Engine, capture
from rl_training.runtime.engine_choice import EngineMode
from rl_training.runtime.population.programs import NotBatchable, population_program
from rl_training.text import first_line
from rl_training.types import Batch, Metrics, Noise, Sampler


class PopulationEngine(Engine):
    """Runs the updates of all members in lockstep.

    Each member has an `Engine` of its own, with its sampler, generator, metrics and state, which
    this class advances. The members need equal sizes and intervals. In eager mode, the program is
    not compiled.
    """

    def __init__(
        self,
        algorithms: Sequence[Algorithm],
        samplers: Sequence[Sampler],
        state: Sequence[Tensor],
        *,
        seeds: Sequence[int],
        device: torch.device | str = "cpu",
        mode: EngineMode = "eager",
        say: Callable[[str], None] = lambda _: None,
        warn: Callable[[str], None] = warnings.warn,
    ) -> None:
        """Create an engine; ``state`` is the members' state from `stack_state`."""
        first = algorithms[0], samplers[0]
        super().__init__(*first, seed=seeds[0], device=device, mode=mode, say=say, warn=warn)
        self.members = [
            Engine(algorithm, sampler, seed=seed, device=device, mode=mode)
            for algorithm, sampler, seed in zip(algorithms, samplers, seeds, strict=True)
        ]
        self._state = list(state)

    # --- Running ------------------------------------------------------------------------

    def run(self, num_updates: int) -> None:
        """Run ``num_updates`` updates of every member; their metrics stay on the device."""
        super().run(num_updates)
        for member in self.members:
            member.follow(self)

    def start_block(self, updates: int) -> None:
        """Prepare the draw of a block of every member."""
        for member in self.members:
            member.start_block(updates)

    def _run_block(self, drawn: list[tuple[Batch, Noise]], due: tuple[Due, ...]) -> None:
        if not self._steps:
            self._prepare(*drawn[0])
        super()._run_block(drawn, due)

    def feed_back(self, batch: Batch, values: Metrics) -> None:
        """Pass the per-row values of an update to the samplers."""
        for index, member in enumerate(self.members):
            own = {key: value[index] for key, value in values.items()}
            member.feed_back(batch.map(itemgetter(index)), own)

    def count(self, keys: Iterable[str]) -> None:
        """Count an update of every member."""
        for member in self.members:
            member.count(keys)

    def _capture(self, due: tuple[Due, ...]) -> Callable[[], None]:
        return capture(lambda: self._record(due), *(member.generator for member in self.members))

    def _draw(self, count: int) -> list[tuple[Batch, Noise]]:
        """Sample the batches and noise of a block, ``[S, B, ...]`` for each update.

        They are contiguous, since a compiled program accepts only one layout.
        """
        blocks, noises = zip(*(member.draw(count) for member in self.members), strict=True)
        fields = zip(*(block.tensors() for block in blocks), strict=True)
        block = Batch.of(
            (torch.stack([x.unflatten(0, (count, -1)) for x in field], 1) for field in fields),
            blocks[0].extra,
        )
        noise = {key: torch.stack([own[key] for own in noises], 1) for key in noises[0]}
        return [
            (block.map(itemgetter(i)), {key: value[i] for key, value in noise.items()})
            for i in range(count)
        ]

    # --- Preparing ----------------------------------------------------------------------

    def _prepare(self, batch: Batch, noise: Noise) -> None:
        """Trace the updates, and compile them unless the mode is eager."""
        began = time.perf_counter()
        self._say(f"preparing the updates of {len(self.members)} members ...")
        try:
            self._steps, tracer = self._compile(batch, noise)
        except (NotGraphSafe, NotBatchable) as error:
            raise TrainingError(
                f"the members cannot be trained together, because {error}"
            ) from None
        self._metric_keys = tracer.metric_keys
        self._totals = tracer.new_totals(len(self.members))
        for member, totals in zip(self.members, self._totals, strict=True):
            member.sum_into(totals, tracer.keys)
        self.preparation_seconds = time.perf_counter() - began
        self._say(f"{self.mode} engine ready after {self.preparation_seconds:.1f} s")

    def _compile(self, batch: Batch, noise: Noise) -> tuple[dict[Due, CompiledStep], UpdateTracer]:
        example = batch.map(itemgetter(0)), {key: value[0] for key, value in noise.items()}
        settings = [member.algorithm.config.model_dump_json() for member in self.members]
        tracers = {
            key: UpdateTracer(member.algorithm, *example)
            for key, member in dict(zip(settings, self.members, strict=True)).items()
        }
        tracer = tracers[settings[0]]
        inputs = [*tracer.inputs, tracer.totals, *tracer.state()]
        totals = tracer.new_totals(len(settings))
        steps: dict[Due, CompiledStep] = {}
        for due in tracer.metric_keys:
            traces = {key: own.trace(due) for key, own in tracers.items()}
            graph, constants = population_program(
                [traces[key] for key in settings], inputs, tracer.fake
            )
            copies = [*(tensor.clone() for tensor in self._state), constants]
            program = self._compiled(graph, [*batch.tensors(), *noise.values(), totals, *copies])
            step = partial(run_step, program, tracer.sample_keys[due])
            step(copies, batch, noise, totals)
            steps[due] = partial(step, [*self._state, constants])
        return steps, tracer

    def _compiled(self, graph: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        """Compile a program, or return it as it is if the mode is eager or the compiler fails."""
        if self.mode == "eager":
            return graph
        try:
            return compilation.compile_program(graph, inputs)
        except Exception as error:  # compilers fail in many ways, and the program still runs
            self._fall_back(f"because the compiler failed ({first_line(error)})")
            return graph

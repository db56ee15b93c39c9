"""The update engine of a population: the updates of all members as one program."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from typing import Any

import torch
from torch import fx

from rl_training.algorithms.base import Algorithm, Due
from rl_training.errors import TrainingError
from rl_training.runtime import compilation
from rl_training.runtime.compilation import CompiledStep, NotGraphSafe, UpdateTracer, run_step
from rl_training.runtime.engine import Engine, capture
from rl_training.runtime.population.draws import PopulationDraws
from rl_training.runtime.population.programs import (
    NotBatchable,
    population_program,
    stack_state,
)
from rl_training.runtime.population.replays import StackedReplays
from rl_training.text import first_line
from rl_training.types import Batch, Metrics, Noise


@contextmanager
def _report_differences() -> Iterator[None]:
    """Turn the reason why members cannot run as one program into an error."""
    try:
        yield
    except (NotGraphSafe, NotBatchable) as error:
        raise TrainingError(f"the members cannot be trained together, because {error}") from None


class PopulationEngine(Engine):
    """Runs the updates of all members in lockstep.

    Each member has an `Engine` of its own, with its sampler, generator, metrics and state, which
    this class advances. The members need equal sizes and intervals. In eager mode, the program is
    not compiled.

    A program always has the same number of rows, since other sizes may round differently. A
    learner without an engine, such as that of a run which has ended, is a placeholder.
    """

    def __init__(
        self,
        rows: Sequence[Engine | Algorithm],
        *,
        say: Callable[[str], None] = lambda _: None,
        warn: Callable[[str], None] = warnings.warn,
    ) -> None:
        """Create an engine, and move the state of all rows into stacked tensors.

        Raises:
            TrainingError: The members have different networks.
        """
        self._rows = [row if isinstance(row, Engine) else None for row in rows]
        self.members = [row for row in rows if isinstance(row, Engine)]
        first = self.members[0]
        super().__init__(
            first.algorithm,
            first.sampler,
            seed=0,
            device=first.generator.device,
            mode=first.mode,
            say=say,
            warn=warn,
        )
        self.learners = [row.algorithm if isinstance(row, Engine) else row for row in rows]
        with _report_differences():
            self.state = stack_state(self.learners)
        self._active = list(self.members)
        self._draws: PopulationDraws | None = None
        if PopulationDraws.supports(self.members):
            self._draws = PopulationDraws(self._rows, self.state)

    @property
    def replays(self) -> StackedReplays | None:
        """The replays of the members as one, if they are stacked."""
        return None if self._draws is None else self._draws.replays

    @property
    def rows_of_members(self) -> list[int]:
        """The row of each member."""
        return [row for row, member in enumerate(self._rows) if member in self.members]

    # --- Running ------------------------------------------------------------------------

    def run(self, num_updates: int, members: Sequence[Engine] | None = None) -> None:
        """Run updates of ``members``, by default of all; their metrics stay on the device.

        They need to have run equally many updates so far. The other members do not change.
        """
        self._choose(self.members if members is None else members)
        super().run(num_updates)
        for member in self._active:
            member.follow(self)

    def retire(self, member: Engine) -> None:
        """Turn a member into a placeholder; its state may change from now on."""
        self.members.remove(member)

    def _choose(self, members: Sequence[Engine]) -> None:
        """Set which members the next updates advance."""
        self.updates = members[0].updates
        if list(members) == self._active:
            return
        for member in self.members:
            member.rewind()
        self._block = []
        self._active = list(members)

    @property
    def _resting(self) -> list[int]:
        """Rows of the members that the next updates do not advance."""
        resting = [member for member in self.members if member not in self._active]
        return [index for index, row in enumerate(self._rows) if row in resting] if resting else []

    def start_block(self, updates: int) -> None:
        """Prepare the draw of a block of every active member."""
        for member in self._active:
            member.start_block(updates)

    def _run_block(self, drawn: list[tuple[Batch, Noise]], due: tuple[Due, ...]) -> None:
        if not self._steps:
            self._prepare(*drawn[0])
        super()._run_block(drawn, due)

    def _step(self, batch: Batch, noise: Noise, stages: Due) -> None:
        resting = self._resting
        kept = [(x, x[resting].clone()) for x in (*self.state, self._totals)] if resting else []
        super()._step(batch, noise, stages)
        for tensor, rows in kept:
            tensor[resting] = rows

    def feed_back(self, batch: Batch, values: Metrics) -> None:
        """Pass the per-row values of an update to the samplers."""
        for index, member in enumerate(self._rows):
            if member in self._active:
                own = {key: value[index] for key, value in values.items()}
                member.feed_back(batch.map(itemgetter(index)), own)

    def count(self, keys: Iterable[str]) -> None:
        """Count an update of every active member."""
        for member in self._active:
            member.count(keys)

    def _replay(self, due: tuple[Due, ...]) -> None:
        """Run a block as one graph, in which every member draws, or without one if some rest."""
        if not self._resting:
            super()._replay(due)
            return
        self._record(due)
        for stages in due:
            self.count(self._metric_keys[stages])

    def _capture(self, due: tuple[Due, ...]) -> Callable[[], None]:
        if self._draws is None or not self._draws_together(len(due)):
            generators = [member.generator for member in self.members]
            return capture(lambda: self._record(due), *generators)
        drawn, table = self._draws.program(len(due)), self._draws.table

        def record() -> None:
            for (batch, noise), stages in zip(drawn.run(), due, strict=True):
                self._step(batch, noise, stages)

        replay = capture(record, device=self.generator.device)

        def draw_and_replay() -> None:
            table.upload()
            replay()
            table.advance(drawn.draws)

        return draw_and_replay

    def _draws_together(self, count: int) -> bool:
        """Whether one program draws a block, whose normal numbers may round differently."""
        return self._draws is not None and self._draws.fits(count)

    def _draw(self, count: int) -> list[tuple[Batch, Noise]]:
        """Sample the batches and noise of a block, ``[S, B, ...]`` for each update.

        They are contiguous, since a compiled program accepts only one layout. Rows that are not
        active get any numbers.
        """
        if self._draws_together(count):
            assert self._draws is not None
            return self._draws.draw(count, self._resting)
        drawn = {id(member): member.draw(count) for member in self._active}
        any_drawn = next(iter(drawn.values()))
        blocks, noises = zip(*(drawn.get(id(row), any_drawn) for row in self._rows), strict=True)
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
        self._say(f"preparing the updates of {len(self._rows)} members ...")
        with _report_differences():
            self._steps, tracer = self._compile(batch, noise)
        self._metric_keys = tracer.metric_keys
        self._totals = tracer.new_totals(len(self._rows))
        for row, totals in zip(self._rows, self._totals, strict=True):
            if row is not None:
                row.sum_into(totals, tracer.keys)
        self.preparation_seconds = time.perf_counter() - began
        self._say(f"{self.mode} engine ready after {self.preparation_seconds:.1f} s")

    def _compile(self, batch: Batch, noise: Noise) -> tuple[dict[Due, CompiledStep], UpdateTracer]:
        example = batch.map(itemgetter(0)), {key: value[0] for key, value in noise.items()}
        settings = [learner.config.model_dump_json() for learner in self.learners]
        tracers = {
            key: UpdateTracer(learner, *example)
            for key, learner in dict(zip(settings, self.learners, strict=True)).items()
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
            copies = [*(tensor.clone() for tensor in self.state), constants]
            program = self._compiled(graph, [*batch.tensors(), *noise.values(), totals, *copies])
            step = partial(run_step, program, tracer.sample_keys[due])
            step(copies, batch, noise, totals)
            steps[due] = partial(step, [*self.state, constants])
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

"""The update engine: samples batches and noise, runs updates and sums their metrics.

All modes draw the same numbers in the same order, one block of updates at a time, and compute the
same updates: eagerly, compiled, or as CUDA graphs of whole blocks (docs/performance.md).

For a replay, which grows, a block contains the updates of one call. For recorded data, which never
changes, blocks start at multiples of their length. A call that ends inside a block leaves the rest
to the next call, and a checkpoint contains the state at the start of the block. Therefore the
samples depend neither on the intervals of a run nor on where it was stopped.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from rl_training.algorithms.base import Algorithm, Due, draw_noise
from rl_training.boundary.values import StateError, real_number, whole_number
from rl_training.data.generators import generator_state, restore_generator
from rl_training.errors import ConfigError, TrainingError
from rl_training.runtime.compilation import CompiledStep, NotGraphSafe, UpdateTracer, split_metrics
from rl_training.runtime.engine_choice import EngineMode
from rl_training.text import first_line
from rl_training.types import Batch, Metrics, Noise, Sampler

BLOCK = 20
"""Number of updates that are sampled together and, on a GPU, replayed as one graph."""


def capture(
    work: Callable[[], None], *generators: torch.Generator, device: torch.device | None = None
) -> Callable[[], None]:
    """Capture ``work`` as a CUDA graph, without running it; a replay advances ``generators``.

    ``device`` is needed if there are no generators.
    """
    graph = torch.cuda.CUDAGraph()
    for generator in generators:
        graph.register_generator_state(generator)
    torch.cuda.synchronize(device or generators[0].device)
    with torch.cuda.graph(graph):
        work()
    replay: Callable[[], None] = graph.replay
    return replay


class Engine:
    """Runs an algorithm's updates; all random numbers come from one generator, which is saved.

    If the requested ``mode`` cannot be prepared, the engine falls back to eager updates with a
    warning. The mode does not change after the first update, except when GPU memory runs out.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        sampler: Sampler,
        *,
        seed: int,
        device: torch.device | str = "cpu",
        mode: EngineMode = "eager",
        say: Callable[[str], None] = lambda _: None,
        warn: Callable[[str], None] = warnings.warn,
    ) -> None:
        self.algorithm = algorithm
        self.sampler = sampler
        self.generator = torch.Generator(device).manual_seed(seed)
        self.updates = 0
        self.mode: EngineMode = (
            "compiled" if mode == "cuda_graph" and sampler.on_host else mode  # cannot be captured
        )
        self.preparation_seconds = 0.0
        self._say, self._warn = say, warn
        self._batch_size = algorithm.config.batch_size
        self._noise_spec = algorithm.update_noise(self._batch_size)
        self._dtype = algorithm.obs_shift.dtype
        self._sums: dict[str, Tensor | float] = {}
        self._counts: dict[str, int] = {}
        # For compiled modes: one step per set of due stages, and the sums of metrics as a vector.
        self._steps: dict[Due, CompiledStep] = {}
        self._metric_keys: dict[Due, tuple[str, ...]] = {}
        self._keys: tuple[str, ...] = ()
        self._totals = torch.zeros(0, dtype=torch.float64)
        self._graphs: dict[tuple[int, tuple[Due, ...]], Callable[[], None]] = {}
        # For recorded data: the current block, and the state before it was sampled.
        self._block: list[tuple[Batch, Noise]] = []
        self._before_block: dict[str, Any] = {}

    # --- Running ------------------------------------------------------------------

    def run(self, num_updates: int) -> None:
        """Run ``num_updates`` updates; their metrics stay on the device."""
        longest = min(BLOCK, self.sampler.most_updates(self._batch_size))
        while num_updates > 0:
            start = self.updates % longest if self.sampler.is_fixed else 0
            count = min(num_updates, longest - start)
            whole = longest if self.sampler.is_fixed else count
            if not self.sampler.is_fixed:  # the rest of an earlier block is discarded
                self._block = []
            due = tuple(self.algorithm.due(self.updates + i) for i in range(count))
            if not self._block:
                self.start_block(whole)
            if self.mode == "cuda_graph" and self._steps and count == whole:
                self._replay(due)
            else:
                self._block = self._block or self._draw(whole)
                self._run_block(self._block[start : start + count], due)
            if start + count == whole:
                self._block = []
            self.updates += count
            num_updates -= count

    def start_block(self, updates: int) -> None:
        """Prepare the draw of a block, and keep the state before it if the block may be divided."""
        self._before_block = self._sources() if self.sampler.is_fixed else {}
        self.sampler.prepare(self._batch_size, self.generator, updates)

    def _run_block(self, drawn: list[tuple[Batch, Noise]], due: tuple[Due, ...]) -> None:
        if self.mode != "eager" and not self._steps:
            self._prepare(*drawn[0])
        for (batch, noise), stages in zip(drawn, due, strict=True):
            if self._steps:
                self._step(batch, noise, stages)
                self.count(self._metric_keys[stages])
                continue
            metrics, values = split_metrics(self.algorithm.run_update(batch, noise, stages))
            self.feed_back(batch, values)
            for key, value in metrics.items():
                # Reading a value from a CUDA device would wait for the device.
                amount = value.double() if value.is_cuda else value.item()
                self._sums[key] = self._sums.get(key, 0.0) + amount
            self.count(metrics)

    def _step(self, batch: Batch, noise: Noise, stages: Due) -> None:
        """Run a compiled update, and pass its per-row values to the sampler."""
        self.feed_back(batch, self._steps[stages](batch, noise, self._totals))

    def feed_back(self, batch: Batch, values: Metrics) -> None:
        """Pass the per-row values of an update to the sampler."""
        self.sampler.feedback(batch, values)

    def count(self, keys: Iterable[str]) -> None:
        """Count an update that has reported the metrics ``keys``."""
        for key in keys:
            self._counts[key] = self._counts.get(key, 0) + 1

    def _replay(self, due: tuple[Due, ...]) -> None:
        """Run a block as one graph; it is captured the first time its pattern occurs."""
        pattern = (self.sampler.form, due)
        if pattern not in self._graphs:
            try:
                self._graphs[pattern] = self._capture(due)
            except torch.OutOfMemoryError:
                self._fall_back("because there is not enough GPU memory for its graphs", "compiled")
                self._graphs = {pattern: lambda: self._record(due)}
        self._graphs[pattern]()
        for stages in due:
            self.count(self._metric_keys[stages])

    def _capture(self, due: tuple[Due, ...]) -> Callable[[], None]:
        return capture(lambda: self._record(due), self.generator)

    def _record(self, due: tuple[Due, ...]) -> None:
        for (batch, noise), stages in zip(self._draw(len(due)), due, strict=True):
            self._step(batch, noise, stages)

    def _draw(self, count: int) -> list[tuple[Batch, Noise]]:
        """Sample the batches and noise of a block."""
        size = self._batch_size
        block, noise = self.draw(count)
        return [
            (
                block.map(itemgetter(slice(i * size, (i + 1) * size))) if count > 1 else block,
                {key: value[i] for key, value in noise.items()},
            )
            for i in range(count)
        ]

    def draw(self, count: int) -> tuple[Batch, Noise]:
        """Sample the rows of ``count`` batches, in order, and noise with a leading axis."""
        batch = self.sampler.gather(self._batch_size, self.generator, count)
        return batch, draw_noise(self._noise_spec, self.generator, self._dtype, lead=(count,))

    # --- Preparing ----------------------------------------------------------------

    def _prepare(self, batch: Batch, noise: Noise) -> None:
        """Trace and compile the update for each value of `due`, or fall back to eager updates."""
        began = time.perf_counter()
        self._say(f"preparing the {self.mode} engine (about half a minute, less if cached) ...")
        try:
            steps, tracer = self._compile(batch, noise)
        except NotGraphSafe as error:
            self._fall_back(f"because {error}")
        except torch.OutOfMemoryError:
            self._fall_back("because there is not enough GPU memory to prepare it")
        except ConfigError:  # the learner's, which eager updates would raise too
            raise
        except Exception as error:  # compilers fail in many ways, and eager updates still work
            self._fall_back(f"because the compiler failed ({first_line(error)})")
        else:
            self._metric_keys, self._steps = tracer.metric_keys, steps
            self.sum_into(tracer.new_totals(), tracer.keys)
        self.preparation_seconds = time.perf_counter() - began
        if self._steps:
            self._say(f"{self.mode} engine ready after {self.preparation_seconds:.1f} s")

    def _compile(self, batch: Batch, noise: Noise) -> tuple[dict[Due, CompiledStep], UpdateTracer]:
        tracer = UpdateTracer(self.algorithm, batch, noise)
        return {due: tracer.compile(due, batch, noise) for due in tracer.metric_keys}, tracer

    def _fall_back(self, reason: str, mode: EngineMode = "eager") -> None:
        self._warn(f"the {self.mode} engine cannot be used {reason}: this run uses {mode} updates.")
        self.mode = mode

    # --- Metrics and state ----------------------------------------------------------

    def follow(self, other: Engine) -> None:
        """Take over the position of an engine that has run the updates of this one."""
        self.updates, self.mode, self._block = other.updates, other.mode, other._block
        self.preparation_seconds = other.preparation_seconds

    def rewind(self) -> None:
        """Return to the start of an unfinished block of recorded data, to sample it again."""
        if self._block and self.sampler.is_fixed:
            self._restore_sources(self._before_block)
        self._block = []

    def sum_into(self, totals: Tensor, keys: tuple[str, ...]) -> None:
        """Continue the sums of the metrics ``keys`` in the vector ``totals``."""
        kept = [float(self._sums.get(key, 0.0)) for key in keys]
        totals.copy_(torch.tensor(kept, dtype=totals.dtype))
        self._sums, self._totals, self._keys = {}, totals, keys

    def _collected(self) -> dict[str, Tensor | float]:
        """Return the sums of metrics, on the host if they are summed in a vector."""
        if not self._keys:
            return self._sums
        pairs = zip(self._keys, self._totals.tolist(), strict=True)
        return {key: value for key, value in pairs if key in self._counts}

    def check_finite(self) -> None:
        """Wait for the device; raise if a metric since the last `pop_metrics` is not finite."""
        for key, value in self._collected().items():
            if not math.isfinite(value):
                raise TrainingError(f"{key} is {float(value)} after update {self.updates}")

    def metrics(self) -> dict[str, float]:
        """Return means over the updates since the last `pop_metrics`."""
        sums = self._collected()
        return {key: float(value) / self._counts[key] for key, value in sums.items()}

    def pop_metrics(self) -> dict[str, float]:
        """Return means over the updates since the last call."""
        means = self.metrics()
        self._sums, self._counts = {}, {}
        self._totals.zero_()
        return means

    def _sources(self) -> dict[str, Any]:
        """Return what determines the next block: the generator and the sampler's position."""
        sampler = {"sampler": self.sampler.state_dict()} if self.sampler.has_position else {}
        return {"generator": generator_state(self.generator), **sampler}

    def _restore_sources(self, state: dict[str, Any]) -> None:
        restore_generator(self.generator, state["generator"])
        if self.sampler.has_position:
            self.sampler.load_state_dict(state["sampler"])

    def state_dict(self) -> dict[str, Any]:
        """Return counters, the generator, and the sums of the current logging interval.

        Inside a block of recorded data, the generator state is from the start of the block, which
        is sampled again after a resume.
        """
        return {
            "updates": self.updates,
            **(self._before_block if self._block and self.sampler.is_fixed else self._sources()),
            "sums": {key: float(value) for key, value in self._collected().items()},
            "counts": dict(self._counts),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.updates = whole_number(state["updates"], "updates")
        self._sums = {key: real_number(value, key) for key, value in state["sums"].items()}
        self._counts = {
            key: whole_number(count, key, least=1) for key, count in state["counts"].items()
        }
        if set(self._sums) != set(self._counts):
            raise StateError("the sums and the counts of the metrics have different keys")
        self._restore_sources(state)
        self._block = []
        for index, key in enumerate(self._keys):
            self._totals[index] = self._sums.get(key, 0.0)
